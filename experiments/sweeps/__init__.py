"""Sweeps: the runs of a table, their launching and locks, and their costs."""
