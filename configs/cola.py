"""Acceptability of sentences (CoLA, 8,551 sentences), from scratch, for two CPU cores.

    python run.py --config=configs/cola.py --config.data.dir=FOLDER

FOLDER holds in_domain_train.tsv, in_domain_dev.tsv and out_of_domain_dev.tsv, whose second column is 1 or 0
and whose fourth is the sentence. The measure is Matthews correlation.

Reached: 0.08 [-0.01, 0.16] in domain and 0.09 [0.01, 0.18] out of it, hardly above chance, in 14 minutes on
two CPU cores that much other work shared.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'trec.py',
        {
            'data.columns': 'label=2,text=4',
            'data.train': 'in_domain_train.tsv',
            'data.dev': 'in_domain_dev.tsv',
            'data.test': 'out_of_domain_dev.tsv',
        },
    )
