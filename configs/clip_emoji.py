"""Emoji and their names in a vector space, for two CPU cores (CLIP). Trained on Twemoji's pictures.

    python run.py --config=configs/clip_emoji.py --config.data.dir=FOLDER
    python run.py retrieve --workdir=runs/clip_emoji --images=FOLDER/twemoji --nbest=5 < FILE

FOLDER has the tables train.tsv, dev.tsv and noto.tsv, with the columns image (a file's name, from FOLDER) and
text. A concept of train has two rows: its name, and its keywords. The concepts of dev are in no row of train;
noto.tsv has their names beside another designer's pictures, of Noto Emoji.

Reached, R@1 of pictures of a name: 6.4 % of 172 with Twemoji and 4.5 % of 154 with Noto Emoji (chance:
0.6 and 0.6 %), after 424 of the 500 updates, in 220 seconds of one CPU core.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 2,
            'model.d_model': 64,
            'model.d_ff': 128,
            'model.h': 4,
            'model.norm': 'pre',
            'model.positions': 'learned',
            'model.max_len': 40,
            'model.activation': 'quick_gelu',
            'model.P_drop': 0.1,
            'image_model.N': 3,
            'image_model.d_model': 96,
            'image_model.d_ff': 192,
            'image_model.norm_embedding': True,
            'train.task': 'contrastive',
            'images.size': 32,
            'images.patch': 8,
            'images.crop': 3,
            'data.source': 'table',
            'data.name': None,
            'data.train': 'train.tsv',
            'data.dev': 'dev.tsv',
            'data.test': 'noto.tsv',
            'data.pieces': 1000,
            'data.batching': 'padded',
            'data.max_len': 40,
            'data.row_len': 40,
            'data.batch_tokens': 192 * 40,
            'train.microbatches': 1,
            'train.steps': 500,
            'train.schedule': 'cosine',
            'train.peak_lr': 2e-3,
            'train.warmup_steps': 50,
            'train.weight_decay': 0.2,
            'train.log_every': 20,
            'train.eval_every': 100,
            'train.checkpoint_every': 100,
        }
    )
