"""Readers of text: files, TFDS, and the embedded grammar."""
