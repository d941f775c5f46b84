"""The model contract, for every value of every axis of the model, and norm x positions."""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_models
from random_models import random_params

from transformer.config import FORMS, OPTIONS, TASKS, Config, ConfigError, config_dict, resolve
from transformer.config.declare import choices, has_meaning
from transformer.nn import cache, decoders, models
from transformer.tokens import Batch

SMALL = {
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'model.vocab_size': 270,
    'model.max_len': 16,
    'data.pieces': 270,
    'data.max_len': 8,
    'data.row_len': 12,
    'data.batch_tokens': 96,
    'decode.max_source_len': 8,
    'decode.extra_len': 4,
}
LANGUAGE = {'train.task': 'language', 'data.source': 'text'}
PICTURES = {'data.source': 'pictures', 'images.classes': 3, 'data.batch_tokens': 640, 'train.task': 'images'}
CAPTIONS = {
    'train.task': 'captions',
    'data.source': 'pictures',
    'images.size': 6,
    'images.patch': 3,
    'images.pixels': 'grey',
}
# The Transformer's two forms of texts.
TRANSFORMERS = {'pair': {}, 'text': LANGUAGE}
# Sizes, none of which equals another, with probabilities, and with what Marian's models have; what OpenNMT's,
# PyTorch's own encoder-decoder and GPT-2 have. Options that do not touch each other share a model.
SIZES, MARIAN, OPENNMT, TORCH, T5, CLIP, GPTJ = (
    {
        'model.N': 2,
        'model.N_decoder': 3,
        'model.d_model': 20,
        'model.d_ff': 40,
        'model.h': 4,
        'model.d_k': 6,
        'model.d_v': 7,
        'model.vocab_size': 300,
        'model.max_len': 22,
        'model.P_drop': 0.3,
        'model.P_drop_attention': 0.2,
        'model.P_drop_relu': 0.2,
        'model.P_drop_embedding': 0.0,
    },
    {
        'model.N': 2,
        'model.N_decoder': 1,
        'model.d_model': 8,
        'model.d_ff': 6,
        'model.h': 1,
        'model.d_v': 4,
        'model.norm_epsilon': 1e-5,
        'model.sinusoid': 'halves',
        'model.activation': 'swish',
        'model.softmax_bias': True,
        'model.start': 'learned',
    },
    {
        'model.norm': 'pre',
        'model.sinusoid': 't2t',
        'model.init': 'torch',
        'model.first_position': 1,
        'model.activation': 'gelu_tanh',
        'model.tie_embeddings': 'none',
        'model.softmax_bias': True,
    },
    {
        'model.positions': 'learned',
        'model.init': 'clip',
        'model.init_std_positions': 0.01,
        'model.scale_embeddings': False,
        'model.norm_embedding': True,
        'model.norm_final': True,
    },
    # T5, CLIP's text encoder without its mask, and GPT-J.
    {
        'model.N': 2,
        'model.d_k': 6,
        'model.d_v': 7,
        'model.positions': 'buckets',
        'model.attention_scale': 'none',
        'model.scale_logits': True,
        'model.start': 'learned',
        'model.norm': 'pre',
        'model.norm_type': 'rmsnorm',
        'model.activation': 'geglu',
        'model.biases': 'none',
        'model.init': 't5',
        'model.remat': True,
    },
    {
        'model.positions': 'alibi',
        'model.activation': 'quick_gelu',
        'model.init': 'normal',
        'model.init_std': 0.03,
    },
    {
        'model.positions': 'rotary',
        'model.rotary_pairs': 'interleaved',
        'model.init': 'truncated_normal',
        'model.attention_scale': 'none',
    },
)
# What a form cannot have.
ONLY_PAIR = {'model.N_decoder': 2, 'model.start': 'learned'}
TIED = [('model.tie_embeddings', 'inputs'), ('model.tie_embeddings', 'decoder')]
REFUSED = {'pair': [], 'text': [*ONLY_PAIR.items(), *TIED]}
RMSNORM, XAVIER, REMAT, BFLOAT16 = (
    {f'model.{option}': value}
    for option, value in (
        ('norm_type', 'rmsnorm'), ('init', 'xavier'), ('remat', True), ('dtype', 'bfloat16')
    )
)  # fmt: skip
GELU, SWIGLU = ({'model.activation': name} for name in ('gelu', 'swiglu'))
INPUTS_TIED, DECODER_TIED, UNTIED = (
    {'model.tie_embeddings': which} for which in ('inputs', 'decoder', 'none')
)
FFN_BIASES, NO_BIASES = ({'model.biases': which} for which in ('ffn', 'none'))
LOCAL, SPARSE, LINEAR, CHUNKED = (
    {'model.attention': kernel, f'model.attention_{option}': size}
    for kernel, option, size in (
        ('local', 'window', 2), ('sparse', 'stride', 2), ('linear', 'chunk', 3), ('chunked', 'chunk', 3)
    )
)  # fmt: skip
# Every norm with every kind of positions; the values of the other axes are dealt out among these models.
BESIDE = {
    # The paper's.
    ('post', 'sinusoidal'): {},
    ('post', 'learned'): TORCH | GELU | DECODER_TIED | FFN_BIASES,
    ('post', 'rotary'): GPTJ | LOCAL | RMSNORM,
    ('post', 'relative'): SWIGLU | UNTIED | NO_BIASES,
    ('post', 'buckets'): INPUTS_TIED | XAVIER,
    ('post', 'alibi'): CLIP | NO_BIASES,
    ('post', 'none'): LINEAR | REMAT,
    ('pre', 'sinusoidal'): OPENNMT | CHUNKED,
    ('pre', 'learned'): SPARSE | SWIGLU | XAVIER,
    ('pre', 'rotary'): SIZES | RMSNORM | NO_BIASES | REMAT,
    ('pre', 'relative'): GELU | FFN_BIASES,
    ('pre', 'buckets'): T5,
    ('pre', 'alibi'): INPUTS_TIED | RMSNORM,
    ('pre', 'none'): LOCAL | DECODER_TIED,
}
VARIANTS = [
    {'model.norm': norm, 'model.positions': positions} | others
    for (norm, positions), others in BESIDE.items()
]
VARIANTS.append(MARIAN)
# The two forms share their layers, so that a text needs no pairs of norm and positions.
VARIANTS += [
    LANGUAGE | {key: value for key, value in variant.items() if key not in ONLY_PAIR}
    for variant in (
        {},
        CHUNKED | GELU | FFN_BIASES | XAVIER | {'model.sinusoid': 't2t'},
        TORCH | LOCAL | {'model.norm': 'pre'},
        GPTJ | SPARSE | SWIGLU | UNTIED,
        SIZES | RMSNORM | NO_BIASES | {'model.positions': 'relative', 'model.norm': 'pre'},
        {'model.positions': 'none'} | LINEAR | REMAT,
        MARIAN,
        OPENNMT,
        T5,
        CLIP,
    )
]
# Rounded numbers prove little of the values beside them.
VARIANTS += [form | BFLOAT16 for form in TRANSFORMERS.values()]
GRU, RELU, TANH = ({'model.cell': cell} for cell in ('gru', 'rnn_relu', 'rnn_tanh'))
ADDITIVE, DOT, GENERAL, CONCAT = (
    {'model.alignment': score} for score in ('additive', 'dot', 'general', 'concat')
)
FEEDING, BOTH, REVERSED, RESIDUAL, VARIATIONAL = (
    {f'model.{option}': True}
    for option in ('input_feeding', 'bidirectional', 'reverse_source', 'residual', 'variational_dropout')
)
TWO = {'model.N': 2}
# Every cell, score and option, on both sides of what is scanned step by step and what is not.
RECURRENT = [
    {'model.kind': 'recurrent', **variant}
    for variant in (
        {'model.cell': 'lstm', 'model.alignment': 'none', 'model.P_drop': 0.3},
        TWO | REVERSED,
        GRU | TWO | BOTH | {'model.N_decoder': 1, 'model.tie_embeddings': 'none'},
        GRU | ADDITIVE | BOTH | VARIATIONAL | {'model.P_drop': 0.3},
        ADDITIVE | TWO | RESIDUAL | {'model.N_decoder': 3, 'model.tie_embeddings': 'decoder'},
        TANH | DOT | REVERSED,
        RELU | GENERAL | TWO | BOTH | RESIDUAL,
        CONCAT | {'model.d_model': 20},
        GENERAL | FEEDING | TWO | RESIDUAL | REVERSED | VARIATIONAL | {'model.P_drop_embedding': 0.3},
        GRU | DOT | FEEDING | {'model.P_drop': 0.3},
        TANH | CONCAT | FEEDING | BOTH | {'model.vocab_size': 300},
        GENERAL | FEEDING | TWO | {'model.dtype': 'bfloat16'},
        LANGUAGE | TWO | RESIDUAL | VARIATIONAL | {'model.P_drop': 0.3},
        LANGUAGE | GRU | {'model.tie_embeddings': 'none'},
    )
]
# Every width, kind of positions and end, in models deep enough that windows do not reach everything.
CONVOLUTIONAL = [
    {'model.kind': 'convolutional', **variant}
    for variant in (
        {},
        TWO | {'model.P_drop': 0.3},
        {'model.kernel_width': 1, 'model.positions': 'none'},
        TWO | {'model.kernel_width': 2, 'model.positions': 'learned', 'model.tie_embeddings': 'decoder'},
        {'model.kernel_width': 5, 'model.sinusoid': 't2t', 'model.N_decoder': 2},
        TWO | {'model.N_decoder': 1, 'model.tie_embeddings': 'none', 'model.P_drop_embedding': 0.3},
        {'model.kernel_width': 2, 'model.d_model': 20, 'model.dtype': 'bfloat16'},
        LANGUAGE | {'model.P_drop': 0.3},
        LANGUAGE | TWO | {'model.kernel_width': 2, 'model.positions': 'learned'},
        LANGUAGE | {'model.positions': 'none', 'model.tie_embeddings': 'none'},
    )
]
# Images in place of a source, with and without a class token, by every kind that has them.
WITHOUT_TOKEN = {'images.pool': 'mean'}
OF_IMAGES = [
    CAPTIONS | variant
    for variant in (
        {'model.P_drop': 0.3},
        TWO | WITHOUT_TOKEN | {'model.positions': 'learned', 'model.norm': 'pre', 'model.N_decoder': 1},
        {'model.kind': 'recurrent'} | TWO | ADDITIVE | BOTH | WITHOUT_TOKEN,
        {'model.kind': 'recurrent'} | GRU | GENERAL | FEEDING | {'model.N_decoder': 2},
    )
]
OTHER_KINDS = RECURRENT + CONVOLUTIONAL
VARIANTS += OTHER_KINDS + OF_IMAGES
S, T = 5, 6
FIRST = 2  # steps of a search in its first room
ORDER = [2, 0, 1]
RNG = np.random.default_rng(0)
SOURCES = [RNG.integers(3, 270, length).tolist() for length in (5, 3, 4)]
TARGETS = [RNG.integers(3, 270, length).tolist() for length in (6, 4, 5)]
IMAGES = RNG.integers(0, 256, (3, 6, 6, 1)).astype(np.uint8)


