"""Draws the model, attention, positions, learning rates, curves and differences.

    python -m experiments.figures model
    python -m experiments.figures attention --workdir=runs/tiny --word=it
    python -m experiments.figures positions configs/tiny.py
    python -m experiments.figures schedule configs/base.py configs/big.py
    python -m experiments.figures curves runs/tiny runs/multi30k
    python -m experiments.figures differences runs/table3-grammar

Each figure is written as SVG and PNG, or as --format=pdf; for print, --width
sets its width. `attention` also writes an interactive HTML page in one file;
`model` is an SVG file alone.
"""

import os
import pathlib
import re
import sys
from collections.abc import Sequence

import matplotlib
import numpy as np
from etils import epath
from matplotlib.figure import Figure

from experiments.figures import differences, model, plots
from experiments.sweeps import runs
from transformer import config as configs
from transformer import files
from transformer.cli.flags import Call, Command, Flag, Program
from transformer.cli.main import run_program
from transformer.config import Config, ConfigError, declare
from transformer.config.files import find_config, read_config_file
from transformer.inference import attention as attentions
from transformer.inference import attention_figures
from transformer.nn import positions
from transformer.runs import metrics_file, restore
from transformer.runs.hashes import named_leaves
from transformer.runs.workdir import Run
from transformer.tasks import verb_of

KINDS = {
    'encoder': attentions.ENCODER_SELF_ATTENTION,
    'cross': attentions.CROSS_ATTENTION,
    'decoder': attentions.DECODER_SELF_ATTENTION,
}
DPI, PRINT_DPI = 150, 300
FORMATS = ('svg', 'png')  # written by default; also pdf
NARROWEST, WIDEST = 4, 60  # centimetres


def draw_model(call: Call) -> None:
    """Draws the parts of the paper's base model, with the paths of their parameters."""
    path = _folder(call) / 'model.svg'
    files.write_text(path, model.draw())
    print(path)


def draw_attention(call: Call) -> None:
    """Draws attention as lines like the paper's figures 3 to 5, as maps of all heads, and as a page."""
    flags = call.flags
    if flags.sentence is not None and not flags.sentence.strip():
        raise ConfigError('--sentence: is empty')
    if not files.is_utf8(flags.sentence or ''):
        raise ConfigError('--sentence: is not UTF-8')
    _inches(call)  # a mistake is reported before the model is loaded and the page written
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
    first = attention_figures.FirstView(list(kinds).index(name), layer, chosen, query)
    by_words = attention._replace(kinds=list(kinds.values()))
    page = attention_figures.page(by_words, f'{flags.workdir}, {origin}', first)
    files.write_text(folder / 'attention.html', page)
    print(folder / 'attention.html')
    _write(call, 'lines', attention_figures.draw_lines([[kind]], layer, chosen))
    _write(call, 'heads', attention_figures.draw_heads(kind))


def draw_positions(call: Call) -> None:
    """Draws the sinusoids of a config, or the positions that a model learned."""
    [path] = call.words
    config = _config(path)
    m = config.model
    if not declare.has_meaning(configs.OPTIONS, configs.flatten(config), 'model.positions'):
        raise ConfigError(f'{path}: model.kind={m.kind!r} has no model.positions')
    if m.positions == 'sinusoidal':
        first = m.first_position
        table = positions.sinusoid(first + call.flags.length, m.d_model, m.sinusoid)[first:]
        title = f'sinusoids ({m.sinusoid}), d_model {m.d_model}'
    elif m.positions == 'learned' and os.path.isdir(path):
        trained, origin = restore.load_and_report(Run.open(path))
        tables = named_leaves(trained.params)
        name = next(name for name in tables if name.endswith('positions/table'))
        table, title = np.asarray(tables[name])[: call.flags.length], f'{path}: learned, {name}, {origin}'
    else:
        reason = 'needs a work directory' if m.positions == 'learned' else 'adds none to embeddings'
        raise ConfigError(f'{path}: model.positions={m.positions!r} {reason}')
    _write(call, 'positions', plots.draw_positions(table, title))


def draw_schedule(call: Call) -> None:
    """Draws the learning rates of config files and work directories."""
    found = {path: _config(path) for path in _paths(call)}
    for path, config in found.items():
        if config.train.epochs is not None:
            raise ConfigError(
                f'{path}: train.epochs={config.train.epochs}: depends on data; draw a work directory'
            )
    _write(call, 'schedule', plots.draw_schedule(found))


def draw_curves(call: Call) -> None:
    """Draws the learning curves of work directories, and of the rows of sweeps."""
    groups: dict[tuple[pathlib.Path, str], list[plots.Curves]] = {}
    for path in dict.fromkeys(map(pathlib.Path, _paths(call))):
        curves = [(name, list(metrics_file.read(folder))) for name, folder in _runs(path)]
        if not any(lines for _, lines in curves):
            raise ConfigError(f'{path}: has no line in metrics.jsonl')
        for name, lines in curves:
            if lines:
                groups.setdefault((path, name), []).append(lines)
    metrics, chosen = ['loss', 'dev_loss'], call.flags.metric
    known = {key for lines_of in groups.values() for lines in lines_of for line in lines for key in line}
    if chosen is not None and chosen not in known - {'step'}:
        raise ConfigError(f'--metric={chosen}: choose one of {", ".join(sorted(known - {"step"}))}')
    # Rows of two sweeps may have the same name, but need not be the same.
    names = [name for _, name in groups]
    labels = [f'{path}: {name}' if names.count(name) > 1 else name for path, name in groups]
    by_label = dict(zip(labels, groups.values(), strict=True))
    _write(call, 'curves', plots.draw_curves(by_label, [chosen] if chosen else metrics))


