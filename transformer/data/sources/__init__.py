"""Readers of texts and images: files, TFDS, and generators."""
