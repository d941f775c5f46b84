"""Declares the commands of run.py that use a task's verbs; imports no jax, so that help is quick."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from transformer.config.flag import Flag


class TaskCommand(NamedTuple):
    """A command that applies a verb of the task to texts or files, and writes its answers.

    The verb is called as `(trained, texts, first=, on_done=, **flags)`: `first` is the number of the first
    text, and `on_done` receives the number of further texts done. The verb returns an answer for each text:
    a list of `contract.Hypothesis`, or a vector.

    Attributes:
      summary: the first sentence of its help.
      verb: the verb's name, if it differs from the command's.
      flags: its flags, by name. Each is passed to the verb as its `argument`, or under its own name.
      options: the config options that it accepts, as in `cli.flags.Command`.
      examples: example calls, with {} for the program.
      text: the flag that gives one text in place of standard input, if any.
      reads: the `lines` of standard input, or the `files` named in the call.
      writes: lists of `hypotheses` (with --scores and --json), or `vectors` as JSON.
      engines: whether another program can search in place of ours (--engine); its verb is `hypotheses`.
      note: the end of its help.
    """

    summary: str
    verb: str = ''
    flags: Mapping[str, Flag] = MappingProxyType({})
    options: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    text: str = ''
    reads: Literal['lines', 'files'] = 'lines'
    writes: Literal['hypotheses', 'vectors'] = 'hypotheses'
    engines: bool = False
    note: str = ''


class Tool(NamedTuple):
    """A command of a task that needs no model.

    Attributes:
      summary: the first sentence of its help.
      run: `module:function`, imported when it runs; called as `(words, **flags)`, returns the exit status.
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
SEARCH = {
    **NBEST,
    'samples': Flag(
        int, 1, 'with --config.decode.method=sample: samples for each line', 'N', least=1, most=10_000
    ),
    'seed': Flag(int, None, 'seed of the sampling (default: train.seed)', 'N', least=0, most=2**31 - 1),
}
# A note for commands that take several checkpoints.
ENSEMBLE = (
    'Several checkpoints, separated by commas, form an ensemble that averages their '
    'probabilities: --checkpoint=750,1000 or --checkpoint=best,FOLDER:best.'
)
