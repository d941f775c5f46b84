"""Damages folders at random: their JSON, arrays, bytes and file names, by a seed.

    PYTHONPATH=. python tests/interop/fuzz.py imports 1000
    PYTHONPATH=. python tests/interop/fuzz.py workdirs 1000

runs commands on damaged folders, and prints each damage, and whether the command ended with a status, with a
traceback, or not at all.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import safetensors.numpy
from etils import epath

FOLDER = pathlib.Path(__file__).parent
LIMIT = 20  # seconds of the processor
UNREAD = 'LICENSE', 'ctranslate2.json', 'expected.json', 'annalog.json'  # by commands
_DEEP = '[' * 200 + ']' * 200
# Texts of JSON; the last five are no JSON.
VALUES = (
    'null', 'true', 'false', '"false"', '"true"', '""', '"x"', '"\\ud800"', '"\\u0000"', '"../x"', '"(a+)+$"',
    '"(x|x)*y"', '0', '1', '-1', '3', '1.5', '-0.5', '1000000', '1000000000000', '1' + '0' * 400, '1e-300',
    '[]', '{}', '[[]]', '[{}]', '[null]', '[1, 2]', '["a", "a"]', '{"a": 1}', '{"0": "x"}', _DEEP,
    '[' * 100000, '1e999', 'NaN', 'Infinity', '-',
)  # fmt: skip
_MARK = 'a value to be replaced'


class Hang(BaseException):
    """A command took more than LIMIT seconds."""


def _places(value: object, path: tuple = ()) -> Iterator[tuple]:
    """Yields the path of a JSON value and of all values in it, few of each long list or object."""
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for number, (key, inner) in enumerate(items):
            if number < 40:
                yield from _places(inner, (*path, key))


def _damage_json(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    value = json.loads(content)
    path = rng.choice([*_places(value)])
    how = rng.choice(('set', 'set', 'set', 'remove', 'rename', 'add'))
    text = rng.choice(VALUES)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if not path:
        return text.encode(), f'{text[:20]}'
    if how == 'remove':
        del holder[path[-1]]
    elif how == 'rename' and isinstance(holder, dict):
        holder[rng.choice(('x', '', '\0', '7', '-1', path[-1] + 'x', '999999999'))] = holder.pop(path[-1])
    elif how == 'add' and isinstance(holder, list):
        holder.append(_MARK)
    else:
        holder[path[-1]] = _MARK
    return json.dumps(value).replace(f'"{_MARK}"', text).encode(), f'{how} {path} {text[:20]}'


def _damage_bytes(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    how = rng.choice(('cut', 'flip', 'zero', 'insert', 'empty', 'more', 'noise'))
    place = rng.randrange(max(len(content), 1))
    if rng.random() < 0.5:
        place = min(place, rng.randrange(64))
    if how == 'flip' and content:
        content = content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]
    else:
        content = {
            'cut': content[:place],
            'zero': content[:place] + bytes(4) + content[place + 4 :],
            'insert': content[:place] + rng.randbytes(3) + content[place:],
            'more': content + rng.randbytes(5),
            'noise': content[:place] + rng.randbytes(8) + content[place + 8 :],
        }.get(how, b'')
    return content, f'{how} {place}'


def _damage_lines(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    lines = content.split(b'\n')
    place, how = rng.randrange(len(lines)), rng.choice(('remove', 'twice', 'swap', 'change'))
    if how == 'remove':
        del lines[place]
    elif how == 'twice':
        lines.insert(rng.randrange(len(lines)), lines[place])
    elif how == 'swap':
        rng.shuffle(lines)
    else:
        lines[place] = rng.choice((b'', b'\xff', b'\0', b'a' * 1000, b'<s>', b'\xf0\x9f\x98\x80'))
    return b'\n'.join(lines), f'{how} line {place}'


def _damage_arrays(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    arrays = dict(safetensors.numpy.load(content))
    name = rng.choice(sorted(arrays))
    array, how = (
        arrays[name],
        rng.choice(('remove', 'rename', 'double', 'shape', 'type', 'nan', 'empty', 'far')),
    )
    if how in ('remove', 'rename'):
        del arrays[name]
    if how == 'rename':
        arrays[rng.choice((f'module.{name}', f'{name}x', '', 'a' * 300, name.replace('.0.', '.9.')))] = array
    changed = {
        'double': lambda: np.concatenate([array, array]),
        'shape': lambda: rng.choice((array.reshape(-1), array[None], array.T, array[:0], array[:1])),
        'type': lambda: array.astype(rng.choice(('i8', 'f2', 'f8', '?', 'u1'))),
        'nan': lambda: np.full_like(array, rng.choice((np.nan, np.inf, 1e30))),
        'empty': lambda: np.zeros((0, 3), 'f'),
        'far': lambda: np.zeros((3, 100001), 'f'),
    }
    if how in changed:
        with np.errstate(all='ignore'):
            arrays[name] = changed[how]()
    if not arrays[name].ndim if name in arrays else False:
        arrays[name] = arrays[name][None]
    return safetensors.numpy.save({n: np.ascontiguousarray(a) for n, a in arrays.items()}), f'{how} {name}'


def damage(rng: random.Random, folder: pathlib.Path) -> str:
    """Damages a file of a folder, and describes how."""
    found = sorted(path for path in folder.rglob('*') if path.is_file())
    # Work directories have few files that are read first, and many in checkpoints.
    first = [path for path in found if path.parent == folder]
    file = rng.choice(found if rng.random() < 0.2 or not first else first)
    name, how = file.relative_to(folder), rng.random()
    if how < 0.04:
        file.unlink()
        return f'{name}: removed'
    if how < 0.06:
        file.unlink()
        file.mkdir()
        return f'{name}: a folder'
    if how < 0.08:
        with open(os.fsencode(folder) + b'/odd\xff\n', 'wb'):
            return 'a name that is not UTF-8'
    content = file.read_bytes()
    kinds = [_damage_bytes]
    if file.suffix == '.json' or content.startswith(b'{"tokenizer"'):
        kinds += [_damage_json] * 6
    if file.suffix in ('.txt', '.jsonl', '.spm'):
        kinds += [_damage_lines] * 3
    if file.suffix == '.safetensors':
        kinds += [_damage_arrays] * 4
    try:
        content, what = rng.choice(kinds)(rng, content)
    except (ValueError, RecursionError, safetensors.SafetensorError):  # damaged already
        content, what = _damage_bytes(rng, content)
    file.write_bytes(content)
    return f'{name}: {what}'


def _late(*arguments):
    raise Hang


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises Hang after some seconds."""
    # Of this process, because other work on the machine slows it; and much more of the clock, for what waits.
    clocks = {
        signal.SIGPROF: (signal.ITIMER_PROF, seconds),
        signal.SIGALRM: (signal.ITIMER_REAL, 10 * seconds),
    }
    before = {number: signal.signal(number, _late) for number in clocks}
    for timer, limit in clocks.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for number, (timer, _) in clocks.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def outcome(command: Callable[[pathlib.Path], int], folder: pathlib.Path) -> str:
    """Runs a command, and returns its status, or the traceback of an error that is no user's mistake."""
    try:
        with limited(LIMIT):
            return f'status {command(folder)}'
    except KeyboardInterrupt:
        raise
    except Hang:
        return 'hang\n' + ''.join(traceback.format_exc().splitlines(keepends=True)[-12:])
    except BaseException:
        return 'traceback\n' + traceback.format_exc()


