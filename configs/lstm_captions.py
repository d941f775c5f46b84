"""Captions of generated pictures by LSTMs, the Transformer's rival, for two CPU cores (Xu et al. 2015).

Data, batches, updates and first convolutions are as in captions_pictures.py. LSTMs read the patches
row by row in both directions, and another one writes, which attends to them by additive scores. They have
451,328 parameters, the Transformer 342,816.

    python run.py --config=configs/lstm_captions.py

Reached: 45.1 % [42.9, 47.1] of the 2,000 captions of the test set have only true facts, where the Transformer
has 81.5 %, after 41 min of training on two CPU cores that much other work shared.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'captions_pictures.py',
        {
            'model.kind': 'recurrent',
            'model.N': 1,
            'model.d_model': 128,
            'model.alignment': 'additive',
            'model.bidirectional': True,
            'train.clip_norm': 1.0,
        },
    )