class Subject(NamedTuple):
    """One variant, and the results of its one compiled program."""

    config: Config
    found: dict[str, np.ndarray]

    def prompt(self, b: int) -> int:
        """Counts the tokens of a row before the tokens of target b."""
        return b if self.config.train.task == 'language' else 0

    def row(self, b: int) -> int:
        """Returns the length of the row of pair b."""
        return self.prompt(b) + len(TARGETS[b])


def small(variant: dict) -> Config:
    """Makes a variant of the small model, without options that have no meaning for the variant."""
    values = {key: field.default for key, field in OPTIONS.items()} | variant
    means = {key: value for key, value in SMALL.items() if has_meaning(OPTIONS, values, key)}
    return resolve(config_dict({**means, **variant}))


def name(variant: dict) -> str:
    return ','.join(f'{key.split(".")[1]}={value}' for key, value in variant.items()) or 'base'


rows_of = lambda rows, width: jax.device_put(random_models.rows_of(rows, width))


def batch(config: Config, rows: list[list[tuple[int, list[int]]]], s: int = 12, t: int = 12) -> Batch:
    """Makes rows of pairs: the number of a source, and a target.

    A language model reads the first b tokens of source b as the prompt of its target; a model of images reads
    image b.
    """
    if config.train.task == 'language':
        return {'text': rows_of([[SOURCES[b][:b] + y for b, y in row] for row in rows], t)}
    targets = rows_of([[y for _, y in row] for row in rows], t)
    if config.train.task == 'captions':
        images = np.zeros((len(rows), max(map(len, rows)), *IMAGES.shape[1:]), np.uint8)
        for r, row in enumerate(rows):
            images[r, : len(row)] = IMAGES[[b for b, _ in row]]
        return {'image': jnp.asarray(images), 'text': targets}
    return {'source': rows_of([[SOURCES[b] for b, _ in row] for row in rows], s), 'target': targets}