def run_import(folder: pathlib.Path) -> int:
    """Imports the model in a folder."""
    from transformer.cli import main

    plan, output = folder / 'nn_transformer.json', folder.parent / 'out'
    mapping = (folder / 'nn_transformer.safetensors', f'--mapping={plan}')
    words = map(str, mapping if folder.name == 'mapping' else (folder,))
    try:
        return main.main(['run.py', 'import', *words, f'--output={output}'])
    finally:
        shutil.rmtree(output, ignore_errors=True)


def read(folder: pathlib.Path) -> int:
    """Reads the model in a folder, or the files that describe a work directory, quicker than a command."""
    from transformer.config import ConfigError
    from transformer.interop import mapping
    from transformer.interop.hugging_face import reading
    from transformer.runs import metrics_file
    from transformer.runs.workdir import Run

    path = epath.Path(folder)
    try:
        if folder.name == 'mapping':
            mapping.read(path / 'nn_transformer.safetensors', path / 'nn_transformer.json')
        elif folder.name == 'run':
            run = Run.open(path)
            _ = run.codecs, run.start(), run.result(), list(metrics_file.read(path))
        else:
            reading.read(path)
    except (ConfigError, OSError):
        return 2
    return 0


def sources(kind: str, folder: pathlib.Path) -> dict[pathlib.Path, list[Callable[[pathlib.Path], int]]]:
    """Returns the folders to damage, each with the commands that read it."""
    if kind == 'readers':
        with tarfile.open(FOLDER.parent / 'b87eb5f.tar.gz') as archive:
            archive.extractall(folder, filter='data')
        inputs = [*(FOLDER / 'hugging_face').glob('*/'), FOLDER / 'mapping', folder / 'run']
        return {path: [read] for path in sorted(inputs) if path.is_dir()}
    if kind == 'imports':
        others = FOLDER / 'ctranslate2' / 'aren_transliteration', FOLDER / 'mapping'
        inputs = [*(FOLDER / 'hugging_face').glob('*/'), *others]
        return {path: [run_import] for path in sorted(inputs) if path.is_dir()}
    from transformer.cli import main
    from transformer.interop import import_model

    with tarfile.open(FOLDER.parent / 'b87eb5f.tar.gz') as archive:
        archive.extractall(folder, filter='data')
    for name in ('bert', 'gpt2', 'marian', 'vit'):
        import_model.import_model(FOLDER / 'hugging_face' / name, folder / name, {})
    (folder / 'line').write_text('The dog sees the cat.\n')

    def call(*words: str) -> Callable[[pathlib.Path], int]:
        def command(path: pathlib.Path) -> int:
            output = path.parent / 'out'
            try:
                return main.main(['run.py', *(word.format(path=path, output=output) for word in words)])
            finally:
                shutil.rmtree(output, ignore_errors=True)

        return command

    own, lines = '--workdir={path}', f'--input={folder / "line"}'
    config = f'--config={folder / "config.py"}', f'--config.data.dir={folder / "text"}'
    every = [
        call('export', own, '--format=safetensors', '--output={output}'),
        call('export', own, '--format=huggingface', '--output={output}'),
        call('diagnose', own, '--split=dev'),
        call('average', own, '--last=2'),
    ]
    translate = call('translate', own, lines)
    trained = [
        translate,
        call('evaluate', own, '--split=dev'),
        call('compare', '{path}', str(folder / 'run'), '--split=dev'),
        call('train', own, *config, '--config.train.steps=300'),
        call('train', '--workdir={output}', *config, '--init_from={path}', '--config.train.steps=1'),
        call('config', '--config={path}/config.json'),
    ]
    return {
        folder / 'run': [*every, *trained],
        folder / 'bert': [*every, call('embed', own, lines)],
        folder / 'gpt2': [*every, call('generate', own, lines)],
        folder / 'marian': [*every, translate],
        folder / 'vit': every,
    }


