"""ViT-L/16 (Dosovitskiy et al. 2021), 304,326,632 parameters, as vit_b16.py. Counted, not trained.

python run.py --config=configs/vit_l16.py --config.data.dir=FOLDER
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__, 'vit_b16.py', {'model.N': 24, 'model.d_model': 1024, 'model.d_ff': 4096, 'model.h': 16}
    )
