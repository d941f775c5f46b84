"""BLOOM 560M (Le Scao et al. 2022), 559,214,592 parameters, with ALiBi. Counted, not trained.

    python run.py --config=configs/bloom_560m.py --config.data.dir=FOLDER

FOLDER holds running text: train.txt, dev.txt and test.txt. The paper's text, in 59 languages, has 341 billion
pieces of a byte-level BPE; here they are learned from train.txt. Sizes and training come from the
paper's Table 3, but the learning rate falls towards 0, not 1e-5; the last update has 2.1e-5.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'gpt2_small.py',
        {
            'model.N': 24,
            'model.d_model': 1024,
            'model.d_ff': 4 * 1024,
            'model.h': 16,
            'model.P_drop': 0.0,
            'model.P_drop_attention': 0.0,
            'model.positions': 'alibi',
            'model.norm_embedding': True,
            'model.init_std_positions': None,
            'model.vocab_size': 250_880,
            'data.pieces': 250_680,
            'data.row_len': 2048,
            'data.batch_tokens': 256 * 2048,
            'train.steps': 650_000,
            'train.decay_steps': 782_000,
            'train.peak_lr': 3e-4,
            'train.warmup_steps': 715,
        },
    )
