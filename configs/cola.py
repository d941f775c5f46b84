"""Acceptability of sentences (CoLA, 8,551 sentences), from scratch, for two CPU cores.

    python run.py --config=configs/cola.py --config.data.dir=FOLDER

FOLDER holds in_domain_train.tsv, in_domain_dev.tsv and out_of_domain_dev.tsv, whose second column is 1 or 0
and whose fourth is the sentence. The measure is Matthews correlation.

Reached: 0.08 [-0.01, 0.16] in domain and 0.09 [0.01, 0.18] out of it, hardly above chance, in 14 minutes on
two CPU cores that much other work shared.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'classify',
            'data.source': 'table',
            'data.name': None,
            'data.columns': 'label=2,text=4',
            'data.train': 'in_domain_train.tsv',
            'data.dev': 'in_domain_dev.tsv',
            'data.test': 'out_of_domain_dev.tsv',
            'data.pieces': 4000,
            'data.batching': 'packed',
            'data.row_len': 64,
            'data.max_len': 64,
            'data.batch_tokens': 1024,
            'model.kind': 'recurrent',
            'model.bidirectional': True,
            'model.N': 1,
            'model.d_model': 256,
            'model.P_drop': 0.5,
            'train.steps': 1500,
            'train.eps_ls': 0.1,
            'train.warmup_steps': 150,
            'train.peak_lr': 0.003,
            'train.schedule': 'linear',
            'train.log_every': 50,
            'train.eval_every': 100,
            'train.checkpoint_every': 100,
        }
    )