# Rows of the full pass: each pair alone; each source with the next target; two pairs in one row; and
# the pairs in another order.
TURNED = [TARGETS[1], TARGETS[2], TARGETS[0]]
ROWS = (
    [[(b, TARGETS[b])] for b in range(3)]
    + [[(b, TURNED[b])] for b in range(3)]
    + [[(b, TARGETS[b]) for b in (1, 2)]]
    + [[(b, TARGETS[b])] for b in ORDER]
)
ALONE, OTHERS, PACKED, MOVED = slice(0, 3), slice(3, 6), 6, slice(7, 10)


def steps(config: Config, variables: dict) -> jax.Array:
    """Computes the logits [B 3 T V] of three hypotheses of each source or prompt, step by step.

    The first two are the targets. The third begins as the second, and after the first steps continues the
    first one instead. The hypotheses of a sentence change places after every step. The first steps have room
    for no further ones; the others take the sentences in another order, as in a search of which some
    sentences have ended.
    """
    model = models.build(config)
    if config.train.task == 'language':
        read = rows_of([[SOURCES[b][:b]] for b in range(3)], 2)
    elif config.train.task == 'captions':
        read = jnp.asarray(IMAGES)
    else:
        # No wider than the longest needs, unlike the full pass, so that padding changes nothing.
        read = rows_of([[source] for source in SOURCES], S)
    memory = model.apply(variables, read, method='encode')
    rooms = [model.apply(variables, memory, size, method='start') for size in (FIRST, T)]
    targets = rows_of([[target] for target in (*TARGETS, *TURNED)], T)
    first, second = decoders.shift_right(targets.tokens, targets.segments).reshape(2, 3, T)
    third = jnp.where(jnp.arange(T)[None] < FIRST, second, first)
    tokens = jnp.stack([first, second, third]).transpose(2, 1, 0).reshape(T, 9)
    # Hypothesis (w + t) % 3 is in row b·3 + w at step t.
    of_all = lambda places: (3 * jnp.arange(3)[:, None] + jnp.asarray(places)[None] % 3).reshape(-1)
    places = jnp.arange(3)
    tokens = jnp.stack([tokens[t, of_all(places + t)] for t in range(T)])

    def step(constants, state, tokens):
        logits, state = model.apply(variables, constants, state, tokens, method='step')
        return cache.follow(state, of_all(places + 1)), logits

    (constants, state), (larger, room) = rooms
    state = cache.spread(state, 3)
    state, found = jax.lax.scan(functools.partial(step, constants), state, tokens[:FIRST])
    of_row = (places + FIRST) % 3
    state = cache.follow(state, of_all(jnp.where(of_row == 2, 0, of_row) - FIRST))
    sentences, rows = jnp.array([2, 0, 1]), jnp.array([6, 7, 8, 0, 1, 2, 3, 4, 5])
    larger = jax.tree.map(lambda x: x[sentences], larger)
    state = cache.of_sentences(cache.enlarge(state, room, 3), sentences, 3)
    _, others = jax.lax.scan(functools.partial(step, larger), state, tokens[FIRST:, rows])
    found = jnp.concatenate([found, others[:, jnp.argsort(rows)]])
    found = jnp.stack([found[t, of_all(places - t)] for t in range(T)])
    return found.reshape(T, 3, 3, -1).transpose(1, 2, 0, 3)


