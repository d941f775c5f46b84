"""The Transformer of "Attention Is All You Need", to train, ablate and compare with the paper's tables.

Read in this order: config.py; nn/masks, attention, positions, layers, stacks, models; losses.py,
optim.py, train.py; data/grammar, sources, tfds_source, tokenizer, corpus, build, lock, batches;
decode.py, translate.py, evaluate.py, bleu.py, diagnose.py; checkpoint.py, restore.py, parallel.py,
workdir.py, metrics.py; commands.py.

Axis letters, in annotations and einsum:

    B batch           S, T source, target positions      Q, K query, key positions
    H heads           C = d_k, E = d_v                   D = d_model, F = d_ff
    V vocabulary      W hypotheses (beams)               L output length
    M microbatches    R rows of all hypotheses, B·W
"""


def load(workdir, checkpoint: str = 'best'):
    """The translator of a work directory: `transformer.load('runs/tiny').translate(['The dog ...'])`.

    Args:
      checkpoint: best, latest, average or a step.

    Raises:
      ConfigError: it is no work directory, or holds no such checkpoint.
    """
    from transformer import commands

    return commands.load(workdir, checkpoint)
