"""The model of `make run`, into which several claims look, and minimal pairs that ask it for a pronoun."""

import functools
import random
import types
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Float, Int

from configs import tiny
from experiments.claims.claim import train
from transformer import config as configs
from transformer.config import Config
from transformer.data.sources.grammar.inflection import IT
from transformer.data.sources.grammar.scenes import minimal_pair
from transformer.data.sources.grammar.sentences import sentence_pairs
from transformer.data.sources.grammar.syntax import Sentence, english, german
from transformer.data.tokenizer import AnyTokenizer
from transformer.inference import batch_shapes
from transformer.inference.attention import places
from transformer.nn import models
from transformer.runs.restore import Trained
from transformer.tasks.translation import task as translation
from transformer.tokens import EOS, PAD, Batch, Tokens

SEEDS = 2  # trained with the seeds 0, as `make run` does, and 1
PAIRS = 150
ROOM = 24  # pieces of a sentence
BLOCKED = -1e9  # a logit that softmax makes 0
BLOCKABLE = ('encoder/self_attention', 'decoder/cross_attention')
_NOTHING: Mapping[str, np.ndarray] = types.MappingProxyType({})


@functools.cache
def trained(seed: int) -> Trained:
    """The model of `make run` after its updates, which claims that are measured together train once.

    Seeds of claims begin with 1, that of `make run` is 0.
    """
    config = configs.replace(configs.resolve(tiny.get_config()), {'train.seed': seed - 1})
    corpus = prepared(config)
    order = translation.batches(config, corpus, 'train')
    params = train(config, map(order.batch, range(config.train.steps)), seed - 1)
    return Trained(config, params, corpus.codec)


@functools.cache
def _tokenizer() -> AnyTokenizer:
    """That of the corpus, which all seeds share."""
    return trained(1).codec


def _batch(sentences: Sequence[Sentence]) -> Batch:
    """A pair a row."""
    sides = {'source': english, 'target': german}
    rows = {
        side: _tokenizer().of(side).encode_batch([form(sentence) for sentence in sentences])
        for side, form in sides.items()
    }
    return {side: _padded(ids) for side, ids in rows.items()}


@functools.cache
def _pairs() -> list[tuple[Sentence, Sentence]]:
    """Different minimal pairs, of which no sentence is trained on."""
    draw, found = random.Random(0), {}
    seen = {source for source, _ in sentence_pairs('train')}
    while len(found) < PAIRS:
        pair = minimal_pair(draw, 'word')
        texts = tuple(map(english, pair))
        if not seen.intersection(texts):
            found.setdefault(texts, pair)
    return list(found.values())


class Questions(NamedTuple):
    """Sentences in pairs, 2k and 2k + 1, whose last adjective tells which of two nouns "it" refers to.

    asked: where the target has the pronoun. answers: which of `pronouns` it is. it, antecedent, other: the
    pieces of the source that are "it", the noun meant, and the other noun.
    """

    batch: Batch
    asked: Int[np.ndarray, 'B']
    answers: Int[np.ndarray, 'B']
    pronouns: tuple[int, ...]
    it: Bool[np.ndarray, 'B S']
    antecedent: Bool[np.ndarray, 'B S']
    other: Bool[np.ndarray, 'B S']


@functools.cache
def questions() -> Questions:
    """Minimal pairs that no training sees."""
    source, target = (_tokenizer().of(side) for side in ('source', 'target'))
    sentences = [sentence for pair in _pairs() for sentence in pair]
    batch = _batch(sentences)
    marks = np.zeros((3, len(sentences), ROOM), bool)
    asked = []
    for row, sentence in enumerate(sentences):
        pronoun = sentence.added.subject
        # The two nouns differ in gender; the one that is meant comes first.
        nouns = [sentence.main.subject.noun, sentence.main.objects[0].noun]
        nouns.sort(key=lambda noun: IT[noun.gender] != pronoun)
        pieces = source.pieces(source.encode(english(sentence)))
        for mark, word in zip(marks, ('it', *(noun.english for noun in nouns)), strict=True):
            mark[row, places(pieces, word)] = True
        [place] = places(target.pieces(target.encode(german(sentence))), pronoun.nominative)
        asked.append(place)
    written = batch['target'].tokens[np.arange(len(asked)), asked]
    pronouns = sorted({int(token) for token in written})
    return Questions(batch, np.array(asked), np.searchsorted(pronouns, written), tuple(pronouns), *marks)


