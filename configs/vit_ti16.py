"""ViT-Ti/16 (Touvron et al. 2021), 5,717,416 parameters, as vit_b16.py. Counted, not trained.

python run.py --config=configs/vit_ti16.py --config.data.dir=FOLDER
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__, 'vit_b16.py', {'model.N': 12, 'model.d_model': 192, 'model.d_ff': 768, 'model.h': 3}
    )
