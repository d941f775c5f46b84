"""Masked language modelling: predicts hidden pieces of a text from the others (Devlin et al. 2019)."""

from transformer.config.flag import Flag
from transformer.tasks.commands import NBEST, TaskCommand

COMMANDS = {
    'fill': TaskCommand(
        'Write the likeliest word for [MASK] in each line of standard input.',
        flags=NBEST,
        examples=('echo "Ein [MASK] schläft." | {} fill --workdir=FOLDER',),
    ),
    'embed': TaskCommand(
        'Write a vector for each line of standard input, as JSON; with --output=FILE.npy as an array.',
        flags={
            'pool': Flag(
                str,
                None,
                "a text's vector: the mean of all pieces', or the first piece's (default: masked.pool)",
                choices=('mean', 'first'),
            )
        },
        examples=('{} embed --workdir=FOLDER < FILE',),
        writes='vectors',
    ),
}
