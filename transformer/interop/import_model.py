"""Makes a work directory of a model that another program trained."""

import contextlib
import dataclasses
import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence

from etils import epath

from transformer import config as configs
from transformer import files
from transformer.config import TASKS, ConfigError
from transformer.data import codec
from transformer.interop import layout, mapping
from transformer.interop.ctranslate2 import names, reading
from transformer.interop.foreign import HELD, Foreign
from transformer.interop.hugging_face import reading as hugging_face
from transformer.nn import cost, models
from transformer.runs import workdir
from transformer.runs.checkpoint import CONFIG, Checkpoints
from transformer.runs.hashes import fingerprint
from transformer.runs.workdir import Run

MOST_NAMES = 8  # that a list shows
# The files by which each format is known, and its reader.
FORMATS = {
    'ctranslate2': ((names.FILE,), reading.read),
    'huggingface': ((hugging_face.FILE, hugging_face.TORCH_FILE, *hugging_face.SHARDED), hugging_face.read),
}


def import_model(
    path: epath.PathLike,
    folder: epath.PathLike,
    changes: Mapping[str, object],
    kind: str | None = None,
    mapping_file: epath.PathLike | None = None,
) -> Run:
    """Makes a work directory of another program's model, with one checkpoint, step 0.

    Args:
      path: the folder of the model; with a mapping, the file of its arrays.
      changes: options that the model's files do not set, such as the task, languages or a search.
      kind: a name in `FORMATS`; if None, the model's files show the format.
      mapping_file: a mapping file, which describes a model of no known format.

    Raises:
      ConfigError: the model is damaged, or has a part that no model here has.
      FileExistsError: `folder` is not empty.
    """
    path, folder = epath.Path(path), files.check_new(epath.Path(folder))
    kind, foreign, sources = _read(path, kind, mapping_file)
    fixed = ('model.', 'image_model.', 'images.', 'contrastive.', 'data.pieces', 'data.vocabulary')
    if set_there := [key for key in changes if key in foreign.changes and key.startswith(fixed)]:
        key = set_there[0]
        raise ConfigError(f'{key}: the model has {foreign.changes[key]!r}')
    if other := [key for key in ('data.tokenizer', 'data.tokenizer_model') if key in changes]:
        raise ConfigError(f'{other[0]}: the model has its own tokenizer')
    for key, values in HELD.items():
        if mapping_file is None and changes.get(key, values[0]) not in values:
            raise ConfigError(f'{key}={changes[key]}: the model allows {", ".join(map(str, values))}')
    own = foreign.changes.get('train.task', configs.OPTIONS['train.task'].default)
    possible = [task for task, spec in TASKS.items() if spec.form == TASKS[own].form]
    if changes.get('train.task', own) not in possible:
        raise ConfigError(
            f'train.task={changes["train.task"]}: this model can be one of {", ".join(possible)}'
        )
    config = configs.resolve_values(layout.TEXT | foreign.changes | dict(changes))
    if config.train.ema:
        raise ConfigError(f'train.ema={config.train.ema}: an imported model has no moving average')
    params = layout.tree(config, foreign.params)
    manifest = {
        'imported': {
            'format': kind,
            'files': {files.readable_name(file): files.sha256(file) for file in sources},
            'ignored': sorted(foreign.ignored),
            'unused': dict(foreign.unused),
            'notes': list(foreign.notes),
        },
        'splits': {},
        'files': {},
        'versions': {name: importlib.metadata.version(name) for name in ('numpy', 'sentencepiece')},
        'codecs': codec.files_of(foreign.codecs),
        'checksums': {
            name: files.bytes_sha256(content) for name, content in codec.contents(foreign.codecs).items()
        },
        **({'tokenizer_sha256': digest} if (digest := codec.sha256(foreign.codecs)) else {}),
    }
    with files.new_folder(folder) as unfinished:
        workdir.claim(unfinished, config, foreign.codecs, manifest)
        meta = {'tokens': 0, 'params_sha256': fingerprint(params), CONFIG: dataclasses.asdict(config)}
        with contextlib.closing(Checkpoints(unfinished / 'checkpoints', 1)) as checkpoints:
            checkpoints.save(0, params, None, meta)
    return Run.open(folder)


def describe(run: Run) -> Iterator[str]:
    """Yields lines that describe an imported model."""
    imported, own = run.manifest['imported'], run.config.train.task
    count = cost.parameters(models.parameter_shapes(run.config))
    sizes = dict.fromkeys(one.size for one in run.codecs.values() if one)
    units = 'classes' if configs.has(run.config, 'classes') else 'pieces'
    known = ' and '.join(f'{size:,}' for size in sizes)
    yield f'{run.folder}: a model of {imported["format"]}, {count:,} parameters, {known} {units}'
    others = [task for task, spec in TASKS.items() if spec.form == TASKS[own].form and task != own]
    hint = f'; with --config.train.task it can be {" or ".join(others)}' if others else ''
    yield f'  train.task = {own}{hint}'
    for key, (_, value) in configs.differences(configs.resolve_values({}), run.config).items():
        if not key.startswith('train.') and value is not None:
            yield f'  {key} = {value}'
    yield from (f'  it {note}' for note in imported.get('notes', ()))
    if ignored := imported['ignored']:
        yield f'  without (buffers, copies, heads for other tasks): {_some(ignored)}'
    for file, settings in imported.get('unused', {}).items():
        yield f'  settings of {file} that are not imported: {_some(settings)}'


def _some(names: Sequence[str]) -> str:
    more = f', and {len(names) - MOST_NAMES} more' if len(names) > MOST_NAMES else ''
    return ', '.join(names[:MOST_NAMES]) + more


def _read(
    path: epath.Path, kind: str | None, mapping_file: epath.PathLike | None
) -> tuple[str, Foreign, list[epath.Path]]:
    """Reads a model.

    Returns:
      The name of its format, the model, and its files.
    """
    if mapping_file is not None:
        if kind is not None:
            raise ConfigError(f'--format={kind}: not together with --mapping, which describes the format')
        if not path.is_file():
            raise ConfigError(f'{path}: no file; with --mapping, import takes a file of arrays')
        mapping_file = epath.Path(mapping_file)
        return 'pytorch', mapping.read(path, mapping_file), [path, mapping_file]
    if not path.is_dir():
        raise ConfigError(f'{path}: no folder; import takes a folder or, with --mapping, a file of arrays')
    kind = _format(path) if kind is None else kind
    if kind not in FORMATS:
        raise ConfigError(f'--format={kind}: choose one of {", ".join(FORMATS)}')
    return kind, FORMATS[kind][1](path), [file for file in sorted(path.iterdir()) if file.is_file()]


def _format(path: epath.Path) -> str:
    found = [name for name, (its, _) in FORMATS.items() if any((path / file).exists() for file in its)]
    if (path / 'data.lock.json').exists():
        raise ConfigError(f'{path}: is a work directory already; name it with --workdir')
    if not found:
        wanted = ', '.join(file for its, _ in FORMATS.values() for file in its)
        raise ConfigError(f'{path}: no model that is known here; looked for {wanted}')
    return found[0]
