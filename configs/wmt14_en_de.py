"""Table 2, Transformer (base), EN-DE: WMT 2014, the mean of the last five checkpoints.

    python -m pip install --constraint constraints.txt --editable '.[prepare]'
    python run.py prepare --config=configs/wmt14_en_de.py --config.data.dir=FOLDER
    python run.py --config=configs/wmt14_en_de.py --config.data.dir=FOLDER

`prepare` downloads 1.7 GB from statmt.org into FOLDER and compares the data with
configs/wmt14_en_de.lock.json. TFDS calls the set wmt14_translate/de-en, but here English is the source.

Expected: newstest2014 BLEU 27.3 by the paper's tokenization (paper: 12 hours on 8 P100). Not run here.
configs/base.py is the same model without averaging, as in Table 3.
"""

from transformer.config import config_dict


def get_config():
    return config_dict({'train.average_last': 5, 'train.average_every': 1500})
