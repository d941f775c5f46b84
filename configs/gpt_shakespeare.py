"""A language model of Shakespeare, byte by byte, for two CPU cores.

    python run.py --config=configs/gpt_shakespeare.py --config.data.dir=FOLDER

FOLDER holds input.txt, the 1,115,394 characters of data/tinyshakespeare in
https://github.com/karpathy/char-rnn. The last 10 % of the characters are both the development and the test
set, as in nanoGPT.

Reached: 1.454 nats per byte (2.098 bits) on the test set, in windows of 128 bytes with 32 new bytes in each,
after 45 minutes on two CPU cores that other work shared; 1.563 in adjacent windows after 2,000 of the 5,000
updates (21 minutes).
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 4,
            'model.d_model': 192,
            'model.d_ff': 512,
            'model.h': 4,
            'model.positions': 'rotary',
            'model.norm': 'pre',
            'model.activation': 'swiglu',
            'train.task': 'language',
            'data.source': 'text',
            'data.name': None,
            'data.documents': 'files',
            'data.train': 'input.txt[:90%]',
            'data.dev': 'input.txt[90%:]',
            'data.test': 'input.txt[90%:]',
            'data.tokenizer': 'bytes',
            'data.batching': 'running',
            'data.row_len': 128,
            'data.stride': 32,
            'data.batch_tokens': 2048,
            'train.steps': 5000,
            'train.eps_ls': 0.0,
            'train.warmup_steps': 300,
            'train.microbatches': 4,
            'train.lr_constant': 0.8,
            'train.log_every': 50,
            'train.eval_every': 500,
            'train.checkpoint_every': 250,
            'train.average_last': 6,
            'decode.method': 'sample',
            'decode.extra_len': 500,
        }
    )
