"""Reads and writes the tokenizer files of Hugging Face transformers (extra `export`)."""

from collections.abc import Mapping, Sequence

from etils import epath

from transformer import files
from transformer.config import OPTIONS, Config, ConfigError, errors_in, flatten
from transformer.config.declare import has_meaning
from transformer.data.codec import Codecs
from transformer.data.tokenizers.base import SYMBOLS, Tokenizer
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.data.tokenizers.foreign import names_of, read_foreign
from transformer.data.tokenizers.hugging_face import HuggingFaceTokenizer
from transformer.data.tokenizers.sentence_piece import NumberedTokenizer, SentencePieceTokenizer
from transformer.interop.foreign import FIELDS, NUMBERED, json_object, numbered_tokenizer
from transformer.interop.hugging_face import early_tokenizers, sentencepiece_json
from transformer.interop.hugging_face.kind import Kind
from transformer.tokens import EOS, PAD, START, UNK

TOKENIZER, SETTINGS, SPIECE = 'tokenizer.json', 'tokenizer_config.json', 'spiece.model'
# The settings of a tokenizer of bytes, whose pieces have the same numbers there.
_BYTES = {'tokenizer_class': 'ByT5Tokenizer', 'extra_ids': 0}
# By form: the settings that name the tokens of our pieces, and their defaults.
_SPECIAL = {
    'pieces': {EOS: ('sep_token', '[SEP]'), PAD: ('pad_token', '[PAD]'), UNK: ('mask_token', '[MASK]')},
    'pair': {EOS: ('eos_token', '</s>'), PAD: ('pad_token', '<pad>'), UNK: ('unk_token', '<unk>')},
    'text': {EOS: ('eos_token', '<|endoftext|>'), PAD: ('pad_token', None), UNK: ('unk_token', None)},
}
_SPECIAL['image_text'] = _SPECIAL['text']
# By form: our pieces that need a token.
_NEEDED = {'pieces': (EOS, UNK), 'pair': (EOS, PAD), 'text': (EOS,), 'image_text': (EOS,)}
# Settings that transformers applies to a tokenizer.json, and where the file has the same setting.
_IN_THE_FILE = {
    'do_lower_case': ('normalizer', 'lowercase'),
    'strip_accents': ('normalizer', 'strip_accents'),
    'tokenize_chinese_chars': ('normalizer', 'handle_chinese_chars'),
    'add_prefix_space': ('pre_tokenizer', 'add_prefix_space'),
}
# The languages of a pair.
_LANGUAGES = {'data.source_language': 'source_lang', 'data.target_language': 'target_lang'}


def _token(settings: Mapping, name: str, default: str | None) -> str | None:
    """Returns a token in the settings, which can be an object with its content."""
    value = settings.get(name, default)
    files.check_shape(value, (str, {'content': str, '*': object}, None), f'{SETTINGS}: {name}')
    return value['content'] if isinstance(value, dict) else value


def settings_shape(folder: epath.Path, kind: Kind) -> dict[str, object]:
    """Returns the shape of the settings in tokenizer_config.json that are read."""
    if kind.numbered:
        return dict.fromkeys(('separate_vocabs', 'unk_token', 'eos_token', *_LANGUAGES.values()), object)
    names = [name for name, _ in _SPECIAL[kind.form].values()]
    others = _IN_THE_FILE if (folder / TOKENIZER).exists() else early_tokenizers.SETTINGS
    return dict.fromkeys((*names, *others), object)


def read(folder: epath.Path, kind: Kind) -> HuggingFaceTokenizer:
    """Reads the tokenizer of a model of single texts."""
    file = folder / TOKENIZER
    content = file.read_bytes() if file.exists() else early_tokenizers.read(folder)
    settings, special = json_object(folder / SETTINGS, {'*': object}, {}), {}
    for ours, (name, default) in _SPECIAL[kind.form].items():
        token = _token(settings, name, default)
        if token is None and ours in _NEEDED[kind.form]:
            raise ConfigError(f'{SETTINGS}: {name}: missing')
        # One token can have several roles there, such as GPT-2's.
        special[ours] = None if token in special.values() else token
    tokenizer = HuggingFaceTokenizer.from_file(content, special)
    if file.exists():
        _check_settings(settings, tokenizer.model)
    return tokenizer


def _check_settings(settings: Mapping, model: Mapping) -> None:
    """Raises ConfigError if settings would change what is in a tokenizer.json, as transformers has it."""
    for name, (part, key) in _IN_THE_FILE.items():
        own = model.get(part)
        if name in settings and isinstance(own, dict) and own.get(key, settings[name]) != settings[name]:
            raise ConfigError(f'{SETTINGS}: {name}={settings[name]}: {TOKENIZER} has {part}.{key}={own[key]}')


