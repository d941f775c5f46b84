"""Translation: the task of the paper."""
