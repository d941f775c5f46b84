"""vit_cifar10.py with two strided convolutions in place of the linear map of patches (a hybrid ViT).

    python run.py --config=configs/hybrid_cifar10.py --config.data.dir=FOLDER

FOLDER holds train, dev and test, each with a folder of images for each class. Sinusoids of rows and columns
take the place of learned positions, so images of another size need no new positions.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'vit_cifar10.py',
        {'images.stem': 'convolutions', 'images.sinusoids': True, 'model.positions': 'none'},
    )
