"""BERT's two objectives on a million words of English, for two CPU cores (Devlin et al. 2019).

    python run.py --config=configs/bert_brown.py --config.data.dir=FOLDER

FOLDER holds the Brown corpus as brown.en: a sentence on each line, a blank line between its 500 documents.

A row is a pair of texts of 128 pieces together. The model predicts 15 % of the pieces, and whether the second
text follows the first, as half of them do, but for texts of one line. The last tenth of the lines, all
fiction, is dev and test.

Reached in 48 minutes on one CPU core: 58.6 % of the pairs of test are right, and the perplexity of hidden
pieces is 514, where their frequencies alone give about 1,000: 3,000 updates are far too few.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 4,
            'model.d_model': 192,
            'model.d_ff': 768,
            'model.h': 4,
            'model.positions': 'learned',
            'model.max_len': 128,
            'model.token_types': 2,
            'model.norm_embedding': True,
            'model.activation': 'gelu',
            'model.scale_embeddings': False,
            'model.softmax_bias': True,
            'model.init': 'truncated_normal',
            'train.task': 'masked',
            'masked.of': 'all',
            'masked.most': 20,
            'masked.next_sentence': 1.0,
            'data.source': 'text',
            'data.name': None,
            'data.language': 'en',
            'data.train': 'brown[:90%]',
            'data.dev': 'brown[90%:95%]',
            'data.test': 'brown[95%:]',
            'data.pieces': 8000,
            'data.batching': 'padded',
            'data.max_len': 128,
            'data.batch_tokens': 32 * 128,
            'train.steps': 3000,
            'train.eps_ls': 0.0,
            'train.schedule': 'linear',
            'train.peak_lr': 0.001,
            'train.warmup_steps': 300,
            'train.beta2': 0.999,
            'train.weight_decay': 0.01,
            'train.clip_norm': 1.0,
            'train.log_every': 50,
            'train.eval_every': 500,
            'train.checkpoint_every': 500,
        }
    )
