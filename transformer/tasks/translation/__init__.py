"""Translation of sentences from one language into another (§6.1)."""

from transformer.tasks.commands import ENSEMBLE, SEARCH, Command

COMMANDS = {
    'translate': Command(
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
    )
}
