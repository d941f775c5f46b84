"""The paper's big model: Table 3 (big), on WMT 2014 English to German.

    python run.py --config=configs/big.py --config.data.dir=FOLDER

Expected: newstest2013 perplexity 4.33 and BLEU 26.4 (paper: 3.5 days on 8 P100). The newstest2014 BLEU of
28.4 needs averaged checkpoints (`train.average_last=20`, `average_every=600`, `checkpoint_every=600`). Not
trained here. The model has 218.3 million parameters where the paper prints 213.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.d_model': 1024,
            'model.d_ff': 4096,
            'model.h': 16,
            'model.P_drop': 0.3,
            'train.steps': 300_000,
        }
    )
