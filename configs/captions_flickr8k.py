"""Captions of photographs (991 of Flickr8k, each with five), from nothing, for two CPU cores.

    python run.py --config=configs/captions_flickr8k.py --config.data.dir=FOLDER

FOLDER has images.zip and the tables train.tsv, dev.tsv and test.tsv, with the columns image and caption and a
row for each caption (753, 113 and 125 photographs).

Reached, on the 125 of test: CIDEr-D 0.194 [0.141, 0.256], BLEU-4 10.6, with the checkpoint that has the least
loss on dev, after some 16 min of training on two CPU cores that other work shared. It writes 55 different
sentences, most of them of dogs that run and men in shirts: so few photographs teach little more.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'captions_pictures.py',
        {
            'model.d_model': 128,
            'model.d_ff': 256,
            'model.P_drop': 0.2,
            'image_model.N': 2,
            'images.size': 72,
            'images.patch': 9,
            'data.source': 'table',
            'data.columns': 'image=image,text=caption',
            'data.pictures': 'images.zip',
            'data.train': 'train.tsv',
            'data.dev': 'dev.tsv',
            'data.test': 'test.tsv',
            'data.tokenizer': 'bpe',
            'data.pieces': 1500,
            'data.max_len': 40,
            'data.batch_tokens': 64 * 40,
            'train.steps': 1200,
            'train.eps_ls': 0.1,
            'train.peak_lr': 1e-3,
            'train.eval_every': 100,
            'train.checkpoint_every': 100,
            'train.scored': 'best',
            'decode.method': 'beam',
        },
    )
