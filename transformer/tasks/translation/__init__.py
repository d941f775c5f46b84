"""Translation of sentences from one language into another (§6.1)."""

from transformer.config.flag import Flag
from transformer.tasks.commands import ENSEMBLE, FIGURE, SCORE_PAIRS, SEARCH, TaskCommand, Tool

COMMANDS = {
    'translate': TaskCommand(
        'Translate standard input to standard output, line by line.',
        verb='hypotheses',
        flags=SEARCH,
        options=('decode.',),
        examples=(
            'echo "A dog runs." | {} translate --workdir=FOLDER',
            '{} translate --workdir=FOLDER --nbest=3 --scores < FILE',
            '{} translate --workdir=FOLDER --engine=ctranslate2 < FILE',
        ),
        engines=True,
        note=ENSEMBLE,
    ),
    'score-pairs': SCORE_PAIRS,
    'figure': FIGURE,
}
TOOLS = {
    'score': Tool(
        'Score a file of translations against a file of references.',
        'transformer.tasks.translation.score_command:main',
        (),
        {
            'hypotheses': Flag(str, None, 'translations, one per line', 'FILE'),
            'references': Flag(str, None, 'references, one per line', 'FILE'),
            'languages': Flag(str, 'en-de', 'source and target language', 'A-B'),
            'tokenized': Flag(bool, False, 'both files are already tokenized'),
            'lowercase': Flag(bool, False, 'ignore the case of letters'),
            'ter': Flag(bool, False, 'add the translation edit rate (less is better)'),
            'verbose': Flag(bool, False, "add each score's signature, which says how it was computed"),
            'json': Flag(bool, False, 'print JSON'),
        },
        ('{} score --hypotheses=FILE --references=FILE --languages=en-de',),
    )
}
