"""T5 base (Raffel et al. 2020), 222,903,552 parameters, as t5_small.py. Counted, not trained.

python run.py --config=configs/t5_base.py --config.data.dir=FOLDER
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__, 't5_small.py', {'model.N': 12, 'model.d_model': 768, 'model.d_ff': 3072, 'model.h': 12}
    )
