"""Answers to questions on a paragraph (a subset of SQuAD 1.1), from scratch, for two CPU cores.

    python run.py --config=configs/squad.py --config.data.dir=FOLDER
    printf 'Who wrote Faust?\tFaust is a play by Goethe.\n' | python run.py answer --workdir=runs/squad

FOLDER holds train.json and dev.json in the format of SQuAD. The last twentieth of train.json is dev, and
dev.json is the test.

Reached, from 3,800 questions, of the 10,570 in SQuAD's dev-v1.1: exact match 2.4 % [2.2, 2.8], F1 9.0 %
[8.6, 9.4]. The loss of dev is lowest at update 400, 5.0, and 8.0 at the end: so few questions do not teach
a model from nothing.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'answers',
            'data.source': 'squad',
            'data.name': None,
            'data.train': 'train.json[:95%]',
            'data.dev': 'train.json[95%:]',
            'data.test': 'dev.json',
            'data.pieces': 8000,
            'data.batching': 'packed',
            'data.row_len': 256,
            'data.batch_tokens': 4096,
            'model.N': 3,
            'model.d_model': 128,
            'model.d_ff': 512,
            'model.h': 4,
            'train.steps': 2400,
            'train.warmup_steps': 300,
            'train.peak_lr': 0.002,
            'train.schedule': 'linear',
            'train.log_every': 50,
            'train.eval_every': 400,
            'train.checkpoint_every': 400,
        }
    )
