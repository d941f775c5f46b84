"""How a task declares the commands of run.py that use its verbs; knows no jax, so that help is quick."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from transformer.config.flag import Flag


class Command(NamedTuple):
    """A command that answers texts, or files, one by one with a verb of the task.

    The verb is called as `(trained, texts, first=, on_done=, **flags)`; `first` is the number of the first
    text, `on_done` gets how many more are done. It returns an answer for each text: a list of
    `contract.Hypothesis`, or a vector.

    Attributes:
      summary: the first sentence of its help.
      verb: the name of the verb, if it is not the command's.
      flags: its flags, by name. Each is passed on to the verb under `argument`, or its name.
      options: the options of the config that it takes, as for `cli.flags.Command`.
      examples: of calls, with {} for the program.
      text: the flag that gives one text in place of standard input, if there is one.
      reads: the `lines` of standard input, or `files` that the call names.
      writes: lists of `hypotheses`, with --scores and --json, or `vectors`, as JSON.
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
    note: str = ''


# Flags of commands that search.
NBEST = {'nbest': Flag(int, 1, 'how many hypotheses to write for each line', 'N', least=1, argument='best')}
SEARCH = {
    **NBEST,
    'samples': Flag(
        int, 1, 'with --config.decode.method=sample: texts for each line', 'N', least=1, most=10_000
    ),
    'seed': Flag(int, None, 'seed of the sampling (default: train.seed)', 'N', least=0, most=2**31 - 1),
}
# A note for commands that take several checkpoints.
ENSEMBLE = (
    'Several checkpoints, separated by commas, are an ensemble, which uses the mean of their '
    'probabilities: --checkpoint=750,1000 or --checkpoint=best,FOLDER:best.'
)
