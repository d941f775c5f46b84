"""Constituency parsing of CRAFT's articles, for two CPU cores.

    python run.py --config=configs/craft_parsing.py --config.data.dir=FOLDER

As configs/genia_parsing.py, with craft.train.clean and craft.dev.clean.

Reached in 30,000 updates, in 134 minutes, 92 of them on one of two CPU cores: F1 67.81 [66.45, 69.23] of
2,458 trees (experiments/results/craft_parsing). Two idle cores would need about 70 minutes.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'genia_parsing.py',
        {
            'data.train': 'craft.train.clean[:95%]',
            'data.dev': 'craft.train.clean[95%:]',
            'data.test': 'craft.dev.clean',
        },
    )
