"""Similarity of two sentences, from 0 to 5 (STS-B, 5,749 pairs), from scratch, for two CPU cores.

    python run.py --config=configs/stsb.py --config.data.dir=FOLDER
    printf 'A plane is taking off.\tA plane lands.\n' | python run.py classify --workdir=runs/stsb

FOLDER holds sts-train.csv and sts-dev.csv, whose fifth column is the number and whose sixth and seventh are
the sentences. Dev is the test here, too.

Reached: Pearson 0.12 [0.07, 0.17] of the 1,500 pairs of dev, little above chance, in 9 minutes on two CPU
cores that much other work shared.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'classify',
            'data.source': 'table',
            'data.name': None,
            'data.columns': 'label=5,text=6+7',
            'data.train': 'sts-train.csv',
            'data.dev': 'sts-dev.csv',
            'data.test': 'sts-dev.csv',
            'data.pieces': 4000,
            'data.batching': 'packed',
            'data.row_len': 128,
            'data.max_len': 128,
            'data.batch_tokens': 1024,
            'model.kind': 'recurrent',
            'model.bidirectional': True,
            'model.N': 1,
            'model.d_model': 256,
            'model.P_drop': 0.5,
            'train.steps': 1500,
            'train.eps_ls': 0.0,
            'train.warmup_steps': 150,
            'train.peak_lr': 0.003,
            'train.schedule': 'linear',
            'train.log_every': 50,
            'train.eval_every': 100,
            'train.checkpoint_every': 100,
            'classify.output': 'number',
        }
    )
