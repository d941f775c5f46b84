"""What a lock file says of a corpus, and where that differs from what its config should give."""

import json
from collections.abc import Iterator, Mapping

from etils import epath

from transformer.config import ConfigError

Lock = dict[str, object]


def describe(lock: Lock) -> Iterator[str]:
    """Yields line by line what the corpus was made of and what it holds."""
    for key, value in _facts(lock.get('dataset', {})).items():
        yield f'dataset {key}: {value}'
    for split, made in lock['splits'].items():
        if 'dataset' not in lock:
            files = (f'{file["name"]} ({file["lines"]:,} lines)' for file in lock['files'][split])
            yield f'data.{split}: from {", ".join(files)}'
        dropped = left_out({rule: drop['count'] for rule, drop in made['dropped'].items()})
        read = f'{_examples_read(made):,} {_examples(made)} read'
        yield f'data.{split}: {read}, {dropped or "none"} left out; {size(lock, split)}'
    yield 'versions: ' + ', '.join(f'{name} {version}' for name, version in lock['versions'].items())
    yield f'tokenizer: {lock["pieces"]:,} pieces, sha256 {lock["tokenizer_sha256"]}'


def left_out(counts: Mapping[str, int]) -> str:
    """How many examples each rule left out, in words; empty if there is none."""
    return ', '.join(f'{count:,} {rule}' for rule, count in counts.items())


def size(lock: Lock, split: str) -> str:
    """How many examples and pieces a split has, in words."""
    made = lock['splits'][split]
    pieces = [' '.join([f'{count:,}', *_language(lock, field)]) for field, count in _tokens(made).items()]
    return f'{made["pairs"]:,} {_examples(made)} of {" and ".join(pieces)} pieces'


def expected(file: epath.PathLike) -> Lock | None:
    """Reads the lock file beside a config file.

    Returns:
      `dataset`, as in data.lock.json, and `pairs_read`, the pairs of each split before any was left
      out; each is empty where the file does not name it. None where there is no file.

    Raises:
      ConfigError: it is no lock file.
    """
    file = epath.Path(file)
    if not file.is_file():
        return None
    try:
        said = json.loads(file.read_text())
        found = {key: dict(said.get(key, {})) for key in ('dataset', 'pairs_read')}
        return found | {'pairs_read': {split: int(pairs) for split, pairs in found['pairs_read'].items()}}
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f'{file}: not a lock file') from None


def differences(lock: Lock, expected: Lock, name: epath.PathLike) -> list[str]:
    """The differences between a corpus and what the file `name` expects of it, a line each."""
    found = []
    ours = _facts(lock.get('dataset', {}))
    for key, value in _facts(expected['dataset']).items():
        if ours.get(key) != value:
            found.append(f'dataset {key}: {ours.get(key, "none")}, {name} says {value}')
    for split, made in lock['splits'].items():
        read = _examples_read(made)
        pairs = expected['pairs_read'].get(split, read)
        if read != pairs:
            found.append(f'data.{split}: {read:,} {_examples(made)} read, {name} says {pairs:,}')
    return found


def _tokens(made: dict) -> dict[str, int]:
    """The tokens of a split by field."""
    return {key.removesuffix('_tokens'): made[key] for key in made if key.endswith('_tokens')}


def _examples(made: dict) -> str:
    return 'pairs' if len(_tokens(made)) > 1 else 'documents'


def _language(lock: Lock, field: str) -> list[str]:
    """The language of a field, where it has one."""
    name = f'{field}_language'
    language = lock[name] if name in lock else lock['language']
    return [] if language is None else [language]


def _facts(dataset: dict) -> dict[str, str]:
    """The description of a dataset, flattened."""
    corpora = dataset.get('corpora', {})
    facts = {key: value for key, value in dataset.items() if key != 'corpora'}
    return {**facts, **{f'corpora of {split}': ', '.join(names) for split, names in corpora.items()}}


def _examples_read(made: dict) -> int:
    """The examples of a split before any was left out."""
    return made['pairs'] + sum(drop['count'] for drop in made['dropped'].values())
