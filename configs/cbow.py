"""Word vectors of English text by CBOW with noise words, for two CPU cores (Mikolov et al. 2013).

    python run.py --config=configs/cbow.py --config.data.dir=FOLDER

FOLDER holds the texts of skipgram.py. Not trained yet.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(__file__, 'skipgram.py', {'words.predict': 'cbow', 'train.peak_lr': 0.05})
