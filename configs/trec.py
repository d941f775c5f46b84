"""Types of questions (TREC, 5,452 questions of six types), from scratch, for two CPU cores.

    python run.py --config=configs/trec.py --config.data.dir=FOLDER
    echo "Who wrote Faust ?" | python run.py classify --workdir=runs/trec --scores

FOLDER holds TREC.train.all in UTF-8 (iconv -f latin1 -t utf-8): a number for the type, a blank and a question
on each line. Its last tenth is dev, which is the test here, too.

Reached: 86.1 % [83.2, 89.0] of the 546 questions of dev, in 8 minutes on two CPU cores that other work
shared.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'classify',
            'data.source': 'table',
            'data.name': None,
            'data.columns': 'label=1,text=2',
            'data.train': 'TREC.train.all[:90%]',
            'data.dev': 'TREC.train.all[90%:]',
            'data.test': 'TREC.train.all[90%:]',
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
            'train.warmup_steps': 150,
            'train.peak_lr': 0.003,
            'train.schedule': 'linear',
            'train.log_every': 50,
            'train.eval_every': 100,
            'train.checkpoint_every': 100,
        }
    )
