"""Sweeps: the runs of a table, how they are launched, and what they cost."""
