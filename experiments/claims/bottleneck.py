"""A source squeezed into one vector is the bottleneck of long sentences; attention removes it."""

from experiments.claims import claim
from experiments.claims.claim import GRAMMAR, Measurements, Verdict, by_name, config_of, spreads
from experiments.claims.panels import curves
from transformer.tasks.translation import bleu
from transformer.tasks.translation.translator import translate

UPDATES, SEEDS = 300, 3
SHORT, _, LONG = GROUPS = ('1-9', '10-14', '15-19')  # words of the source
LSTM = {'model.kind': 'recurrent', 'model.cell': 'lstm', 'model.N': 1, 'model.reverse_source': True}
SIZES = {'data.pieces': 1800, 'data.batch_tokens': 1536}
SEARCH = {'decode.method': 'greedy', 'decode.max_source_len': 64, 'decode.extra_len': 30}
BASE = GRAMMAR | LSTM | SIZES | SEARCH | {'train.peak_lr': 0.005, 'train.clip_norm': 1.0}
# Both have about the same number of parameters.
MODELS = {
    'with attention': {'model.alignment': 'general', 'model.d_model': 96},
    'without attention': {'model.d_model': 104},
}
SOURCE = 'Bahdanau et al. 2015, §1; the paper, §1'
CRITERION = (
    f'after {UPDATES} updates on the grammar, an LSTM without attention loses more BLEU from sources of '
    f'{SHORT} words to those of {LONG} than one with attention, with every seed'
)


def measure(seed: int) -> dict:
    """Measures sacreBLEU of both models by source length."""
    corpus, scores = claim.prepared(config_of(BASE)), {}
    texts = corpus.texts('test')
    for name, changes in MODELS.items():
        model = claim.train_on(corpus, config_of(BASE | changes), UPDATES, seed)
        translations = translate(model, texts['source'])
        language = model.config.data.target_language
        groups = bleu.by_length(texts['source'], translations, texts['target'], language)
        scores[name] = {group: entry['score'] for group, entry in groups.items()}
    return scores


def judge(measurements: Measurements) -> Verdict:
    lost = by_name(measurements, lambda bleu: bleu[SHORT] - bleu[LONG])
    more = [b - a for a, b in zip(*lost.values(), strict=True)]
    return Verdict(min(more) > 0, f'BLEU lost: {spreads(lost, ".1f")}')


PANELS = (curves(GROUPS, 'words of the source', 'sacreBLEU', legend=True, ylim=(0, 100)),)
