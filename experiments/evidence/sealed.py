"""Seals predictions of perplexities at the paper's size, before anyone measures them.

`results/evidence/sealed.json` has them. It is written once; later results are compared with it.
"""

import datetime
import pathlib
from collections.abc import Iterable

from experiments.evidence import committed, prediction
from experiments.reports.differences import Difference
from experiments.sweeps import runs
from experiments.tables import rows as tables
from transformer import files
from transformer.config import ConfigError

FILE = committed.RESULTS / 'evidence' / 'sealed.json'
ROWS = ('pre-norm', 'rotary', 'relative', 'swiglu', 'no-embedding-dropout')
# Rows without a prediction, because no small training has them.
OPEN = {
    'no-ffn': 'no option leaves out the feed-forward layers',
    'alibi': 'no training at the small scale has it',
}
_SCALE = 'grammar'
_QUANTITY = (
    "perplexity per piece on newstest2013, as in Table 3, of one training of the paper's base model with the "
    'changes: 100,000 updates on WMT 2014, English to German'
)
_HOW = (
    'A line through the origin is fitted by least squares to the 19 rows of Table 3: the change of log '
    'perplexity that the paper prints, by the mean change over seeds at the small scale (slope_from). The '
    'prediction is its slope times the mean change of the row at the same scale (rows_from). The interval '
    "is the 95 % prediction interval of that line, by Student's t: it allows for the slope's error and for "
    "the scatter of the 19 rows around the line, which includes the seed of a training at the paper's "
    'size. interval_over_seeds holds the slope, and only asks how far the seeds of the small scale move '
    'the prediction (paired t-test).'
)
_KNOWN = (
    'No perplexity of these rows at this size was known. The BLEU that AlgoPerf asks for with pre-norm and '
    'with post-norm was known, and did not enter the predictions.'
)
_KEYS = (
    'date', 'quantity', 'base_perplexity', 'how', 'known', 'slope_from', 'rows_from', 'slope', 'rows', 'open',
)  # fmt: skip


def make(date: str) -> dict[str, object]:
    """Makes the predictions from the committed results."""
    folder = committed.TABLE_3[_SCALE]
    of_table, further = committed.changes(folder), committed.changes(committed.FURTHER)
    line = prediction.fit([row.ours for row in of_table.values()], prediction.papers_changes(list(of_table)))
    changes = {row.name: row.changes for row in tables.FURTHER}
    rows = []
    for name in ROWS:
        predicted, by_seeds = line.at(further[name].ours), line.by_seeds(further[name])
        perplexity, low, high = (round(value, 3) for value in predicted.perplexities())
        _, seeds_low, seeds_high = (round(value, 3) for value in by_seeds.perplexities())
        change, change_low, change_high = (round(value, 4) for value in predicted)
        rows.append(
            {
                'row': name,
                'changes': changes[name],
                'small_scale_change': round(further[name].ours, 5),
                'change': change,
                'change_interval': [change_low, change_high],
                'perplexity': perplexity,
                'interval': [low, high],
                'interval_over_seeds': [seeds_low, seeds_high],
            }
        )
    return {
        'date': date,
        'quantity': _QUANTITY,
        'base_perplexity': prediction.BASE,
        'how': _HOW,
        'known': _KNOWN,
        'slope_from': {'results': folder, 'seeds': _seeds(of_table.values())},
        'rows_from': {'results': committed.FURTHER, 'seeds': _seeds(further[name] for name in ROWS)},
        'slope': round(line.slope, 4),
        'rows': rows,
        'open': [{'row': name, 'why': why} for name, why in OPEN.items()],
    }


def _seeds(rows: Iterable[Difference]) -> list[int]:
    """Returns the seeds that all rows have."""
    return sorted(set.intersection(*(set(row.by_seed) for row in rows)))


def write(file: pathlib.Path, date: str) -> None:
    """Writes predictions.

    Raises:
      ConfigError: the file exists, or the date is invalid.
    """
    if file.exists():
        raise ConfigError(f'{file}: is sealed; predictions are never changed, so choose another file')
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        raise ConfigError(f'--date={date}: not a date such as 2026-11-27') from None
    files.write_json(file, make(date))


def read() -> dict:
    """Reads the committed predictions."""
    return runs.read_json(FILE, _KEYS)
