"""Four tasks of one model (summaries, answers, translations, sentiment), mixed as for T5, for two CPU cores.

    python run.py --config=configs/mixture.py --config.data.dir=FOLDER
    echo "A dog runs." | python run.py translate --workdir=runs/mixture

FOLDER holds train.tsv, dev.tsv and test.tsv with the columns set, source and target: rows of SciTLDR, of the
subset of SQuAD, of Multi30k and of SST-2. A data set has a share in proportion to the square root of its
examples, of which at most 10,000 count. Not trained here.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'scitldr.py',
        {
            'text_to_text.prefix': 'scitldr=summarise,squad=answer,multi30k=translate English to German,'
            'sst2=sentiment',
            'text_to_text.cap': 10_000,
            'text_to_text.temperature': 2.0,
            'data.train': 'train.tsv',
            'data.dev': 'dev.tsv',
            'data.test': 'test.tsv',
            'train.steps': 4000,
            'train.warmup_steps': 400,
            'train.best_by': 'loss',
            'train.watch_every': 1000,
            'train.eval_every': 500,
            'train.checkpoint_every': 500,
            'train.scored': 'best',
        },
    )
