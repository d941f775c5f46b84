"""Constituency parsing of CRAFT's articles, for two CPU cores.

    python run.py --config=configs/craft_parsing.py --config.data.dir=FOLDER

As configs/genia_parsing.py, with craft.train.clean and craft.dev.clean. Not trained here.
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
