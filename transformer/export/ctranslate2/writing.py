"""Writes an encoder and a decoder as a model of CTranslate2 (extra `export`)."""

import functools
import re
from collections.abc import Mapping

import numpy as np
from etils import epath

from transformer.config import FORM, Config, ConfigError
from transformer.data.codec import Codec
from transformer.export import layout
from transformer.export.ctranslate2 import names
from transformer.export.foreign import FIELDS, check_options, pair_tables
from transformer.nn.positions import sinusoid
from transformer.tokens import EOS, START, UNK

QUANTIZATIONS = 'int8', 'int16', 'float16'
LONGEST = 2048  # pieces of a sentence
PIECES = {START: '<pad>', EOS: '</s>', UNK: '<unk>'}


def library():
    """The module of CTranslate2 with its specs; ConfigError if it is not installed."""
    try:
        import ctranslate2
        import ctranslate2.specs
    except ModuleNotFoundError:
        raise ConfigError("CTranslate2 is not installed: pip install '.[export]'") from None
    return ctranslate2


def check(config: Config, quantization: str | None = None) -> None:
    """Raises ConfigError, which names the option, if CTranslate2 has no such model or type of kernels."""
    if quantization not in (None, *QUANTIZATIONS):
        raise ConfigError(f'--quantization={quantization}: choose one of {", ".join(QUANTIZATIONS)}')
    if FORM[config.train.task] != 'pair':
        raise ConfigError(
            f'train.task={config.train.task}: only encoder-decoders are written for CTranslate2'
        )
    check_options(config, {'model.norm_final': False} if config.model.norm == 'post' else {}, 'CTranslate2')


def write(
    config: Config, params: Mapping, codec: Codec, folder: epath.Path, quantization: str | None = None
) -> None:
    """Writes a model into an existing folder, with its vocabularies and SentencePiece models.

    Args:
      quantization: the type of the kernels, a value of `QUANTIZATIONS`; float32 if None.

    Raises:
      ConfigError: CTranslate2 has no such model, or is not installed.
    """
    check(config, quantization)
    specs, m, ours = library().specs, config.model, layout.named(params)
    numbers = {name: number for number, name in names.ACTIVATIONS.items()}
    spec = specs.TransformerSpec.from_config(
        (m.N, m.N_decoder),
        m.h,
        pre_norm=m.norm == 'pre',
        no_final_norm=not m.norm_final,
        activation=specs.common_spec.Activation(numbers[m.activation]),
        layernorm_embedding=m.norm_embedding,
    )
    options = {f'model.{name}': value for name, value in vars(m).items()}
    for path, array in layout.to_theirs(names.table(options), ours).items():
        _set(spec, path, array)
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = m.scale_embeddings
        if m.positions == 'sinusoidal':
            waves = sinusoid(m.first_position + LONGEST, m.d_model, m.sinusoid)[m.first_position :]
            side.position_encodings.encodings = waves
    source, target, softmax = pair_tables(m, ours)
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight = source, target
    spec.decoder.start_from_zero_embedding = m.start == 'zeros'
    spec.decoder.projection.weight = softmax
    spec.decoder.projection.bias = ours.get('softmax_bias', np.zeros(m.vocab_size, np.float32))
    tokenizers = [codec.of(field) for field in FIELDS]
    spec.register_source_vocabulary(tokens(tokenizers[0], m.vocab_size))
    spec.register_target_vocabulary(tokens(tokenizers[1], m.vocab_size))
    spec.config.bos_token = spec.config.decoder_start_token = PIECES[START]
    spec.config.eos_token, spec.config.unk_token = PIECES[EOS], PIECES[UNK]
    around = tokenizers[0].encode('')
    spec.config.add_source_bos, spec.config.add_source_eos = START in around, EOS in around
    spec.config.layer_norm_epsilon = m.norm_epsilon
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
    _write_tokenizers(tokenizers, folder)


def tokens(tokenizer, size: int) -> list[str]:
    """A name for each row of the embedding; a second piece of the same name gets its number."""
    own = tokenizer.pieces(range(UNK + 1, tokenizer.size))
    names_of_rows = [*PIECES.values(), *own, *(f'<unused {n}>' for n in range(tokenizer.size, size))]
    first = {}
    for number, name in enumerate(names_of_rows):
        first.setdefault(name, number)
    return [
        name if first[name] == number else f'{name} <{number}>' for number, name in enumerate(names_of_rows)
    ]


def _set(spec, path: str, array: np.ndarray) -> None:
    """Sets the array with a path such as encoder/layer_0/ffn/linear_1/bias; some parts are in lists."""

    def inside(part, name: str):
        numbered = re.fullmatch(r'(\w+)_(\d+)', name)
        if numbered and isinstance(getattr(part, numbered[1], None), list):
            return getattr(part, numbered[1])[int(numbered[2])]
        return getattr(part, name)

    *parts, last = path.split('/')
    setattr(functools.reduce(inside, parts, spec), last, array)


def _write_tokenizers(tokenizers: list, folder: epath.Path) -> None:
    """Writes SentencePiece models; other tokenizers have no file that CTranslate2's users could read."""
    contents = dict.fromkeys(one.content for one in tokenizers)
    # The content of our own kinds of tokenizers is JSON.
    if not any(content.startswith((b'{', b'#')) for content in contents):
        for name, content in zip(names.TOKENIZERS, contents, strict=False):
            (folder / name).write_bytes(content)
