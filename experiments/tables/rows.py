"""Tables as data: rows that change a base model, with the paper's numbers. A new ablation is one more line.

scales.py adapts rows to smaller scales.
"""

import functools
import itertools
import re

from experiments.tables import checks, user_files
from experiments.tables.table import Measure, Row, Table
from transformer import config as configs
from transformer import files
from transformer.config import ConfigError, declare


def _row3(name: str, changes: dict, ppl: float, bleu: float, params: int | None = None) -> Row:
    paper = {'PPL': ppl, 'BLEU': bleu} | ({'params': params} if params else {})
    section = name if name in ('base', 'big') else f'({name[0]})'
    return Row(name, changes, paper, f'Table 3, {section}', 'paper')


def _row2(name: str, changes: dict, at_paper: dict, paper: dict[str, float]) -> Row:
    return Row(name, changes, paper, 'Table 2', 'paper', {'paper': at_paper})


# Three times as many updates as base, at every scale.
_BIG = {
    'model.d_model': 1024, 'model.d_ff': 4096, 'model.h': 16, 'model.P_drop': 0.3, 'train.steps': 300_000,
}  # fmt: skip

TABLE_3 = (
    _row3('base', {}, 4.92, 25.8, 65),
    _row3('A1', {'model.h': 1}, 5.29, 24.9),
    _row3('A2', {'model.h': 4}, 5.00, 25.5),
    _row3('A3', {'model.h': 16}, 4.91, 25.8),
    _row3('A4', {'model.h': 32}, 5.01, 25.4),
    _row3('B1', {'model.d_k': 16}, 5.16, 25.1, 58),
    _row3('B2', {'model.d_k': 32}, 5.01, 25.4, 60),
    _row3('C1', {'model.N': 2}, 6.11, 23.7, 36),
    _row3('C2', {'model.N': 4}, 5.19, 25.3, 50),
    _row3('C3', {'model.N': 8}, 4.88, 25.5, 80),
    _row3('C4', {'model.d_model': 256}, 5.75, 24.5, 28),
    _row3('C5', {'model.d_model': 1024}, 4.66, 26.0, 168),
    _row3('C6', {'model.d_ff': 1024}, 5.12, 25.4, 53),
    _row3('C7', {'model.d_ff': 4096}, 4.75, 26.2, 90),
    _row3('D1', {'model.P_drop': 0.0}, 5.77, 24.6),
    _row3('D2', {'model.P_drop': 0.2}, 4.95, 25.5),
    _row3('D3', {'train.eps_ls': 0.0}, 4.67, 25.3),
    _row3('D4', {'train.eps_ls': 0.2}, 5.47, 25.7),
    _row3('E', {'model.positions': 'learned'}, 4.92, 25.7),
    _row3('big', _BIG, 4.33, 26.4, 213),
)

_FRENCH = {'data.target_language': 'fr'}
_FRENCH_WMT = {'data.name': 'wmt14_translate/fr-en', 'data.pieces': 32_000}
_BIG_FRENCH = _BIG | _FRENCH | {'model.P_drop': 0.1}
_AVERAGE_5 = {'train.average_last': 5, 'train.average_every': 1500}
_AVERAGE_20 = {'train.average_last': 20, 'train.average_every': 600, 'train.checkpoint_every': 600}

TABLE_2 = (
    _row2('base-en-de', {}, _AVERAGE_5, {'EN-DE': 27.3, 'FLOPs': 3.3e18}),
    _row2('big-en-de', _BIG, _AVERAGE_20, {'EN-DE': 28.4, 'FLOPs': 2.3e19}),
    _row2('base-en-fr', _FRENCH, _AVERAGE_5 | _FRENCH_WMT, {'EN-FR': 38.1, 'FLOPs': 3.3e18}),
    _row2('big-en-fr', _BIG_FRENCH, _AVERAGE_20 | _FRENCH_WMT, {'EN-FR': 41.8, 'FLOPs': 2.3e19}),
)

_further = functools.partial(Row, scale='paper')
FURTHER = (
    _further('pre-norm', {'model.norm': 'pre'}, source='T2T, October 2017'),
    _further('rmsnorm', {'model.norm_type': 'rmsnorm'}, source='Zhang & Sennrich 2019'),
    _further('no-positions', {'model.positions': 'none'}),
    _further('rotary', {'model.positions': 'rotary'}, source='Su et al. 2021'),
    _further('relative', {'model.positions': 'relative'}, source='Shaw et al. 2018'),
    _further('t2t-sinusoid', {'model.sinusoid': 't2t'}, source='§3.5 against T2T-2017'),
    _further('untied', {'model.tie_embeddings': 'none'}, source='§3.4'),
    _further('tied-decoder', {'model.tie_embeddings': 'decoder'}, source='§3.4'),
    _further('gelu', {'model.activation': 'gelu'}, source='Hendrycks & Gimpel 2016'),
    _further('swiglu', {'model.activation': 'swiglu'}, source='Shazeer 2020'),
    _further('ffn-biases', {'model.biases': 'ffn'}, source='§3.2.2 against T2T-2017'),
    _further('no-biases', {'model.biases': 'none'}),
    _further('xavier', {'model.init': 'xavier'}, source='T2T-2017 fuses kernels'),
    _further('attention-dropout', {'model.P_drop_attention': 0.1, 'model.P_drop_relu': 0.1}, source='T2T v2'),
    _further('no-embedding-dropout', {'model.P_drop_embedding': 0.0}, source='§5.4'),
    _further('warmup-half', {'train.warmup_steps': 2000}, source='§5.3'),
    _further('warmup-double', {'train.warmup_steps': 8000}, source='T2T v2'),
    _further('adam-b2-0.999', {'train.beta2': 0.999}, source='§5.3 against the usual default'),
)

