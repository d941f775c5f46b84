"""Draws attention, positional encodings, learning rates and curves, and differences.

    python -m experiments.figures attention --workdir=runs/tiny --word=it
    python -m experiments.figures positions configs/tiny.py
    python -m experiments.figures schedule configs/base.py configs/big.py
    python -m experiments.figures curves runs/tiny runs/multi30k
    python -m experiments.figures differences runs/table3-grammar

Each figure is written as PNG and SVG; `attention` also writes an interactive
HTML page in one file.
"""

import os
import pathlib
import sys
from collections.abc import Sequence

import jax
import matplotlib
import numpy as np
from etils import epath
from matplotlib.figure import Figure

from experiments.figures import differences, plots
from transformer import config as configs
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import Config, ConfigError
from transformer.config.files import read_config_file
from transformer.inference import attention as attentions
from transformer.inference import attention_figures
from transformer.nn import positions
from transformer.runs import metrics_file, restore
from transformer.runs.workdir import Run
from transformer.tasks import verb_of

KINDS = {
    'encoder': attentions.ENCODER_SELF_ATTENTION,
    'cross': attentions.CROSS_ATTENTION,
    'decoder': attentions.DECODER_SELF_ATTENTION,
}
DPI = 150


def draw_attention(call: Call) -> None:
    """Draws attention as lines, like the paper's figures 3 to 5, and as maps of all heads; writes a page."""
    flags = call.flags
    if flags.sentence is not None and not flags.sentence.strip():
        raise ConfigError('--sentence: is empty')
    run = Run.open(flags.workdir)
    verb = verb_of(run.config, 'attention')
    trained, origin = restore.load_and_report(run, flags.checkpoint)
    attention = verb(trained, flags.sentence)
    kinds = {kind.name: attentions.by_words(kind)._replace(word=flags.word) for kind in attention.kinds}
    name = KINDS[flags.attention] if flags.attention else next(iter(kinds))
    if name not in kinds:
        raise ConfigError(f'--attention={flags.attention}: this model has no {name}')
    kind = kinds[name]
    layers, heads, _, _ = kind.weights.shape
    [layer] = _parse_numbers('layer', flags.layer or str(layers), layers, most=1)
    chosen = _parse_numbers('heads', flags.heads, heads) if flags.heads else list(range(heads))
    query, folder = attention_figures.place_of(kind.queries, kind.word), _folder(call)
    first = attention_figures.Choice(list(kinds).index(name), layer, chosen, query)
    by_words = attention._replace(kinds=list(kinds.values()))
    page = attention_figures.page(by_words, f'{flags.workdir}, {origin}', first)
    files.write_text(folder / 'attention.html', page)
    print(folder / 'attention.html')
    _write(folder / 'lines', attention_figures.draw_lines([[kind]], layer, chosen))
    _write(folder / 'heads', attention_figures.draw_heads(kind))


def draw_positions(call: Call) -> None:
    """Draws the sinusoids of a config, or the positions that a model learned."""
    [path] = call.words
    config = _config(path)
    m = config.model
    if m.positions == 'sinusoidal':
        table = positions.sinusoid(call.flags.length, m.d_model, m.sinusoid)
        title = f'sinusoids ({m.sinusoid}), d_model {m.d_model}'
    elif m.positions == 'learned' and os.path.isdir(path):
        trained, origin = restore.load_and_report(Run.open(path))
        leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(trained.params))
        tables = {jax.tree_util.keystr(where, simple=True, separator='/'): leaf for where, leaf in leaves}
        name = next(name for name in tables if name.endswith('positions/table'))
        table, title = np.asarray(tables[name])[: call.flags.length], f'{path}: learned, {name}, {origin}'
    else:
        reason = 'needs a work directory' if m.positions == 'learned' else 'adds none to embeddings'
        raise ConfigError(f'{path}: model.positions={m.positions!r} {reason}')
    _write(_folder(call) / 'positions', plots.draw_positions(table, title))


def draw_schedule(call: Call) -> None:
    """Draws the learning rates of config files and work directories."""
    _write(_folder(call) / 'schedule', plots.draw_schedule({path: _config(path) for path in _paths(call)}))


