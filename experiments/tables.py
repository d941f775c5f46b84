"""The rows of the paper's tables as data, and the scales that they are run at.

A row is its difference from the paper's base model and the numbers that the paper prints for it. At a
smaller scale it keeps its meaning: where the paper halves or doubles a number of base, so does the row.
A new ablation is one line in `FURTHER`.
"""

import dataclasses
import importlib
import types
from collections.abc import Mapping

import ml_collections

from transformer import config as configs
from transformer.config import Config, ConfigError

_NOTHING: Mapping[str, object] = types.MappingProxyType({})

# What a row says of these is read as a multiple of base's value.
PROPORTIONAL = (
    'model.N', 'model.d_model', 'model.d_ff', 'model.h', 'model.d_k', 'model.d_v', 'model.P_drop',
    'train.eps_ls', 'train.warmup_steps',
)  # fmt: skip
# The config file that rows are differences from, and what changes in it for all of them: a third and two
# thirds of the layers must be whole numbers; fewer pairs and updates leave rows room to differ.
SCALES = {
    'paper': ('base', {}),
    'multi30k': (
        'multi30k',
        {
            'model.N': 3,
            'model.P_drop': 0.1,
            'train.steps': 800,
            'train.warmup_steps': 250,
            'train.eval_every': 200,
            'train.checkpoint_every': 200,
            'train.average_last': 0,
        },
    ),
    'grammar': (
        'tiny',
        {
            'model.N': 3,
            'model.d_model': 64,
            'model.d_ff': 256,
            'data.train_pairs': 4000,
            'data.batch_tokens': 1024,
            'train.steps': 600,
            'train.warmup_steps': 150,
            'train.eval_every': 100,
            'train.checkpoint_every': 100,
        },
    ),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One row: its name, its difference from base, and what the paper prints.

    `paper` may hold PPL and BLEU (on newstest2013, Table 3), params (millions), and, of Table 2,
    EN-DE, EN-FR (BLEU on newstest2014) and FLOPs; `only_paper` holds differences of the scale `paper`
    alone. `source` says where the numbers stand.
    """

    name: str
    changes: dict[str, object]
    paper: dict[str, float] = dataclasses.field(default_factory=dict)
    source: str = ''
    only_paper: dict[str, object] = dataclasses.field(default_factory=dict)


def _row3(name: str, changes: dict, ppl: float, bleu: float, params: int | None = None, **only_paper) -> Row:
    paper = {'PPL': ppl, 'BLEU': bleu} | ({'params': params} if params else {})
    section = name if name in ('base', 'big') else f'({name[0]})'
    return Row(name, changes, paper, f'Table 3, {section}', only_paper)


_BIG = {'model.d_model': 1024, 'model.d_ff': 4096, 'model.h': 16, 'model.P_drop': 0.3}

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
    _row3('big', _BIG, 4.33, 26.4, 213, **{'train.steps': 300_000}),
)

_FRENCH = {'data.target_language': 'fr'}
_FRENCH_WMT = {'data.name': 'wmt14_translate/fr-en', 'data.pieces': 32_000, 'model.vocab_size': 32_000}
_AVERAGE_5 = {'train.average_last': 5, 'train.average_every': 1500}
_AVERAGE_20 = {
    'train.average_last': 20, 'train.average_every': 600, 'train.checkpoint_every': 600,
    'train.steps': 300_000,
}  # fmt: skip

TABLE_2 = (
    Row('base-en-de', {}, {'EN-DE': 27.3, 'FLOPs': 3.3e18}, 'Table 2', _AVERAGE_5),
    Row('big-en-de', _BIG, {'EN-DE': 28.4, 'FLOPs': 2.3e19}, 'Table 2', _AVERAGE_20),
    Row('base-en-fr', _FRENCH, {'EN-FR': 38.1, 'FLOPs': 3.3e18}, 'Table 2', _AVERAGE_5 | _FRENCH_WMT),
    Row(
        'big-en-fr',
        _BIG | _FRENCH | {'model.P_drop': 0.1},
        {'EN-FR': 41.8, 'FLOPs': 2.3e19},
        'Table 2',
        _AVERAGE_20 | _FRENCH_WMT,
    ),
)

FURTHER = (
    Row('pre-norm', {'model.norm': 'pre'}, source='T2T, October 2017'),
    Row('rmsnorm', {'model.norm_type': 'rmsnorm'}, source='Zhang & Sennrich 2019'),
    Row('no-positions', {'model.positions': 'none'}),
    Row('rotary', {'model.positions': 'rotary'}, source='Su et al. 2021'),
    Row('relative', {'model.positions': 'relative'}, source='Shaw et al. 2018'),
    Row('t2t-sinusoid', {'model.sinusoid': 't2t'}, source='§3.5 against T2T-2017'),
    Row('untied', {'model.tie_embeddings': 'none'}, source='§3.4'),
    Row('tied-decoder', {'model.tie_embeddings': 'decoder'}, source='§3.4'),
    Row('gelu', {'model.activation': 'gelu'}, source='Hendrycks & Gimpel 2016'),
    Row('swiglu', {'model.activation': 'swiglu'}, source='Shazeer 2020'),
    Row('ffn-biases', {'model.biases': 'ffn'}, source='§3.2.2 against T2T-2017'),
    Row('no-biases', {'model.biases': 'none'}),
    Row('xavier', {'model.init': 'xavier'}, source='T2T-2017 fuses kernels'),
    Row('attention-dropout', {'model.P_drop_attention': 0.1, 'model.P_drop_relu': 0.1}, source='T2T v2'),
    Row('no-embedding-dropout', {'model.P_drop_embedding': 0.0}, source='§5.4'),
    Row('warmup-half', {'train.warmup_steps': 2000}, source='§5.3'),
    Row('warmup-double', {'train.warmup_steps': 8000}, source='T2T v2'),
    Row('adam-b2-0.999', {'train.beta2': 0.999}, source='§5.3 against the usual default'),
)

# Further rows are read beside base too.
TABLES = {'2': TABLE_2, '3': TABLE_3, 'further': (TABLE_3[0], *FURTHER)}


def rows(table: str, names: str | None = None) -> tuple[Row, ...]:
    """The rows of a table, or those of them that are named, comma-separated, in the table's order.

    Raises:
      ConfigError: no such table or row.
    """
    if table not in TABLES:
        raise ConfigError(f'--table={table}: choose one of {", ".join(TABLES)}')
    if not names:
        return TABLES[table]
    wanted, known = names.split(','), [row.name for row in TABLES[table]]
    for name in wanted:
        if name not in known:
            raise ConfigError(f'--rows={name}: table {table} has {", ".join(known)}')
    return tuple(row for row in TABLES[table] if row.name in wanted)


def scale_config(scale: str, different: Mapping[str, object] = _NOTHING) -> ml_collections.ConfigDict:
    """The base config of a scale, with further differences.

    Raises:
      ConfigError: no such scale.
    """
    if scale not in SCALES:
        raise ConfigError(f'--scale={scale}: choose one of {", ".join(SCALES)}')
    file, of_scale = SCALES[scale]
    base = importlib.import_module(f'configs.{file}').get_config()
    return _with(base, of_scale | different)


def changes(row: Row, scale: str, different: Mapping[str, object] = _NOTHING) -> dict[str, object]:
    """What the row changes in the base config of a scale, as `{'model.h': 4, ...}`.

    Args:
      different: differences of that base, which the row is in proportion to.
    """
    if scale == 'paper':
        # Who sets the steps wants them of every row.
        return row.changes | {k: v for k, v in row.only_paper.items() if k not in different}
    paper, base = configs.flatten(scale_config('paper')), configs.flatten(scale_config(scale, different))
    found = {}
    for key, value in row.changes.items():
        if key in PROPORTIONAL:
            value = _in_proportion(value, _known(paper, key), _known(base, key))
        found[key] = value
    return found


def config(row: Row, scale: str, different: Mapping[str, object] = _NOTHING) -> Config:
    """The resolved config of a row at a scale.

    Raises:
      ConfigError: the row is impossible there.
    """
    base, own = scale_config(scale, different), changes(row, scale, different)
    try:
        return configs.resolve(_with(base, own))
    except ConfigError as error:
        raise ConfigError(f'row {row.name}: {error}') from None


def options(row: Row, scale: str, different: Mapping[str, object] = _NOTHING) -> list[str]:
    """The same config as options of run.py."""
    file, of_scale = SCALES[scale]
    all_of_them = of_scale | different | changes(row, scale, different)
    return [
        f'--config=configs/{file}.py',
        *(f'--config.{key}={value}' for key, value in all_of_them.items()),
    ]


def _with(base: ml_collections.ConfigDict, different: Mapping[str, object]) -> ml_collections.ConfigDict:
    """The config with changes, before anything is derived from them."""
    for key, value in different.items():
        group, name = key.split('.')
        base[group][name] = configs.check_value(key, value)
    return base


def _known(flat: dict[str, object], key: str) -> int | float:
    """The value of an option; where it is derived, what it is derived as."""
    if flat[key] is not None:
        return flat[key]
    return flat['model.d_model'] // flat['model.h']


def _in_proportion(value, paper, base):
    scaled = value * base / paper
    # One head stays one head where base has few.
    return max(1, round(scaled)) if isinstance(paper, int) else round(scaled, 6)