def _padded(rows: Sequence[Sequence[int]]) -> Tokens:
    """A sentence a row."""
    tokens, segments = batch_shapes.padded(rows, (len(rows), ROOM))
    return Tokens(tokens, segments, np.tile(np.arange(ROOM, dtype=np.int32), (len(rows), 1)))


class Answers(NamedTuple):
    """How a model answers each question, given the reference up to the pronoun.

    right: whether the right pronoun is the likeliest of the pronouns. logp: its log p among them. text: the
    log p of the whole reference.
    """

    right: Bool[np.ndarray, 'B']
    logp: Float[np.ndarray, 'B']
    text: Float[np.ndarray, 'B']


# By kind of attention, as `encoder/self_attention`: what its queries cannot see, in all layers and heads.
Blocked = Mapping[str, Bool[np.ndarray, 'B Q K']]


def answers(model: Trained, blocked: Blocked = _NOTHING) -> Answers:
    """The answers, with parts of attention blocked."""
    found = questions()
    logits = _logits(model.config)(model.params, found.batch, _masks(blocked))
    target = found.batch['target']
    logp = -optax.softmax_cross_entropy_with_integer_labels(logits, target.tokens)
    rows = np.arange(len(found.asked))
    at_pronoun = np.asarray(logits, np.float64)[rows, found.asked][:, list(found.pronouns)]
    among = at_pronoun - np.log(np.exp(at_pronoun).sum(axis=-1, keepdims=True))
    return Answers(
        among.argmax(axis=-1) == found.answers,
        among[rows, found.answers],
        np.where(target.segments > 0, logp, 0.0).sum(axis=-1),
    )


def translations(model: Trained, blocked: Blocked = _NOTHING) -> Int[np.ndarray, 'B T']:
    """Greedy translations of the questions, with parts of attention blocked; padding after their ends.

    What is blocked for the pronoun is so at its place in the reference.
    """
    found, masks = questions(), _masks(blocked)
    written = np.zeros_like(found.batch['target'].tokens)
    everywhere = np.ones_like(written)
    ended = np.zeros(len(written), bool)
    for place in range(ROOM):
        target = Tokens(written, everywhere, found.batch['target'].positions)
        logits = _logits(model.config)(model.params, found.batch | {'target': target}, masks)
        written[:, place] = np.where(ended, PAD, np.asarray(logits[:, place]).argmax(axis=-1))
        ended |= written[:, place] == EOS
    return written


def _masks(blocked: Blocked) -> Blocked:
    """With an empty one for each kind that is not blocked, so that one program serves all."""
    everything = (len(questions().asked), ROOM, ROOM)
    return {kind: np.broadcast_to(blocked.get(kind, False), everything) for kind in BLOCKABLE}


@functools.cache
def _logits(config: Config) -> Callable:
    model = models.build(config)

    def logits(params: models.Params, batch: Batch, blocked: Blocked) -> Float[jax.Array, 'B T V']:
        def block(attend, args, kwargs, context):
            path = context.module.path
            if context.method_name == '_attend' and (kind := f'{path[0]}/{path[-1]}') in blocked:
                *others, bias = args
                added = jnp.where(blocked[kind], BLOCKED, 0.0)[:, None].repeat(config.model.h, axis=1)
                args = *others, added if bias is None else bias + added
            return attend(*args, **kwargs)

        with nn.intercept_methods(block):
            return model.apply({'params': params}, batch, train=False)

    return jax.jit(logits)


def attended(model: Trained) -> Float[np.ndarray, 'N H B Q K']:
    """What the encoder's heads attend to in the questions, by layer."""
    kept = _attended(model.config)(model.params, questions().batch)
    layers = [kept['encoder'][f'layer_{n}']['self_attention'] for n in range(model.config.model.N)]
    return np.stack([np.moveaxis(np.asarray(layer['weights'][0]), 1, 0) for layer in layers])


@functools.cache
def _attended(config: Config) -> Callable:
    model = models.build(config)
    apply = lambda params, batch: model.apply(
        {'params': params}, batch, train=False, mutable=['intermediates']
    )
    return jax.jit(lambda params, batch: apply(params, batch)[1]['intermediates'])


def preference(weights: Float[np.ndarray, 'N H B Q K'], asked: Questions) -> Float[np.ndarray, 'N H B']:
    """How much more of its weight "it" gives to the antecedent than to the other noun, by head."""
    of_it = (weights * asked.it[:, :, None]).sum(axis=-2) / asked.it.sum(axis=-1, keepdims=True)
    return (of_it * asked.antecedent).sum(axis=-1) - (of_it * asked.other).sum(axis=-1)
