"""WMT 2014 English to German, the paper's base model: Table 2 EN-DE, Table 3 (base).

    python -m pip install '.[prepare]'
    python run.py prepare --config=configs/wmt14_en_de.py --config.data.dir=FOLDER
    python run.py --config=configs/wmt14_en_de.py --config.data.dir=FOLDER

`prepare` downloads 1.7 GB from statmt.org into FOLDER and compares what it makes with
configs/wmt14_en_de.lock.json. TFDS names the set wmt14_translate/de-en; English is the source here.

Expected: newstest2013 perplexity 4.92 and BLEU 25.8, newstest2014 BLEU 27.3 (paper: 12 hours on 8 P100).
Not run here.
"""

from transformer.config import config_dict


def get_config():
    return config_dict()
