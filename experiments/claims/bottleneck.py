"""A recurrent decoder without attention has one vector for the whole source: long sentences suffer."""

from collections.abc import Sequence

from experiments.claims.claim import Claim, Found, Verdict, config_of, spread, train
from transformer.runs.restore import Trained
from transformer.tasks.translation import bleu
from transformer.tasks.translation import task as translation
from transformer.tasks.translation.translator import translate

UPDATES, SEEDS = 300, 3
SHORT, LONG = '1-9', '15-19'  # groups of source words
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
# About as many parameters in both.
MODELS = {
    'with attention': {'model.alignment': 'general', 'model.d_model': 96},
    'without attention': {'model.d_model': 104},
}


def measure(seed: int) -> Found:
    """sacreBLEU by the length of the source, of both models."""
    found = {}
    for name, changes in MODELS.items():
        config = config_of(BASE | changes)
        corpus = prepared(config_of(BASE))
        order = translation.batches(config_of(BASE | changes | {'train.seed': seed}), corpus, 'train')
        params = train(config, map(order.batch, range(UPDATES)), seed)
        texts = corpus.texts('test')
        written = translate(Trained(config, params, corpus.codec), texts['source'])
        groups = bleu.by_length(texts['source'], written, texts['target'], config.data.target_language)
        found[name] = {group: scores['score'] for group, scores in groups.items()}
    return found


def judge(found: Sequence[Found]) -> Verdict:
    """By how much each model loses from short to long sources."""
    lost = {name: [one[name][SHORT] - one[name][LONG] for one in found] for name in MODELS}
    more = [b - a for a, b in zip(*lost.values(), strict=True)]
    told = [f'{name} {spread(values, ".1f")}' for name, values in lost.items()]
    return Verdict(min(more) > 0, f'BLEU lost: {"; ".join(told)}')


def draw(axes: Sequence, found: Sequence[Found]) -> None:
    """BLEU by length, each seed a line."""
    for i, name in enumerate(MODELS):
        for one in found:
            label = name if one is found[0] else None
            axes[0].plot(list(one[name]), list(one[name].values()), color=f'C{i}', marker='.', label=label)
    axes[0].set(ylim=(0, 100), xlabel='words of the source', ylabel='sacreBLEU')
    axes[0].legend()


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
    draw=draw,
)
