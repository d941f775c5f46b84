"""English to German image captions (Multi30k, 29,000 pairs), for two CPU cores.

    python run.py --config=configs/multi30k.py --config.data.dir=FOLDER

FOLDER holds the raw text of task 1 of https://github.com/multi30k/dataset, unpacked: train.en, train.de,
val.en, val.de, test_2016_flickr.en and test_2016_flickr.de.

Reached: test_2016_flickr sacreBLEU 36.72 (cased, detokenised, beam 4), perplexity 4.54, in 76 minutes on
two shared CPU cores; the last checkpoint alone 36.94, perplexity 4.63.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 4,
            'model.d_model': 128,
            'model.d_ff': 256,
            'model.h': 4,
            'model.P_drop': 0.3,
            'data.source': 'text',
            'data.name': None,
            'data.dev': 'val',
            'data.test': 'test_2016_flickr',
            'data.pieces': 3000,
            'data.batching': 'packed',
            'data.row_len': 48,
            'data.max_len': 48,
            'data.batch_tokens': 2048,
            'train.steps': 12500,
            'train.warmup_steps': 1000,
            'train.log_every': 50,
            'train.eval_every': 1000,
            'train.checkpoint_every': 500,
            'train.average_last': 5,
            'decode.max_source_len': 128,
        }
    )
