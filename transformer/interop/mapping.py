"""Reads a plain PyTorch encoder-decoder by a mapping file: JSON that assigns arrays to parameters."""

import difflib
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from transformer import files
from transformer.config import OPTIONS, TASKS, ConfigError, declare, errors_in
from transformer.data import codec
from transformer.data.codec import Codecs
from transformer.data.tokenizers.foreign import names_of, read_foreign
from transformer.data.tokenizers.sentence_piece import SentencePieceTokenizer
from transformer.interop import arrays, layout
from transformer.interop.foreign import (
    FIELDS,
    Foreign,
    learned_positions,
    list_tokenizers,
    never_written,
    order_of,
    reordered,
    smoothing,
    text_lines,
)
from transformer.interop.layout import Arrays, ForeignArray
from transformer.tokens import EOS, START, UNK

# The shape of a mapping file, for `files.check_shape`. Pieces are a list of texts or the name of a file.
_SHAPE = {
    'options': dict,
    'arrays': {'*': (str, [str])},
    'tokenizer': {
        'pieces': (str, [str], dict.fromkeys(FIELDS, (str, [str]))),
        'start': str,
        'end': str,
        'unknown': (str, None),
        'source_start': bool,
        'source_end': bool,
    },
    'ignored?': [str],
    'transposed?': bool,
}
_OPTIONAL = {'ignored': [], 'transposed': True}
_MOST_STEPS = 10**9  # of matching names with patterns, which take seconds
# Options that neither a name nor a shape shows, so that a default could be wrong in silence.
_NEEDED = (
    'model.h', 'model.activation', 'model.norm', 'model.norm_epsilon', 'model.positions',
    'model.scale_embeddings',
)  # fmt: skip
# The tables with a row for each piece, and whose pieces these are.
_TABLES = {
    'embedding/table': 'target',
    'source_embedding/table': 'source',
    'target_embedding/table': 'target',
    'softmax/table': 'target',
    'softmax_bias': 'target',
}
_MODEL_END = '.model'  # of the name of a SentencePiece model


class _Pieces(NamedTuple):
    """The pieces of a text, in the order of their rows there.

    Attributes:
      names: the pieces.
      order: their places in our order; -1 for a piece of ours alone.
      model: the tokenizer, if it is no list.
    """

    names: list[str]
    order: list[int]
    model: SentencePieceTokenizer | None


def read(file: epath.Path, mapping: epath.Path) -> Foreign:
    """Reads an encoder and a decoder from a file of arrays, by the content of a mapping file.

    Raises:
      ConfigError: the mapping is damaged or incomplete, or an array is missing, unknown or of another shape.
    """
    plan = _plan(mapping)
    with errors_in(mapping):
        pieces = _read_pieces(mapping.parent, plan['tokenizer'])
        codecs = _codecs(plan['tokenizer'], pieces)
        never = _never(pieces)
        changes = _changes(plan['options'], pieces, codecs) | smoothing(never)
    with errors_in(file):
        theirs = arrays.read(file)
    with errors_in(mapping):
        layout.check_sizes(changes, theirs)
        shapes = layout.parameter_shapes(changes)
        table = [*_table(plan['arrays'], shapes, transposed=plan['transposed'])]
        ignored = _ignored(plan['ignored'], theirs.keys() - {entry.theirs for entry in table})
    with errors_in(file):
        theirs = {name: array for name, array in theirs.items() if name not in ignored}
        theirs |= _in_our_order(table, theirs, pieces, len(never))
        # A model without a bias has one here, for the pieces that it lacks.
        mapped = any('softmax_bias' in entry.ours for entry in table)
        known = {} if mapped else {'softmax_bias': np.zeros_like(never)}
        params = layout.to_ours(table, theirs, shapes, known)
        _check_equal(table, theirs)
    return Foreign(changes, params | {'softmax_bias': params['softmax_bias'] + never}, codecs, ignored)


def _plan(file: epath.Path) -> dict:
    """Reads a mapping file and checks its shape."""
    try:
        return _OPTIONAL | files.read_json(file, _SHAPE)
    except OSError as error:
        raise ConfigError(f'{file}: {error.strerror or error}') from None


