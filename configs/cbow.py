"""Word vectors of English text by CBOW with noise words, for two CPU cores (Mikolov et al. 2013).

    python run.py --config=configs/cbow.py --config.data.dir=FOLDER

FOLDER holds the texts of skipgram.py.

Reached: 0.417 on WordSim-353, 0.167 on SimLex-999, 20.5 % of the analogies, in 98 s on one CPU core; gensim
0.450, 0.178 and 19.1 %, in 30 s.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(__file__, 'skipgram.py', {'words.predict': 'cbow', 'train.peak_lr': 0.05})
