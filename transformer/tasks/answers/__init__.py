"""Question answering: the part of a paragraph that answers a question (Rajpurkar et al. 2016)."""

from transformer.tasks.commands import NBEST, TaskCommand

COMMANDS = {
    'answer': TaskCommand(
        'Answer questions: each line of standard input is a question, a tab and a paragraph.',
        flags=NBEST,
        examples=('{} answer --workdir=FOLDER --scores < FILE',),
    )
}
