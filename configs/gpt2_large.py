"""GPT-2 large (Radford et al. 2019), 774,030,080 parameters, as gpt2_small.py. Counted, not trained.

python run.py --config=configs/gpt2_large.py --config.data.dir=FOLDER
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'gpt2_small.py',
        {
            'model.N': 36,
            'model.d_model': 1280,
            'model.d_ff': 4 * 1280,
            'model.h': 20,
            'train.peak_lr': 2.5e-4,
        },
    )
