"""Measures Table 1 of the paper: the costs and the maximum path length of each layer type."""
