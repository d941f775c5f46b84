"""Declares the commands of run.py that use a task's verbs; imports no jax, so that help is quick."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from transformer.config import ConfigError
from transformer.config.flag import Flag


class TaskCommand(NamedTuple):
    """A command that applies a verb of the task, and writes its answers.

    The verb of `hypotheses`, `columns` and `vectors` is called as `(trained, texts, first=, on_done=,
    **flags)`: `first` is the number of the first text, and `on_done` receives the number of further texts
    done. It returns an answer for each text: a list of `contract.Hypothesis`, or a vector. The verb of
    `likelihoods` is called as `(trained, examples, numbers, on_done)` and returns a `contract.Likelihood` for
    each example; the verb of a `figure` is called as `(trained, **flags)` and returns an
    `inference.attention.Attention`.

    Attributes:
      summary: the first sentence of its help.
      verb: the verb's name, if it differs from the command's.
      flags: its flags, by name. Each is passed to the verb as its `argument`, or under its own name.
      options: the config options that it accepts, as in `cli.flags.Command`.
      examples: example calls, with {} for the program.
      text: the flag that gives one text in place of standard input, if any.
      reads: the `lines` of standard input, the `files` named in the call, or `none` of both.
      of_files: the verb for files, if a command that reads lines answers files, too, where a call names some.
      together: the flag that needs the answers to all files at once, if any. Without it, each part of the
        files is answered when it is done.
      writes: lists of `hypotheses` (with --scores and --json); `columns`, a line for each word (with --json);
        `vectors` as JSON; `likelihoods` of given texts; or a `figure`.
      engines: whether another program can search in place of ours (--engine); its verb is `hypotheses`.
      note: the end of its help.
    """

    summary: str
    verb: str = ''
    flags: Mapping[str, Flag] = MappingProxyType({})
    options: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    text: str = ''
    reads: Literal['lines', 'files', 'none'] = 'lines'
    of_files: str = ''
    together: str = ''
    writes: Literal['hypotheses', 'columns', 'vectors', 'likelihoods', 'figure'] = 'hypotheses'
    engines: bool = False
    note: str = ''


class Tool(NamedTuple):
    """A command of a task that needs no model.

    Attributes:
      summary: the first sentence of its help.
      run: `module:function`, imported when it runs; called as `(words, **flags)`, returns the exit
        status or None.
      words: the names of its arguments, as in `cli.flags.Command`.
      flags: its flags, by name.
      examples: example calls, with {} for the program.
    """

    summary: str
    run: str
    words: tuple[str, ...]
    flags: Mapping[str, Flag]
    examples: tuple[str, ...] = ()


# Flags of commands that search.
NBEST = {'nbest': Flag(int, 1, 'number of hypotheses to write for each line', 'N', least=1, argument='best')}
CLASSIFY = {
    'nbest': NBEST['nbest']._replace(meaning='number of classes to write for each text or image'),
    'classes': Flag(
        str,
        None,
        'names of classes, separated by commas, for a model that compares images with texts',
        'NAME,NAME,...',
    ),
}
POOL = {
    'pool': Flag(
        str,
        None,
        "a text's vector: the mean of all pieces', or the first piece's (default: masked.pool)",
        'NAME',
        choices=('mean', 'first'),
    )
}
SEARCH = {
    **NBEST,
    'samples': Flag(
        int, 1, 'with --config.decode.method=sample: samples for each line', 'N', least=1, most=10_000
    ),
    'seed': Flag(int, None, 'seed of the sampling (default: train.seed)', 'N', least=0, most=2**31 - 1),
}
PROMPT = Flag(
    str,
    None,
    'the text to continue (default: each line of standard input); for score-pairs a file, whose text '
    "precedes each line's",
    'TEXT',
)
# The help of `embed`, the same for each task.
EMBED = (
    'Write a vector for each line of standard input (with a model of images and texts, also for each image '
    'file), as JSON; with --output=FILE.npy as an array.'
)
# A note for commands that take several checkpoints.
ENSEMBLE = (
    'Several checkpoints, separated by commas, form an ensemble that averages their '
    'probabilities: --checkpoint=750,1000 or --checkpoint=best,FOLDER:best.'
)
# Commands of several tasks.
SCORE_PAIRS = TaskCommand(
    'Print log p of given texts, one per line: source TAB target; with --contrast source TAB right TAB wrong '
    '(TAB wrong ...).',
    verb='likelihoods',
    flags={
        'pieces': Flag(bool, False, 'append log p of every piece'),
        'contrast': Flag(
            bool,
            False,
            'each line has a right text, then wrong ones; report how often the right one is the likeliest. A '
            'first line may name the columns: source, target (or text), contrast, kind',
        ),
        'prompt': PROMPT,
    },
    options=('decode.max_source_len', 'decode.extra_len'),
    examples=(
        '{} score-pairs --workdir=FOLDER --pieces < FILE',
        '{} score-pairs --workdir=FOLDER --contrast < FILE',
    ),
    writes='likelihoods',
    note=ENSEMBLE,
)
FIGURE = TaskCommand(
    'Draw the attention of a sentence.',
    verb='attention',
    flags={
        'sentence': Flag(
            str,
            None,
            'the sentence (default: "The animal didn\'t cross ..."; for a language model, a sample)',
            'TEXT',
        ),
        'word': Flag(
            str,
            None,
            'the word that attends (default: "it", or all words if the sentence has no "it"; the last word '
            'for a language model)',
            'WORD',
        ),
        'target_word': Flag(
            str, None, 'the word of the translation (default: a pronoun, else the last word)', 'WORD'
        ),
    },
    examples=('{} figure --workdir=FOLDER --sentence="The cat sees it."',),
    reads='none',
    writes='figure',
)


def check_own_classes(classes: object) -> None:
    """Raises ConfigError if a call names classes for a model that has its own."""
    if classes is not None:
        raise ConfigError(f'classes={classes!r}: the model has classes of its own; leave this out')