def read_shared(folder: epath.Path, kind: Kind) -> tuple[Tokenizer, dict[str, object]]:
    """Reads the tokenizer that source and target share, and returns it with the options of a special kind."""
    settings = json_object(folder / SETTINGS, {'tokenizer_class?': (str, None), '*': object}, {})
    if settings.get('tokenizer_class') == _BYTES['tokenizer_class']:
        return ByteTokenizer(), {'data.tokenizer': 'bytes'}
    file = folder / SPIECE
    if (folder / TOKENIZER).exists() or not file.exists():
        return read(folder, kind), {}
    with errors_in(SPIECE):
        tokenizer = read_foreign(file)
    if names_of(file)[: len(SYMBOLS)] != [*SYMBOLS.values()]:
        raise ConfigError(f'{SPIECE}: its first pieces are not {", ".join(SYMBOLS.values())}')
    return tokenizer, {}


def languages(folder: epath.Path) -> dict[str, object]:
    """Returns the options for the languages of a pair, empty if its tokenizer names no two languages."""
    shape = dict.fromkeys((f'{name}?' for name in _LANGUAGES.values()), (str, None))
    settings = json_object(folder / SETTINGS, shape | {'*': object}, {})
    found = {ours: settings.get(theirs) for ours, theirs in _LANGUAGES.items()}
    return found if all(found.values()) and len(set(found.values())) == 2 else {}


def _limits(config: Config) -> dict[str, object]:
    """Returns the settings by which a tokenizer there cuts texts, if asked to, and leaves blanks alone."""
    longest = config.model.max_len if config.model.positions == 'learned' else config.decode.max_source_len
    return {'model_max_length': longest, 'clean_up_tokenization_spaces': False}


def vocabularies(joint: bool) -> tuple[str, str]:
    """Returns the names of the files with the numbers of the pieces of source and target."""
    return 'vocab.json', 'vocab.json' if joint else 'target_vocab.json'


def read_pair(folder: epath.Path, model: Mapping) -> tuple[Codecs, list[list[int]], bool]:
    """Reads the tokenizers of an encoder-decoder.

    Args:
      model: the content of config.json.

    Returns:
      The tokenizers; for source and target, the number there of each of our pieces; and whether both have the
      same pieces.
    """
    settings = json_object(folder / SETTINGS, {'separate_vocabs?': bool, '*': object}, {})
    joint = not settings.get('separate_vocabs', False)
    unknown, own_end = (_token(settings, *named) for named in (('unk_token', '<unk>'), ('eos_token', '</s>')))
    tokenizers, orders = {}, []
    for field, name in zip(FIELDS, vocabularies(joint), strict=True):
        vocabulary = json_object(folder / name, {'*': files.COUNT})
        if unknown not in vocabulary:
            raise ConfigError(f'{name}: has no piece {unknown}')
        names = {n: piece for piece, n in vocabulary.items()}
        if len(names) < len(vocabulary):
            raise ConfigError(f'{name}: has two pieces of one number')
        start, end = (model[f'{setting}_token_id'] for setting in ('decoder_start', 'eos'))
        # The number in config.json is the target's.
        if field == 'source' and not joint:
            end = vocabulary.get(own_end, end)
        first = {START: start, EOS: end, UNK: vocabulary[unknown]}
        order = [*first.values(), *sorted(names.keys() - set(first.values()))]
        if lacking := [n for n in order[: UNK + 1] if n not in names]:
            raise ConfigError(f'{name}: has no piece {lacking[0]}')
        tokenizers[field] = numbered_tokenizer(folder / NUMBERED[field], [names[n] for n in order])
        orders.append(order)
    return tokenizers, orders, joint


