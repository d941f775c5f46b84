"""The Transformer of "Attention Is All You Need", to train, ablate and compare with the paper's tables.

README.md in this folder gives the reading order of the files and the contracts between them.

Axis letters, in annotations and einsum:

    B batch           S, T source, target positions      Q, K query, key positions
    H heads           C = d_k, E = d_v                   D = d_model, F = d_ff
    V vocabulary      W hypotheses (beams)               L output length, also of a state
    M microbatches    R rows of B·W hypotheses           U, G width of a recurrent cell, of its products
    P places in a cache, L·W
"""

import importlib
import os

__all__ = ['config', 'load', 'train']


def __getattr__(name: str):
    """Imports `transformer.config` when it is first used, so that importing the package takes no time."""
    if name == 'config':
        return importlib.import_module('transformer.config')
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def load(workdir, checkpoint: str | int = 'scored'):
    """Loads the model of a work directory: `transformer.load('runs/tiny').translate(['The dog ...'])`.

    The model's methods are the verbs of its task: `translate`, `generate`, `likelihoods`, `attention`, ...

    Args:
      checkpoint: scored (the one that the training scored at its end), best, latest, average or a step.
        Several, such as '100,200' or 'best,FOLDER:best', make an ensemble. It is named on standard error.

    Returns:
      A `LoadedModel`.

    Raises:
      ConfigError: `workdir` is not a work directory, or has no such checkpoint.
    """
    from transformer.actions.load import load

    return load(workdir, checkpoint)


def train(config, workdir, on_metrics=None, init_from=None, evaluate=True) -> dict:
    """Trains or resumes a model, and evaluates it: `transformer.train('configs/tiny.py', 'runs/tiny')`.

    Ctrl-C, SIGTERM and SIGHUP save and stop.

    Args:
      config: the path of a config file, or the result of its `get_config()`.
      on_metrics: called with each step and its numbers when they are written to metrics.jsonl, in the
        process that writes them, for example to feed another logger.
      init_from: another work directory, or `FOLDER:CHECKPOINT`, whose parameters and tokenizer the
        training starts from, or a list of several. `image=FOLDER` takes them for the model's part `image`.
      evaluate: whether to score every split but train at the end.

    Returns:
      The contents of result.json.

    Raises:
      ConfigError: the user made a mistake. No file was changed, unless it shows later, as damage can.
      NonFiniteError, Stopped: as for `training.loop.train`.
    """
    from transformer.actions.train import train

    several = [init_from] if isinstance(init_from, (str, os.PathLike)) else init_from or ()
    return train(config, workdir, on_metrics, [*map(os.fspath, several)], evaluate)
