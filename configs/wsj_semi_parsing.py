"""The paper's parser (§6.3), trained on the Wall Street Journal and 17 million trees of other parsers.

    python run.py --config=configs/wsj_semi_parsing.py --config.data.dir=FOLDER

FOLDER holds the files of configs/wsj_parsing.py and the two corpora of Vinyals et al. 2015, as bracketed
trees. Expected: F1 92.7 on section 23. Not trained here.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'wsj_parsing.py',
        {
            'data.train': 'wsj-sections-02-21.mrg, high-confidence.mrg, berkeley-parser.mrg',
            'data.pieces': 32_000,
        },
    )
