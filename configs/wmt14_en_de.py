"""Table 2, Transformer (base), EN-DE: the base model on WMT 2014, the mean of its last five checkpoints.

    python run.py prepare --config=configs/wmt14_en_de.py --config.data.dir=FOLDER
    python run.py --config=configs/wmt14_en_de.py --config.data.dir=FOLDER

`prepare` downloads TFDS's wmt14_translate/de-en into FOLDER. Expected: newstest2014 BLEU 27.3 by the
paper's tokenization, about 1.5 less in sacreBLEU (paper: 12 hours on 8 P100). Not trained here. The big
model of the same row is configs/big.py with average_last=20, average_every=checkpoint_every=600.
"""

from transformer.config import config_dict


def get_config():
    return config_dict({'train.average_last': 5, 'train.average_every': 1500})
