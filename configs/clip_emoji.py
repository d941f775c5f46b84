"""Emoji and their names in a vector space, for two CPU cores (CLIP). Trained on Twemoji's pictures.

    python run.py --config=configs/clip_emoji.py --config.data.dir=FOLDER
    python run.py retrieve --workdir=runs/clip_emoji --images=FOLDER/twemoji --nbest=5 < FILE

FOLDER has the tables train.tsv, dev.tsv and noto.tsv, with the columns image (a file's name, from FOLDER) and
text. A concept of train has two rows: its name, and its keywords. The concepts of dev are in no row of train;
noto.tsv has their names beside another designer's pictures, of Noto Emoji.

Reached, R@1 of pictures of a name: 6.4 % of 172 with Twemoji and 4.5 % of 154 with Noto Emoji (chance:
0.6 and 0.6 %), after 424 of the 500 updates, in 220 seconds of one CPU core.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'clip_pictures.py',
        {
            'model.P_drop': 0.1,
            'images.crop': 3,
            'data.source': 'table',
            'data.language': None,
            'data.train': 'train.tsv',
            'data.dev': 'dev.tsv',
            'data.test': 'noto.tsv',
            'data.tokenizer': 'bpe',
            'data.pieces': 1000,
            'data.batch_tokens': 192 * 40,
            'train.steps': 500,
            'train.warmup_steps': 50,
            'train.weight_decay': 0.2,
            'train.eval_every': 100,
            'train.checkpoint_every': 100,
        },
    )
