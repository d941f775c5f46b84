"""The paper's base model: Table 3 (base), on WMT 2014 English to German.

    python run.py --config=configs/base.py --config.data.dir=FOLDER

FOLDER holds TFDS's prepared `wmt14_translate/de-en`. Expected: newstest2013 perplexity 4.92 and BLEU
25.8 (paper: 12 hours on 8 P100). The newstest2014 BLEU of 27.3 needs averaged checkpoints, as in
configs/wmt14_en_de.py. Not trained here.
"""

from transformer.config import config_dict


def get_config():
    return config_dict()
