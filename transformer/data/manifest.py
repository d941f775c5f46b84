"""The manifest of a dataset (data.lock.json): sources, counts, hashes, and what differs from expectations."""

import json
from collections.abc import Iterator, Mapping

from etils import epath

from transformer.config import ConfigError

FILE = 'data.lock.json'

Manifest = dict[str, object]


def describe(manifest: Manifest) -> Iterator[str]:
    """Yields line by line what the dataset was made of and what it holds."""
    for key, value in _flatten(manifest.get('dataset', {})).items():
        yield f'dataset {key}: {value}'
    for split, made in manifest['splits'].items():
        if 'dataset' not in manifest:
            unit = 'lines' if tokens(manifest, split) else 'examples'
            files = (f'{file["name"]} ({file["lines"]:,} {unit})' for file in manifest['files'][split])
            yield f'data.{split}: from {", ".join(files)}'
        dropped = left_out({rule: drop['count'] for rule, drop in made['dropped'].items()})
        read = f'{_examples_read(made):,} examples read'
        yield f'data.{split}: {read}, {dropped or "none"} left out; {size(manifest, split)}'
    yield 'versions: ' + ', '.join(f'{name} {version}' for name, version in manifest['versions'].items())
    if 'pieces' in manifest:
        yield f'tokenizer: {manifest["pieces"]:,} pieces, sha256 {manifest["tokenizer_sha256"]}'


def left_out(counts: Mapping[str, int]) -> str:
    """How many examples each rule left out, in words; empty if there are none."""
    return ', '.join(f'{count:,} {rule}' for rule, count in counts.items())


def size(manifest: Manifest, split: str) -> str:
    """How many examples and pieces a split has, in words."""
    examples = f'{manifest["splits"][split]["pairs"]:,} examples'
    pieces = [f'{count:,} {field}' for field, count in tokens(manifest, split).items()]
    return f'{examples} of {" and ".join(pieces)} pieces' if pieces else examples


def tokens(manifest: Manifest, split: str) -> dict[str, int]:
    """The number of pieces of each text field of a split."""
    counts = manifest['splits'][split].items()
    return {key.removesuffix('_tokens'): count for key, count in counts if key.endswith('_tokens')}


def expected(file: epath.PathLike) -> Manifest | None:
    """Reads the manifest beside a config file, which says what the data must be.

    Returns:
      `dataset`, as in data.lock.json, and `pairs_read`, the examples of each split before any was left out;
      each is empty if the file does not have it. None if there is no file.
    """
    file = epath.Path(file)
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text())
        found = {key: dict(content.get(key, {})) for key in ('dataset', 'pairs_read')}
        return found | {'pairs_read': {split: int(pairs) for split, pairs in found['pairs_read'].items()}}
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f'{file}: not a lock file') from None


def differences(manifest: Manifest, expected: Manifest, name: epath.PathLike) -> list[str]:
    """The differences between a dataset and what the file `name` expects of it, one a line."""
    lines = []
    ours = _flatten(manifest.get('dataset', {}))
    for key, value in _flatten(expected['dataset']).items():
        if ours.get(key) != value:
            lines.append(f'dataset {key}: {ours.get(key, "none")}, {name} says {value}')
    for split, made in manifest['splits'].items():
        read = _examples_read(made)
        wanted = expected['pairs_read'].get(split, read)
        if read != wanted:
            lines.append(f'data.{split}: {read:,} examples read, {name} says {wanted:,}')
    return lines


def _flatten(dataset: dict) -> dict[str, str]:
    """The description of a TFDS dataset without nesting."""
    corpora = dataset.get('corpora', {})
    facts = {key: value for key, value in dataset.items() if key != 'corpora'}
    return {**facts, **{f'corpora of {split}': ', '.join(names) for split, names in corpora.items()}}


def _examples_read(made: dict) -> int:
    """The examples of a split before any was left out."""
    return made['pairs'] + sum(drop['count'] for drop in made['dropped'].values())
