"""What a lock file tells of a corpus, and where that differs from what is expected of its config."""

import json
from collections.abc import Iterator

from etils import epath

from transformer.config import ConfigError

Lock = dict[str, object]


def describe(lock: Lock) -> Iterator[str]:
    """What the corpus was made of and what came of it, line by line."""
    for key, value in _facts(lock.get('dataset', {})).items():
        yield f'dataset {key}: {value}'
    for split, made in lock['splits'].items():
        if 'dataset' not in lock:
            files = (f'{file["name"]} ({file["lines"]:,} lines)' for file in lock['files'][split])
            yield f'data.{split}: from {", ".join(files)}'
        left_out = ', '.join(f'{drop["count"]:,} {rule}' for rule, drop in made['dropped'].items())
        yield (
            f'data.{split}: {_pairs_read(made):,} pairs read, {left_out or "none"} left out; '
            f'{made["pairs"]:,} pairs of {made["source_tokens"]:,} {lock["source_language"]} '
            f'and {made["target_tokens"]:,} {lock["target_language"]} pieces'
        )
    yield 'versions: ' + ', '.join(f'{name} {version}' for name, version in lock['versions'].items())
    yield f'tokenizer: {lock["pieces"]:,} pieces, sha256 {lock["tokenizer_sha256"]}'


def expected(file: epath.PathLike) -> Lock | None:
    """What a lock file beside a config file says of its data; None where there is none.

    It may hold `dataset`, as in data.lock.json, and `pairs_read`, the pairs of splits before drops.

    Raises:
      ConfigError: it is no such file.
    """
    file = epath.Path(file)
    if not file.exists():
        return None
    try:
        said = json.loads(file.read_text())
        return {key: dict(said.get(key, {})) for key in ('dataset', 'pairs_read')}
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f'{file}: not a lock file') from None


def differences(lock: Lock, expected: Lock, name: epath.PathLike) -> list[str]:
    """Where a corpus is not what is expected of it, a line each; `name` is the file that says so."""
    found = []
    ours = _facts(lock.get('dataset', {}))
    for key, value in _facts(expected['dataset']).items():
        if ours.get(key) != value:
            found.append(f'dataset {key}: {ours.get(key, "none")}, {name} says {value}')
    for split, made in lock['splits'].items():
        read = _pairs_read(made)
        pairs = expected['pairs_read'].get(split, read)
        if read != pairs:
            found.append(f'data.{split}: {read:,} pairs read, {name} says {pairs:,}')
    return found


def _facts(dataset: dict) -> dict[str, str]:
    """The description of a dataset without its nesting."""
    corpora = dataset.get('corpora', {})
    facts = {key: value for key, value in dataset.items() if key != 'corpora'}
    return {**facts, **{f'corpora of {split}': ', '.join(names) for split, names in corpora.items()}}


def _pairs_read(made: dict) -> int:
    """The pairs of a split before any was left out."""
    return made['pairs'] + sum(drop['count'] for drop in made['dropped'].values())
