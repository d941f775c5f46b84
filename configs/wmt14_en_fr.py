"""Table 2, Transformer (base), EN-FR: WMT 2014, the mean of the last five checkpoints.

    python -m pip install --constraint constraints.txt --editable '.[prepare]'
    python run.py prepare --config=configs/wmt14_en_fr.py --config.data.dir=FOLDER
    python run.py --config=configs/wmt14_en_fr.py --config.data.dir=FOLDER

`prepare` downloads 6.7 GB from statmt.org into FOLDER. TFDS calls the set wmt14_translate/fr-en, but here
English is the source. It has more pairs than the paper's 36 million.

Expected: newstest2014 BLEU 38.1 (paper: 12 hours on 8 P100). Not run here.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'data.name': 'wmt14_translate/fr-en',
            'data.target_language': 'fr',
            'data.pieces': 32000,
            'train.average_last': 5,
            'train.average_every': 1500,
        }
    )