def forward(config: Config, variables: dict, inputs: Batch) -> dict[str, jax.Array]:
    """Computes the full pass's logits, and how much position t's logits move with target input j, [T B T]."""
    table = 'embedding'
    if config.train.task == 'translation' and config.model.tie_embeddings not in ('all', 'inputs'):
        table = 'target_embedding'
    shape = list(inputs.values())[-1].tokens.shape

    def logits(shift):
        def add_shift(embed, args, kwargs, context):
            found = embed(*args, **kwargs)
            # The source has another width than the target, which distinguishes their embeddings.
            mine = context.module.name == table and context.method_name == '__call__'
            return found + shift if mine and found.shape[:2] == shape else found

        with nn.intercept_methods(add_shift):
            found = models.build(config).apply(variables, inputs, train=False)
        return jnp.sin(found.astype(jnp.float32)).sum(axis=(0, 2)), found

    shift = jnp.zeros((*shape, config.model.d_model), config.model.dtype)
    jacobian, full = jax.jacrev(logits, has_aux=True)(shift)
    return {'full': full, 'influence': jnp.abs(jacobian.astype(jnp.float32)).sum(axis=-1)}


def everything(config: Config, params: dict, inputs: Batch) -> dict[str, jax.Array]:
    """Computes in one program all that the tests of a model check."""
    variables = {'params': params}
    return {**forward(config, variables, inputs), 'steps': steps(config, variables)}


