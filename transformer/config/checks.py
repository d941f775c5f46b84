"""Checks the values of a resolved config that depend on one another."""

import math

from transformer.config.declare import ConfigError, has_meaning
from transformer.config.options import OPTIONS, Config, Model, Train
from transformer.config.tasks import FORMS, GROUP, Images, tasks_with
from transformer.config.values import (
    couples_batch,
    flatten,
    form_of,
    has,
    image_tower,
    row_positions,
    sentinels,
)

# Positions that are added to the logits of attention.
BIASES = ('relative', 'buckets', 'alibi')
BYTE_PIECES = 256 + 3  # with padding, the end and the unknown piece


def check_combinations(config: Config) -> None:
    """Raises ConfigError if values of a resolved config contradict each other."""
    model, train, decode = config.model, config.train, config.decode
    values, kinds = flatten(config), FORMS[form_of(config)].kinds
    if model.kind not in kinds:
        kinds = ', '.join(kinds)
        raise ConfigError(f'train.task={train.task!r}: needs model.kind={kinds}, not {model.kind!r}')
    if not has(config, 'pair') and model.tie_embeddings in ('inputs', 'decoder'):
        raise ConfigError(
            f'model.tie_embeddings={model.tie_embeddings!r}: with train.task={train.task} a model has one '
            'embedding to tie to the softmax; choose all or none'
        )
    _check_widths(config)
    _check_attention(model)
    if has_meaning(OPTIONS, values, 'image_model.N'):
        _check_image_model(config)
    _check_data(config)
    if train.accumulate is not None and train.microbatches % train.accumulate:
        raise ConfigError(
            f'train.accumulate={train.accumulate}: must divide train.microbatches={train.microbatches}'
        )
    if couples_batch(config) and train.accumulate not in (None, 1):
        raise ConfigError(
            f'train.accumulate={train.accumulate}: with contrastive.negatives=batch the loss needs all rows '
            'at once; choose 1'
        )
    _check_steps(train)
    writes = has_meaning(OPTIONS, values, 'decode.beam')
    # A text for an image has no source to be as long as.
    if writes and not has_meaning(OPTIONS, values, 'decode.max_source_len') and not decode.extra_len:
        raise ConfigError('decode.extra_len=0: nothing could be written; set at least 1')
    if has_meaning(OPTIONS, values, 'contrastive.templates'):
        templates = config.contrastive.templates
        if lacking := [template for template in templates.split('|') if '{}' not in template]:
            raise ConfigError(
                f'contrastive.templates={templates!r}: {lacking[0]!r} has no {{}} for the name of a class'
            )
    if writes and decode.top_k > model.vocab_size:
        raise ConfigError(f'decode.top_k={decode.top_k}: more than model.vocab_size={model.vocab_size}')
    if writes and 2 * decode.beam > config.data.pieces + (above := sentinels(config)):
        pieces = f'data.pieces={config.data.pieces}' + f' + denoise.sentinels={above}' * (above > 0)
        raise ConfigError(f'decode.beam={decode.beam}: 2 * beam exceeds {pieces}')


def _check_widths(config: Config) -> None:
    model = config.model
    positions = has_meaning(OPTIONS, flatten(config), 'model.positions')
    if positions and model.positions == 'sinusoidal' and model.d_model % 2:
        raise ConfigError(f'model.d_model={model.d_model}: must be even for sinusoidal positions')
    if model.kind == 'convolutional' and model.positions in ('rotary', *BIASES):
        raise ConfigError(
            f"model.positions={model.positions!r}: enters self-attention, which model.kind='convolutional' "
            'does not have; choose sinusoidal, learned or none'
        )
    if model.positions == 'rotary' and model.d_k % 2:
        raise ConfigError(f'model.d_k={model.d_k}: must be even for rotary positions')
    if model.bidirectional and model.d_model % 2:
        raise ConfigError(f'model.d_model={model.d_model}: must be even for model.bidirectional=True')


