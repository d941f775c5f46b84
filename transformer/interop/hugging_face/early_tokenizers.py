"""Builds the tokenizer.json of a folder that has vocab.txt, or vocab.json and merges.txt (extra `export`)."""

from collections.abc import Iterator, Mapping

from etils import epath

from transformer import files
from transformer.config import ConfigError
from transformer.config.extras import needing
from transformer.interop.foreign import json_object, text_lines

WORDS, PIECES, MERGES = 'vocab.txt', 'vocab.json', 'merges.txt'
_CONFIG, _SETTINGS, _SPECIAL = 'config.json', 'tokenizer_config.json', 'special_tokens_map.json'
_ADDED = 'added_tokens.json'
# The special tokens by their settings, and other settings with the only values that are built here.
_BERT_TOKENS = {
    'pad_token': '[PAD]', 'unk_token': '[UNK]', 'cls_token': '[CLS]', 'sep_token': '[SEP]',
    'mask_token': '[MASK]',
}  # fmt: skip
_BERT = {
    'tokenizer_class': (None, 'BertTokenizer', 'BertTokenizerFast'), 'do_basic_tokenize': (True,),
    'never_split': (None, []), 'do_lower_case': (True, False), 'strip_accents': (None, True, False),
    'tokenize_chinese_chars': (True, False),
}  # fmt: skip
_END = '<|endoftext|>'
_GPT2_TOKENS = {'bos_token': _END, 'eos_token': _END, 'unk_token': _END, 'pad_token': _END}
_GPT2 = {
    'tokenizer_class': (None, 'GPT2Tokenizer', 'GPT2TokenizerFast'), 'add_bos_token': (False,),
    'add_prefix_space': (True, False),
}  # fmt: skip
# All settings that are read.
SETTINGS = {*_BERT_TOKENS, *_BERT, *_GPT2_TOKENS, *_GPT2, 'added_tokens_decoder'}
SETTINGS |= {'additional_special_tokens', 'extra_special_tokens'}
_DEFAULTS = {
    'do_lower_case': True, 'strip_accents': None, 'tokenize_chinese_chars': True, 'add_prefix_space': False,
}  # fmt: skip
_TOKEN = (str, {'content': str, '*': object}, None)
_SHAPE = {
    'additional_special_tokens?': ([_TOKEN], None),
    'extra_special_tokens?': ([_TOKEN], {'*': _TOKEN}, None),
    'added_tokens_decoder?': {'*': _TOKEN},
    '*': object,
}
_REMEDY = (
    "not built here; save_pretrained of transformers' AutoTokenizer writes a tokenizer.json, which is read"
)


def read(folder: epath.Path) -> str:
    """Reads vocab.txt as BERT's WordPiece, or vocab.json and merges.txt as GPT-2's byte-level BPE.

    Returns:
      The content of a tokenizer.json that cuts texts into the same pieces as transformers' tokenizers.

    Raises:
      ConfigError: the files are missing or damaged, the tokenizer has other settings, or the library
        `tokenizers` is not installed.
    """
    with needing('this', 'export'):
        import tokenizers
    if (folder / WORDS).exists():
        settings = _settings(folder, _BERT_TOKENS, _BERT, ('lstrip', 'rstrip', 'single_word', 'normalized'))
        tokenizer, special = _wordpiece(folder, settings), _BERT_TOKENS
    elif (folder / PIECES).exists() and (folder / MERGES).exists():
        # Without a normalizer, `normalized` has no effect.
        settings = _settings(folder, _GPT2_TOKENS, _GPT2, ('lstrip', 'rstrip', 'single_word'))
        tokenizer, special = _byte_level(folder, settings), _GPT2_TOKENS
    else:
        raise ConfigError(f'tokenizer.json, {WORDS}, or {PIECES} and {MERGES}: missing')
    tokens = sorted(set(special.values()), key=tokenizer.token_to_id)
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in tokens])
    return tokenizer.to_str()


def _settings(
    folder: epath.Path, special: Mapping[str, str], possible: Mapping[str, tuple], flags: tuple[str, ...]
) -> dict[str, object]:
    """Returns the settings in the folder's files.

    Args:
      special: the special tokens, by setting.
      possible: other settings with their only values.
      flags: the properties that a special token must not have, because they change the text around it.

    Raises:
      ConfigError: no tokenizer here has one of the settings.
    """
    model, own, tokens = (json_object(folder / name, _SHAPE, {}) for name in (_CONFIG, _SETTINGS, _SPECIAL))
    # Tokenizers read only this setting of config.json.
    settings = {name: value for name, value in model.items() if name == 'tokenizer_class'} | own | tokens
    for name, values in possible.items():
        # 1 == True, but no setting is a number.
        if name in settings and (type(settings[name]), settings[name]) not in [(type(v), v) for v in values]:
            raise ConfigError(f'{name}={settings[name]}: {_REMEDY}')
    for name, token in _tokens(settings, json_object(folder / _ADDED, {'*': files.COUNT}, {})):
        text = token['content'] if isinstance(token, dict) else token
        known = [special[name]] if name in special else special.values()
        if text not in known or isinstance(token, dict) and any(token.get(flag) for flag in flags):
            raise ConfigError(f'{name}={token}: {_REMEDY}')
    return _DEFAULTS | settings


def _tokens(settings: Mapping, added: Mapping) -> Iterator[tuple[str, object]]:
    """Yields the special and added tokens, each after the setting that names it."""
    for name, value in settings.items():
        if name.endswith('_token') and value is not None and not isinstance(value, bool):
            yield name, value
        elif name in ('additional_special_tokens', 'extra_special_tokens', 'added_tokens_decoder'):
            values = value.values() if isinstance(value, dict) else value
            yield from ((name, token) for token in values or ())
    yield from ((_ADDED, token) for token in added)


def _wordpiece(folder: epath.Path, settings: Mapping):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = {line.rstrip(): number for number, line in enumerate(text_lines(folder / WORDS))}
    if lacking := set(_BERT_TOKENS.values()) - vocabulary.keys():
        raise ConfigError(f'{WORDS}: has no piece {min(lacking)}')
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=_BERT_TOKENS['unk_token']))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=settings['do_lower_case'],
        strip_accents=settings['strip_accents'],
        handle_chinese_chars=settings['tokenize_chinese_chars'],
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    around = [_BERT_TOKENS['cls_token'], _BERT_TOKENS['sep_token']]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[around[0], '$A', around[1]],
        pair=[around[0], '$A', around[1], '$B:1', f'{around[1]}:1'],
        special_tokens=[(token, vocabulary[token]) for token in around],
    )
    return tokenizer


def _byte_level(folder: epath.Path, settings: Mapping):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = json_object(folder / PIECES, {'*': files.COUNT})
    if _END not in vocabulary:
        raise ConfigError(f'{PIECES}: has no piece {_END}')
    if 'a</w>' in vocabulary:
        raise ConfigError(f"{PIECES}: has pieces that end words with </w>, as CLIP's: {_REMEDY}")
    merges = [
        tuple(line.split(' ')) for line in text_lines(folder / MERGES) if not line.startswith('#version')
    ]
    try:
        tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    except Exception:  # The library raises nothing narrower.
        raise ConfigError(f'{MERGES}: damaged, or not of the pieces in {PIECES}') from None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=settings['add_prefix_space'])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