# A small batch has one microbatch. At the paper's size it has as many as base, for as many devices.
_EIGHTH = {'data.batch_tokens': 4096, 'train.microbatches': 1}
_EIGHTH_AT_PAPER = {'paper': {'train.microbatches': 8}}
OMISSIONS = (
    _further('base', {}),
    _further('eighth-batch', _EIGHTH, at_scale=_EIGHTH_AT_PAPER),
    _further('eighth-batch-same-tokens', {**_EIGHTH, 'train.steps': 800_000}, at_scale=_EIGHTH_AT_PAPER),
    _further('no-warm-up', {'train.warmup_steps': 1}, source='§5.3'),
    _further('no-smoothing', {'train.eps_ls': 0.0}, source='§5.4'),
    _further('untied', {'model.tie_embeddings': 'none'}, source='§3.4'),
)

_language = functools.partial(Row, scale='language')
LANGUAGE = (
    _language('base', {}),
    _language('one-head', {'model.h': 1}),
    _language('no-positions', {'model.positions': 'none'}),
    _language('learned', {'model.positions': 'learned'}),
    _language('sinusoidal', {'model.positions': 'sinusoidal'}, source='§3.5'),
    _language('relative', {'model.positions': 'relative'}, source='Shaw et al. 2018'),
    _language('post-norm', {'model.norm': 'post'}, source='§3.1'),
    _language('relu', {'model.activation': 'relu'}, source='§3.3'),
)


def _cell(cell: str, layers: int, width: int) -> dict[str, object]:
    return {'model.cell': cell, 'model.N': layers, 'model.d_model': width}


_REGULARIZED = {'model.P_drop': 0.2, 'train.clip_norm': 1.0}
_RECURRENT = {'model.kind': 'recurrent', **_REGULARIZED}
_REVERSED = {'model.reverse_source': True}
_LUONG = {**_REVERSED, 'model.alignment': 'general', 'model.input_feeding': True}
_ELMAN = 'Elman 1990, Luong et al. 2015'
_BAHDANAU = {'model.bidirectional': True, 'model.alignment': 'additive'}
_CONVOLUTIONAL = {
    'model.kind': 'convolutional', 'model.N': 4, 'model.d_model': 148, 'model.positions': 'learned',
    'model.max_len': 178, **_REGULARIZED,
}  # fmt: skip


def _architecture(name: str, changes: dict, source: str, width: int, peak_lr: float) -> Row:
    """Makes a row for captions; at names it has a width and a learning rate of its own."""
    at_names = {**changes, 'model.d_model': width, 'train.peak_lr': peak_lr}
    return Row(name, changes, source=source, scale='captions', at_scale={'names': at_names})


_LSTM_ATTENTION = _RECURRENT | _LUONG | _cell('lstm', 2, 174)
_GRU_ATTENTION = _RECURRENT | _cell('gru', 1, 238) | _BAHDANAU
_LSTM = _RECURRENT | _cell('lstm', 4, 142) | _REVERSED
_GRU = _RECURRENT | _cell('gru', 4, 160) | _REVERSED
_RNN_ATTENTION = _RECURRENT | _LUONG | _cell('rnn_tanh', 2, 274)
# The widths make the numbers of parameters as equal as possible, at both scales. At names, the learning rate
# is the best of 0.0005, 0.0015 and 0.0045 with seed 1, by the share of names that are right.
ARCHITECTURES = (
    _architecture('transformer', {'model.h': 4, 'model.d_ff': 256}, 'Vaswani et al. 2017', 128, 0.0015),
    _architecture('lstm-attention', _LSTM_ATTENTION, 'Luong et al. 2015', 158, 0.0045),
    _architecture('gru-attention', _GRU_ATTENTION, 'Bahdanau et al. 2015', 234, 0.0045),
    _architecture('lstm', _LSTM, 'Sutskever et al. 2014', 124, 0.0045),
    _architecture('gru', _GRU, 'Cho et al. 2014', 144, 0.0045),
    _architecture('rnn-attention', _RNN_ATTENTION, _ELMAN, 280, 0.0015),
    _architecture('convolutional', _CONVOLUTIONAL, 'Gehring et al. 2017', 130, 0.0045),
)

