"""Names from Arabic to Latin script, character by character (data.dir holds train.ar, train.latin and so on).

    python run.py --config=configs/names.py --config.data.dir=FOLDER

dev.references.tsv, if it is there, has every right spelling of each name.

Reached in 1,600 updates on two idle CPU cores, in 9 minutes (on dev, which is also the test here): 35.2 %
right, one of three right 53.8 %, character error rate 19.5 %
(experiments/results/names).
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'transliteration',
            'data.source': 'text',
            'data.source_language': 'ar',
            'data.target_language': 'latin',
            'data.dev': 'dev',
            'data.test': 'dev',
            'data.tokenizer': 'characters',
            'data.pieces': 344,
            'data.batching': 'packed',
            'data.row_len': 64,
            'data.max_len': 64,
            'data.batch_tokens': 4096,
            'model.N': 3,
            'model.d_model': 128,
            'model.d_ff': 512,
            'model.h': 4,
            'model.P_drop': 0.2,
            'train.steps': 1600,
            'train.warmup_steps': 400,
            'train.lr_constant': 0.6,
            'train.eval_every': 200,
            'train.checkpoint_every': 200,
            'train.average_last': 3,
            'decode.max_source_len': 64,
            'decode.extra_len': 32,
        }
    )
