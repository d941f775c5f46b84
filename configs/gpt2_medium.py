"""GPT-2 medium (Radford et al. 2019), 354,823,168 parameters, as gpt2_small.py. Counted, not trained.

python run.py --config=configs/gpt2_medium.py --config.data.dir=FOLDER
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'gpt2_small.py',
        {'model.N': 24, 'model.d_model': 1024, 'model.d_ff': 4 * 1024, 'model.h': 16, 'train.peak_lr': 3e-4},
    )
