"""T5 1.1 base (Raffel et al. 2020), 247,577,856 parameters, as t5_1_1_small.py. Counted, not trained.

python run.py --config=configs/t5_1_1_base.py --config.data.dir=FOLDER
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__, 't5_1_1_small.py', {'model.N': 12, 'model.d_model': 768, 'model.d_ff': 2048, 'model.h': 12}
    )
