"""The Transformer of "Attention Is All You Need", to train, ablate and compare with the paper's tables.

README.md in this folder has the order to read the files in, and the contracts between them.

Axis letters, in annotations and einsum:

    B batch           S, T source, target positions      Q, K query, key positions
    H heads           C = d_k, E = d_v                   D = d_model, F = d_ff
    V vocabulary      W hypotheses (beams)               L output length, room of a state
    M microbatches    R rows of all hypotheses, B·W      U width of a recurrent cell, G of its products
    P places of a cache, L·W
"""


def load(workdir, checkpoint: str = 'scored'):
    """The model of a work directory: `transformer.load('runs/tiny').translate(['The dog ...'])`.

    Its methods are what its task can do: `translate`, `generate`, `likelihoods`, `attention`, ...

    Args:
      checkpoint: scored (what the training scored at its end), best, latest, average or a step; several,
        as '100,200' or 'best,FOLDER:best', are an ensemble. Standard error says which one is used.

    Returns:
      A `LoadedModel`.

    Raises:
      ConfigError: it is not a work directory, or has no such checkpoint.
    """
    from transformer.actions.load import load

    return load(workdir, checkpoint)


def train(config, workdir, on_metrics=None, init_from=None) -> dict:
    """Trains, or resumes, and evaluates: `transformer.train('configs/tiny.py', 'runs/tiny')`.

    Ctrl-C and SIGTERM save and stop.

    Args:
      config: the path of a config file, or what its `get_config()` returns.
      on_metrics: is called with a step and its numbers whenever they are written to metrics.jsonl, in the
        process that writes them. It brings them to any other logger.
      init_from: another work directory, or `FOLDER:CHECKPOINT`, whose parameters and tokenizer the
        training starts from.

    Returns:
      The contents of result.json.

    Raises:
      ConfigError: a mistake of the user's; nothing was changed.
      NonFiniteError, Stopped: as `training.loop.train`.
    """
    from transformer.actions.train import train

    return train(config, workdir, on_metrics, init_from)
