"""Attention kernels: how queries, keys and values become outputs, for whole rows and step by step.

A kernel has no parameters. It gets segments and `causal` instead of a mask, so that a kernel that needs
no n x n array can be one too. Queries and keys are already rotated by their positions; what positions
add to the logits comes as `bias`.
"""
