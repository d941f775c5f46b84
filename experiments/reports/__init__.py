"""Reports: the results of runs, their differences, and the columns and notes of a table."""
