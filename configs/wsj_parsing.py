"""The paper's parser (§6.3), trained on the Wall Street Journal of the Penn Treebank alone.

    cat wsj/0[2-9]/*.mrg wsj/1?/*.mrg wsj/2[01]/*.mrg > FOLDER/wsj-sections-02-21.mrg
    cat wsj/22/*.mrg > FOLDER/wsj-section-22.mrg
    cat wsj/23/*.mrg > FOLDER/wsj-section-23.mrg
    python run.py --config=configs/wsj_parsing.py --config.data.dir=FOLDER

The treebank is LDC99T42. Expected: F1 91.3 on section 23. The paper chose dropout and learning rate on
section 22 and does not give them; here they are the base model's. Not trained here.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'parsing',
            'data.source': 'trees',
            'data.train': 'wsj-sections-02-21.mrg',
            'data.dev': 'wsj-section-22.mrg',
            'data.test': 'wsj-section-23.mrg',
            'data.pieces': 16_000,
            'data.max_len': 512,
            'model.N': 4,
            'model.d_model': 1024,
            'decode.beam': 21,
            'decode.alpha': 0.3,
            'decode.extra_len': 300,
        }
    )