@functools.cache
def everything_of(config: Config) -> dict[str, np.ndarray]:
    found = jax.jit(everything, static_argnums=0)(config, random_params(config), batch(config, ROWS, 11))
    return {key: np.asarray(value, np.float32) for key, value in found.items()}


@pytest.fixture(params=VARIANTS, ids=name, scope='module')
def subject(request) -> Subject:
    config = small(request.param)
    return Subject(config, everything_of(config))


def close(found: np.ndarray, expected: np.ndarray, config: Config) -> None:
    tolerance = {'atol': 0.25} if config.model.dtype == 'bfloat16' else {'atol': 2e-5, 'rtol': 2e-4}
    np.testing.assert_allclose(found, expected, **tolerance)


def test_every_axis_of_the_model_is_here():
    # A file that the embedding starts from is no axis.
    fields = {k: field for k, field in OPTIONS.items() if k.startswith('model.') and k != 'model.vectors'}
    defaults = {key: field.default for key, field in OPTIONS.items()}
    kinds = {'transformer', 'table'} | {v['model.kind'] for v in OTHER_KINDS}
    assert kinds == set(choices(fields['model.kind']))
    missing = set(fields) - {'model.kind'}
    for name, variants in {
        'pair': [v for v in VARIANTS if v not in OTHER_KINDS and 'train.task' not in v],
        'text': [v for v in VARIANTS if v not in OTHER_KINDS and v.get('train.task') == 'language'],
        'other kinds': OTHER_KINDS,
    }.items():
        for key in set(fields) - {'model.kind'} if name in REFUSED else set(missing):
            if any(has_meaning(OPTIONS, defaults | variant, key) for variant in variants):
                values = {variant.get(key, fields[key].default) for variant in variants}
                refused = {value for option, value in REFUSED.get(name, []) if option == key}
                # nn/test_kernels.py has what can be tested of 'flash', which runs on no CPU.
                assert len(values) > 1 and values >= set(choices(fields[key])) - refused - {'flash'}, key
                missing.discard(key)
    # tasks/masked/test_task.py and nn/test_encoders.py have what encoders alone can have.
    assert missing == {'model.token_types', 'model.text_types'}
    assert len(BESIDE) == len(choices(fields['model.norm'])) * len(choices(fields['model.positions']))


def test_every_kind_of_every_form_has_a_module():
    assert set(models.MODELS) == {(kind, form) for form in FORMS for kind in FORMS[form].kinds}
    assert set(FORMS) == {spec.form for spec in TASKS.values()}
    assert set(TASKS) == set(choices(OPTIONS['train.task']))


def test_a_decoder_alone_was_a_kind_of_its_own():
    old = {**SMALL, 'model.kind': 'decoder'}
    assert resolve(config_dict({**old, **LANGUAGE})) == resolve(config_dict({**SMALL, **LANGUAGE}))
    with pytest.raises(ConfigError, match="model.kind='decoder'.* only with language"):
        resolve(config_dict(old))


@pytest.mark.parametrize(('form', 'option'), [(k, o) for k, found in REFUSED.items() for o in found])
def test_what_means_nothing_for_a_form_is_refused(form, option):
    with pytest.raises(ConfigError, match=option[0]):
        resolve(config_dict({**SMALL, **TRANSFORMERS[form], option[0]: option[1]}))


@pytest.mark.parametrize('task', ['answers', 'contrastive', 'words'])
def test_a_task_without_distributions_has_no_smoothing(task):
    with pytest.raises(ConfigError, match=r'train\.eps_ls=0\.2'):
        resolve(config_dict({'train.task': task, 'train.eps_ls': 0.2}))


