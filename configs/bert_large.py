"""BERT large (Devlin et al. 2019), as bert_base.py. Counted, not trained.

    python run.py --config=configs/bert_large.py --config.data.dir=FOLDER

The paper's 335,141,888 parameters contain a pooler, as in BERT base. Whole words are hidden, as in a later
release of the authors.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'bert_base.py',
        {'model.N': 24, 'model.d_model': 1024, 'model.d_ff': 4096, 'model.h': 16, 'masked.words': True},
    )
