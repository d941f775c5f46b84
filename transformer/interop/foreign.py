"""A model of another program in our terms."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from transformer import files
from transformer.config import TASKS, Config, ConfigError, Model, flatten, sentinels
from transformer.data.codec import Codecs
from transformer.data.tokenizers.base import Tokenizer
from transformer.data.tokenizers.foreign import read_foreign
from transformer.data.tokenizers.hugging_face import HuggingFaceTokenizer
from transformer.data.tokenizers.listed import PiecesTokenizer
from transformer.data.tokenizers.sentence_piece import NumberedTokenizer, SentencePieceTokenizer
from transformer.interop.layout import Arrays
from transformer.nn.positions import sinusoid
from transformer.tokens import EOS, PAD, START, UNK

# The values of these options that models of other programs have, unless their own table names others. Kernels
# of attention that compute the same are equal.
HELD = {
    'model.kind': ('transformer',),
    'model.norm_type': ('layernorm',),
    'model.positions': ('sinusoidal', 'learned'),
    'model.rotary_pairs': ('halves',),
    'model.activation': ('relu', 'gelu', 'gelu_tanh', 'quick_gelu', 'swish'),
    'model.attention': ('full', 'chunked', 'flash'),
    'model.attention_scale': ('sqrt_d_k',),
    'model.scale_logits': (False,),
    'model.biases': ('all',),
}
# The texts of a pair, and SentencePiece models whose pieces a list numbers, as Marian has them.
FIELDS = 'source', 'target'
NUMBERED = {'source': 'source.spm', 'target': 'target.spm'}

# The names of an encoder-decoder's tables of the source, the target and the softmax, by model.tie_embeddings.
_TABLES = {
    'all': ('embedding', 'embedding', 'embedding'),
    'inputs': ('embedding', 'embedding', 'softmax'),
    'decoder': ('source_embedding', 'target_embedding', 'target_embedding'),
    'none': ('source_embedding', 'target_embedding', 'softmax'),
}

# Added to the logits of pieces that the other program does not have; float16 ends at -65,504.
NEVER = -6e4


class Foreign(NamedTuple):
    """A model of another program.

    Attributes:
      changes: the options in which it differs from the default config.
      params: its parameters, by path.
      codecs: its tokenizers, or the names of its classes, by field.
      ignored: the names of its arrays that are not imported, because no model here has such a part.
      unused: the names of the settings in each of its files that are not imported.
      notes: facts that its user must know, each the end of a sentence about the model.
    """

    changes: dict[str, object]
    params: Arrays
    codecs: Codecs
    ignored: tuple[str, ...] = ()
    unused: Mapping[str, list[str]] = MappingProxyType({})
    notes: tuple[str, ...] = ()


def first_task(form: str) -> str:
    """Returns the first task whose models have a form."""
    return next(task for task, spec in TASKS.items() if spec.form == form)


def check_name(name: str, where: str) -> str:
    """Returns the name of a file or folder, or raises ConfigError if it names one elsewhere."""
    if name in ('', '.', '..') or '\0' in name or name != epath.Path(name).name:
        raise ConfigError(f'{where}: {name!a}: expected a name beside it')
    return name


def json_object(file: epath.Path, shape: object, default: dict | None = None) -> Any:
    """Returns the value in a file of JSON, checked against a shape (`files.check_shape`).

    Args:
      default: the value if there is no such file; if None, a missing file is a ConfigError.
    """
    try:
        return files.read_json(file, shape, file.name)
    except FileNotFoundError:
        if default is None:
            raise ConfigError(f'{file.name}: missing') from None
        return default


def unused(folder: epath.Path, shapes: Mapping[str, Mapping[str, object]]) -> dict[str, list[str]]:
    """Returns the names in each file of JSON that its shape lacks, without files that have no such name."""
    known = {file: {key.removesuffix('?') for key in shape} for file, shape in shapes.items()}
    others = {
        file: sorted(json_object(folder / file, {'*': object}, {}).keys() - names)
        for file, names in known.items()
    }
    return {file: names for file, names in others.items() if names}


def text_lines(file: epath.Path) -> list[str]:
    """Returns the lines of a text in UTF-8."""
    try:
        return file.read_bytes().decode().removesuffix('\n').split('\n')
    except UnicodeDecodeError:
        raise ConfigError(f'{file.name}: damaged: not UTF-8') from None


def check_options(config: Config, held: Mapping[str, tuple], owner: str) -> None:
    """Raises ConfigError, which names options and the values to train with, if a program has no such model.

    Args:
      held: the values of options that it has. Other options have the values in `HELD`.
      owner: the other program, or its class of models.
    """
    if different := differing(config, held):
        options = flatten(config)
        settings = ', '.join(f'{key}={options[key]}' for key in different)
        values = {key: ' or '.join(map(str, allowed)) for key, allowed in different.items()}
        flags = ' '.join(f'--config.{key}={value}' for key, value in values.items())
        raise ConfigError(f'{settings}: {owner} has no such model; to export one, train it with {flags}')


def differing(config: Config, held: Mapping[str, tuple]) -> dict[str, tuple]:
    """Returns the options whose values a program does not have, with the values that it has."""
    m = config.model
    width = 'model.d_model/model.h' if m.d_model % m.h else m.d_model // m.h
    table, options = {**HELD, **held}, flatten(config)
    for key in ('model.d_k', 'model.d_v'):
        table.setdefault(key, (width,))
    return {key: allowed for key, allowed in table.items() if options[key] not in allowed}


def learned_positions(length: int) -> dict[str, object]:
    """Returns the options of a table of positions, and of texts that fit into it."""
    more = min(50, length // 2)
    return {
        'model.positions': 'learned',
        'model.max_len': length,
        'data.max_len': min(256, length),
        'decode.extra_len': more,
        'decode.max_source_len': min(256, length - more),
    }


def check_matrix(name: str, array: np.ndarray) -> np.ndarray:
    """Returns the array, or raises ConfigError if it is no matrix."""
    if array.ndim != 2:
        raise ConfigError(f'{name}: has shape {array.shape}, expected 2 axes')
    return array


def positions(name: str, table: np.ndarray) -> dict[str, object]:
    """Returns the options of a table of positions: sinusoids if it holds them, else learned positions."""
    length, width = check_matrix(name, table).shape
    for kind in ('paper', 'halves', 't2t'):
        for first in (0, 1):
            if np.allclose(table, sinusoid(first + length, width, kind)[first:], atol=1e-3):
                return {
                    'model.positions': 'sinusoidal',
                    'model.sinusoid': kind,
                    'model.first_position': first,
                }
    return learned_positions(length)


def waves(model: Model, length: int) -> np.ndarray:
    """Returns a table of sinusoidal positions."""
    return sinusoid(model.first_position + length, model.d_model, model.sinusoid)[model.first_position :]


def word_tables(
    tables: Sequence[np.ndarray], bias: np.ndarray, *, joint: bool
) -> tuple[dict[str, object], Arrays]:
    """Returns the options and the parameters of an encoder-decoder's tables of words.

    Args:
      tables: the embeddings of the source and of the target, and the softmax's matrix.
      bias: the softmax's bias.
      joint: whether source and target have the same pieces.
    """
    size = max(map(len, tables))
    tables = [np.pad(table, [(0, size - len(table)), (0, 0)]) for table in tables]
    source, target, softmax = tables
    bias = np.pad(bias, (0, size - len(bias)), constant_values=NEVER)
    tie = 'decoder' if np.array_equal(target, softmax) else 'none'
    if tie == 'decoder' and joint and np.array_equal(source, target):
        tie = 'all'
    params = {f'{name}/table': table for name, table in zip(_TABLES[tie], tables, strict=True)}
    changes = {
        'model.d_model': source.shape[1],
        'model.vocab_size': size,
        'model.tie_embeddings': tie,
        'model.softmax_bias': True,
        'data.vocabulary': 'joint' if joint else 'separate',
        **smoothing(bias),
    }
    return changes, {**params, 'softmax_bias': bias}


def one_text_tables(
    tokenizer: Tokenizer, words: np.ndarray, softmax: np.ndarray | None, bias: np.ndarray
) -> tuple[dict[str, object], Arrays]:
    """Returns the options and the parameters of a single-text model's tables of words.

    Args:
      softmax: the softmax's matrix; None if it is `words`.
    """
    params = {'embedding/table': words, 'softmax_bias': bias}
    changes = {
        'model.vocab_size': len(words),
        'model.tie_embeddings': 'all' if softmax is None else 'none',
        'model.softmax_bias': True,
        'data.pieces': tokenizer.size,
        **smoothing(bias),
    }
    return changes, params if softmax is None else params | {'softmax/table': softmax}


def smoothing(bias: np.ndarray) -> dict[str, object]:
    """Returns the option that disables label smoothing for a model with pieces that it never writes.

    They would get a share of the probability.
    """
    return {'train.eps_ls': 0.0} if (bias < NEVER / 2).any() else {}


def all_rows(order: Sequence[int], rows: int) -> list[int]:
    """Returns an order of a table's first rows, followed by its other rows. -1 is no row."""
    return [*order, *sorted(set(range(rows)) - set(order))]


