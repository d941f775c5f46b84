"""Loads our Transformer's weights into Hugging Face and CTranslate2, to compare the search (extra `bench`).

The model must be the paper's: post-norm, ReLU, sinusoids, one embedding. These libraries divide by a length
penalty of n^alpha, the paper by ((5 + n)/6)^alpha.
"""

import functools
import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence

import ctranslate2
import numpy as np
import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from jaxtyping import Float
from transformers import MarianConfig, MarianMTModel

from experiments.speed.search import Search
from transformer.config import Config, ConfigError
from transformer.nn.positions import sinusoid
from transformer.tokens import EOS, PAD, START, UNK

PAPERS = {
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
LONGEST = 2048  # pieces of a sentence
NEVER = -1e9  # added to the logits of pieces that no output has
EPSILON = 1e-6  # LayerNorm's


class Weights:
    """Our parameters, of the paper's model alone, as numpy arrays in the shapes of other libraries."""

    def __init__(self, config: Config, params: Mapping):
        for name, value in PAPERS.items():
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


def never_written(config: Config) -> list[int]:
    """The pieces that no output may have."""
    return [PAD, UNK, *range(config.data.pieces, config.model.vocab_size)]


def hugging_face_search(config: Config, params: Mapping) -> Search:
    """Returns the search of MarianMTModel, in batches of similar lengths."""
    torch.set_num_threads(os.cpu_count())
    m, weights = config.model, Weights(config, params)
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
    put = lambda parameter, array: parameter.data.copy_(torch.tensor(array))

    def norm(module: torch.nn.LayerNorm, path: str) -> None:
        module.eps = EPSILON
        for parameter, array in zip((module.weight, module.bias), weights.norm(path), strict=True):
            put(parameter, array)

    def linear(module: torch.nn.Linear, path: str) -> None:
        for parameter, array in zip((module.weight, module.bias), weights.linear(path), strict=True):
            put(parameter, array)

    for side in ('encoder', 'decoder'):
        stack = getattr(model.model, side)
        put(stack.embed_positions.weight, sinusoid(LONGEST, m.d_model, m.sinusoid))
        for i, layer in enumerate(stack.layers):
            path = f'{side}/layer_{i}'
            attentions = {'self_attn': 'self_attention', 'encoder_attn': 'cross_attention'}
            for theirs, ours in attentions.items():
                if hasattr(layer, theirs):
                    for name in ('query', 'key', 'value', 'output'):
                        short = 'out' if name == 'output' else name[0]
                        linear(getattr(getattr(layer, theirs), f'{short}_proj'), f'{path}/{ours}/{name}')
                    norm(getattr(layer, f'{theirs}_layer_norm'), f'{path}/{ours}_sublayer')
            linear(layer.fc1, f'{path}/feed_forward/inner')
            linear(layer.fc2, f'{path}/feed_forward/outer')
            norm(layer.final_layer_norm, f'{path}/feed_forward_sublayer')
    put(model.model.shared.weight, weights.embedding())
    model.tie_weights()

    def translate(rows: Sequence[list[int]]) -> list[list[int]]:
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        batches = [order[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        answers = [None] * len(rows)
        for batch in batches:
            for i, answer in zip(batch, one_batch([rows[i] for i in batch]), strict=True):
                answers[i] = answer
        return answers

    def one_batch(rows: Sequence[list[int]]) -> list[list[int]]:
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


def ctranslate2_search(
    config: Config, params: Mapping, folder: pathlib.Path, dtype: str = 'float32'
) -> Search:
    """Returns the search of CTranslate2's Translator, in float32 or int8; `folder` receives the model."""
    m, weights = config.model, Weights(config, params)
    spec = TransformerSpec.from_config((m.N, m.N_decoder), m.h, pre_norm=False, activation=Activation.RELU)

    def norm(target, path: str) -> None:
        target.gamma, target.beta = weights.norm(path)

    def linear(target, *paths: str) -> None:
        """Joins several layers into one."""
        target.weight, target.bias = (
            np.concatenate(parts) for parts in zip(*map(weights.linear, paths), strict=True)
        )

    for side, stack in (('encoder', spec.encoder), ('decoder', spec.decoder)):
        stack.scale_embeddings = m.d_model**0.5
        stack.position_encodings.encodings = sinusoid(LONGEST, m.d_model, m.sinusoid)
        for i, layer in enumerate(stack.layer):
            path = f'{side}/layer_{i}'
            of = lambda attention, *names, path=path: [f'{path}/{attention}_attention/{n}' for n in names]
            linear(layer.self_attention.linear[0], *of('self', 'query', 'key', 'value'))
            linear(layer.self_attention.linear[1], *of('self', 'output'))
            norm(layer.self_attention.layer_norm, f'{path}/self_attention_sublayer')
            if side == 'decoder':
                linear(layer.attention.linear[0], *of('cross', 'query'))
                linear(layer.attention.linear[1], *of('cross', 'key', 'value'))
                linear(layer.attention.linear[2], *of('cross', 'output'))
                norm(layer.attention.layer_norm, f'{path}/cross_attention_sublayer')
            linear(layer.ffn.linear_0, f'{path}/feed_forward/inner')
            linear(layer.ffn.linear_1, f'{path}/feed_forward/outer')
            norm(layer.ffn.layer_norm, f'{path}/feed_forward_sublayer')
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = weights.embedding()
    spec.decoder.projection.weight = weights.embedding()
    spec.decoder.projection.bias = np.zeros(m.vocab_size, np.float32)
    spec.decoder.projection.bias[never_written(config)] = NEVER
    # CTranslate2 reads words; ours are the numbers of pieces.
    words = [str(piece) for piece in range(m.vocab_size)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = map(str, (UNK, START, EOS))
    spec.config.decoder_start_token, spec.config.layer_norm_epsilon = str(START), EPSILON
    spec.validate()
    folder.mkdir()
    spec.save(str(folder))

    @functools.cache
    def translator(at_once: int) -> ctranslate2.Translator:
        threads = {'inter_threads': at_once, 'intra_threads': os.cpu_count() // at_once}
        return ctranslate2.Translator(str(folder), device='cpu', compute_type=dtype, **threads)

    def translate(rows: Sequence[list[int]]) -> list[list[int]]:
        # Batches that run at the same time, each on one core, are faster than one after the other.
        at_once = 1 if len(rows) <= BATCH else os.cpu_count()
        outputs = translator(at_once).translate_batch(
            [list(map(str, row)) for row in rows],
            max_batch_size=BATCH,
            beam_size=config.decode.beam,
            length_penalty=config.decode.alpha,
            max_decoding_length=max(map(len, rows)) + config.decode.extra_len,
        )
        return [list(map(int, output.hypotheses[0])) for output in outputs]

    return translate
