"""Writes an encoder and a decoder, or a decoder alone, as a model of CTranslate2 (extra `export`)."""

import functools
from collections.abc import Mapping

from etils import epath

from transformer import files
from transformer.config import Config, ConfigError, flatten, form_of, has
from transformer.config.extras import needing
from transformer.data.codec import Codecs
from transformer.data.tokenizers import kinds
from transformer.data.tokenizers.base import Tokenizer
from transformer.data.tokenizers.hugging_face import HuggingFaceTokenizer
from transformer.data.tokenizers.sentence_piece import NumberedTokenizer, SentencePieceTokenizer
from transformer.interop import layout
from transformer.interop.ctranslate2 import names
from transformer.interop.foreign import (
    FIELDS,
    NUMBERED,
    check_options,
    in_their_order,
    pair_tables,
    text_tables,
    their_order,
    waves,
)
from transformer.tokens import EOS, START, UNK

QUANTIZATIONS = 'int8', 'int16', 'float16'
LONGEST = 2048  # sinusoidal positions, if the config needs no more
# The values of these options that CTranslate2 has, in place of those in `foreign.HELD`.
HELD = {
    'model.positions': ('sinusoidal', 'learned', 'rotary'),
    'model.rotary_pairs': ('halves', 'interleaved'),
    'model.activation': (*names.ACTIVATIONS.values(), 'swiglu'),
}


def load_library():
    """Imports CTranslate2 with its specs. Raises ConfigError if it is not installed."""
    with needing('this', 'export'):
        import ctranslate2
        import ctranslate2.specs
    return ctranslate2


def check(config: Config, quantization: str | None = None) -> None:
    """Raises ConfigError, which names the option, if CTranslate2 has no such model or type of kernels."""
    if quantization not in (None, *QUANTIZATIONS):
        raise ConfigError(f'--quantization={quantization}: choose one of {", ".join(QUANTIZATIONS)}')
    if form_of(config) not in ('pair', 'text'):
        raise ConfigError(
            f'train.task={config.train.task}: CTranslate2 has only translators and language models'
        )
    final = {'model.norm_final': (False,)} if config.model.norm == 'post' else {}
    check_options(config, HELD | final, 'CTranslate2')


def write(
    config: Config, params: Mapping, codecs: Codecs, folder: epath.Path, quantization: str | None = None
) -> None:
    """Writes a model into an existing folder, with its vocabularies and SentencePiece models.

    Args:
      quantization: the type of the kernels, a value of `QUANTIZATIONS`; float32 if None.

    Raises:
      ConfigError: CTranslate2 has no such model, or is not installed.
    """
    check(config, quantization)
    m, ours, form = config.model, layout.named(params), form_of(config)
    spec, index_spec = _spec(config, form), load_library().specs.model_spec.index_spec
    for path, array in layout.to_theirs(names.table(flatten(config), form), ours).items():
        parent, _, name = path.rpartition('/')
        setattr(index_spec(spec, parent), name, array)
    if has(config, 'pair'):
        _add_pair(spec, config, ours, codecs)
        _write_tokenizers([codecs[field] for field in FIELDS], folder)
    else:
        _add_text(spec, config, ours, codecs['text'])
        _write_tokenizers([codecs['text']], folder)
    spec.config.layer_norm_epsilon = m.norm_epsilon
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _spec(config: Config, form: str):
    """Returns a model of CTranslate2 whose only arrays are sinusoidal positions, if it has these."""
    specs, m = load_library().specs, config.model
    numbers = {name: number for number, name in names.ACTIVATIONS.items()}
    gated = m.activation == 'swiglu'
    options = {
        'pre_norm': m.norm == 'pre',
        'no_final_norm': not m.norm_final,
        'activation': specs.common_spec.Activation(numbers['swish' if gated else m.activation]),
        'ffn_glu': gated,
        'layernorm_embedding': m.norm_embedding,
        # 0 stands for the whole of each head.
        'rotary_dim': 0 if m.positions == 'rotary' else None,
        'rotary_interleave': m.rotary_pairs == 'interleaved',
    }
    decoder_spec = functools.partial(specs.transformer_spec.TransformerDecoderSpec, num_heads=m.h, **options)
    if form == 'pair':
        decoder = decoder_spec(m.N_decoder)
        encoder = specs.transformer_spec.TransformerEncoderSpec(m.N, m.h, **options)
        spec, sides = specs.TransformerSpec(encoder, decoder), (encoder, decoder)
        length = max(LONGEST, config.decode.max_source_len + config.decode.extra_len)
    else:
        decoder = decoder_spec(m.N, with_encoder_attention=False)
        spec, sides = specs.TransformerDecoderModelSpec(decoder), (decoder,)
        length = max(LONGEST, config.data.row_len)
    for side in sides:
        side.scale_embeddings = m.scale_embeddings
        if m.positions == 'sinusoidal':
            side.position_encodings.encodings = waves(m, length)
    return spec