def fuzz(kind: str, number: int, folder: pathlib.Path, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yields how each damaged folder was damaged, and how a command on it ended."""
    (folder / 'sources').mkdir()
    inputs = sources(kind, folder / 'sources')
    for i in range(number):
        rng = random.Random(f'{seed} {i}')
        source = rng.choice([*inputs])
        command = rng.choice(inputs[source])
        damaged = folder / source.name
        shutil.copytree(source, damaged, ignore=shutil.ignore_patterns(*UNREAD))
        try:
            what = damage(rng, damaged)
            if rng.random() < 0.2:
                what += f'; {damage(rng, damaged)}'
            yield f'{i} {source.name} {inputs[source].index(command)}: {what}', outcome(command, damaged)
        finally:
            shutil.rmtree(os.fsencode(damaged))


def main(kind: str, number: str, seed: str = '0') -> None:
    """Prints the damages after which a command failed, and how many ended how."""
    counts, before = Counter(), time.time()
    # Programs that compile quickly.
    os.environ['XLA_FLAGS'] = '--xla_backend_optimization_level=0'
    os.environ['JAX_PLATFORMS'] = 'cpu'
    with tempfile.TemporaryDirectory() as folder:
        os.environ['TRANSFORMER_CACHE'] = f'{folder}/cache'
        for what, end in fuzz(kind, int(number), pathlib.Path(folder), int(seed)):
            counts[end.partition('\n')[0]] += 1
            took, before = time.time() - before, time.time()
            print(f'### {took:.1f} s {what}: {end}', flush=True)
    print(dict(counts))


if __name__ == '__main__':
    main(*sys.argv[1:])
