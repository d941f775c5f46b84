"""Loads our Transformer's weights into Hugging Face, to compare the search (extra `bench`).

The model must be the paper's: post-norm, ReLU, sinusoids, one embedding. Hugging Face divides log p by
n^alpha, the paper by ((5 + n)/6)^alpha.
"""

import itertools
import os
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from transformers import MarianConfig, MarianMTModel

from experiments.speed.search import Search, never_written
from transformer.config import Config, ConfigError, Model
from transformer.export.ctranslate2.writing import LONGEST
from transformer.nn.positions import sinusoid
from transformer.tokens import EOS, PAD, START

PAPER_OPTIONS = {
    'kind': 'transformer',
    'norm': 'post',
    'norm_type': 'layernorm',
    'positions': 'sinusoidal',
    'activation': 'relu',
    'attention': 'full',
    'tie_embeddings': 'all',
    'biases': 'all',
}
BATCH = 64  # sentences
EPSILON = 1e-6  # of LayerNorm


class Weights:
    """The parameters of a model like the paper's, as numpy arrays in the shapes of other libraries."""

    def __init__(self, config: Config, params: Mapping):
        for name, value in PAPER_OPTIONS.items():
            if getattr(config.model, name) != value:
                raise ConfigError(f'model.{name}={getattr(config.model, name)}: other libraries need {value}')
        m = config.model
        if not m.d_k == m.d_v == m.d_model // m.h:
            raise ConfigError(f'model.d_k={m.d_k}, d_v={m.d_v}: other libraries need {m.d_model // m.h}')
        self._params = params

    def linear(self, path: str) -> tuple[Float[np.ndarray, 'F D'], Float[np.ndarray, 'F']]:
        """The transposed kernel and the bias of a linear layer."""
        layer = self._at(path)
        kernel, bias = (np.asarray(layer[name], np.float32) for name in ('kernel', 'bias'))
        return np.ascontiguousarray(kernel.reshape(-1, bias.size).T), bias.reshape(-1)

    def norm(self, path: str) -> tuple[Float[np.ndarray, 'D'], Float[np.ndarray, 'D']]:
        """The scale and bias of a LayerNorm."""
        layer = self._at(f'{path}/norm/layer')
        return np.asarray(layer['scale'], np.float32), np.asarray(layer['bias'], np.float32)

    def embedding(self) -> Float[np.ndarray, 'V D']:
        """The shared matrix, with zeros for padding and the start symbol."""
        table = np.array(self._at('embedding')['table'], np.float32)
        table[[PAD, START]] = 0.0
        return table

    def _at(self, path: str) -> Mapping:
        params = self._params
        for name in path.split('/'):
            params = params[name]
        return params


def hugging_face_search(config: Config, params: Mapping) -> Search:
    """Returns the search of MarianMTModel, in batches of similar lengths."""
    torch.set_num_threads(os.cpu_count())
    model = _marian_model(config.model, Weights(config, params))

    def translate(rows: Sequence[list[int]]) -> list[list[int]]:
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        batches = [order[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        answers = [None] * len(rows)
        for batch in batches:
            for i, answer in zip(batch, translate_batch([rows[i] for i in batch]), strict=True):
                answers[i] = answer
        return answers

    def translate_batch(rows: Sequence[list[int]]) -> list[list[int]]:
        longest = max(map(len, rows))
        tokens = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
        with torch.inference_mode():
            outputs = model.generate(
                input_ids=tokens,
                attention_mask=(tokens != PAD).long(),
                num_beams=config.decode.beam,
                length_penalty=config.decode.alpha,
                max_new_tokens=longest + config.decode.extra_len,
                suppress_tokens=never_written(config),
                do_sample=False,
            )
        # The first piece is the start; padding follows the end.
        return [list(itertools.takewhile(lambda piece: piece != EOS, row[1:])) for row in outputs.tolist()]

    return translate


def _marian_model(m: Model, weights: Weights) -> MarianMTModel:
    sizes = {'layers': m.N, 'attention_heads': m.h, 'ffn_dim': m.d_ff}
    model = MarianMTModel(
        MarianConfig(
            vocab_size=m.vocab_size,
            d_model=m.d_model,
            activation_function='relu',
            max_position_embeddings=LONGEST,
            scale_embedding=True,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=START,
            forced_eos_token_id=None,
            **{f'encoder_{name}': value for name, value in sizes.items()},
            **{f'decoder_{name}': value for name, value in {**sizes, 'layers': m.N_decoder}.items()},
        )
    ).eval()
    for side in ('encoder', 'decoder'):
        stack = getattr(model.model, side)
        _copy([stack.embed_positions.weight], [sinusoid(LONGEST, m.d_model, m.sinusoid)])
        for i, layer in enumerate(stack.layers):
            _copy_marian_layer(weights, f'{side}/layer_{i}', layer)
    _copy([model.model.shared.weight], [weights.embedding()])
    model.tie_weights()
    return model


def _copy_marian_layer(weights: Weights, path: str, layer: torch.nn.Module) -> None:
    def norm(module: torch.nn.LayerNorm, path: str) -> None:
        module.eps = EPSILON
        _copy((module.weight, module.bias), weights.norm(path))

    def linear(module: torch.nn.Linear, path: str) -> None:
        _copy((module.weight, module.bias), weights.linear(path))

    for theirs, ours in {'self_attn': 'self_attention', 'encoder_attn': 'cross_attention'}.items():
        if hasattr(layer, theirs):
            for name in ('query', 'key', 'value', 'output'):
                short = 'out' if name == 'output' else name[0]
                linear(getattr(getattr(layer, theirs), f'{short}_proj'), f'{path}/{ours}/{name}')
            norm(getattr(layer, f'{theirs}_layer_norm'), f'{path}/{ours}_sublayer')
    linear(layer.fc1, f'{path}/feed_forward/inner')
    linear(layer.fc2, f'{path}/feed_forward/outer')
    norm(layer.final_layer_norm, f'{path}/feed_forward_sublayer')


def _copy(parameters: Sequence[torch.nn.Parameter], arrays: Sequence[np.ndarray]) -> None:
    for parameter, array in zip(parameters, arrays, strict=True):
        parameter.data.copy_(torch.tensor(array))
