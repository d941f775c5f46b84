"""Hidden spans of the embedded grammar's German, for two CPU cores (T5, Raffel et al. 2020).

    python run.py --config=configs/t5_grammar.py
    echo "[MASK] Hund sieht [MASK] Katze." | python run.py fill --workdir=runs/t5_grammar

Reached: 38.4 % of the pieces of the test set's targets, 37.5 % of the articles in 1,000 gaps, in 12 minutes
on two CPU cores that much other work shared. That is too short: the loss was still falling, and the articles
follow little but their frequencies (bert_grammar.py: 95.4 %).
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 2,
            'model.d_model': 128,
            'model.d_ff': 512,
            'model.h': 4,
            'model.positions': 'buckets',
            'model.norm': 'pre',
            'model.norm_type': 'rmsnorm',
            'model.attention_scale': 'none',
            'model.scale_embeddings': False,
            'model.scale_logits': True,
            'model.start': 'learned',
            'model.biases': 'none',
            'model.init': 't5',
            'train.task': 'denoise',
            'data.source': 'grammar',
            'data.name': None,
            'data.language': 'de',
            'data.pieces': 1000,
            'data.batching': 'running',
            'data.row_len': 64,
            'data.batch_tokens': 2048,
            'denoise.sentinels': 20,
            'train.steps': 2400,
            'train.eps_ls': 0.0,
            'train.optimizer': 'adafactor',
            'train.peak_lr': 0.01,
            'train.warmup_steps': 300,
            'train.log_every': 50,
            'train.eval_every': 600,
            'train.checkpoint_every': 600,
            'decode.max_source_len': 40,
            'decode.extra_len': 20,
        }
    )
