"""ViT-S/16 (Touvron et al. 2021), 22,050,664 parameters, as vit_b16.py. Counted, not trained.

    python run.py --config=configs/vit_s16.py --config.data.dir=FOLDER

Training images are changed by two operations of RandAugment and mixed by mixup (Beyer et al. 2022).
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'vit_b16.py',
        {
            'model.d_model': 384,
            'model.d_ff': 1536,
            'model.h': 6,
            'images.randaugment': 2,
            'images.mixup': 0.2,
        },
    )