def _check_image_model(config: Config) -> None:
    tower = config.image_model
    if tower.d_model % tower.h:
        raise ConfigError(
            f'image_model.h={tower.h}: image_model.d_model={tower.d_model} is not divisible by it'
        )
    attention = config.model.attention
    if attention != 'full' and tower.positions in BIASES:
        raise ConfigError(
            f'image_model.positions={tower.positions!r}: adds to all n x n logits, which '
            f"model.attention={attention!r} does not hold; only 'full' does"
        )
    if tower.positions != 'learned' and tower.init_std_positions is not None:
        raise ConfigError(
            f'image_model.init_std_positions={tower.init_std_positions}: means nothing with '
            f'image_model.positions={tower.positions}, only with learned'
        )
    even = {'sinusoidal': tower.d_model, 'rotary': tower.d_model // tower.h}.get(tower.positions, 2)
    if even % 2:
        raise ConfigError(
            f'image_model.d_model={tower.d_model}: {even} must be even for {tower.positions} positions'
        )


def _check_attention(model: Model) -> None:
    """Rejects options that the model's attention does not support."""
    setting = f'model.attention={model.attention!r}'
    if model.attention != 'full' and model.positions in BIASES:
        raise ConfigError(
            f"{setting}: positions={model.positions!r} adds to all n x n logits; only 'full' holds them"
        )
    if model.attention in ('linear', 'chunked', 'flash') and model.P_drop_attention:
        raise ConfigError(
            f'{setting}: holds no weights that model.P_drop_attention={model.P_drop_attention} could drop; '
            'choose full, local or sparse'
        )
    if model.attention == 'flash' and model.d_k != model.d_v:
        raise ConfigError(f'{setting}: needs model.d_k={model.d_k} equal to model.d_v={model.d_v}')


def _check_data(config: Config) -> None:
    data, train, values = config.data, config.train, flatten(config)
    if has_meaning(OPTIONS, values, 'data.pieces'):
        _check_text(config)
    if has_meaning(OPTIONS, values, 'images.patch'):
        _check_images(config)
    _check_positions(config)
    row = row_positions(config)
    if data.batch_tokens < row * train.microbatches:
        raise ConfigError(
            f'data.batch_tokens={data.batch_tokens}: less than one row of {row} positions in each of '
            f'train.microbatches={train.microbatches}; needs {row * train.microbatches}'
        )
    if data.source == 'tfds' and data.name is None:
        raise ConfigError('data.name: missing; source=tfds needs a dataset, such as wmt14_translate/de-en')


def _check_images(config: Config) -> None:
    """Rejects options that do not fit the sizes of the encoder of images."""
    images, width = config.images, image_tower(config).d_model
    if images.size % images.patch:
        raise ConfigError(f'images.patch={images.patch}: must divide images.size={images.size}')
    if not images.randaugment and images.magnitude != OPTIONS['images.magnitude'].default:
        raise ConfigError(f'images.magnitude={images.magnitude}: means nothing with images.randaugment=0')
    if config.model.kind == 'convolutional':
        _check_residual(config.model, images)
        return
    if images.stem == 'convolutions' and (images.patch == 1 or math.isqrt(images.patch) ** 2 != images.patch):
        raise ConfigError(f"images.patch={images.patch}: with images.stem='convolutions' 4, 9, 16 or 25, ...")
    if images.sinusoids and width % 4:
        option = 'model.d_model' if config.image_model.d_model is None else 'image_model.d_model'
        raise ConfigError(f'{option}={width}: must be divisible by 4 for images.sinusoids=True')


def _check_residual(model: Model, images: Images) -> None:
    """Rejects options that a residual network cannot have."""
    setting, stages = "model.kind='convolutional' for images", images.stages
    if images.pool != 'mean':
        raise ConfigError(f'images.pool={images.pool!r}: {setting} has no class token; choose mean')
    if model.positions != 'none':
        raise ConfigError(f'model.positions={model.positions!r}: {setting} needs none; choose none')
    if images.channels == 1 and model.kernel_width == 1:
        raise ConfigError(
            f'model.kernel_width=1: {setting} of one channel needs more than one weight a kernel'
        )
    if images.patch != 1 << (stages - 1):
        raise ConfigError(f'images.patch={images.patch}: {setting} needs a power of 2')
    if model.N % stages:
        raise ConfigError(f'model.N={model.N}: {setting} divides it among {stages} stages (images.patch)')
    if model.d_model % (GROUP << (stages - 1)):
        raise ConfigError(
            f'model.d_model={model.d_model}: {setting} needs a multiple of {GROUP << (stages - 1)}, because '
            f'the first of {stages} stages normalises groups of {GROUP} channels'
        )


def _check_text(config: Config) -> None:
    model, data, train, values = config.model, config.data, config.train, flatten(config)
    if model.vocab_size < data.pieces + (above := sentinels(config)):
        also = f' + denoise.sentinels={above}' if above else ''
        raise ConfigError(
            f'model.vocab_size={model.vocab_size}: must be at least data.pieces={data.pieces}{also}'
        )
    if data.vocabulary == 'separate' and model.tie_embeddings in ('all', 'inputs'):
        raise ConfigError(
            f"model.tie_embeddings={model.tie_embeddings!r}: with data.vocabulary='separate' source and "
            'target share no pieces; choose decoder or none'
        )
    if data.vocabulary == 'separate' and data.tokenizer == 'bytes':
        raise ConfigError("data.vocabulary='separate': data.tokenizer='bytes' is the same for both sides")
    if data.tokenizer == 'bytes' and data.pieces != BYTE_PIECES:
        raise ConfigError(f'data.pieces={data.pieces}: data.tokenizer=bytes has {BYTE_PIECES}')
    if has(config, 'spans') and data.max_len < 3:
        raise ConfigError(f'data.max_len={data.max_len}: needs 3, for a question, its end and a paragraph')
    if config.masked.next_sentence:
        _check_pairs(config)
    if config.model.text_types and config.model.token_types < 2:
        raise ConfigError(f'model.text_types=True: needs model.token_types=2, not {config.model.token_types}')
    if data.batching == 'running' and not has(config, 'running'):
        tasks = ' or '.join(tasks_with('running'))
        raise ConfigError(f'data.batching=running: needs train.task={tasks}, not {train.task!r}')
    # The other tokenizer takes what stands between blanks for a piece, newlines and all.
    kinds = ('bpe', 'byte_bpe', 'characters', 'bytes')
    of_files = {'data.batching': ('running',), 'data.source': ('text',), 'data.tokenizer': kinds}
    for key, needed in of_files.items():
        if data.documents == 'files' and values[key] not in needed:
            raise ConfigError(f'data.documents=files: needs {key}={" or ".join(needed)}, not {values[key]!r}')
    if data.batching != 'running' and data.row_len < data.max_len:
        raise ConfigError(f'data.row_len={data.row_len}: must hold a sentence of data.max_len={data.max_len}')
    with_languages = data.source in ('tfds', 'grammar', 'scenes')
    needs_language = has_meaning(OPTIONS, values, 'data.language') and with_languages
    if needs_language and data.language is None:
        raise ConfigError(f'data.language: missing; data.source={data.source} needs it, for example de')
    two_languages = has_meaning(OPTIONS, values, 'data.target_language')
    if two_languages and data.source_language == data.target_language:
        raise ConfigError(f'data.target_language={data.target_language!r}: equals data.source_language')


def _check_pairs(config: Config) -> None:
    """Rejects options with which a model cannot read pairs of texts."""
    values, setting = flatten(config), f'masked.next_sentence={config.masked.next_sentence}'
    if config.data.batching != 'padded':
        raise ConfigError(f'{setting}: needs data.batching=padded, not {config.data.batching!r}')
    # A pair is two pieces, each with its end, perhaps after a first piece.
    for key, least in {'model.token_types': 2, 'data.max_len': 5}.items():
        if values[key] < least:
            raise ConfigError(f'{setting}: needs {key}={least} or more, not {values[key]}')


def _check_positions(config: Config) -> None:
    """Raises ConfigError if the table of learned positions has too few rows."""
    data, decode, values = config.data, config.decode, flatten(config)
    lengths = {'rows': row_positions(config)}
    if has_meaning(OPTIONS, values, 'data.row_len'):
        lengths['data.row_len'] = data.row_len
    if has_meaning(OPTIONS, values, 'data.max_len') and data.batching != 'running':
        lengths['data.max_len'] = data.max_len
    if has_meaning(OPTIONS, values, 'decode.extra_len'):
        prompted = has_meaning(OPTIONS, values, 'decode.max_source_len')
        name = 'decode.max_source_len + decode.extra_len' if prompted else 'decode.extra_len'
        lengths[name] = decode.extra_len + (decode.max_source_len if prompted else 0)
    which = max(lengths, key=lengths.get)
    if config.model.positions == 'learned' and config.model.max_len < lengths[which]:
        raise ConfigError(
            f'model.max_len={config.model.max_len}: learned positions need {lengths[which]} for {which}'
        )


def _check_steps(train: Train) -> None:
    """Raises ConfigError if averaging or the schedule of the learning rate is impossible."""
    if train.average_last and train.average_every % train.checkpoint_every:
        raise ConfigError(
            f'train.average_every={train.average_every}: must be a multiple of '
            f'train.checkpoint_every={train.checkpoint_every}'
        )
    if train.average_last and train.ema:
        raise ConfigError(
            f'train.average_last={train.average_last}: means nothing with train.ema={train.ema}, which '
            'averages parameters itself; choose one of them'
        )
    if train.decay_steps is not None and train.decay_steps <= train.warmup_steps:
        raise ConfigError(
            f'train.warmup_steps={train.warmup_steps}: must be less than '
            f'train.decay_steps={train.decay_steps} (train.steps if not given), '
            f'so that the {train.schedule} schedule can fall'
        )
    ends = train.decay_steps is not None and train.decay_steps < train.steps and not train.least_lr
    if ends and train.epochs is None:
        raise ConfigError(
            f'train.steps={train.steps}: at most {train.decay_steps}, after which the learning rate of the '
            f'{train.schedule} schedule is 0 (train.decay_steps; by default the steps of the first training)'
        )
