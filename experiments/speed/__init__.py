"""Measures our speed, alone and beside other libraries'."""
