"""GPT-3 (Brown et al. 2020), 174,604,259,328 parameters, from gpt2_small.py. Counted, not trained.

    python run.py --config=configs/gpt3_175b.py --config.data.dir=FOLDER

Sizes and training come from Table 2.1 and appendix B. Here all layers attend to all positions; in GPT-3
every second one has the sparse attention of Child et al. 2019. The batch does not grow during training, the
learning rate falls to 0 instead of a tenth, and dropout is as in gpt2_small.py; the paper names none.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'gpt2_small.py',
        {
            'model.N': 96,
            'model.d_model': 12288,
            'model.d_ff': 4 * 12288,
            'model.h': 96,
            'model.max_len': 2048,
            'data.row_len': 2048,
            'data.batch_tokens': 3_200_000,
            'train.steps': 94_000,
            'train.peak_lr': 0.6e-4,
            'train.warmup_steps': 120,
        },
    )
