"""Sentiment of sentences (SST-2: 6,920 of films' reviews, without phrases), from scratch, for two CPU cores.

    python run.py --config=configs/sst2.py --config.data.dir=FOLDER
    echo "a stirring , funny film" | python run.py classify --workdir=runs/sst2 --scores

FOLDER holds train.tsv and dev.tsv: a sentence, a tab, and 1 (positive) or 0 on each line. Dev is the test
here, too.

Reached: 79.3 % of the 872 sentences of dev, the mean of the seeds 1 to 3 (78.8, 79.2, 79.8), in one and a
half minutes each on two CPU cores that other work shared. LSTMs of these sentences have about 80 %,
with phrases and word vectors 85 % (Tai et al. 2015). A Transformer
layer without positions was the best of six models, three seeds each, on a held-out tenth of the training
sentences.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'classify',
            'data.source': 'table',
            'data.name': None,
            'data.columns': 'text=1,label=2',
            'data.train': 'train.tsv',
            'data.dev': 'dev.tsv',
            'data.test': 'dev.tsv',
            'data.pieces': 8000,
            'data.batching': 'packed',
            'data.row_len': 64,
            'data.max_len': 64,
            'data.batch_tokens': 1024,
            'model.N': 1,
            'model.d_model': 128,
            'model.d_ff': 256,
            'model.h': 4,
            'model.positions': 'none',
            'model.P_drop': 0.5,
            'train.steps': 600,
            'train.warmup_steps': 150,
            'train.peak_lr': 0.003,
            'train.schedule': 'linear',
            'train.log_every': 50,
            'train.eval_every': 100,
            'train.checkpoint_every': 100,
        }
    )