def _ignored(patterns: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """Returns the names that a pattern matches as a whole.

    Python's search for a match can take years. Without quantifiers of groups it takes, for a name of n
    characters, at most as many steps as there are ways to choose the ends of all quantified parts.
    """
    for pattern in patterns:
        # Escapes and sets count as plain characters here.
        bare = re.sub(r'\\[^\d]|\[\^?\]?(?:\\.|[^\]\\])*\]', 'x', pattern)
        if re.search(r'\)[*+?{]|\(\?[^:]|\\', bare):
            raise ConfigError(
                f'ignored: {pattern!r}: no quantifier, reference or condition of a group is known here'
            )
        quantified, choices = len(re.findall(r'(?<!\()[*+?{]', bare)), bare.count('|')
        steps = sum(math.comb(len(name) + quantified, quantified) for name in names) << min(choices, 64)
        if steps > _MOST_STEPS:
            raise ConfigError(
                f'ignored: {pattern!r}: has too many quantifiers or choices; use several patterns'
            )
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            raise ConfigError(f'ignored: {pattern!r}: no regular expression') from None
    matches = lambda name: any(re.fullmatch(pattern, name) for pattern in patterns)
    return tuple(filter(matches, sorted(names)))


def _read_pieces(folder: epath.Path, settings: Mapping) -> dict[str, _Pieces]:
    """Reads the pieces of source and target."""
    value = settings['pieces']
    values = value if isinstance(value, dict) else dict.fromkeys(FIELDS, value)
    return {field: _pieces(folder, values[field], settings) for field in FIELDS}


def _pieces(folder: epath.Path, value: object, settings: Mapping) -> _Pieces:
    model = None
    if isinstance(value, str) and value.endswith(_MODEL_END):
        names, model = _read_model(folder / value)
    else:
        names = _read_list(folder / value) if isinstance(value, str) else value
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise ConfigError(f'tokenizer: pieces: has {twice!r} twice')
    special = {piece: settings[name] for piece, name in ((START, 'start'), (EOS, 'end'), (UNK, 'unknown'))}
    for name in ('start', 'end', 'unknown'):
        # A model can have no unknown piece.
        if settings[name] not in names and (name, settings[name]) != ('unknown', None):
            raise ConfigError(f'tokenizer: {name}={settings[name]!r}: not among the pieces')
    order = order_of(names, special)
    if model is not None:
        place = {name: number for number, name in enumerate(names)}
        own = [place[name] for name in model.pieces(range(UNK + 1, model.size))]
        # Pieces that the tokenizer does not write, such as padding, follow.
        order = [*order[: UNK + 1], *own, *(n for n in order[UNK + 1 :] if n not in set(own))]
    return _Pieces(names, order, model)


def _read_model(file: epath.Path) -> tuple[list[str], SentencePieceTokenizer]:
    try:
        model = read_foreign(file)
    except ConfigError:
        model = None
    if not isinstance(model, SentencePieceTokenizer):
        raise ConfigError(f'tokenizer: pieces: {file.name}: no SentencePiece model')
    return names_of(file), model


def _read_list(file: epath.Path) -> list[str]:
    try:
        return files.read_json(file, [str], file.name) if file.suffix == '.json' else text_lines(file)
    except OSError as error:
        raise ConfigError(f'tokenizer: pieces: {file.name}: {error.strerror or error}') from None
    except ConfigError as error:
        raise ConfigError(f'tokenizer: pieces: {error}') from None


def _codecs(settings: Mapping, pieces: Mapping[str, _Pieces]) -> Codecs:
    models = [pieces[field].model for field in FIELDS]
    begin, end = settings['source_start'], settings['source_end']
    if None not in models:
        if begin or not end:
            raise ConfigError('tokenizer: with SentencePiece, source_start is false and source_end is true')
        return dict(zip(FIELDS, models, strict=True))
    if models != [None, None]:
        raise ConfigError('tokenizer: pieces: two lists, or two SentencePiece models')
    lists = [[one.names for one in pieces.values()], [one.order for one in pieces.values()]]
    return list_tokenizers(*lists, begin=begin, end=end)


def _never(pieces: Mapping[str, _Pieces]) -> np.ndarray:
    """Returns the bias of the rows: NEVER for those that are no pieces of the target, else zero."""
    order = pieces['target'].order
    lacking = max(len(one.order) for one in pieces.values()) - len(order)
    return never_written([*order, *[-1] * lacking])


def _changes(options: Mapping, pieces: Mapping[str, _Pieces], codecs: Codecs) -> dict[str, object]:
    for name, value in options.items():
        declare.check_value(OPTIONS, declare.check_name(OPTIONS, name), value)
    needed = [*_NEEDED, *(['model.sinusoid'] if options.get('model.positions') == 'sinusoidal' else [])]
    if lacking := [name for name in needed if name not in options]:
        raise ConfigError(f'options: lacks {lacking[0]}, which no array shows')
    derived = {
        'model.vocab_size': max(len(one.order) for one in pieces.values()),
        'model.softmax_bias': True,
        'model.start': 'learned',
        'data.pieces': codec.size(codecs),
        'data.vocabulary': 'joint' if pieces['source'].names == pieces['target'].names else 'separate',
    }
    if both := [name for name in derived if name in options]:
        raise ConfigError(f'options: {both[0]}: follows from the tokenizer; leave it out')
    task = options.get('train.task', OPTIONS['train.task'].default)
    if TASKS[task].form != 'pair':
        raise ConfigError(f'options: train.task={task}: a mapping describes an encoder and a decoder')
    length = options.get('model.max_len', OPTIONS['model.max_len'].default)
    positions = learned_positions(length) if options['model.positions'] == 'learned' else {}
    return positions | dict(options) | derived


def _table(entries: Mapping, shapes: Mapping[str, tuple], *, transposed: bool) -> Iterator[ForeignArray]:
    """Yields the entries of a mapping's `arrays`, one for each layer where a name has {i}."""
    taken = {}
    for theirs, ours in entries.items():
        paths = [ours] if isinstance(ours, str) else ours
        if not paths:
            raise ConfigError(f'arrays: {theirs}: expected the path of a parameter, or a list of paths')
        numbered = '{i}' in theirs
        if any(('{i}' in path) != numbered for path in paths):
            raise ConfigError(f'arrays: {theirs}: has {{i}}, or one of its parameters has it, but not both')
        for i in itertools.count() if numbered else [0]:
            places = tuple(path.replace('{i}', str(i)) for path in paths)
            unknown = [path for path in places if path not in shapes]
            if unknown and i:
                break
            if unknown:
                near = difflib.get_close_matches(unknown[0], shapes, n=1)
                hint = f'; did you mean {near[0]}?' if near else ''
                raise ConfigError(f'arrays: {theirs}: the model has no parameter {unknown[0]}{hint}')
            for path in places:
                if taken.setdefault(path, places) != places:
                    raise ConfigError(f'arrays: {theirs}: another array has {path} already')
            yield ForeignArray(
                theirs.replace('{i}', str(i)), places, transposed and places[0].endswith('/kernel')
            )


def _in_our_order(
    table: list[ForeignArray], theirs: Arrays, pieces: Mapping[str, _Pieces], size: int
) -> Arrays:
    """Returns the arrays that have a row for each piece, with the rows of our pieces."""
    changed = {}
    for entry in table:
        if entry.ours[0] not in _TABLES or entry.theirs not in theirs:
            continue
        array, its = theirs[entry.theirs], pieces[_TABLES[entry.ours[0]]]
        rows = reordered(entry.theirs, array, its.order)
        changed[entry.theirs] = np.pad(rows, [(0, size - len(rows)), *[(0, 0)] * (rows.ndim - 1)])
    return changed


def _check_equal(table: list[ForeignArray], theirs: Arrays) -> None:
    """Raises ConfigError if two arrays that are one parameter here, such as tied ones, differ."""
    first = {}
    for entry in table:
        other = first.setdefault(entry.ours, entry.theirs)
        if not np.array_equal(theirs[other], theirs[entry.theirs]):
            raise ConfigError(f'{entry.theirs}: differs from {other}, and both are {entry.ours[0]} here')
