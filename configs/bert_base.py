"""BERT base (Devlin et al. 2019): a masked language model. Counted, not trained.

    python run.py --config=configs/bert_base.py --config.data.dir=FOLDER

FOLDER holds text, a sentence or paragraph on each line: train.en, validation.en and test.en. The paper's 3.3
billion words are of Wikipedia and books, in pieces of WordPiece; here the pieces are BPE's.

Sizes and numerics come from the released code; updates, batches and learning rate from the paper's appendix
A.2, with rows of 128 pieces as in the first 90 % of its updates, of which at most 20 are hidden. The code
also predicts, from a pooled vector, whether the second of two segments follows the first, which here needs
masked.next_sentence=1.0 and data.batching=padded. The paper's 109,482,240 parameters contain this pooler
(768² + 768); here the head for hidden pieces has as many, and 32,058 more.
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
            'model.token_types': 2,
            'model.norm_epsilon': 1e-12,
            'model.norm_embedding': True,
            'model.activation': 'gelu',
            'model.scale_embeddings': False,
            'model.softmax_bias': True,
            'model.init': 'truncated_normal',
            'train.task': 'masked',
            'masked.of': 'all',
            'masked.most': 20,
            'data.source': 'text',
            'data.name': None,
            'data.language': 'en',
            'data.pieces': 30522,
            'data.batching': 'packed',
            'data.row_len': 128,
            'data.max_len': 128,
            'data.batch_tokens': 256 * 128,
            'train.steps': 1_000_000,
            'train.eps_ls': 0.0,
            'train.schedule': 'linear',
            'train.peak_lr': 1e-4,
            'train.warmup_steps': 10_000,
            'train.beta2': 0.999,
            'train.adam_eps': 1e-6,
            'train.bias_correction': False,
            'train.weight_decay': 0.01,
            'train.clip_norm': 1.0,
        }
    )
