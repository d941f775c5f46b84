"""A small Transformer on the embedded English-German grammar, for two CPU cores."""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 2,
            'model.d_model': 128,
            'model.d_ff': 512,
            'model.h': 4,
            'model.vocab_size': 1000,
            'model.max_len': 128,
            'data.source': 'grammar',
            'data.pieces': 1000,
            'data.batching': 'packed',
            'data.row_len': 64,
            'data.max_len': 64,
            'data.batch_tokens': 4096,
            'train.steps': 800,
            'train.warmup_steps': 300,
            'train.log_every': 50,
            'train.eval_every': 200,
            'train.checkpoint_every': 200,
            'decode.max_source_len': 64,
            'decode.extra_len': 30,
        }
    )
