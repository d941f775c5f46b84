"""Work directories: opens them as a `Run`, claims them for a training, writes results and translations."""

import dataclasses
import functools
import os
import re
import shlex
from collections.abc import Callable, Mapping

from etils import epath

from transformer import config as configs
from transformer import files, locks
from transformer.config import Config, ConfigError, errors_in
from transformer.config.extras import needing
from transformer.data import cache, codec, text_input
from transformer.data import manifest as manifests
from transformer.data.codec import Codecs
from transformer.data.dataset import Dataset
from transformer.runs import parameters_file, process

# Files that `claim` writes before config.json. If it is killed, they can exist without config.json.
_FIRST = re.compile(
    r'(.+\.)?(tokenizer\.model|labels\.json)|data\.lock\.json|environment\.json|init_from\.json'
)
# The folder that holds the text and pieces of dev and test.
_DATA = 'data'
LINES = 'lines_sha256'  # the key of an evaluation's entry with the hash of its lines
# The shapes of files, for `files.check_shape`. Numbers of an evaluation are checked where they are read.
_EVALUATION = {'checkpoint?': str, 'steps?': [files.COUNT], 'split?': str, 'options?': dict, '*': object}
_RESULT = {
    'epochs?': float,
    'config?': dict,
    'scores?': {'*': {'checkpoint': str, **_EVALUATION}},
    'evaluations?': {'*': _EVALUATION},
    '*': object,
}
_START = {
    'workdir': str,
    'checkpoint': str,
    'steps': [files.COUNT],
    'place?': str,
    'params_sha256': str,
    'taken': [str],
    'left': {'*': str},
    '*': object,
}
# One run, or several.
_STARTS = (_START, {'workdir': str, 'params_sha256': str, 'starts': [_START]})
SHOWN = 8  # the most differences between two configs that an error lists

Result = dict[str, object]


@dataclasses.dataclass(frozen=True)
class Run:
    """An open work directory, whose config, manifest and codecs are read only once."""

    folder: epath.Path
    config: Config

    @classmethod
    def open(cls, folder: epath.PathLike) -> 'Run':
        """Opens a work directory. Raises ConfigError if it is not one, or its config is damaged."""
        folder = epath.Path(folder)
        _check_name(folder)
        if not (folder / 'config.json').exists():
            raise ConfigError(f'{folder}: not a work directory (it holds no config.json)')
        if not (folder / manifests.FILE).exists():
            raise ConfigError(
                f'{folder}: not a work directory (it holds no {manifests.FILE}); if it is a model of another '
                f'program, run.py import {shlex.quote(str(folder))} --output=WORKDIR makes one'
            )
        with errors_in(folder):
            return cls(folder, configs.from_json((folder / 'config.json').read_bytes()))

    @functools.cached_property
    def manifest(self) -> dict[str, object]:
        """Returns the manifest of its data: sources, counts and hashes."""
        return files.read_json(self.folder / manifests.FILE, manifests.SHAPE)

    @functools.cached_property
    def codecs(self) -> Codecs:
        """Returns its codecs by field: tokenizers and class names."""
        try:
            return codec.read_from(self.folder, self.manifest)
        except RuntimeError as error:
            raise ConfigError(f'{self.folder}: {error}') from None

    def given_codecs(self) -> Codecs:
        """Returns the tokenizers that were not learned from the data."""
        given = self.manifest.get(cache.GIVEN, {})
        # In earlier versions, `given` is the hash of a tokenizer that all fields share.
        return {name: one for name, one in self.codecs.items() if isinstance(given, str) or name in given}

    def copied_data(self) -> Dataset | None:
        """Returns the work directory's copy of every split but train, or None if it is missing or damaged."""
        return text_input.open_copy(self.folder / _DATA, self.manifest, self.codecs)

    def start(self) -> dict[str, object] | None:
        """Returns the record of a warm start, or None if the seed drew the first parameters."""
        file = self.folder / 'init_from.json'
        return files.read_json(file, _STARTS) if file.exists() else None

    def result(self) -> Result:
        """Returns the contents of result.json, which are empty if there is none yet."""
        return read_result(self.folder)

    def last_scores(self, split: str) -> tuple[str, dict[str, object]] | None:
        """Returns the name and entry of a split's scores, or None if it has none.

        The training's scores come before the last evaluation's.
        """
        result = self.result()
        named = [(n, e) for n, e in result.get('evaluations', {}).items() if e.get('split') == split]
        if scored := result.get('scores', {}).get(split):
            named.append((f'{split}.{scored["checkpoint"]}', scored))
        return named[-1] if named else None


