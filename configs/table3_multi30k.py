"""Table 3 at the scale `multi30k`: the base that every row of it is a difference from.

    python -m experiments.sweep plan --table=3 --scale=multi30k

A model of three layers (a third and two thirds of base's must be whole numbers) with base's dropout, on the
text that configs/multi30k.py describes. The table itself was not run yet.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 3,
            'model.d_model': 128,
            'model.d_ff': 512,
            'model.h': 4,
            'model.vocab_size': 3000,
            'data.source': 'text',
            'data.name': None,
            'data.dev': 'val',
            'data.test': 'test_2016_flickr',
            'data.pieces': 3000,
            'data.batching': 'packed',
            'data.row_len': 48,
            'data.max_len': 48,
            'data.batch_tokens': 2048,
            'train.steps': 1500,
            'train.warmup_steps': 500,
            'train.log_every': 50,
            'train.eval_every': 500,
            'train.checkpoint_every': 500,
            'decode.max_source_len': 128,
        }
    )
