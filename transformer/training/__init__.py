"""Training: losses, the optimizer, dropout keys, one update and the loop around it."""
