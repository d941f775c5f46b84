"""English to German news from 228,000 pairs of mixed text: a small stand-in for WMT 2014, for two CPU cores.

    python run.py --config=configs/news_small.py --config.data.dir=FOLDER

FOLDER holds raw, cased text: multi30k/train (https://github.com/multi30k/dataset), tatoeba/en-de/train
(https://tatoeba.org), techdocs_en-de/train (manuals of free software) and, in wmt_news/en-de, the news
test sets of WMT 2008 to 2014 (sacreBLEU downloads them). Development set newstest2013, test set
newstest2014 with all of its 3,003 lines.

Reached: newstest2014 sacreBLEU 4.28, the paper's BLEU 4.57, perplexity 49.4, in 51 minutes on two shared CPU
cores. That is 2.8 passes over the text; the dev loss was still falling. The last checkpoint alone has 4.36,
4.59 and 48.6. On a GPU, the paper's base model fits.
"""

from transformer.config import config_dict

NEWS = ('news-test2008', 'newstest2009', 'newstest2010', 'newstest2011', 'newstest2012')
TRAIN = (
    'multi30k/train',
    'tatoeba/en-de/train',
    'techdocs_en-de/train',
    *(f'wmt_news/en-de/{name}' for name in NEWS),
)


def get_config():
    return config_dict(
        {
            'model.N': 4,
            'model.d_model': 128,
            'model.d_ff': 512,
            'model.h': 4,
            'data.source': 'text',
            'data.name': None,
            'data.train': ','.join(TRAIN),
            'data.dev': 'wmt_news/en-de/newstest2013',
            'data.test': 'wmt_news/en-de/newstest2014',
            'data.pieces': 6000,
            'data.batching': 'packed',
            'data.row_len': 128,
            'data.max_len': 128,
            'data.batch_tokens': 2048,
            'train.steps': 5000,
            'train.warmup_steps': 1000,
            'train.log_every': 50,
            'train.eval_every': 500,
            'train.checkpoint_every': 500,
            'train.average_last': 5,
        }
    )
