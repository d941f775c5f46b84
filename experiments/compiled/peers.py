"""Lowers one update of other codebases' models, to be compiled for a TPU beside ours.

A model, its masks and its way to the logits are as its own code defines them, in bfloat16 with parameters in
float32. The loss and Adam are the same few lines for all: what else their training scripts compute, such as
accuracy, does not count.
"""

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import SingleDeviceSharding
from jax.stages import Lowered

from transformer.config import ConfigError

PIECES = 40_960  # 37,000 pieces in whole tiles, as in our programs


class Peer(NamedTuple):
    """A model of another codebase, and the size of an update."""

    module: str  # the module that defines it
    where: str  # its package on PyPI, or its repository
    model: Callable[[ModuleType], nn.Module]
    logits: Callable[[nn.Module, Mapping[str, jax.Array]], jax.Array]
    inputs: Mapping[str, tuple[int, ...]]  # shapes; `labels` are what the logits predict, 0 for nothing
    eps_ls: float = 0.0


def _marian(module: ModuleType) -> nn.Module:
    sizes = {'layers': 6, 'ffn_dim': 2048, 'attention_heads': 8}
    config = module.MarianConfig(
        vocab_size=PIECES,
        d_model=512,
        **{f'{stack}_{name}': size for stack in ('encoder', 'decoder') for name, size in sizes.items()},
        activation_function='relu',
        dropout=0.1,
        max_position_embeddings=128,
        scale_embedding=True,
        pad_token_id=0,
    )
    return module.FlaxMarianMTModule(config, dtype=jnp.bfloat16)


def _marian_logits(model: nn.Module, x: Mapping[str, jax.Array]) -> jax.Array:
    target = jnp.pad(x['labels'], ((0, 0), (1, 0)))[:, :-1]
    places = jnp.broadcast_to(jnp.arange(target.shape[1]), target.shape)
    there = x['source'] > 0, x['labels'] > 0
    return model(x['source'], there[0], target, there[1], places, places, deterministic=False).logits


def _wmt(module: ModuleType) -> nn.Module:
    config = module.TransformerConfig(
        vocab_size=PIECES,
        output_vocab_size=PIECES,
        share_embeddings=True,
        logits_via_embedding=True,
        dtype=jnp.bfloat16,
        max_len=128,
        attention_dropout_rate=0.0,
    )
    return module.Transformer(config)


def _wmt_logits(model: nn.Module, x: Mapping[str, jax.Array]) -> jax.Array:
    packed = (x[f'{side}_{what}'] for what in ('positions', 'segmentation') for side in ('inputs', 'targets'))
    return model(x['inputs'], x['labels'], *packed)


def _nanodo(module: ModuleType) -> nn.Module:
    sizes = {'D': 768, 'H': 12, 'L': 1024, 'N': 12, 'V': PIECES, 'F': 3072}
    return module.TransformerDo(module.DoConfig(**sizes, dtype=jnp.bfloat16, fsdp_enabled=False))


def _bert(module: ModuleType) -> nn.Module:
    config = module.BertConfig(vocab_size=30_522, num_hidden_layers=2)
    return module.FlaxBertForMaskedLMModule(config, dtype=jnp.bfloat16)


def _bert_logits(model: nn.Module, x: Mapping[str, jax.Array]) -> jax.Array:
    text = x['text']
    places = jnp.broadcast_to(jnp.arange(text.shape[1]), text.shape)
    return model(text, text > 0, jnp.zeros_like(text), places, None, deterministic=False).logits


def _vit(module: ModuleType) -> nn.Module:
    return module.Model(1000, variant='S/16', depth=2, pool_type='tok', dtype_mm='bfloat16')