def claim(
    folder: epath.Path,
    config: Config,
    codecs: Codecs,
    manifest: Mapping[str, object],
    init_from: dict[str, object] | None = None,
) -> None:
    """Creates a work directory. If it has a checkpoint, its config, data and warm start must be the same.

    Args:
      init_from: the other run whose parameters the training starts from, as `warm_start.Start.record`.

    Raises:
      ConfigError: it has another config, other data or another start, or is no work directory.
    """
    check_claim(folder, config, manifest, init_from)
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / 'environment.json', process.environment())
    if init_from:
        files.write_json(folder / 'init_from.json', init_from)
    else:
        (folder / 'init_from.json').unlink(missing_ok=True)
    write_description(folder, config, codecs, manifest)


def write_description(
    folder: epath.Path, config: Config, codecs: Codecs, manifest: Mapping[str, object]
) -> None:
    """Writes the files that all users of a model need beside its parameters."""
    for name, content in codec.contents(codecs).items():
        files.write_bytes(folder / name, content)
    files.write_json(folder / 'data.lock.json', manifest)
    # Last, so that a folder with a config.json is complete.
    files.write_text(folder / 'config.json', configs.to_json(config))


def check_claim(
    folder: epath.Path, config: Config, manifest: Mapping[str, object], init_from: Mapping[str, object] | None
) -> None:
    """Raises ConfigError if `claim` would, without changing files."""
    check_folder(folder, config)
    if (folder / 'config.json').exists() and holds_work(folder):
        run = Run.open(folder)
        check_same(run, manifest)
        check_start(run, init_from)


def _check_name(folder: epath.Path) -> None:
    """Raises ConfigError if Orbax could neither write nor read checkpoints in a folder of this name."""
    if not files.is_utf8(os.path.abspath(folder)):
        raise ConfigError(f'{folder}: the name of the folder is not UTF-8; rename it')


def check_folder(folder: epath.Path, config: Config) -> None:
    """Raises ConfigError if `claim` would whatever the data are."""
    _check_name(folder)
    if (folder / parameters_file.FILE).exists():
        raise ConfigError(
            f'{folder}: an exported model; train further in another --workdir, with --init_from={folder}'
        )
    if (folder / 'config.json').exists():
        if holds_work(folder):
            _check_options(Run.open(folder), config)
        # Read again after the training, which a damaged file would then have cost.
        read_result(folder)
    elif folder.exists() and any(p.name[0] != '.' and not _FIRST.fullmatch(p.name) for p in folder.iterdir()):
        raise ConfigError(f'{folder}: not empty and holds no config.json; choose another --workdir')


def check_writable(folder: epath.Path) -> None:
    """Raises OSError if no file can be made in a work directory."""
    probe = files.temporary_name(folder / 'probe')
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        error.filename = str(folder)
        raise


def check_place(name: epath.PathLike) -> None:
    """Raises an error if --draw's folder, which need not exist yet, can get no pictures. Makes nothing.

    Raises:
      ConfigError: the name is empty, or is no folder's, or matplotlib is not installed.
      OSError: no file can be made there.
    """
    folder = epath.Path(name)
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not str(name) or not there.is_dir():
        raise ConfigError(f'--draw={name}: not a folder')
    check_writable(there)
    with needing('--draw', 'figures'):
        import matplotlib.figure  # noqa: F401


