"""A small Transformer on the embedded English-German grammar, for two CPU cores.

    make run

Reached: test BLEU 97.1, pronoun accuracy 99.9 %, in 122 s of training on two CPU cores (the whole
command: 2 min 52 s). Without positions (`--config.model.positions=none`) both are far lower; README.md
has the numbers.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 2,
            'model.d_model': 128,
            'model.d_ff': 512,
            'model.h': 4,
            'data.source': 'grammar',
            'data.name': None,
            'data.pieces': 1800,
            'data.batching': 'packed',
            'data.row_len': 32,
            'data.max_len': 32,
            'data.batch_tokens': 1536,
            'train.steps': 1000,
            'train.warmup_steps': 300,
            'train.lr_constant': 0.8,
            'train.log_every': 50,
            'train.eval_every': 250,
            'train.checkpoint_every': 250,
            'decode.max_source_len': 64,
            'decode.extra_len': 30,
        }
    )
