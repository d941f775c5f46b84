"""Table 2, Transformer (base), EN-FR: the base model on WMT 2014, the mean of its last five checkpoints.

    python run.py prepare --config=configs/wmt14_en_fr.py --config.data.dir=FOLDER
    python run.py --config=configs/wmt14_en_fr.py --config.data.dir=FOLDER

`prepare` downloads TFDS's wmt14_translate/fr-en, 36 million pairs, into FOLDER. Expected: newstest2014
BLEU 38.1 by the paper's tokenization (paper: 12 hours on 8 P100). Not trained here.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'data.name': 'wmt14_translate/fr-en',
            'data.target_language': 'fr',
            'data.pieces': 32_000,
            'train.average_last': 5,
            'train.average_every': 1500,
        }
    )