# Vinyals et al. 2015: three layers of 256 cells; the attention is Bahdanau's, over the reversed sentence.
_VINYALS = {
    'model.kind': 'recurrent', 'model.cell': 'lstm', 'model.N': 3, 'model.d_model': 256, **_REVERSED,
    **_REGULARIZED,
}  # fmt: skip
# On two cores 16,000 updates of the LSTM with attention take as long as the Transformer's 30,000. In packed
# rows, where sentences follow one another, its updates would take twice as long.
_AT_GENIA = {'genia': {'data.batching': 'bucketed', 'train.steps': 16_000}}
TABLE_4 = (
    Row('transformer', {}, {'F1': 91.3}, 'Table 4, WSJ only', 'wsj'),
    # These sizes hold at every scale.
    Row(
        'lstm-attention', _VINYALS | {'model.alignment': 'additive'}, {'F1': 88.3}, 'Vinyals et al. 2015',
        at_scale=_AT_GENIA,
    ),
    Row('lstm', _VINYALS, source='Sutskever et al. 2014', at_scale=_AT_GENIA),
)  # fmt: skip

# For Table 2, which prints a BLEU other than Table 3's.
_PAPERS_BLEU = Measure(
    'BLEU', "the paper's BLEU", 'bleu.paper.score', 2, ('EN-DE', 'EN-FR'), 1, significance=True
)
# By source length, which shows how well a model remembers long sentences.
_BY_LENGTH = tuple(
    Measure(f'BLEU {group}', f'sacreBLEU of sources of {group} words', f'bleu_by_length.{group}.score', 1)
    for group in ('1-9', '10-14', '15-19', '20-29')
)

_OF_NAMES = ('exact', 'exact_of_three', 'character_errors')

_PAPER = 'Vaswani et al. 2017'
TABLES = {
    '2': Table(
        TABLE_2,
        'test',
        ('perplexity', _PAPERS_BLEU),
        f'{_PAPER}, Table 2',
        'base-en-de',
        noise='newstest2014',
    ),
    '3': Table(TABLE_3, 'dev', citation=f'{_PAPER}, Table 3', noise='newstest2013'),
    '4': Table(TABLE_4, 'test', ('f1', 'complete', 'exact', 'repaired'), f'{_PAPER}, Table 4', 'transformer'),
    # With base, because these rows, too, change base.
    'further': Table((TABLE_3[0], *FURTHER), 'dev', citation=f'{_PAPER}, Table 3'),
    'omissions': Table(OMISSIONS, 'test', ('perplexity', 'bleu')),
    'language': Table(LANGUAGE, 'dev'),
    'architectures': Table(
        ARCHITECTURES, 'test', ('perplexity', 'bleu', *_BY_LENGTH, *_OF_NAMES), base='transformer', speed=True
    ),
}


def table(name: str) -> Table:
    """Returns the table with a name, the `TABLE` of a file, or the grid of a name such as `model.h=1,4`."""
    if is_grid(name):
        return _grid(name)
    if user_files.is_file(name):
        return checks.check_table(user_files.table(name), name)
    if name not in TABLES:
        raise ConfigError(f'--table={name}: choose one of {", ".join(TABLES)}, or a file such as mine.py')
    return TABLES[name]


def is_grid(name: str) -> bool:
    """Returns whether the name of a table describes a grid."""
    return '=' in name and not user_files.is_file(name)


def _grid(name: str) -> Table:
    """Makes the table of all combinations of values, as in `model.h=1,4 model.N=2,3`; base is the first."""
    axes = []
    # A value can contain blanks.
    for word in re.split(r' (?=[\w.]+=)', name):
        option, _, texts = word.partition('=')
        key = declare.check_name(configs.OPTIONS, option)
        if key == 'train.seed':
            raise ConfigError(f'--grid={word}: a sweep sets the seeds; choose them with --seeds')
        values = [declare.parse_value(configs.OPTIONS, key, text) for text in texts.split(',')]
        if len(set(values)) < len(values):
            raise ConfigError(f'--grid={word}: has a value twice')
        axes.append([(key, value) for value in values])
    keys = [axis[0][0] for axis in axes]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError(f'--grid={twice[0]}: given twice; list its values in one')
    rows = []
    for point in itertools.product(*axes):
        named = '-'.join(f'{key.partition(".")[2]}={value}' for key, value in point)
        rows.append(Row(files.short_name(re.sub(r'[^\w.=+-]', '_', named)), dict(point)))
    checks.check_distinct(f'--grid={name}: two rows', [row.name for row in rows])
    return Table(tuple(rows), 'dev', base=rows[0].name)


def rows(name: str, wanted: str | None = None) -> tuple[Row, ...]:
    """Returns rows of a table, in its order: the rows named, separated by commas, or all."""
    all_rows = table(name).rows
    known = [row.name for row in all_rows]
    names = wanted.split(',') if wanted else known
    if unknown := [row for row in names if row not in known]:
        raise ConfigError(f'--rows={unknown[0]}: table {name} has {", ".join(known)}')
    return tuple(row for row in all_rows if row.name in names)
