"""Constituency parsing of GENIA's abstracts, for two CPU cores.

    python run.py --config=configs/genia_parsing.py --config.data.dir=FOLDER

FOLDER holds genia.train.clean and genia.dev.clean, one bracketed tree a line. Checkpoints are compared on the
last 5 % of the training trees; GENIA's dev is the test.

Reached in 30,000 updates on two CPU cores, in 161 minutes, partly beside other work: F1 75.74
[74.13, 77.29] of 1,352 trees (experiments/results/table4-genia). An earlier run without
tags in the output (20,000 updates) reached 65.3 and needed repairs in 32 % of the outputs, not 21.5 %.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'parsing',
            'data.source': 'trees',
            'data.train': 'genia.train.clean[:95%]',
            'data.dev': 'genia.train.clean[95%:]',
            'data.test': 'genia.dev.clean',
            'data.tags': True,
            'data.pieces': 4000,
            'data.batching': 'packed',
            'data.row_len': 256,
            'data.batch_tokens': 1024,
            'model.N': 3,
            'model.d_model': 128,
            'model.d_ff': 512,
            'model.h': 4,
            'train.microbatches': 4,
            'train.steps': 30_000,
            'train.warmup_steps': 1000,
            'train.schedule': 'linear',
            'train.peak_lr': 0.0015,
            'train.log_every': 200,
            'train.eval_every': 1000,
            'train.checkpoint_every': 1000,
            'decode.alpha': 0.3,
            'decode.max_source_len': 400,
            'decode.extra_len': 300,
        }
    )