def write(
    folder: epath.Path, tokenizer: Tokenizer, kind: Kind, config: Config, spans: Sequence[int] = ()
) -> None:
    """Writes the tokenizer of a model of single texts, or the one that source and target share.

    Args:
      spans: the numbers there of the pieces that stand for hidden spans.
    """
    if isinstance(tokenizer, ByteTokenizer) and kind.form == 'pair' and not spans:
        files.write_json(folder / SETTINGS, _BYTES | _limits(config))
        return
    if isinstance(tokenizer, HuggingFaceTokenizer):
        names = [tokenizer.name(piece) for piece in (PAD, EOS, UNK)]
        content = tokenizer.model
        if _is_learned(config):
            content = _with_end(tokenizer, names[EOS], begins=kind.form == 'text')
    elif isinstance(tokenizer, SentencePieceTokenizer):
        names = ['<pad>', '</s>', '[MASK]' if kind.form == 'pieces' else '<unk>']
        content = sentencepiece_json.convert(tokenizer.content, names, begins=kind.form == 'text')
    else:
        raise ConfigError(f'data.tokenizer={config.data.tokenizer}: huggingface has no file for it')
    plain = dict.fromkeys(('single_word', 'lstrip', 'rstrip', 'normalized'), False)
    added = [
        {'id': number, 'content': f'<extra_id_{n}>', 'special': True, **plain}
        for n, number in enumerate(spans)
    ]
    # The library numbers them in the order in which they stand.
    added.sort(key=lambda token: token['id'])
    files.write_json(folder / TOKENIZER, content | {'added_tokens': [*content['added_tokens'], *added]})
    special = {setting: names[piece] for piece, (setting, _) in _SPECIAL[kind.form].items() if names[piece]}
    end = names[EOS]
    # What continues a text stands right after it, also in a batch.
    roles = {'bos_token': end, 'padding_side': 'left'} if kind.form == 'text' else {'eos_token': end}
    # Without a piece of its own, padding is the end, as the model's config.json has it.
    special.setdefault('pad_token', end)
    if isinstance(tokenizer, HuggingFaceTokenizer) and not _is_learned(config):
        special |= _further(tokenizer, kind, {**special, **roles})
    # Other models have no types of tokens.
    inputs = {} if kind.form == 'pieces' else {'model_input_names': ['input_ids', 'attention_mask']}
    files.write_json(
        folder / SETTINGS,
        {'tokenizer_class': 'PreTrainedTokenizerFast', **_limits(config), **special, **roles, **inputs},
    )


def _is_learned(config: Config) -> bool:
    return config.data.tokenizer == 'byte_bpe' and config.data.tokenizer_model is None


def begins_texts(tokenizer: Tokenizer, config: Config) -> bool:
    """Returns whether the tokenizer that `write` writes for a language model begins texts with their end."""
    imported = isinstance(tokenizer, HuggingFaceTokenizer) and not _is_learned(config)
    return tokenizer.begins_with_end if imported else True


def _further(tokenizer: HuggingFaceTokenizer, kind: Kind, known: Mapping[str, str]) -> dict[str, str]:
    """Returns the special tokens of an imported tokenizer that no model here has."""
    before = tokenizer.encode('')[:-1]
    found = {
        'unk_token': tokenizer.model['model'].get('unk_token'),
        'cls_token' if kind.form == 'pieces' else 'bos_token': tokenizer.name(before[0]) if before else None,
    }
    return {name: token for name, token in found.items() if token and name not in known}


def _with_end(tokenizer: HuggingFaceTokenizer, end: str, *, begins: bool) -> dict[str, object]:
    """Returns the content of a learned tokenizer's file, which puts the end piece where our model has it."""
    steps = [
        tokenizer.model['post_processor'],
        sentencepiece_json.template(end, tokenizer.order[EOS], begins=begins),
    ]
    return tokenizer.model | {'post_processor': {'type': 'Sequence', 'processors': steps}}


def write_pair(folder: epath.Path, codecs: Codecs, config: Config) -> None:
    """Writes the tokenizers of an encoder-decoder."""
    data = config.data
    if isinstance(codecs['source'], ByteTokenizer):
        files.write_json(folder / SETTINGS, _BYTES | _limits(config))
        return
    tokenizers = [codecs[field] for field in FIELDS]
    for field, tokenizer in zip(FIELDS, tokenizers, strict=True):
        if not isinstance(tokenizer, SentencePieceTokenizer | NumberedTokenizer):
            raise ConfigError(
                f'train.task={config.train.task}, data.tokenizer={data.tokenizer}: huggingface has no file '
                f"for the {field}'s tokenizer"
            )
        files.write_bytes(folder / NUMBERED[field], tokenizer.model)
    pieces = [tokenizer.pieces(range(tokenizer.size)) for tokenizer in tokenizers]
    joint = pieces[0] == pieces[1]
    for name, own in zip(vocabularies(joint), pieces, strict=True):
        files.write_json(folder / name, {piece: n for n, piece in enumerate(own)})
    first = dict(zip(('pad_token', 'eos_token', 'unk_token'), pieces[1], strict=False))
    values = flatten(config)
    languages = {
        theirs: values[ours] for ours, theirs in _LANGUAGES.items() if has_meaning(OPTIONS, values, ours)
    }
    settings = {'tokenizer_class': 'MarianTokenizer', 'separate_vocabs': not joint, **_limits(config)}
    files.write_json(folder / SETTINGS, settings | first | languages)
