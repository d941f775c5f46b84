"""Types of questions (TREC) from few labels: how many labels is a pre-training worth?

    python run.py --config=configs/pretraining_trec.py --config.data.dir=FOLDER --init_from=runs/pretraining

FOLDER holds TREC.train.all, as in trec.py; --config.data.train_examples=200 reads 200 labels. The model
starts from a run of configs/pretraining.py or, with --config.data.tokenizer_model=FILE in place of it,
from nothing, with that run's tokenizer: FILE is its tokenizer.model. After `train.task=language` add
--config.classify.causal=True --config.classify.pool=last: GPT's way.

Reached with 50, 200, 1,000 and all 4,906 labels: 42, 59, 69 and 78 % from nothing; from each of
the three objectives no more than chance above the same model from nothing, read in the same way.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'pretraining.py',
        {
            'train.task': 'classify',
            'data.source': 'table',
            'data.columns': 'label=1,text=2',
            'data.train': 'TREC.train.all[:90%]',
            'data.dev': 'TREC.train.all[90%:]',
            'data.test': 'TREC.train.all[90%:]',
            'data.row_len': 64,
            'data.max_len': 64,
            'data.batch_tokens': 8 * 64,
            'train.steps': 400,
            'train.eps_ls': 0.1,
            'train.peak_lr': 0.0005,
            'train.warmup_steps': 40,
            'train.eval_every': 400,
            'train.checkpoint_every': 400,
        },
    )
