"""GPT-2 XL (Radford et al. 2019), 1,557,611,200 parameters, as gpt2_small.py. Counted, not trained.

    python run.py --config=configs/gpt2_xl.py --config.data.dir=FOLDER

GPT-3's model of this size has batches of twice as many pieces.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'gpt2_small.py',
        {'model.N': 48, 'model.d_model': 1600, 'model.d_ff': 4 * 1600, 'model.h': 25, 'train.peak_lr': 2e-4},
    )
