"""A small model on IWSLT 2014 German to English, 160,000 pairs of talks, for one GPU.

    python run.py --config=configs/iwslt14_de_en.py --config.data.dir=FOLDER

FOLDER holds train.de, train.en, valid.de, valid.en, test.de and test.en, raw and cased, one sentence a
line: the de-en archive of https://wit3.fbk.eu/2014-01, its tags removed; prepare-iwslt14.sh of fairseq
shows the usual split, but also tokenizes and lowercases, which a score by sacreBLEU must not. Joey NMT
reports sacreBLEU 33.73 for lowercased text. Not trained here.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.d_ff': 1024,
            'model.h': 4,
            'model.P_drop': 0.3,
            'model.vocab_size': 10_000,
            'data.source': 'text',
            'data.name': None,
            'data.dev': 'valid',
            'data.source_language': 'de',
            'data.target_language': 'en',
            'data.pieces': 10_000,
            'data.batch_tokens': 8192,
            'train.steps': 50_000,
            'train.eval_every': 1000,
            'train.checkpoint_every': 1000,
            'train.average_last': 5,
        }
    )
