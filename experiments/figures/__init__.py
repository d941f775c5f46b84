"""Draws attention, positional encodings, learning rates and learning curves."""
