"""Table 3 at the scale `grammar`: the base that every row of it is a difference from.

    python -m experiments.sweep plan --table=3 --scale=grammar

The model of configs/tiny.py with three layers, since a third and two thirds of base's layers must be whole
numbers, and half of its updates, so that rows have room to differ. The table itself was not run yet.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 3,
            'model.d_model': 128,
            'model.d_ff': 512,
            'model.h': 4,
            'model.vocab_size': 1800,
            'data.source': 'grammar',
            'data.name': None,
            'data.pieces': 1800,
            'data.batching': 'packed',
            'data.row_len': 32,
            'data.max_len': 32,
            'data.batch_tokens': 1536,
            'train.steps': 500,
            'train.warmup_steps': 150,
            'train.lr_constant': 0.8,
            'train.log_every': 50,
            'train.eval_every': 250,
            'train.checkpoint_every': 250,
            'decode.max_source_len': 64,
            'decode.extra_len': 30,
        }
    )
