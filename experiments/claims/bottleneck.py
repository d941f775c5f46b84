"""A recurrent decoder without attention has one vector for the whole source: long sentences suffer."""

from collections.abc import Sequence

from experiments.claims.claim import (
    Claim,
    Measurement,
    Verdict,
    by_name,
    config_of,
    prepared,
    spreads,
    train_on,
)
from experiments.claims.panels import curves
from transformer.tasks.translation import bleu
from transformer.tasks.translation.translator import translate

UPDATES, SEEDS = 300, 3
SHORT, _, LONG = GROUPS = ('1-9', '10-14', '15-19')  # words of the source
BASE = {
    'model.kind': 'recurrent',
    'model.cell': 'lstm',
    'model.N': 1,
    'model.reverse_source': True,
    'model.vocab_size': 1800,
    'data.source': 'grammar',
    'data.name': None,
    'data.pieces': 1800,
    'data.batching': 'packed',
    'data.row_len': 32,
    'data.max_len': 32,
    'data.batch_tokens': 1536,
    'train.peak_lr': 0.005,
    'train.clip_norm': 1.0,
    'decode.max_source_len': 64,
    'decode.extra_len': 30,
    'decode.method': 'greedy',
}
# Both have about as many parameters.
MODELS = {
    'with attention': {'model.alignment': 'general', 'model.d_model': 96},
    'without attention': {'model.d_model': 104},
}


def measure(seed: int) -> Measurement:
    """sacreBLEU of both models by the length of the source."""
    corpus, scores = prepared(config_of(BASE)), {}
    texts = corpus.texts('test')
    for name, changes in MODELS.items():
        model = train_on(corpus, config_of(BASE | changes), UPDATES, seed)
        translations = translate(model, texts['source'])
        groups = bleu.by_length(
            texts['source'], translations, texts['target'], model.config.data.target_language
        )
        scores[name] = {group: group_scores['score'] for group, group_scores in groups.items()}
    return scores


def judge(measurements: Sequence[Measurement]) -> Verdict:
    """Compares what each model loses from short to long sources."""
    lost = by_name(measurements, lambda m: {name: m[name][SHORT] - m[name][LONG] for name in MODELS})
    more = [b - a for a, b in zip(*lost.values(), strict=True)]
    return Verdict(min(more) > 0, f'BLEU lost: {spreads(lost, ".1f")}')


CLAIM = Claim(
    statement='A source squeezed into one vector is the bottleneck of long sentences; attention removes it.',
    source='Bahdanau et al. 2015, §1; the paper, §1',
    criterion=(
        f'after {UPDATES} updates on the grammar, an LSTM without attention loses more BLEU from sources of '
        f'{SHORT} words to those of {LONG} than one with attention, with every seed'
    ),
    seeds=SEEDS,
    measure=measure,
    judge=judge,
    panels=(curves(GROUPS, 'words of the source', 'sacreBLEU', legend=True, ylim=(0, 100)),),
)
