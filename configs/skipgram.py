"""Word vectors of English text by skip-gram with noise words, for two CPU cores (Mikolov et al. 2013)."""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'words',
            'model.kind': 'table',
            'model.d_model': 100,
            'words.predict': 'skipgram',
            'data.source': 'text',
            'data.name': None,
            'data.language': 'en',
            'data.train': 'train',
            'data.dev': 'dev',
            'data.test': 'dev',
            'data.tokenizer': 'words',
            'data.pieces': 20000,
            'data.batching': 'packed',
            'data.row_len': 128,
            'data.max_len': 128,
            'data.batch_tokens': 8192,
            'train.epochs': 5.0,
            'train.optimizer': 'sgd',
            'train.warmup_steps': 1,
            'train.peak_lr': 0.025,
            'train.schedule': 'linear',
            'train.least_lr': 1e-4,
            'train.eps_ls': 0.0,
            'train.log_every': 100,
            'train.eval_every': 1000,
            'train.checkpoint_every': 1000,
        }
    )