_PAIR, _ROW = (192, 128), (16, 1024)
_PACKED = [f'{side}_{what}' for side in ('inputs', 'targets') for what in ('positions', 'segmentation')]
PEERS = {
    'marian': Peer(
        'transformers.models.marian.modeling_flax_marian', 'transformers<5', _marian, _marian_logits,
        {'source': _PAIR, 'labels': _PAIR}, 0.1,
    ),
    'wmt': Peer(
        'examples.wmt.models', 'github.com/google/flax', _wmt, _wmt_logits,
        dict.fromkeys(('inputs', 'labels', *_PACKED), _PAIR), 0.1,
    ),
    'nanodo': Peer(
        'nanodo.model', 'github.com/google-deepmind/nanodo', _nanodo, lambda model, x: model(x['text']),
        {'text': _ROW, 'labels': _ROW},
    ),
    'bert': Peer(
        'transformers.models.bert.modeling_flax_bert', 'transformers<5', _bert, _bert_logits,
        {'text': (32, 512), 'labels': (32, 512)},
    ),
    'vit': Peer(
        'big_vision.models.vit', 'github.com/google-research/big_vision', _vit,
        lambda model, x: model(x['pixels'], train=True)[0],
        {'pixels': (128, 224, 224, 3), 'labels': (128,)},
    ),
}  # fmt: skip


def update(name: str, chunks: int, device: jax.Device) -> Lowered:
    """Lowers a peer's update for a device, with the gradients of so many chunks of its rows added.

    Raises:
      ConfigError: if the peer is not installed, or its rows do not make so many equal chunks.
    """
    peer = PEERS[name]
    try:
        model = peer.model(importlib.import_module(peer.module))
    except ImportError as error:
        raise ConfigError(
            f'{name}: {error}; install {peer.where}, or name its folder in PYTHONPATH'
        ) from None
    rows = peer.inputs['labels'][0]
    if rows % chunks:
        raise ConfigError(f'{name}: {rows} rows do not make {chunks} equal chunks')
    adam = optax.adam(1e-4, b2=0.98, eps=1e-9)

    def loss(params: object, x: Mapping[str, jax.Array], key: jax.Array) -> jax.Array:
        logits = nn.apply(peer.logits, model)({'params': params}, x, rngs={'dropout': key})
        logits = logits.astype(jnp.float32)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, x['labels'])
        if peer.eps_ls:
            of_all = jax.nn.logsumexp(logits, -1) - logits.mean(-1)
            losses = (1 - peer.eps_ls) * losses + peer.eps_ls * of_all
        return (losses * (x['labels'] > 0)).sum()

    def step(params: object, state: optax.OptState, batch: Mapping[str, jax.Array], key: jax.Array):
        gradients = lambda x, key: jax.grad(loss)(params, x, key)
        if chunks == 1:
            total = gradients({name: x[0] for name, x in batch.items()}, key)
        else:
            add = lambda total, part: (jax.tree.map(jnp.add, total, gradients(*part)), None)
            zeros = jax.tree.map(jnp.zeros_like, params)
            total, _ = jax.lax.scan(add, zeros, (batch, jax.random.split(key, chunks)))
        count = (batch['labels'] > 0).sum()
        updates, state = adam.update(jax.tree.map(lambda x: x / count, total), state, params)
        return optax.apply_updates(params, updates), state

    placed = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=SingleDeviceSharding(device))
    dtypes = {each: jnp.float32 if each == 'pixels' else jnp.int32 for each in peer.inputs}
    batch = {
        each: placed((chunks, rows // chunks, *shape[1:]), dtypes[each])
        for each, shape in peer.inputs.items()
    }
    key = jax.eval_shape(lambda: jax.random.key(0))
    one = {each: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for each, x in batch.items()}
    rngs = {'params': key, 'dropout': key}
    params = jax.eval_shape(nn.init(peer.logits, model), rngs, one)['params']
    state = jax.eval_shape(adam.init, params)
    params, state, key = jax.tree.map(lambda x: placed(x.shape, x.dtype), (params, state, key))
    return jax.jit(step, donate_argnums=(0, 1)).lower(params, state, batch, key)
