"""Measures what papers claim, and says which claims hold.

    python -m experiments.claims [NAME...] [--output=FOLDER]

Each takes a few minutes on two CPU cores at most.
"""

import html
import json
import pathlib
import string
import sys
import time
from collections.abc import Sequence

import matplotlib

from experiments.claims import CLAIMS
from experiments.claims.claim import Claim
from experiments.rendering import formats
from experiments.rendering.formats import Column
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import ConfigError
from transformer.runs import process

matplotlib.use('agg')
from matplotlib import pyplot as plt

DPI = 100


def run(call: Call) -> None:
    """Measures the claims of a call one after the other, then prints the table of those in the folder.

    Raises:
      ConfigError: there is no such claim.
    """
    for name in call.words:
        if name not in CLAIMS:
            raise ConfigError(f'{name!r}: no such claim; choose of {", ".join(CLAIMS)}')
    folder = pathlib.Path(call.flags.output)
    folder.mkdir(parents=True, exist_ok=True)
    # What draws a model's parameters is compiled for each seed anew, and found again from the second on.
    process.keep_programs()
    for name in dict.fromkeys(call.words) or CLAIMS:
        found = measured(name, CLAIMS[name], folder)
        print(f'{name}: {told(found)} ({found["seconds"]:.0f} s)', file=sys.stderr, flush=True)
    results = read(folder)
    for ending, text in (('md', formats.markdown(*table(results, wide=True))), ('html', page(results))):
        files.write_text(folder / f'claims.{ending}', text)
    print(formats.terminal(*table(results, wide=False)), end='')


def measured(name: str, claim: Claim, folder: pathlib.Path) -> dict[str, object]:
    """Measures a claim and writes what it found, `<name>.json` and `<name>.png`."""
    start = time.monotonic()
    found = [claim.measure(seed) for seed in range(1, claim.seeds + 1)]
    verdict = claim.judge(found)
    result = {
        'claim': name,
        'statement': claim.statement,
        'source': claim.source,
        'criterion': claim.criterion,
        'holds': verdict.holds,
        'number': verdict.number,
        'why': claim.why,
        'seeds': claim.seeds,
        'seconds': round(time.monotonic() - start, 1),
        'found': found,
        **process.environment(),
    }
    figure, axes = plt.subplots(
        1, claim.panels, figsize=(5.2 * claim.panels, 3.6), squeeze=False, layout='constrained'
    )
    claim.draw(axes[0], found)
    files.write_figure(folder / f'{name}.png', figure, dpi=DPI)
    plt.close(figure)
    files.write_text(folder / f'{name}.json', formats.json_text(result))
    return result


def read(folder: pathlib.Path) -> list[dict[str, object]]:
    """The results of a folder, in the order of `CLAIMS`."""
    paths = [folder / f'{name}.json' for name in CLAIMS]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def told(result: dict[str, object]) -> str:
    """The verdict in a few words."""
    return f'{"holds" if result["holds"] else "FAILS"}: {result["number"]}'


def table(results: Sequence[dict[str, object]], *, wide: bool) -> tuple[list[Column], list[str]]:
    """One row a claim, and what each row is.

    Args:
      wide: whether there is room for the numbers; otherwise they stand in the notes.
    """
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
        number = '' if wide else f': {r["number"]}'
        why = f' {r["why"]}' if r['why'] else ''
        notes.append(
            f'{r["claim"]}: {r["statement"]} ({r["source"]}) Holds if: {r["criterion"]}. The number is the '
            f'{CLAIMS[r["claim"]].spread}{number}.{why}'
        )
    return columns, notes


def page(results: Sequence[dict[str, object]]) -> str:
    """The same with the pictures, which stand beside the page."""
    template = string.Template(pathlib.Path(__file__).with_name('page.html').read_text())
    return template.substitute(rows='\n'.join(map(_row, results)), claims='\n'.join(map(_section, results)))


def _row(result: dict[str, object]) -> str:
    name, number = (html.escape(str(result[key])) for key in ('claim', 'number'))
    return f'<tr><td><a href="#{name}">{name}</a><td>{_verdict(result)}<td>{number}'


def _verdict(result: dict[str, object]) -> str:
    verdict = 'holds' if result['holds'] else 'fails'
    return f'<span class="{verdict}">{verdict}</span>'


def _section(result: dict[str, object]) -> str:
    text = {key: html.escape(str(value)) for key, value in result.items()}
    why = f'<p>{text["why"]}</p>' if result['why'] else ''
    return (
        f'<section><h2 id="{text["claim"]}">{text["claim"]} {_verdict(result)}</h2>\n'
        f'<p>{text["statement"]} <small>{text["source"]}</small></p>\n'
        f'<p><b>Holds if</b> {text["criterion"]}.</p>\n'
        f'<p><b>Number</b>, {CLAIMS[result["claim"]].spread}: {text["number"]}.</p>{why}\n'
        f'<img src="{text["claim"]}.png" alt="{text["statement"]}"></section>'
    )


COMMANDS = {
    '': Command(
        'Measures claims, all if none is named, and prints which of them hold.',
        run,
        ('output',),
        examples=('{}', '{} gradients recall --output=FOLDER'),
        words=('[NAME...]',),
    )
}
FLAGS = {
    'output': Flag(str, 'runs/claims', 'where figures, numbers and tables are written', 'FOLDER'),
}


def main(argv: Sequence[str]) -> int:
    """Measures claims. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.claims', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
