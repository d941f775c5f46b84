"""Reads public trainings with several seeds, whose final scores show how far seeds alone move them.

`wmt17_de-en.json` beside it has the final scores; `collect` extracts them from the logs' evaluations.
"""

import csv
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from experiments.sweeps import runs
from experiments.tables.table import TEST_SETS
from transformer.config import ConfigError

FILE = pathlib.Path(__file__).with_name('wmt17_de-en.json')
SCORES = ('bleu', 'loss')
# The settings whose trainings have the same number of updates, but for one that has 0.5 % fewer.
POOLED = tuple(f'ext-{number}' for number in range(5))
# These two settings differ only in label smoothing, 0.1 and 0, and have the same seeds.
SMOOTHED, PLAIN = 'ext-0', 'ext-2'

_EVALUATIONS = 'runs.tsv'
_KEYS = ('run', 'set', 'seed', 'step')
_COLUMNS = {
    'dev_bleu': ('newstest2013', 'bleu'),
    'dev_loss': ('newstest2013', 'loss'),
    'test_bleu': ('newstest2014', 'bleu'),
    'test_loss': ('newstest2014', 'loss'),
}
_ABOUT = {
    'source': 'https://github.com/mlcommons/algorithmic-efficiency at 2c90454f, algorithms/baselines/logs',
    'licence': 'Apache-2.0',
    'changes': 'Extracted: the last evaluation of each training, rounded to four decimals.',
    'model': 'JAX Transformer, 6 + 6 layers, d_model 1024, d_ff 1024, 16 heads, pre-norm, 133.5 million '
    'parameters; WMT 2017 German to English; NAdamW; no averaging of checkpoints.',
    'scores': 'BLEU by the rules of sacreBLEU; loss in nats per piece, without label smoothing.',
    'settings': 'ext-0 to ext-4: external tuning, five sets of hyperparameters with the same five seeds; '
    'ext-0 and ext-2 differ only in label smoothing, 0.1 and 0. self-0: self-tuning.',
}


def collect(folder: pathlib.Path) -> dict[str, object]:
    """Extracts the final scores from `runs.tsv`, which has a line for each evaluation.

    Raises:
      ConfigError: the file is missing or has no evaluation, or lacks a column or a number.
    """
    file = folder / _EVALUATIONS
    if not file.is_file():
        raise ConfigError(f'{file}: no such file; the folder must hold the evaluations of the trainings')
    with file.open(newline='', encoding='utf-8') as stream:
        reader = csv.DictReader(stream, delimiter='\t')
        try:
            names = reader.fieldnames or ()
        except UnicodeDecodeError:
            raise ConfigError(f'{file}: not UTF-8') from None
        if missing := [name for name in (*_KEYS, *_COLUMNS) if name not in names]:
            raise ConfigError(f'{file}: has no column {missing[0]}')
        try:
            last = _last_evaluations(reader)
        except (TypeError, ValueError):
            raise ConfigError(f'{file}, line {reader.line_num}: not the numbers of an evaluation') from None
    if not last:
        raise ConfigError(f'{file}: has no evaluation')
    for (setting, seed), evaluation in last.items():
        if not all(map(math.isfinite, evaluation.values())):
            raise ConfigError(f'{file}: {setting}, seed {seed}: its last score is not finite')
    settings = {}
    for setting in sorted({setting for setting, _ in last}):
        by_seed = {seed: last[name, seed] for name, seed in sorted(last) if name == setting}
        scores = {test_set: {score: [] for score in SCORES} for test_set in TEST_SETS}
        for evaluation in by_seed.values():
            for test_set, score in _COLUMNS.values():
                scores[test_set][score].append(evaluation[test_set, score])
        steps = [evaluation['step'] for evaluation in by_seed.values()]
        settings[setting] = {'seeds': list(by_seed), 'steps': steps, **scores}
    return {**_ABOUT, 'trainings': settings}


def _last_evaluations(lines: Iterable[Mapping[str, str]]) -> dict[tuple[str, int], dict]:
    """Returns each training's evaluation with the most updates, by setting and seed."""
    last = {}
    for line in lines:
        key, step = (f'{line["run"]}-{int(line["set"])}', int(line['seed'])), int(line['step'])
        if key not in last or step > last[key]['step']:
            last[key] = {
                'step': step,
                **{name: round(float(line[column]), 4) for column, name in _COLUMNS.items()},
            }
    return last


def read() -> dict[str, Mapping]:
    """Reads the committed final scores: by setting, test set and kind, a list over seeds."""
    return runs.read_json(FILE, [*_ABOUT, 'trainings'])['trainings']


def samples(test_set: str, score: str, settings: Sequence[str] = POOLED) -> list[list[float]]:
    """Returns a score's values over seeds, a list for each setting."""
    trainings = read()
    return [list(trainings[setting][test_set][score]) for setting in settings]
