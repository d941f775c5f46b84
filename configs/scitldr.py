"""Summaries of papers in one sentence (SciTLDR: abstracts, 1,992 of train), for two CPU cores.

    python run.py --config=configs/scitldr.py --config.data.dir=FOLDER
    python run.py --config=configs/scitldr.py --config.data.dir=FOLDER --init_from=PRETRAINED
    python run.py summarise --workdir=runs/scitldr < FILE

FOLDER holds train.jsonl and dev.jsonl as they are published. The last tenth of train.jsonl decides which
checkpoint is scored, and dev.jsonl, with one to four references, is the test. With --init_from the encoder
and decoder start from another training of the same sizes, with its tokenizer, such as one of t5_text.py.

Reached: ROUGE-1 21.1 [20.3, 21.9] in 34 minutes on one CPU core; after 1,200 updates of t5_text.py 19.6
[18.8, 20.4]. The first sentence of the abstract has 30.1.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'text_to_text',
            'text_to_text.prefix': 'summarise',
            'data.source': 'table',
            'data.name': None,
            'data.train': 'train.jsonl[:90%]',
            'data.dev': 'train.jsonl[90%:]',
            'data.test': 'dev.jsonl',
            'data.pieces': 8000,
            'data.max_len': 512,
            'data.batch_tokens': 4096,
            'model.vocab_size': 8100,
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
            'train.steps': 600,
            'train.warmup_steps': 100,
            'train.optimizer': 'adafactor',
            'train.peak_lr': 0.005,
            'train.eval_every': 100,
            'train.watch_every': 100,
            'train.checkpoint_every': 100,
            'train.best_by': 'rougeL',
            'train.log_every': 20,
            'decode.max_source_len': 512,
            'decode.extra_len': 0,
        }
    )
