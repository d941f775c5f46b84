"""Draws attention, positional encodings, learning rates and learning curves.

    python -m experiments.figures attention --workdir=runs/tiny --word=it
    python -m experiments.figures positions configs/tiny.py
    python -m experiments.figures schedule configs/base.py configs/big.py
    python -m experiments.figures curves runs/tiny runs/multi30k

Each figure is written as PNG and as SVG; of attention there is a page too,
which needs no other file.
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

from experiments.figures import plots
from experiments.sweeps import runs
from transformer import config as configs
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import Config, ConfigError
from transformer.config.files import read_config_file
from transformer.inference import attention as attentions
from transformer.inference import attention_figures
from transformer.inference.attention import by_words
from transformer.nn import positions
from transformer.runs import restore
from transformer.runs.workdir import Run
from transformer.tasks import verb_of

KINDS = {
    'encoder': attentions.ENCODER_SELF_ATTENTION,
    'cross': attentions.CROSS_ATTENTION,
    'decoder': attentions.DECODER_SELF_ATTENTION,
}
DPI = 150


def draw_attention(call: Call) -> None:
    """Draws a layer as the paper's figures 3 to 5 and all heads of a kind, and writes the page of all kinds.

    Raises:
      ConfigError: there is no such model, or it lacks what the flags name.
    """
    if call.flags.sentence is not None and not call.flags.sentence.strip():
        raise ConfigError('--sentence: is empty')
    run = Run.open(call.flags.workdir)
    verb = verb_of(run.config, 'attention')
    trained, origin = restore.load_and_report(run, call.flags.checkpoint)
    seen = verb(trained, call.flags.sentence)
    kinds = {kind.name: by_words(kind)._replace(word=call.flags.word) for kind in seen.kinds}
    name = KINDS[call.flags.attention] if call.flags.attention else next(iter(kinds))
    if name not in kinds:
        raise ConfigError(f'--attention={call.flags.attention}: this model has no {name}')
    kind, place = kinds[name], list(kinds).index(name)
    layers, heads, _, _ = kind.weights.shape
    [layer] = _numbered('layer', call.flags.layer or str(layers), layers, most=1)
    chosen = _numbered('heads', call.flags.heads, heads) if call.flags.heads else list(range(heads))
    query, folder = attention_figures.place_of(kind.queries, kind.word), _folder(call)
    first = attention_figures.Choice(place, layer, chosen, query)
    page = attention_figures.page(
        seen._replace(kinds=list(kinds.values())), f'{call.flags.workdir}, {origin}', first
    )
    files.write_text(folder / 'attention.html', page)
    print(folder / 'attention.html')
    _write(folder / 'lines', attention_figures.draw_lines([[kind]], layer, chosen))
    _write(folder / 'heads', attention_figures.draw_heads(kind))


def draw_positions(call: Call) -> None:
    """Draws the sinusoids of a config file, or what positions a work directory's model learned.

    Raises:
      ConfigError: there is no such file, or its model adds no positions to embeddings.
    """
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
        learned = ', which a config file does not have' if m.positions == 'learned' else ''
        raise ConfigError(f'{path}: model.positions={config.model.positions!r}{learned}: nothing to draw')
    _write(_folder(call) / 'positions', plots.draw_positions(table, title))


def draw_schedule(call: Call) -> None:
    """Draws the learning rate of config files and work directories.

    Raises:
      ConfigError: there is no such file.
    """
    _write(_folder(call) / 'schedule', plots.draw_schedule({path: _config(path) for path in _named(call)}))


def draw_curves(call: Call) -> None:
    """Draws the loss of work directories by update.

    Raises:
      ConfigError: one holds no metrics.
    """
    found = {path: list(runs.metrics(pathlib.Path(path))) for path in _named(call)}
    for path, lines in found.items():
        if not lines:
            raise ConfigError(f'{path}: no metrics.jsonl with a line there')
    _write(_folder(call) / 'curves', plots.draw_curves(found))


def _named(call: Call) -> tuple[str, ...]:
    if not call.words:
        raise ConfigError(f'{call.command}: name at least one config file or work directory')
    return call.words


def _config(path: str) -> Config:
    """The config of a config file, or of a work directory."""
    if os.path.isdir(path):
        return Run.open(epath.Path(path)).config
    if not os.path.isfile(path):
        raise ConfigError(f'{path}: no such config file or work directory')
    return configs.resolve(read_config_file(path))


def _folder(call: Call) -> pathlib.Path:
    """Where the figures go."""
    folder = pathlib.Path(call.flags.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f'--output={folder}: {error.strerror}') from None
    return folder


def _numbered(flag: str, text: str, count: int, most: int | None = None) -> list[int]:
    """Numbers from 1 that a flag names, as places from 0."""
    numbers = [int(part) if part.strip().isdecimal() else 0 for part in text.split(',')]
    if not all(1 <= number <= count for number in numbers) or len(numbers) > (most or len(numbers)):
        kind = 'one of' if most == 1 else 'some of'
        raise ConfigError(f'--{flag}={text}: choose {kind} 1 to {count}')
    return [number - 1 for number in dict.fromkeys(numbers)]


def _write(path: pathlib.Path, figure: Figure) -> None:
    """Writes a figure as PNG and SVG, and closes it. The same figure gives the same files."""
    with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'figures'}):
        files.write_figure(path.with_suffix('.svg'), figure, metadata={'Date': None})
    files.write_figure(path.with_suffix('.png'), figure, dpi=DPI)
    matplotlib.pyplot.close(figure)
    print(path.with_suffix('.svg'), path.with_suffix('.png'), sep='\n')


COMMANDS = {
    'attention': Command(
        'What a model attends to in a sentence: lines, all heads, a page.',
        draw_attention,
        ('workdir', 'checkpoint', 'sentence', 'attention', 'layer', 'heads', 'word', 'output'),
        examples=('{} attention --workdir=runs/tiny --word=it',),
    ),
    'positions': Command(
        'Positional encodings: sinusoids of a config, or what a model learned.',
        draw_positions,
        ('length', 'output'),
        words=('FILE',),
        examples=('{} positions configs/tiny.py', '{} positions runs/learned'),
    ),
    'schedule': Command(
        'The learning rate of every update.',
        draw_schedule,
        ('output',),
        words=('FILE...',),
        examples=('{} schedule configs/base.py configs/big.py',),
    ),
    'curves': Command(
        'Loss by update, in training and on dev.',
        draw_curves,
        ('output',),
        words=('FOLDER...',),
        examples=('{} curves runs/tiny runs/multi30k',),
    ),
}
FLAGS = {
    'workdir': Flag(str, 'runs/tiny', 'the trained model', 'FOLDER'),
    'checkpoint': Flag(str, 'scored', 'step, latest, best, average or scored', 'NAME'),
    'sentence': Flag(str, None, "what it reads (default: the paper's example)", 'TEXT'),
    'attention': Flag(
        str, None, 'which attention (default: the first that it has)', 'KIND', choices=tuple(KINDS)
    ),
    'layer': Flag(str, None, 'which layer, from 1 (default: the last)', 'N'),
    'heads': Flag(str, None, 'which heads, from 1, separated by commas (default: all)', 'NUMBERS'),
    'word': Flag(str, None, 'only the lines of this word, where it stands first', 'WORD'),
    'length': Flag(int, 100, 'how many positions', 'N', least=2, most=10_000),
    'output': Flag(str, 'runs/figures', 'where the figures are written', 'FOLDER'),
}


def main(argv: Sequence[str]) -> int:
    """Draws. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.figures', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
