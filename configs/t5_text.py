"""T5's pre-training on English text of your own, for two CPU cores (Raffel et al. 2020).

    python run.py --config=configs/t5_text.py --config.data.dir=FOLDER

FOLDER holds `train.en`, `dev.en` and `test.en`, a document a line. Any task with the model of this file can
start from it by --init_from=runs/t5_text. Set `model.vocab_size` there to 8,100, since spans have 100 pieces
above the tokenizer's 8,000.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 4,
            'model.d_model': 256,
            'model.d_ff': 1024,
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
            'data.source': 'text',
            'data.name': None,
            'data.language': 'en',
            'data.dev': 'dev',
            'data.pieces': 8000,
            'data.batching': 'running',
            'data.row_len': 128,
            'data.batch_tokens': 4096,
            'train.steps': 4000,
            'train.eps_ls': 0.0,
            'train.optimizer': 'adafactor',
            'train.peak_lr': 0.01,
            'train.warmup_steps': 400,
            'train.eval_every': 1000,
            'train.checkpoint_every': 1000,
            'decode.max_source_len': 128,
            'decode.extra_len': 64,
        }
    )