def holds_work(folder: epath.Path) -> bool:
    """Returns whether there is a checkpoint or a result. If there is none, any config is accepted."""
    return has_checkpoint(folder) or any((folder / name).exists() for name in ('damaged', 'result.json'))


def has_checkpoint(folder: epath.Path) -> bool:
    """Returns whether there is a checkpoint that a training can go on from."""
    return any(saved_steps(folder, name) for name in ('checkpoints', 'checkpoints/replaced'))


def saved_steps(folder: epath.Path, name: str = 'checkpoints') -> set[int]:
    """Returns the steps of the checkpoints in a folder of a run, without one that a killed process began."""
    return {int(path.name) for path in folder.glob(f'{name}/*') if path.name.isdecimal()}


def check_same(run: Run, manifest: Mapping[str, object]) -> None:
    """Raises ConfigError if a split's arrays or texts differ."""
    before = run.manifest['checksums']
    for name, digest in manifest['checksums'].items():
        # Further references and answers are in the texts alone, of which earlier versions kept fewer.
        other_text = name.endswith('.txt') and before.get(name, digest) != digest
        if other_text or (name.endswith('.bin') and before.get(name) != digest):
            split = name.partition('.')[0]
            raise ConfigError(
                f'{run.folder}: made from other {split} data, which its data.lock.json names; choose another '
                '--workdir'
            )


def _check_options(run: Run, config: Config) -> None:
    """Raises ConfigError if an option that changes what is learned, and is not filled in later, differs."""
    changed = configs.differences(run.config, config, free=False)
    for key in list(changed):
        steps_unknown = key == 'train.decay_steps' and config.train.epochs is not None
        if steps_unknown or (key.endswith('.classes') and changed[key][1] is None):
            del changed[key]
    train, end = config.train, run.config.train.decay_steps
    if end and set(changed) == {'train.decay_steps'} and train.decay_steps == train.steps:
        # Nobody sets this option, which is derived from the steps.
        raise ConfigError(
            f'train.steps={train.steps}: at most {end}, after which the learning rate of {run.folder} is 0; '
            'choose another --workdir for a longer schedule'
            if train.steps > end and not train.least_lr
            else f'train.steps={train.steps}: {run.folder} lowers the learning rate until update {end}; '
            f'{"continue" if train.steps > end else "stop earlier"} with --config.train.decay_steps={end}, '
            'or choose another --workdir'
        )
    if changed:
        values = [f'{key} is {old!r} there and {new!r} now' for key, (old, new) in changed.items()]
        more = f', and {len(values) - SHOWN} more differ' if len(values) > SHOWN else ''
        values = ', '.join(values[:SHOWN]) + more
        raise ConfigError(f'{run.folder}: made by a different config: {values}; choose another --workdir')


def check_start(run: Run, init_from: Mapping[str, object] | None) -> None:
    """Raises ConfigError if the work directory's training started from other parameters."""
    old = run.start()
    if (old and old['params_sha256']) != (init_from and init_from['params_sha256']):
        there, now = (
            f'{start["workdir"]} ({start["params_sha256"][:8]})'
            if start
            else 'parameters drawn by train.seed'
            for start in (old, init_from)
        )
        same = old and init_from and old['workdir'] == init_from['workdir']
        remedy = 'leave out --init_from to resume, or ' if same else ''
        raise ConfigError(
            f'{run.folder}: started from {there}, not from {now}; {remedy}choose another --workdir'
        )


def copy_data(folder: epath.Path, dataset: Dataset) -> None:
    """Copies the data that evaluations read: every split but train."""
    text_input.keep(folder / _DATA, dataset)


