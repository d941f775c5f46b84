"""Transliteration: names in another script, of which several spellings can be right."""

from transformer.tasks.translation import COMMANDS

__all__ = ['COMMANDS']
