"""Texts from texts: summaries, answers, translations and written labels, by prefix (Raffel et al. 2020)."""

from transformer.tasks.commands import ENSEMBLE, NBEST, SCORE_PAIRS, SEARCH, TaskCommand

COMMANDS = {
    'summarise': TaskCommand(
        'Write a summary of each line of standard input.',
        flags=SEARCH,
        options=('decode.',),
        examples=('{} summarise --workdir=FOLDER < FILE',),
        note=ENSEMBLE,
    ),
    'answer': TaskCommand(
        'Write the answer to each line of standard input: a question, a tab and a paragraph.',
        flags=NBEST,
        options=('decode.',),
        examples=('{} answer --workdir=FOLDER --scores < FILE',),
    ),
    'translate': TaskCommand(
        'Translate standard input to standard output, line by line.',
        verb='translations',
        flags=SEARCH,
        options=('decode.',),
        note=ENSEMBLE,
    ),
    'score-pairs': SCORE_PAIRS,
}
