"""Measures claims of papers, and reports which of them hold.

    python -m experiments.claims [NAME...] [--output=FOLDER]
    python -m experiments.claims [NAME...] --check

Half of the claims take less than a minute on two CPU cores, the longest three quarters of an hour. `--check`
measures nothing: it verifies in git's history that criteria were committed before their first results, and
not changed after them, except for five claims that were measured again, which it names.
"""

import json
import pathlib
import sys
import time
import types
from collections.abc import Sequence

import matplotlib

from experiments.claims import CLAIMS, history
from experiments.claims.claim import OVER_SEEDS
from experiments.rendering import formats
from experiments.rendering.formats import Column
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import ConfigError
from transformer.runs import process

matplotlib.use('agg')
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

DPI = 100
COMMITTED = pathlib.Path(__file__).parent.parent / 'results' / 'claims'


def run(call: Call) -> None:
    """Measures the named claims, or all, and then prints the table of all results in the folder."""
    for name in call.words:
        if name not in CLAIMS:
            raise ConfigError(f'{name!r}: no such claim; choose from {", ".join(CLAIMS)}')
    names = list(dict.fromkeys(call.words) or CLAIMS)
    if call.flags.check:
        if call.flags['output'].present:
            raise ConfigError('--output: --check reads the committed results and writes nothing')
        check(names)
        return
    folder = pathlib.Path(call.flags.output)
    folder.mkdir(parents=True, exist_ok=True)
    # Each seed compiles its own program that draws initial parameters; later runs reuse it.
    process.keep_programs()
    for name in names:
        result = measure(name, CLAIMS[name], folder)
        verdict = 'holds' if result['holds'] else 'FAILS'
        line = f'{name}: {verdict}: {result["number"]} ({result["seconds"]:.0f} s)'
        print(line, file=sys.stderr, flush=True)
    results = read(folder)
    files.write_text(folder / 'claims.md', formats.markdown(*table(results, wide=True)))
    print(formats.terminal(*table(results, wide=False)), end='')


def check(names: Sequence[str]) -> None:
    """Prints what git's history says about each claim's criterion and result.

    Raises:
      ConfigError: a criterion was changed after a result, or not committed before it.
    """
    checked = history.check({name: CLAIMS[name].CRITERION for name in names})
    for claim in checked:
        verdict = f'{claim.wrong or "criterion before result"}; {claim.code}'
        print(f'{claim.claim}: {verdict if claim.code else "no committed result"}')
    wrong = [claim.claim for claim in checked if claim.wrong]
    if wrong:
        raise ConfigError(f'--check: {len(wrong)} of {len(checked)} claims fail: {", ".join(wrong)}')


def measure(name: str, claim: types.ModuleType, folder: pathlib.Path) -> dict[str, object]:
    """Measures a claim, writes `<name>.json` and `<name>.png`, and returns the content of the JSON."""
    start = time.monotonic()
    measurements = [claim.measure(seed) for seed in range(1, claim.SEEDS + 1)]
    verdict = claim.judge(measurements)
    # The explanation is written by hand in the committed result; new results keep it.
    committed = COMMITTED / f'{name}.json'
    result = {
        'claim': name,
        'statement': statement(claim),
        'source': claim.SOURCE,
        'criterion': claim.CRITERION,
        'holds': verdict.holds,
        'number': verdict.number,
        'why': json.loads(committed.read_text())['why'] if committed.exists() else '',
        'seeds': claim.SEEDS,
        'seconds': round(time.monotonic() - start, 1),
        'found': measurements,
        **process.environment(),
    }
    figure = draw(claim, measurements)
    files.write_figure(folder / f'{name}.png', figure, dpi=DPI)
    plt.close(figure)
    files.write_text(folder / f'{name}.json', formats.json_text(result))
    return result


def statement(claim: types.ModuleType) -> str:
    """Returns the claim's docstring on one line."""
    return ' '.join(claim.__doc__.split())


def draw(claim: types.ModuleType, measurements: Sequence) -> Figure:
    """Draws a claim's panels side by side."""
    count = len(claim.PANELS)
    figure, axes = plt.subplots(1, count, figsize=(5.2 * count, 3.6), squeeze=False, layout='constrained')
    for axis, panel in zip(axes[0], claim.PANELS, strict=True):
        panel(axis, measurements)
    return figure


# What every result has.
_SHAPE = {
    'claim': str, 'statement': str, 'source': str, 'criterion': str, 'holds': bool, 'number': str, 'why': str,
    'seeds': files.COUNT, 'seconds': float, '*': object,
}  # fmt: skip


def read(folder: pathlib.Path) -> list[dict[str, object]]:
    """Reads the results in a folder, in the order of `CLAIMS`. Raises ConfigError if one is damaged."""
    paths = [folder / f'{name}.json' for name in CLAIMS]
    return [files.read_json(path, _SHAPE) for path in paths if path.exists()]


def table(results: Sequence[dict[str, object]], *, wide: bool) -> tuple[list[Column], list[str]]:
    """Makes a row and a note for each claim; the numbers are a column if `wide`, else part of the notes."""
    columns = [
        Column('row', 'row', [r['claim'] for r in results]),
        Column('verdict', 'score', ['holds' if r['holds'] else 'fails' for r in results]),
        Column('seeds', 'cost', [str(r['seeds']) for r in results]),
        Column('seconds', 'cost', [f'{r["seconds"]:.0f}' for r in results]),
    ]
    if wide:
        columns.append(Column('number', 'text', [r['number'] for r in results]))
    notes = []
    for r in results:
        meaning = getattr(CLAIMS[r['claim']], 'NUMBERS', OVER_SEEDS)
        number = '' if wide else f': {r["number"]}'
        why = f' {r["why"]}' if r['why'] else ''
        notes.append(
            f'{r["claim"]}: {r["statement"]} ({r["source"]}) Holds if: {r["criterion"]}. The number is the '
            f'{meaning}{number}.{why}'
        )
    return columns, notes


COMMANDS = {
    '': Command(
        'Measures claims, all if none is named, and prints which of them hold.',
        run,
        ('output', 'check'),
        examples=('{}', '{} gradients recall --output=FOLDER', '{} --check'),
        words=('[NAME...]',),
    )
}
FLAGS = {
    'output': Flag(str, 'runs/claims', 'folder for figures, numbers and tables', 'FOLDER'),
    'check': Flag(bool, False, "verify in git's history that criteria precede results; measure nothing"),
}


def main(argv: Sequence[str]) -> int:
    """Measures claims. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.claims', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
