"""An LSTM language model of words, after Zaremba et al. 2014: Mikolov's Penn Treebank, for two CPU cores.

    python run.py --config=configs/ptb_lstm.py --config.data.dir=FOLDER

FOLDER holds ptb.train.txt and ptb.valid.txt. Their 9,999 words, among them <unk>, and the end of a line are
the pieces, so the perplexity per piece is what papers report per word. The valid set is both dev and test.

As in the paper's medium model: 20 streams of text, gradients that end after 35 words, and dropout between
layers alone. Differences: 256 units instead of 650, embeddings that are tied to the softmax, Adam, and a
moving average of the parameters.

Reached so far: perplexity 182.6 on the valid set after 4,000 of the 10,000 updates (220.4 after 2,000), 9 min
23 s on two CPU cores that other work shared. The authors' code states 115 for its small model, which this
recipe has not reached.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.kind': 'recurrent',
            'model.cell': 'lstm',
            'model.N': 2,
            'model.d_model': 256,
            'model.P_drop': 0.3,
            'train.task': 'language',
            'data.source': 'text',
            'data.name': None,
            'data.train': 'ptb.train.txt',
            'data.dev': 'ptb.valid.txt',
            'data.test': 'ptb.valid.txt',
            'data.tokenizer': 'words',
            'data.pieces': 10_001,
            'data.batching': 'running',
            'data.carry': True,
            'data.row_len': 35,
            'data.batch_tokens': 20 * 35,
            'train.steps': 10_000,
            'train.eps_ls': 0.0,
            'train.peak_lr': 0.003,
            'train.warmup_steps': 1000,
            'train.clip_norm': 1.0,
            'train.ema': 0.999,
            'train.microbatches': 4,
            'train.log_every': 100,
            'train.eval_every': 2000,
            'train.checkpoint_every': 500,
            'decode.method': 'sample',
        }
    )
