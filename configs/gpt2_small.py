"""GPT-2 small (Radford et al. 2019): a language model of 124,439,808 parameters. Counted, not trained.

    python run.py --config=configs/gpt2_small.py --config.data.dir=FOLDER

FOLDER holds running text: train.txt, dev.txt and test.txt. The paper's text, 40 GB of web pages, was never
released. The pieces are byte-level BPE, as GPT-2's are, learned from train.txt. Padding and an unknown piece,
which GPT-2 does not have, are two of the 50,257.

The model follows the released code. The code has no training, and the paper gives no learning rate: the peaks
are of GPT-3's models of about the same size (Brown et al. 2020, Table 2.1), but the rate falls to 0, not to a
tenth.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 12,
            'model.d_model': 768,
            'model.d_ff': 3072,
            'model.h': 12,
            'model.P_drop_attention': 0.1,
            'model.positions': 'learned',
            'model.max_len': 1024,
            'model.norm': 'pre',
            'model.norm_epsilon': 1e-5,
            'model.activation': 'gelu_tanh',
            'model.scale_embeddings': False,
            'model.init': 'normal',
            'model.init_std_positions': 0.01,
            'train.task': 'language',
            'data.source': 'text',
            'data.name': None,
            'data.documents': 'files',
            'data.train': 'train.txt',
            'data.dev': 'dev.txt',
            'data.test': 'test.txt',
            'data.tokenizer': 'byte_bpe',
            'data.pieces': 50257,
            'data.batching': 'running',
            'data.row_len': 1024,
            'data.batch_tokens': 512 * 1024,
            'train.steps': 570_000,
            'train.eps_ls': 0.0,
            'train.schedule': 'cosine',
            'train.peak_lr': 6e-4,
            'train.warmup_steps': 700,
            'train.beta2': 0.95,
            'train.adam_eps': 1e-8,
            'train.weight_decay': 0.1,
            'train.clip_norm': 1.0,
            'decode.method': 'sample',
            'decode.top_k': 40,
        }
    )
