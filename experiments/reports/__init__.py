"""Reports: what the runs reached, their differences, and the columns of a table."""