def _add_pair(spec, config: Config, ours: layout.Arrays, codecs: Codecs) -> None:
    """Adds an encoder-decoder's tables of words, the names of the words, and the settings about them."""
    m = config.model
    source, target, softmax, bias = pair_tables(m, ours)
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight = source, target
    spec.decoder.start_from_zero_embedding = m.start == 'zeros'
    spec.decoder.projection.weight, spec.decoder.projection.bias = softmax, bias
    spec.register_source_vocabulary(tokens(codecs['source'], m.vocab_size))
    written = tokens(codecs['target'], m.vocab_size)
    spec.register_target_vocabulary(written)
    spec.config.bos_token = spec.config.decoder_start_token = written[START]
    spec.config.eos_token, spec.config.unk_token = written[EOS], written[UNK]
    around = codecs['source'].encode('')
    spec.config.add_source_bos, spec.config.add_source_eos = START in around, EOS in around


def _add_text(spec, config: Config, ours: layout.Arrays, tokenizer: Tokenizer) -> None:
    """Adds the same of a decoder alone, whose texts begin as if after another text."""
    m = config.model
    order, names_of_rows = their_order(tokenizer, m.vocab_size), tokens(tokenizer, m.vocab_size)
    table, softmax, bias = text_tables(m, ours)
    spec.decoder.embeddings.weight = in_their_order(table, order)
    spec.decoder.projection.weight = in_their_order(softmax, order)
    spec.decoder.projection.bias = in_their_order(bias, order)
    by_place = sorted((place, name) for place, name in zip(order, names_of_rows, strict=True) if place >= 0)
    spec.register_vocabulary([name for _, name in by_place])
    spec.config.bos_token = spec.config.eos_token = names_of_rows[EOS]
    # A library's tokenizer can have no unknown piece.
    spec.config.unk_token = names_of_rows[UNK if order[UNK] >= 0 else EOS]


def tokens(tokenizer: Tokenizer, size: int) -> list[str]:
    """Returns a name for each row of the embedding. A second piece of the same name gets its number."""
    if isinstance(tokenizer, HuggingFaceTokenizer):
        own = [tokenizer.name(token) or f'<none {token}>' for token in range(tokenizer.size)]
        return [*own, *_unused(tokenizer.size, size)]
    own = tokenizer.pieces(range(UNK + 1, tokenizer.size))
    names_of_rows = [*names.PIECES.values(), *own, *_unused(tokenizer.size, size)]
    first = {}
    for number, name in enumerate(names_of_rows):
        first.setdefault(name, number)
    return [
        name if first[name] == number else f'{name} <{number}>' for number, name in enumerate(names_of_rows)
    ]


def _unused(first: int, end: int) -> list[str]:
    """Returns names for the rows that no piece of the tokenizer has."""
    return [f'<unused {number}>' for number in range(first, end)]


def _write_tokenizers(tokenizers: list, folder: epath.Path) -> None:
    """Writes the files that users of CTranslate2 can read: SentencePiece models, or a library's."""
    if isinstance(tokenizers[0], HuggingFaceTokenizer):
        models = [one.model for one in tokenizers]
        file_names = [names.TOKENIZER] if models[0] == models[-1] else names.OF_SIDES
        for name, model in zip(file_names, models, strict=False):
            files.write_json(folder / name, model)
        return
    # A tokenizer of trees contains the one that cuts their written form.
    plain = [kinds.read(one.content) for one in tokenizers]
    classes = set(map(type, plain))
    if classes == {SentencePieceTokenizer}:
        models = dict.fromkeys(one.model for one in plain)
        for name, model in zip(names.TOKENIZERS, models, strict=False):
            files.write_bytes(folder / name, model)
    elif classes <= {SentencePieceTokenizer, NumberedTokenizer}:
        for field, one in zip(FIELDS, plain, strict=True):
            files.write_bytes(folder / NUMBERED[field], one.model)
