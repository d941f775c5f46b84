"""Attention kernels: turn queries, keys and values into outputs, for whole rows and step by step.

A kernel has no parameters. It gets segments and `causal` instead of a mask, so that it need not hold an n x n
array. Queries and keys are already rotated by their positions. `bias` is the term that positions add to QK^T.
"""
