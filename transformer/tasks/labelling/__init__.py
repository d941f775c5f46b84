"""Sequence labelling: a tag for each word (Tjong Kim Sang and Buchholz 2000)."""
