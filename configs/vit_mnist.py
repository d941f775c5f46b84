"""MNIST's digits with a small Vision Transformer (Dosovitskiy et al. 2021), for two CPU cores.

    python run.py --config=configs/vit_mnist.py --config.data.dir=FOLDER

FOLDER holds MNIST's four files, plain or as .gz: train-images-idx3-ubyte, train-labels-idx1-ubyte,
t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte. The last tenth of the training images is dev.

Reached: 98.40 % of the 10,000 digits of the test set, in 11 min 12 s on two CPU cores that other work shared.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'vit_pictures.py',
        {
            'model.max_len': 50,
            'images.size': 28,
            'images.pixels': 'grey',
            'data.source': 'idx',
            'data.train': 'train[:90%]',
            'data.dev': 'train[90%:]',
            'data.test': 't10k',
            'data.batch_tokens': 64 * 50,
            'train.steps': 9000,
        },
    )