def _runs(path: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """Lists names and folders of runs: the work directory itself, or a sweep's runs, named by their rows."""
    if not (path / runs.SWEEP).exists():
        return [(str(path), path)]
    return [(run.row, run.folder) for run in runs.read_sweep(path).all_runs(path)]


def draw_differences(call: Call) -> None:
    """Draws how far the rows of a sweep are from base, beside the paper's."""
    _write(call, 'differences', differences.draw(pathlib.Path(call.words[0])))


def _paths(call: Call) -> tuple[str, ...]:
    if not call.words:
        raise ConfigError(f'{call.command}: name at least one config file or work directory')
    return call.words


def _config(path: str) -> Config:
    """Reads the config of a config file or a work directory."""
    if os.path.isdir(path):
        return Run.open(epath.Path(path)).config
    try:
        file = find_config(path)
    except ConfigError:
        raise ConfigError(f'{path}: no such config file or work directory') from None
    return configs.resolve(read_config_file(file))


def _folder(call: Call) -> pathlib.Path:
    """Returns the folder of the figures, and creates it if it is missing."""
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


def _write(call: Call, name: str, figure: Figure) -> None:
    """Writes a figure in a call's formats and width, and closes it. The same figure gives the same bytes."""
    formats = (call.flags.format,) if call.flags.format else FORMATS
    if width := _inches(call):
        plots.fit(figure, width)
    for ending in formats:
        path = _folder(call) / f'{name}.{ending}'
        # PDF and SVG files contain dates, which are left out.
        date = {'svg': {'metadata': {'Date': None}}, 'pdf': {'metadata': {'CreationDate': None}}}
        # TrueType in PDF, as publishers demand.
        with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'figures', 'pdf.fonttype': 42}):
            files.write_figure(path, figure, dpi=PRINT_DPI if width else DPI, **date.get(ending, {}))
        print(path)
    matplotlib.pyplot.close(figure)


def _inches(call: Call) -> float | None:
    """Parses a call's width, given as 8.4cm or 3.3in. Returns inches, or None without a width."""
    text = call.flags.width
    if text is None:
        return None
    match = re.fullmatch(r'(\d+\.?\d*)(cm|in)', text)
    value = float(match[1]) * (2.54 if match[2] == 'in' else 1.0) if match else 0.0
    if not NARROWEST <= value <= WIDEST:
        raise ConfigError(f'--width={text}: give centimetres or inches from {NARROWEST}cm to {WIDEST}cm')
    return value / 2.54


FILE = ('format', 'width', 'output')
COMMANDS = {
    'model': Command(
        "The parts of the paper's base model, with the paths and shapes of their parameters (SVG).",
        draw_model,
        ('output',),
        examples=('{} model --output=experiments/figures',),
    ),
    'attention': Command(
        'Attention in a sentence: lines, maps of all heads, and an interactive page.',
        draw_attention,
        ('workdir', 'checkpoint', 'sentence', 'attention', 'layer', 'heads', 'word', *FILE),
        examples=('{} attention --workdir=runs/tiny --word=it',),
    ),
    'positions': Command(
        'Positional encodings: the sinusoids of a config, or learned positions.',
        draw_positions,
        ('length', *FILE),
        words=('FILE',),
        examples=('{} positions configs/tiny.py', '{} positions runs/learned'),
    ),
    'schedule': Command('Learning rate by update.', draw_schedule, FILE, words=('FILE...',)),
    'curves': Command(
        'Loss or another metric by update; the rows of a sweep are means over seeds.',
        draw_curves,
        ('metric', *FILE),
        words=('FOLDER...',),
        examples=('{} curves runs/tiny', '{} curves runs/table3 --metric=dev_loss'),
    ),
    'differences': Command(
        "How far a sweep's rows are from base, beside the paper's.",
        draw_differences,
        FILE,
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
    'metric': Flag(str, None, 'name in metrics.jsonl (default: loss and dev_loss)', 'NAME'),
    'length': Flag(int, 100, 'number of positions', 'N', least=2, most=10_000),
    'format': Flag(str, None, 'format (default: svg and png)', 'FORMAT', choices=(*FORMATS, 'pdf')),
    'width': Flag(str, None, 'width in print, such as 8.4cm; 300 dots per inch', 'WIDTH'),
    'output': Flag(str, 'runs/figures', 'folder for the figures', 'FOLDER'),
}


def main(argv: Sequence[str]) -> int:
    """Runs one command. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.figures', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
