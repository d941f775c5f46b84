"""Writes models as Hugging Face transformers saves them; needs safetensors, not torch (extra `export`)."""

from collections.abc import Mapping

import numpy as np
from etils import epath

from transformer import files
from transformer.config import Config, ConfigError, flatten, form_of, has, sentinels
from transformer.data.codec import Codecs
from transformer.data.tokenizers.base import Tokenizer
from transformer.interop import layout
from transformer.interop.foreign import (
    check_options,
    differing,
    in_their_order,
    pair_tables,
    text_tables,
    their_order,
    unwritten,
    waves,
)
from transformer.interop.hugging_face import card, clip, marian, t5, tokenizer_files
from transformer.interop.hugging_face.kind import (
    CONFIG,
    FILE,
    GENERATION,
    PIXELS,
    Kind,
    nested,
    their_activation,
)
from transformer.interop.hugging_face.reading import KINDS
from transformer.interop.layout import Arrays
from transformer.runs import parameters_file
from transformer.runs.restore import Origin
from transformer.runs.workdir import Run
from transformer.tokens import EOS, PAD, START, UNK


def check(config: Config, quantization: str | None = None) -> None:
    """Raises ConfigError, which names the option, if no model there computes the same."""
    if quantization is not None:
        raise ConfigError(f'--quantization={quantization}: models of huggingface are written in float32')
    kind = KINDS[_name(config)]
    check_options(config, _held(config, kind), kind.architecture)


def _held(config: Config, kind: Kind) -> dict[str, tuple]:
    """Returns the values of options that a kind's models can have."""
    return {key: (value,) for key, value in kind.options.items()} | kind.held(config)


def differences(config: Config, codecs: Codecs) -> list[str]:
    """Describes how their computation differs."""
    lines = []
    own = config.model.norm_epsilon
    if has(config, 'pair') and KINDS[_name(config)].numbered and own != marian.EPSILON:
        lines.append(f'LayerNorm: epsilon is {marian.EPSILON} there, {own} here (model.norm_epsilon)')
    if has(config, 'continues') and not tokenizer_files.begins_texts(codecs['text'], config):
        lines.append('a text begins with the end piece here, which the tokenizer there does not add')
    if has(config, 'writes') and config.decode.method == 'beam' and (alpha := config.decode.alpha):
        lines.append(f'a hypothesis of n pieces is divided by n^{alpha} there, by ((5 + n)/6)^{alpha} here')
    return lines


def _name(config: Config) -> str:
    """Names the kind that lacks the fewest of a config's options."""
    form = 'pair' if has(config, 'pair') else form_of(config)
    # A model that makes pairs of one text has one tokenizer.
    names = [
        name
        for name, kind in KINDS.items()
        if kind.form == form and not (kind.numbered and has(config, 'one_text'))
    ]
    if not names:
        raise ConfigError(f'train.task={config.train.task}: --format=huggingface has no such model')
    return min(names, key=lambda name: len(differing(config, _held(config, KINDS[name]))))


def write(config: Config, params: Mapping, codecs: Codecs, folder: epath.Path) -> None:
    """Writes a model into an existing folder, with its config, tokenizer and search.

    Raises:
      ConfigError: no model there computes the same, or its tokenizer has no file there.
    """
    check(config)
    name = _name(config)
    kind, ours = KINDS[name], layout.named(params)
    options = flatten(config)
    arrays = layout.to_theirs(kind.table(options), ours)
    settings = {
        'model_type': name,
        'architectures': [kind.architecture],
        'dtype': 'float32',
        **{setting: allowed[0] for setting, allowed in kind.fixed.items()},
        **{
            setting: their_activation(options[key]) if key.endswith('.activation') else options[key]
            for setting, key in kind.settings.items()
        },
        **kind.write(config),
    }
    if kind.words is None:
        settings |= _labels(codecs)
        files.write_json(folder / PIXELS, _pixels(config))
    elif kind.form == 'image_text':
        settings |= clip.write_words(config, ours, codecs['text'], arrays)
        tokenizer_files.write(folder, codecs['text'], kind, config)
        own = {'image_processor_type': 'CLIPImageProcessor', 'do_center_crop': False}
        files.write_json(folder / PIXELS, _pixels(config) | own)
    elif kind.form == 'pair' and not kind.numbered:
        tokenizer = codecs['text' if has(config, 'one_text') else 'target']
        settings |= t5.write_words(config, ours, tokenizer, arrays)
        above = their_order(tokenizer, config.model.vocab_size)[tokenizer.size :][: sentinels(config)]
        tokenizer_files.write(folder, tokenizer, kind, config, above[::-1].tolist())
        files.write_json(folder / GENERATION, _search(config, tokenizer))
    elif kind.numbered:
        settings |= _pair_words(config, ours, codecs, kind, arrays)
        tokenizer_files.write_pair(folder, codecs, config)
        files.write_json(folder / GENERATION, _search(config, codecs['target']))
    else:
        settings |= _text_words(config, ours, codecs['text'], kind, arrays)
        tokenizer_files.write(folder, codecs['text'], kind, config)
        if kind.form == 'text':
            search = _search(config, codecs['text']) | _tokens(kind, codecs['text'])
            files.write_json(folder / GENERATION, search)
    kind.from_matrices(arrays, config)
    arrays = {key: np.asarray(array, order='C') for key, array in sorted(arrays.items())}
    files.write_json(folder / CONFIG, nested(settings))
    files.write_bytes(folder / FILE, parameters_file.load_library().numpy.save(arrays, {'format': 'pt'}))


