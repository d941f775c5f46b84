"""Similarity of two sentences, from 0 to 5 (STS-B, 5,749 pairs), from scratch, for two CPU cores.

    python run.py --config=configs/stsb.py --config.data.dir=FOLDER
    printf 'A plane is taking off.\tA plane lands.\n' | python run.py classify --workdir=runs/stsb

FOLDER holds sts-train.csv and sts-dev.csv, whose fifth column is the number and whose sixth and seventh are
the sentences. Dev is the test here, too.

Reached: Pearson 0.12 [0.07, 0.17] of the 1,500 pairs of dev, little above chance, in 9 minutes on two CPU
cores that much other work shared.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'trec.py',
        {
            'classify.output': 'number',
            'data.columns': 'label=5,text=6+7',
            'data.train': 'sts-train.csv',
            'data.dev': 'sts-dev.csv',
            'data.test': 'sts-dev.csv',
            'data.row_len': 128,
            'data.max_len': 128,
            'train.eps_ls': 0.0,
        },
    )