MEANINGLESS = [
    ({}, 'model.cell', 'gru'),
    ({}, 'model.residual', True),
    ({}, 'model.alignment', 'dot'),
    ({'model.kind': 'recurrent'}, 'model.h', 4),
    ({'model.kind': 'recurrent'}, 'model.d_ff', 24),
    ({'model.kind': 'recurrent'}, 'model.positions', 'none'),
    ({'model.kind': 'recurrent'}, 'model.norm', 'pre'),
    ({'model.kind': 'recurrent'}, 'model.P_drop_attention', 0.1),
    ({'model.kind': 'recurrent'}, 'model.input_feeding', True),
    ({'model.kind': 'recurrent', **ADDITIVE}, 'model.input_feeding', True),
    ({'model.kind': 'recurrent', **BOTH}, 'model.reverse_source', True),
    ({'model.kind': 'recurrent', **BOTH}, 'model.d_model', 15),
    ({'model.kind': 'recurrent', **LANGUAGE}, 'model.bidirectional', True),
    ({'model.kind': 'recurrent', 'train.task': 'classify', 'data.source': 'table'}, 'classify.causal', True),
    ({'model.kind': 'recurrent', **LANGUAGE}, 'model.alignment', 'dot'),
    ({'model.kind': 'recurrent', **LANGUAGE}, 'model.N_decoder', 2),
    ({'model.kind': 'recurrent', **LANGUAGE}, 'model.tie_embeddings', 'decoder'),
    ({}, 'model.kernel_width', 5),
    ({'model.kind': 'recurrent'}, 'model.kernel_width', 5),
    ({'model.kind': 'convolutional'}, 'model.h', 4),
    ({'model.kind': 'convolutional'}, 'model.d_ff', 24),
    ({'model.kind': 'convolutional'}, 'model.norm', 'pre'),
    ({'model.kind': 'convolutional'}, 'model.activation', 'gelu'),
    ({'model.kind': 'convolutional'}, 'model.attention', 'local'),
    ({'model.kind': 'convolutional'}, 'model.P_drop_attention', 0.1),
    ({'model.kind': 'convolutional'}, 'model.positions', 'rotary'),
    ({'model.kind': 'convolutional'}, 'model.positions', 'relative'),
    ({'model.kind': 'convolutional'}, 'model.positions', 'buckets'),
    ({'model.kind': 'convolutional'}, 'model.positions', 'alibi'),
    ({'model.positions': 'alibi'}, 'model.attention', 'local'),
    ({'model.positions': 'buckets'}, 'model.attention', 'chunked'),
    ({'model.attention': 'linear'}, 'model.attention_scale', 'none'),
    ({}, 'model.rotary_pairs', 'interleaved'),
    ({'model.init': 't5'}, 'model.init_std', 0.01),
    ({}, 'model.init_std_positions', 0.01),
    ({'model.kind': 'convolutional'}, 'model.d_model', 15),
    ({'model.kind': 'convolutional'}, 'model.cell', 'gru'),
    ({'model.kind': 'convolutional'}, 'model.residual', True),
    ({'model.kind': 'convolutional', **LANGUAGE}, 'model.N_decoder', 2),
    ({'model.kind': 'convolutional', **LANGUAGE}, 'model.tie_embeddings', 'decoder'),
    ({'train.task': 'words', 'model.kind': 'table', 'data.source': 'text'}, 'model.dtype', 'bfloat16'),
    ({'train.task': 'answers', 'data.source': 'squad'}, 'data.max_len', 2),
    (
        {'train.task': 'captions', 'data.source': 'scenes', 'data.language': 'de', 'data.batch_tokens': 640},
        'image_model.init_std_positions',
        0.1,
    ),
    (
        {'train.task': 'captions', 'data.source': 'scenes', 'data.language': 'de', 'data.batch_tokens': 640}
        | {'model.attention': 'chunked'},
        'image_model.positions',
        'alibi',
    ),
    (PICTURES, 'images.magnitude', 5.0),
    ({'data.batching': 'packed'}, 'data.row_len', 7),
    ({'model.positions': 'rotary'}, 'model.d_k', 3),
    ({}, 'decode.top_k', 271),
    ({}, 'data.target_language', 'en'),
    ({}, 'data.name', None),
    ({**LANGUAGE, 'data.source': 'grammar', 'data.language': 'de'}, 'data.language', None),
    (
        {'train.task': 'captions', 'data.source': 'scenes', 'data.language': 'de', 'data.batch_tokens': 640},
        'image_model.h',
        3,
    ),
    ({'data.pieces': 20}, 'decode.beam', 11),
    ({}, 'decode.alpha', 10.5),
    (
        PICTURES
        | {'model.kind': 'convolutional', 'model.positions': 'none', 'model.N': 2, 'model.d_model': 16}
        | {'images.pool': 'mean', 'images.pixels': 'grey', 'images.patch': 2, 'images.size': 8},
        'model.kernel_width',
        1,
    ),
]


