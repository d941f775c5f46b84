"""A dataset's manifest (data.lock.json): describes its content, and compares it with expected data."""

from collections.abc import Iterator, Mapping

from etils import epath

from transformer import files

FILE = 'data.lock.json'
# The types of arrays, and the shape of a manifest's entries that are read, for `files.check_shape`.
_TYPES = '<u2', '<i4', '|u1', '<i8', '<f4', '<f8'
SHAPE = {
    'checksums': {'*': str},
    'codecs?': {'*': (str, None)},
    'given_tokenizer_sha256?': (str, {'*': str}),
    'tokenizer_sha256?': str,
    'splits': {
        '*': {'pairs': files.COUNT, 'dropped': {'*': {'count': files.COUNT, '*': object}}, '*': object}
    },
    'files': {'*': [{'name': str, 'sha256': str, '*': object}]},
    'fields?': {'*': {'dtype': _TYPES, 'shape?': [files.SIZE], '*': object}},
    # Of earlier versions.
    'dtype?': _TYPES,
    'imported?': {'format': str, 'ignored': [str], 'unused?': {'*': [str]}, 'notes?': [str], '*': object},
    '*': object,
}
_EXPECTED = {
    'dataset?': {'corpora?': {'*': [str]}, '*': object},
    'pairs_read?': {'*': files.COUNT},
    '*': object,
}

# In a manifest, `pairs` and `pairs_read` count examples of any kind; `lines` counts a file's lines or rows.
Manifest = dict[str, object]


def describe(manifest: Manifest) -> Iterator[str]:
    """Yields lines that describe a dataset's sources and content."""
    for key, value in _flatten(manifest.get('dataset', {})).items():
        yield f'dataset {key}: {value}'
    for split, entry in manifest['splits'].items():
        if 'dataset' not in manifest:
            unit = 'lines' if manifest.get('source', 'text') == 'text' else 'examples'
            origins = (f'{file["name"]} ({file["lines"]:,} {unit})' for file in manifest['files'][split])
            yield f'data.{split}: from {", ".join(origins)}'
        dropped = drops_text({rule: drop['count'] for rule, drop in entry['dropped'].items()})
        read = f'{_examples_read(entry):,} examples read'
        yield f'data.{split}: {read}, {dropped or "none"} left out; {size(manifest, split)}'
    yield 'versions: ' + ', '.join(f'{name} {version}' for name, version in manifest['versions'].items())
    if 'pieces' in manifest:
        yield f'tokenizer: {manifest["pieces"]:,} pieces, sha256 {manifest["tokenizer_sha256"]}'


def drops_text(counts: Mapping[str, int]) -> str:
    """Returns the number of examples dropped by each rule, as text, '' if none."""
    return ', '.join(f'{count:,} {rule}' for rule, count in counts.items())


def size(manifest: Manifest, split: str) -> str:
    """Returns the number of examples and pieces in a split, as text."""
    examples = f'{manifest["splits"][split]["pairs"]:,} examples'
    pieces = [f'{count:,} {field}' for field, count in piece_counts(manifest, split).items()]
    return f'{examples} of {" and ".join(pieces)} pieces' if pieces else examples


def piece_counts(manifest: Manifest, split: str) -> dict[str, int]:
    """Returns the number of pieces in each text field of a split."""
    counts = manifest['splits'][split].items()
    return {key.removesuffix('_tokens'): count for key, count in counts if key.endswith('_tokens')}


def expected(file: epath.PathLike) -> Manifest | None:
    """Reads a config's expected data from the file beside the config.

    Returns:
      `dataset`, as in data.lock.json, and `pairs_read`, the number of examples in each split before any was
      dropped. An entry that the file lacks is empty. None if there is no file.
    """
    file = epath.Path(file)
    if not file.is_file():
        return None
    content = files.read_json(file, _EXPECTED)
    return {key: content.get(key, {}) for key in ('dataset', 'pairs_read')}


def differences(manifest: Manifest, reference: Manifest, name: epath.PathLike) -> list[str]:
    """Lists where a dataset differs from the reference, which `expected` read from the file `name`."""
    lines = []
    ours = _flatten(manifest.get('dataset', {}))
    for key, value in _flatten(reference['dataset']).items():
        if ours.get(key) != value:
            lines.append(f'dataset {key}: {ours.get(key, "none")}, {name} says {value}')
    for split, entry in manifest['splits'].items():
        read = _examples_read(entry)
        expected_number = reference['pairs_read'].get(split, read)
        if read != expected_number:
            lines.append(f'data.{split}: {read:,} examples read, {name} says {expected_number:,}')
    return lines


def _flatten(dataset: dict) -> dict[str, str]:
    """Flattens the description of a TFDS dataset."""
    corpora = dataset.get('corpora', {})
    facts = {key: value for key, value in dataset.items() if key != 'corpora'}
    return {**facts, **{f'corpora of {split}': ', '.join(names) for split, names in corpora.items()}}


def _examples_read(entry: dict) -> int:
    """Returns the number of examples in a split before any was dropped."""
    return entry['pairs'] + sum(drop['count'] for drop in entry['dropped'].values())
