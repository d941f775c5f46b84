"""Question answering: the part of a paragraph that answers a question (Rajpurkar et al. 2016)."""

from transformer.tasks.commands import NBEST, TaskCommand

COMMANDS = {
    'answer': TaskCommand(
        'Write the answer to each line of standard input: a question, a tab and a paragraph.',
        flags=NBEST,
        examples=('{} answer --workdir=FOLDER --scores < FILE',),
    )
}
