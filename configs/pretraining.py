"""A small Transformer that learns from English text by one of three objectives, for a CPU core.

    python run.py --config=configs/pretraining.py --config.data.dir=FOLDER
    python run.py --config=configs/pretraining.py --config.data.dir=FOLDER --config.train.task=language
    python run.py --config=configs/pretraining.py --config.data.dir=FOLDER --config.train.task=denoise

FOLDER holds `train.en`, `dev.en` and `test.en`, a document a line. The objectives are BERT's hidden pieces,
GPT's next piece and T5's hidden spans; layers, text, batches and updates are equal (hidden spans add a
decoder). configs/pretraining_trec.py starts from each of them.

Reached after 2,000 updates on 3.1 million words, in 8 to 13 minutes: perplexity 465 of hidden pieces, 166 of
the next piece, 128 of hidden spans.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.vocab_size': 8100,
            'model.N': 3,
            'model.d_model': 128,
            'model.d_ff': 512,
            'model.h': 4,
            'model.norm': 'pre',
            'train.task': 'masked',
            'data.source': 'text',
            'data.name': None,
            'data.language': 'en',
            'data.dev': 'dev',
            'data.pieces': 8000,
            'data.batching': 'packed',
            'data.row_len': 128,
            'data.max_len': 128,
            'data.batch_tokens': 16 * 128,
            'train.steps': 2000,
            'train.eps_ls': 0.0,
            'train.schedule': 'linear',
            'train.peak_lr': 0.001,
            'train.warmup_steps': 200,
            'train.clip_norm': 1.0,
            'train.log_every': 50,
            'train.eval_every': 500,
            'train.checkpoint_every': 500,
        }
    )
