"""English to German image captions (Multi30k, 29,000 pairs), for two CPU cores."""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 4,
            'model.d_model': 128,
            'model.d_ff': 256,
            'model.h': 4,
            'model.P_drop': 0.2,
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
            'train.steps': 4200,
            'train.warmup_steps': 1000,
            'train.log_every': 50,
            'train.eval_every': 300,
            'train.checkpoint_every': 300,
            'decode.max_source_len': 128,
        }
    )
