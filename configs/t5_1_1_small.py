"""T5 1.1 small (Raffel et al. 2020), 76,961,152 parameters, as t5_small.py. Counted, not trained.

    python run.py --config=configs/t5_1_1_small.py --config.data.dir=FOLDER

Version 1.1 has gated feed-forward layers (Shazeer 2020), and a softmax with a matrix of its own.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        't5_small.py',
        {
            'model.N': 8,
            'model.d_ff': 1024,
            'model.h': 6,
            'model.d_k': 64,
            'model.d_v': 64,
            'model.activation': 'geglu',
            'model.tie_embeddings': 'inputs',
            'model.scale_logits': False,
        },
    )
