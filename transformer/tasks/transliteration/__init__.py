"""Transliteration: names in another script, of which several spellings can be right."""

from transformer.tasks import translation

COMMANDS = {name: translation.COMMANDS[name] for name in ('translate', 'score-pairs')}