def read_result(folder: epath.Path) -> Result:
    """Returns the contents of result.json, which are empty if there is none yet."""
    file = folder / 'result.json'
    return files.read_json(file, _RESULT) if file.exists() else {}


def update_result(folder: epath.Path, change: Callable[[Result], Result]) -> None:
    """Replaces the contents of result.json by `change(contents)`.

    A lock makes processes take turns, so that no process loses another's additions.
    """
    with locks.exclusive(folder / '.result.lock'):
        files.write_json(folder / 'result.json', change(read_result(folder)))


def evaluation_name(run: Run, config: Config, of: str, checkpoint: str) -> str:
    """Returns the name of an evaluation in result.json and in translations/.

    The name consists of the split or file, the checkpoint, and every option that differs from the work
    directory's config. It never equals the name of the lines that the training itself wrote.

    Args:
      config: the evaluation's config.
      of: a split, or the name of a file.
    """
    own, options = configs.evaluation_options(run.config), configs.evaluation_options(config)
    changed = [f'{key.partition(".")[2]}={value}' for key, value in options.items() if value != own[key]]
    short = (
        of if len(of.encode()) <= 80 else f'{files.first_bytes(of, 71)}-{files.bytes_sha256(of.encode())[:8]}'
    )
    # Folders of an ensemble, whose names can differ in what becomes a _.
    apart = [files.bytes_sha256(checkpoint.encode())[:8]] if '/' in checkpoint else []
    name = re.sub(r'[^\w.=+-]', '_', '.'.join([short, checkpoint, *apart, *changed]))
    if run.result().get('scores', {}).get(of, {}).get('checkpoint') == checkpoint and not changed:
        name += '.evaluated'
    # The name is a file's, whose length is limited, and an ensemble's checkpoints name folders.
    long = len(name.encode()) > 180
    return f'{files.first_bytes(name, 160)}.{files.bytes_sha256(name.encode())[:16]}' if long else name


def write_evaluation(folder: epath.Path, name: str, evaluation: dict[str, object], lines: list[str]) -> None:
    """Records an evaluation after the training: its scores in result.json, its lines in translations/.

    The training's own scores stay, but an earlier evaluation of the same name is replaced.
    """

    def add(result: Result) -> Result:
        # Under the lock, so that the lines belong to the scores.
        write_lines(folder, name, lines)
        # Added last, even if it was there before.
        others = {key: old for key, old in result.get('evaluations', {}).items() if key != name}
        return result | {'evaluations': {**others, name: evaluation}}

    update_result(folder, add)


def write_lines(folder: epath.Path, name: str, lines: list[str]) -> None:
    """Writes a model's output, such as translations, to translations/<name>.txt.

    Args:
      name: the evaluation's name, or `<split>.<checkpoint>` for the training's own lines.
    """
    (folder / 'translations').mkdir(exist_ok=True)
    files.write_text(folder / 'translations' / f'{name}.txt', _text(lines))


def lines_sha256(lines: list[str]) -> str:
    """Computes the SHA-256 of the file that `write_lines` writes."""
    return files.bytes_sha256(_text(lines).encode())


def read_lines(folder: epath.Path, name: str, entry: Mapping[str, object]) -> list[str]:
    """Reads the lines that `write_lines` wrote.

    Args:
      entry: their evaluation in result.json. Earlier versions recorded no hash of the lines.

    Raises:
      ConfigError: they are not the lines that were scored.
      OSError: there are none.
    """
    file = folder / 'translations' / f'{name}.txt'
    content = file.read_bytes()
    if entry.get(LINES, digest := files.bytes_sha256(content)) != digest:
        raise ConfigError(f'{file}: not the lines that result.json has scores of')
    try:
        # As bytes, because a carriage return inside a line does not end it.
        return content.decode().split('\n')[:-1]
    except UnicodeDecodeError:
        raise ConfigError(f'{file}: damaged') from None


def _text(lines: list[str]) -> str:
    return ''.join(line + '\n' for line in lines)
