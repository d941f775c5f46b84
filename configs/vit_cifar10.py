"""Ten classes of photographs (5,000 of CIFAR-10's) with a small Vision Transformer, for two CPU cores.

    python run.py --config=configs/vit_cifar10.py --config.data.dir=FOLDER

FOLDER holds train, dev and test, each with a folder of images for each class.

Reached: 55.28, 54.10 and 55.08 % of 5,000 other pictures with train.seed 1, 2 and 3, after about 38 minutes
of processor time each.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'vit_pictures.py',
        {
            'model.N': 6,
            'model.d_model': 96,
            'model.d_ff': 192,
            'images.pool': 'mean',
            'images.begin': 'zeros',
            'images.crop': 4,
            'images.flip': True,
            'images.cutmix': 1.0,
            'data.source': 'folders',
            'data.dev': 'dev',
            'data.batch_tokens': 64 * 64,
            'train.steps': 8000,
            'train.eval_every': 1000,
            'train.checkpoint_every': 1000,
            'train.eps_ls': 0.1,
            'train.weight_decay': 0.1,
        },
    )