def draw_curves(call: Call) -> None:
    """Draws the learning curves of work directories."""
    metrics = {path: list(metrics_file.read(pathlib.Path(path))) for path in _paths(call)}
    for path, lines in metrics.items():
        if not lines:
            raise ConfigError(f'{path}: has no line in metrics.jsonl')
    _write(_folder(call) / 'curves', plots.draw_curves(metrics))


def draw_differences(call: Call) -> None:
    """Draws how far the rows of a sweep are from base, beside the paper's."""
    _write(_folder(call) / 'differences', differences.draw(pathlib.Path(call.words[0])))


def _paths(call: Call) -> tuple[str, ...]:
    if not call.words:
        raise ConfigError(f'{call.command}: name at least one config file or work directory')
    return call.words


def _config(path: str) -> Config:
    """The config of a config file or a work directory."""
    if os.path.isdir(path):
        return Run.open(epath.Path(path)).config
    if not os.path.isfile(path):
        raise ConfigError(f'{path}: no such config file or work directory')
    return configs.resolve(read_config_file(path))


def _folder(call: Call) -> pathlib.Path:
    """The folder of the figures, created if it is missing."""
    folder = pathlib.Path(call.flags.output)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _parse_numbers(flag: str, text: str, count: int, most: int | None = None) -> list[int]:
    """Parses comma-separated numbers from 1, and returns them as indices from 0."""
    numbers = [int(part) if part.strip().isdecimal() else 0 for part in text.split(',')]
    if not all(1 <= number <= count for number in numbers) or len(numbers) > (most or len(numbers)):
        kind = 'one of' if most == 1 else 'some of'
        raise ConfigError(f'--{flag}={text}: choose {kind} 1 to {count}')
    return [number - 1 for number in dict.fromkeys(numbers)]


def _write(path: pathlib.Path, figure: Figure) -> None:
    """Writes a figure as PNG and SVG, and closes it; the same figure gives the same bytes."""
    with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'figures'}):
        files.write_figure(path.with_suffix('.svg'), figure, metadata={'Date': None})
    files.write_figure(path.with_suffix('.png'), figure, dpi=DPI)
    matplotlib.pyplot.close(figure)
    print(path.with_suffix('.svg'), path.with_suffix('.png'), sep='\n')


COMMANDS = {
    'attention': Command(
        'Attention in a sentence: lines, maps of all heads, and an interactive page.',
        draw_attention,
        ('workdir', 'checkpoint', 'sentence', 'attention', 'layer', 'heads', 'word', 'output'),
        examples=('{} attention --workdir=runs/tiny --word=it',),
    ),
    'positions': Command(
        'Positional encodings: the sinusoids of a config, or learned positions.',
        draw_positions,
        ('length', 'output'),
        words=('FILE',),
        examples=('{} positions configs/tiny.py', '{} positions runs/learned'),
    ),
    'schedule': Command('Learning rate by update.', draw_schedule, ('output',), words=('FILE...',)),
    'curves': Command(
        'Loss by update, in training and on dev.', draw_curves, ('output',), words=('FOLDER...',)
    ),
    'differences': Command(
        "How far a sweep's rows are from base, beside the paper's.",
        draw_differences,
        ('output',),
        words=('FOLDER',),
        examples=('{} differences experiments/results/table3-grammar',),
    ),
}
FLAGS = {
    'workdir': Flag(str, 'runs/tiny', 'the trained model', 'FOLDER'),
    'checkpoint': Flag(str, 'scored', 'step, latest, best, average or scored', 'NAME'),
    'sentence': Flag(str, None, 'the sentence (default: as for run.py figure)', 'TEXT'),
    'attention': Flag(str, None, "kind (default: the model's first)", 'KIND', choices=tuple(KINDS)),
    'layer': Flag(str, None, 'layer, from 1 (default: the last)', 'N'),
    'heads': Flag(str, None, 'heads, from 1, separated by commas (default: all)', 'NUMBERS'),
    'word': Flag(str, None, "draw only the lines from this word's first occurrence", 'WORD'),
    'length': Flag(int, 100, 'number of positions', 'N', least=2, most=10_000),
    'output': Flag(str, 'runs/figures', 'folder for the figures', 'FOLDER'),
}


def main(argv: Sequence[str]) -> int:
    """Runs one command. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.figures', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