@pytest.mark.parametrize(('variant', 'option', 'value'), MEANINGLESS, ids=str)
def test_what_means_nothing_beside_other_layers_or_without_them_is_refused(variant, option, value):
    small(variant)
    with pytest.raises(ConfigError, match=option):
        small({**variant, option: value})


def test_steps_equal_the_full_pass(subject):
    """The full pass has padding, and the steps have none beside the longest source."""
    for rows, hypothesis, targets, begin in (
        (ALONE, 0, TARGETS, 0),
        (OTHERS, 1, TURNED, 0),
        (ALONE, 2, TARGETS, FIRST),
    ):
        for b, target in enumerate(targets):
            stepped = subject.found['steps'][b, hypothesis, begin : len(target)]
            first = subject.prompt(b)
            full = subject.found['full'][rows][b, first + begin : first + len(target)]
            close(stepped, full, subject.config)


def reached(config: Config, n: int) -> np.ndarray:
    """Marks the positions that each of n positions can depend on: itself and some or all before it.

    Models with local or sparse attention have one layer here.
    """
    m, distance = config.model, np.arange(n)[:, None] - np.arange(n)
    far = {
        'local': distance > m.attention_window,
        'sparse': (distance >= m.attention_stride) & (distance % m.attention_stride > 0),
        'convolutional': distance > (m.N_decoder or m.N) * (m.kernel_width - 1),
    }
    return (distance >= 0) & ~far.get(m.attention, False) & ~far.get(m.kind, False)


def test_causal_by_gradient(subject):
    for b in range(3):
        n = subject.row(b)
        seen = subject.found['influence'][:n, b, :n] > 0
        np.testing.assert_array_equal(seen, reached(subject.config, n))


def test_packed_sentences_do_not_see_each_other(subject):
    first, both = subject.row(1), subject.row(1) + subject.row(2)
    seen = subject.found['influence'][:both, PACKED, :both] > 0
    assert not seen[first:, :first].any()
    np.testing.assert_array_equal(seen[first:, first:], reached(subject.config, both - first))


def test_packing_changes_nothing(subject):
    start = 0
    for b in (1, 2):
        packed = subject.found['full'][PACKED, start : start + subject.row(b)]
        close(packed, subject.found['full'][b, : subject.row(b)], subject.config)
        start += subject.row(b)


def test_equivariant_to_the_order_of_the_batch(subject):
    close(subject.found['full'][MOVED], subject.found['full'][ALONE][ORDER], subject.config)


DROPPING = [v for v in VARIANTS if set(v) <= {'model.kind', *LANGUAGE} or any('P_drop' in key for key in v)]


@pytest.mark.parametrize('variant', [{}, *DROPPING], ids=name)
def test_dropout_draws_by_its_key_and_in_training_only(variant):
    silent = dict.fromkeys(('model.P_drop', 'model.P_drop_embedding'), 0.0)
    only = variant if not any('P_drop' in key for key in variant) else silent | variant
    config = small(only)
    model, inputs = models.build(config), batch(config, ROWS[:1], 11)

    @jax.jit
    def trained(params, key):
        return model.apply({'params': params}, inputs, train=True, rngs={'dropout': key})

    params = random_params(config)
    first, second = (np.asarray(trained(params, key)) for key in jax.random.split(jax.random.key(0), 2))
    # Probabilities of dropout change nothing outside training.
    evaluated = everything_of(small(variant))['full'][:1]
    assert (first != second).any() and not np.allclose(first, evaluated, atol=1e-4)


def test_without_positions_the_encoder_is_blind_to_order():
    swapped = {'model.positions': 'none'}, {'model.positions': 'sinusoidal'}
    for variant, blind in zip(swapped, (True, False), strict=True):
        config = resolve(config_dict({**SMALL, **variant}))
        model, source = models.build(config), batch(config, ROWS[:1])['source']
        variables = {'params': jax.tree.map(jnp.asarray, random_params(config))}
        turned = source._replace(tokens=source.tokens.at[0, :5].set(source.tokens[0, :5][::-1]))
        encode = jax.jit(functools.partial(model.apply, variables, method='encode'))
        before, after = (encode(x).outputs[0, :5] for x in (source, turned))
        assert np.allclose(before, after[::-1], atol=1e-5) == blind
