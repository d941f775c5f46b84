"""Word vectors of English text by skip-gram with noise words, for two CPU cores (Mikolov et al. 2013).

    python run.py --config=configs/skipgram.py --config.data.dir=FOLDER
    python run.py similarity runs/skipgram wordsim353.tsv --lowercase

FOLDER holds train.en and dev.en: a sentence on each line, in lower case, with blanks between words and no
punctuation. Dev is the test here, too.

Reached, with 4.3 million words of Brown, the Penn Treebank, news, manuals, captions, Tatoeba and
Shakespeare: Spearman 0.431 on 318 of WordSim-353's pairs and 0.241 on 986 of SimLex-999's, 17.8 % of 9,698
analogies, means of three seeds, in 111 s each on one CPU core. gensim's word2vec with the same options on
the same text: 0.447, 0.257 and 17.7 %, in 79 s.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'words',
            'model.kind': 'table',
            'model.d_model': 100,
            'data.source': 'text',
            'data.name': None,
            'data.language': 'en',
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
            'train.eval_every': 1000,
            'train.checkpoint_every': 1000,
        }
    )
