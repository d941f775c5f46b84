"""Labelling: a tag for each word, such as its part of speech or the entity that it belongs to."""

from transformer.tasks.commands import TaskCommand

COMMANDS = {
    'label': TaskCommand(
        'Write each word of standard input, a tab and its tag as a line; a blank line ends each sentence.',
        writes='columns',
        examples=('echo "The dog sleeps ." | {} label --workdir=FOLDER',),
    )
}