def their_order(tokenizer: Tokenizer, rows: int) -> np.ndarray:
    """Returns the number there of each row of a table, or -1. Only a library's tokenizer has its own."""
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        return np.arange(rows)
    return np.array(all_rows(tokenizer.order, rows - tokenizer.order.count(-1)))


def unwritten(tokenizer: Tokenizer, config: Config) -> list[int]:
    """Lists our rows that the other program has and no search here writes: they are no piece of a text."""
    rows, text = config.model.vocab_size, tokenizer.size + sentinels(config)
    there = their_order(tokenizer, rows) >= 0
    return [row for row in (PAD, UNK, *range(text, rows)) if there[row]]


def in_their_order(rows: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Returns the rows of our table in the order of `their_order`, without those that are missing there."""
    there = order >= 0
    theirs = np.zeros((there.sum(), *rows.shape[1:]), np.float32)
    theirs[order[there]] = rows[there]
    return theirs


def pair_tables(model: Model, params: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Returns an encoder-decoder's tables of the source, the target and the softmax, and its bias."""
    return [*(params[f'{name}/table'] for name in _TABLES[model.tie_embeddings]), _bias(model, params)]


def text_tables(model: Model, params: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a single-text model's tables of the words and the softmax, and its bias."""
    softmax = 'softmax' if model.tie_embeddings == 'none' else 'embedding'
    return params['embedding/table'], params[f'{softmax}/table'], _bias(model, params)


def _bias(model: Model, params: Mapping[str, np.ndarray]) -> np.ndarray:
    return params.get('softmax_bias', np.zeros(model.vocab_size, np.float32))


def reordered(name: str, table: np.ndarray, order: Sequence[int], *, zeros: int = 0) -> np.ndarray:
    """Returns the rows of a table in an order, in which -1 stands for a row of zeros.

    Args:
      zeros: how many rows of zeros follow the table's.

    Raises:
      ConfigError: the table has other rows than the order, or values that are not finite.
    """
    rows = len(set(order) - {-1}) - zeros
    if table.shape[:1] != (rows,):
        raise ConfigError(f'{name}: has shape {table.shape}, expected {rows} rows, one for each piece')
    if not np.isfinite(table).all():
        raise ConfigError(f'{name}: has values that are not finite')
    return np.pad(table, [(0, zeros + 1), *[(0, 0)] * (table.ndim - 1)]).astype(np.float32)[list(order)]


def never_written(order: Sequence[int]) -> np.ndarray:
    """Returns the bias of rows: NEVER for a missing piece, or for a start that is another row's piece."""
    bias = np.where(np.array(order) < 0, NEVER, 0.0).astype(np.float32)
    if order[START] in order[START + 1 :]:
        bias[START] = NEVER
    return bias


def of_one_length(rows: Sequence[list[int]], most: int) -> Iterator[list[int]]:
    """Yields the indexes of at most `most` rows of one length, the longest first.

    There a batch has one limit for its outputs; here the limit depends on the length of the row.
    """
    longest_first = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    for _, same in itertools.groupby(longest_first, key=lambda i: len(rows[i])):
        indexes = list(same)
        yield from (indexes[start : start + most] for start in range(0, len(indexes), most))


def order_of(tokens: Sequence[str], special: Mapping[int, str | None]) -> list[int]:
    """Returns the places of tokens in our order: START, EOS, UNK (-1 for a missing one), then all others."""
    place = {token: number for number, token in enumerate(tokens)}
    first = [place.get(special[piece], -1) for piece in (START, EOS, UNK)]
    return [*first, *(number for number in range(len(tokens)) if number not in first)]


def numbered_tokenizer(file: epath.Path, pieces: Sequence[str]) -> SentencePieceTokenizer | NumberedTokenizer:
    """Returns a SentencePiece model whose pieces a list numbers. The list can lack some of them."""
    if not file.exists():
        raise ConfigError(f'{file.name}: missing')
    try:
        tokenizer = read_foreign(file)
        if (
            isinstance(tokenizer, SentencePieceTokenizer)
            and tokenizer.pieces(range(UNK + 1, tokenizer.size)) == pieces[UNK + 1 :]
        ):
            return tokenizer
        return NumberedTokenizer.from_pieces(pieces, file.read_bytes())
    except (ConfigError, RuntimeError):
        raise ConfigError(f'{file.name}: damaged') from None


def list_tokenizers(
    vocabularies: Sequence[Sequence[str]], orders: Sequence[Sequence[int]], *, begin: bool, end: bool
) -> Codecs:
    """Returns the tokenizers of a source and a target that are lists of pieces.

    They cut a text into characters if all pieces but those in angle brackets are, else at its blanks.

    Args:
      orders: the places of the pieces in our order.
      begin: whether a source begins with START.
      end: whether a source ends with EOS.
    """
    source, target = (in_order(*both) for both in zip(vocabularies, orders, strict=True))
    joiner, make = _joiner([source, target]), PiecesTokenizer.from_pieces
    return {'source': make(source, joiner, begin=begin, end=end), 'target': make(target, joiner, end=True)}


def list_tokenizer(tokens: Sequence[str], order: Sequence[int]) -> PiecesTokenizer:
    """Returns the tokenizer of single texts that is a list of pieces. EOS follows each text."""
    ordered = in_order(tokens, order)
    return PiecesTokenizer.from_pieces(ordered, _joiner([ordered]), end=True)


def in_order(tokens: Sequence[str], order: Sequence[int]) -> list[str]:
    """Returns the tokens of the rows in an order, with `<pad>` for -1."""
    return [tokens[n] if n >= 0 else '<pad>' for n in order]


def _joiner(lists: Sequence[Sequence[str]]) -> str:
    """Returns the text between pieces: '' if all but those in angle brackets are characters, else a blank."""
    others = [piece for pieces in lists for piece in pieces[UNK + 1 :]]
    characters = all(len(piece) == 1 for piece in others if not re.fullmatch('<.*>', piece))
    return '' if characters else ' '
