"""The number of calls from a model to its attention, and the shapes of parameters."""

import pathlib
import sys

import jax
import jax.numpy as jnp
import pytest

from transformer.config import config_dict, resolve
from transformer.nn import models

CODE = pathlib.Path(models.__file__).parent.parent
SMALL = {'model.N': 1, 'model.d_model': 16, 'model.d_ff': 24, 'model.h': 2, 'data.name': None}
TEXTS = {'model.vocab_size': 60, 'data.pieces': 60, 'data.source': 'text'}
MODELS = {
    'pair': TEXTS,
    'text': TEXTS | {'train.task': 'language'},
    'encoder': TEXTS | {'train.task': 'masked'},
    'image': {'train.task': 'images', 'images.classes': 3, 'images.patch': 16, 'data.source': 'pictures'},
    'captions': {'train.task': 'captions', 'images.patch': 16, 'data.source': 'pictures', 'data.pieces': 60},
}


@pytest.mark.parametrize('name', MODELS)
def test_attention_is_eight_calls_away_in_four_files(monkeypatch, name):
    """Counts the repository's own calls from `__call__` to each product QK^T."""
    config = resolve(config_dict(SMALL | MODELS[name]))
    chains, einsum = [], jnp.einsum

    def traced(subscripts, *arrays, **options):
        if subscripts == 'BQHC,BKHC->BHQK':
            frame, chain = sys._getframe(1), []
            while frame is not None:
                file = pathlib.Path(frame.f_code.co_filename)
                if CODE in file.parents:
                    chain.append((file.name, frame.f_code.co_name))
                frame = frame.f_back
            chains.append(chain[::-1])
        return einsum(subscripts, *arrays, **options)

    model, params = models.build(config), models.parameter_shapes(config)
    batch = jax.tree.map(jnp.asarray, models.blank(config))
    monkeypatch.setattr(jnp, 'einsum', traced)
    jax.eval_shape(lambda params: model.apply({'params': params}, batch, train=False), params)
    # Self-attention in each stack, and the decoder's attention to the encoder.
    assert len(chains) == (3 if name in ('pair', 'captions') else 1)
    for chain in chains:
        assert chain[0][1] == '__call__' and chain[-1][0] == 'full.py'
        assert len(chain) <= 8 and len({file for file, _ in chain}) <= 4, chain


def test_a_caller_may_change_its_tree_of_shapes():
    config = resolve(config_dict(SMALL | TEXTS))
    first, expected = models.parameter_shapes(config), models.parameter_shapes(config)
    del first['encoder']['layer_0']['self_attention']
    assert models.parameter_shapes(config) == expected != first
