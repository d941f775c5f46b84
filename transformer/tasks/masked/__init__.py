"""Masked language modelling: predicts hidden pieces of a text from the others (Devlin et al. 2019)."""

from transformer.tasks.commands import EMBED, NBEST, POOL, TaskCommand

COMMANDS = {
    'fill': TaskCommand(
        'Write the likeliest word for [MASK] in each line of standard input.',
        flags=NBEST,
        examples=('echo "Ein [MASK] schläft." | {} fill --workdir=FOLDER',),
    ),
    'embed': TaskCommand(EMBED, flags=POOL, examples=('{} embed --workdir=FOLDER < FILE',), writes='vectors'),
}
