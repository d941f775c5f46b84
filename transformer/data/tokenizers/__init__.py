"""Tokenizers, which turn text into pieces and back."""
