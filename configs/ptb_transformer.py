"""A Transformer language model of words beside the LSTM of ptb_lstm.py, with its parameters and time.

    python run.py --config=configs/ptb_transformer.py --config.data.dir=FOLDER

FOLDER, pieces and optimiser are as in ptb_lstm.py, and nearly the number of parameters (3.7 million; there
3.6). A line is scored with its own words as context alone, 12.7 on average, where the LSTM has read all
earlier lines.

Reached: perplexity 109.6 on the valid set, in 48 minutes on one CPU core that other work shared. The updates
are as many as the LSTM's 12,000 take on an idle core (29 minutes). Of the learning rates 0.001 and 0.003 the
second was better after 3,000 updates (142.1 and 125.9); nothing else was tried.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'ptb_lstm.py',
        {
            'model.kind': 'transformer',
            'model.d_ff': 384,
            'model.h': 4,
            'model.positions': 'rotary',
            'model.norm': 'pre',
            'model.activation': 'swiglu',
            'data.carry': False,
            'data.row_len': 128,
            'data.stride': 32,
            'data.batch_tokens': 6 * 128,
            'train.steps': 10_000,
            'train.warmup_steps': 830,
            'train.microbatches': 2,
        },
    )