def write_card(run: Run, origin: Origin, folder: epath.Path) -> None:
    """Writes the model card beside a model."""
    kind = KINDS[_name(run.config)]
    files.write_text(folder / 'README.md', card.text(run, origin, kind, differences(run.config, run.codecs)))


def _text_words(
    config: Config, ours: Arrays, tokenizer: Tokenizer, kind: Kind, arrays: Arrays
) -> dict[str, object]:
    """Adds the tables of words of a model of single texts, and returns the settings that follow."""
    m, (table, softmax, bias) = config.model, text_tables(config.model, ours)
    scaled = table * np.float32(m.d_model**0.5) if m.scale_embeddings else table
    order = their_order(tokenizer, m.vocab_size)
    if kind.form == 'pieces' and (order[[PAD, EOS, UNK]] < 0).any():
        raise ConfigError('data.tokenizer: huggingface needs padding and a hidden piece; this has none')
    arrays[kind.words.source] = in_their_order(scaled, order)
    tied = np.array_equal(scaled, softmax)
    if not tied:
        arrays[kind.words.softmax] = in_their_order(softmax, order)
    if kind.words.bias:
        arrays[kind.words.bias] = in_their_order(bias, order)
    elif bias[order >= 0].any():
        raise ConfigError(
            f'model.softmax_bias=True: {kind.architecture} has no bias; train it with '
            '--config.model.softmax_bias=False'
        )
    return {'vocab_size': int((order >= 0).sum()), 'tie_word_embeddings': tied, **_tokens(kind, tokenizer)}


def _tokens(kind: Kind, tokenizer: Tokenizer) -> dict[str, int]:
    """Returns the numbers there of a single-text model's pieces that are no part of a text."""
    pad, end = their_order(tokenizer, tokenizer.size)[[PAD, EOS]].tolist()
    if kind.form != 'text':
        return {'pad_token_id': pad}
    # A text begins as if after another text.
    return dict.fromkeys(('bos_token_id', 'eos_token_id', 'pad_token_id'), end)


def _pair_words(
    config: Config, ours: Arrays, codecs: Codecs, kind: Kind, arrays: Arrays
) -> dict[str, object]:
    """Adds the tables of words and positions of an encoder-decoder, and returns the settings that follow."""
    m = config.model
    source, target, softmax, bias = (table.copy() for table in pair_tables(m, ours))
    shared = np.array_equal(source, target)
    if m.start == 'zeros':
        target[START] = 0.0
        if shared:
            source[START] = 0.0
    tied = np.array_equal(target, softmax)
    if shared:
        arrays[marian.SHARED] = target
    if not (shared and tied):
        arrays[kind.words.source], arrays[kind.words.target] = source, target
    if not tied:
        arrays[kind.words.softmax] = softmax
    arrays[kind.words.bias] = bias[None]
    if m.positions == 'sinusoidal' and (m.sinusoid, m.first_position) != ('halves', 0):
        length = kind.write(config)['max_position_embeddings']
        for name in marian.POSITIONS:
            arrays[name] = waves(m, length)
    return {
        'vocab_size': m.vocab_size,
        'decoder_vocab_size': m.vocab_size,
        'share_encoder_decoder_embeddings': shared,
        'tie_word_embeddings': tied,
    }


def _search(config: Config, tokenizer: Tokenizer) -> dict[str, object]:
    """Returns the settings of the search. `tokenizer` cuts the texts that the model writes."""
    decode, order = config.decode, their_order(tokenizer, config.model.vocab_size)
    forbidden = order[unwritten(tokenizer, config)][:, None].tolist()
    by_method = {
        'beam': {'num_beams': decode.beam, 'length_penalty': decode.alpha},
        'greedy': {'num_beams': 1},
        'sample': {'temperature': decode.temperature, 'top_k': decode.top_k, 'top_p': decode.top_p},
    }
    settings = {
        'do_sample': decode.method == 'sample',
        **by_method[decode.method],
        **({'bad_words_ids': forbidden} if forbidden else {}),
    }
    if not has(config, 'pair'):
        return settings | {'max_new_tokens': decode.extra_len}
    return settings | {
        'decoder_start_token_id': START,
        'pad_token_id': START,
        'eos_token_id': EOS,
        'forced_eos_token_id': EOS,
        'max_length': decode.max_source_len + decode.extra_len,
    }


def _labels(codecs: Codecs) -> dict[str, object]:
    names = codecs['label'].names
    return {
        'id2label': {str(number): name for number, name in enumerate(names)},
        'label2id': {name: number for number, name in enumerate(names)},
    }


def _pixels(config: Config) -> dict[str, object]:
    """Returns the settings by which pixels are from -1 to 1."""
    size, channels = config.images.size, config.images.channels
    return {
        'image_processor_type': 'ViTImageProcessor',
        'do_resize': True,
        'size': {'height': size, 'width': size},
        'resample': 2,
        'do_rescale': True,
        'rescale_factor': 1 / 255,
        'do_normalize': True,
        'image_mean': [0.5] * channels,
        'image_std': [0.5] * channels,
    }
