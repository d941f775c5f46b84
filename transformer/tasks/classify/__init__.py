"""Text classification: the class, or a number, of a text or of several (Kim 2014; Devlin et al. 2019)."""

from transformer.tasks.commands import CLASSIFY, TaskCommand

COMMANDS = {
    'classify': TaskCommand(
        'With a model of texts, write the likeliest class, or the number, of each line of standard input '
        '(texts separated by tabs).',
        flags=CLASSIFY,
        examples=('{} classify --workdir=FOLDER --scores < FILE',),
    )
}
