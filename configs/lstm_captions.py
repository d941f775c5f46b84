"""Captions of generated pictures by recurrent networks, for two CPU cores (Xu et al. 2015)."""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'captions_pictures.py',
        {
            'model.kind': 'recurrent',
            'model.cell': 'lstm',
            'model.N': 1,
            'model.d_model': 128,
            'model.alignment': 'additive',
            'model.bidirectional': True,
            'train.clip_norm': 1.0,
        },
    )
