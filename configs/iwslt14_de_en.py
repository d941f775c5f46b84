"""IWSLT 2014 German to English (talks, about 160,000 pairs); no row of the paper's tables.

    python run.py --config=configs/iwslt14_de_en.py --config.data.dir=FOLDER

FOLDER holds raw, cased text without markup: train.de, train.en, valid.de, valid.en, test.de and test.en. The
talks are at https://wit3.fbk.eu/2014-01. prepare-iwslt14.sh of https://github.com/facebookresearch/fairseq
makes the usual splits, but also tokenizes and lower-cases: omit these two steps.

Expected: others report BLEU 34 to 35 for this model on tokenized, lower-cased text, and no score on raw
text. One GPU is enough. Not run here.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.d_ff': 1024,
            'model.h': 4,
            'model.P_drop': 0.3,
            'data.source': 'text',
            'data.name': None,
            'data.dev': 'valid',
            'data.source_language': 'de',
            'data.target_language': 'en',
            'data.pieces': 10000,
            'data.batch_tokens': 4096,
            'train.steps': 50_000,
            'train.eval_every': 1000,
            'train.checkpoint_every': 1000,
            'train.average_last': 5,
        }
    )
