"""Trains the model of `make run` for claims about its attention, and tests its pronouns by minimal pairs."""

import functools
import random
from collections.abc import Mapping
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Float, Int

from configs import tiny
from experiments.claims.claim import prepared, train_on
from transformer import config as configs
from transformer.config import Config
from transformer.data.generated.grammar.english import english
from transformer.data.generated.grammar.inflection import IT
from transformer.data.generated.grammar.scenes import minimal_pair
from transformer.data.generated.grammar.sentences import sentence_pairs
from transformer.data.generated.grammar.syntax import Sentence, german
from transformer.data.rows import padded
from transformer.data.tokenizers.base import Tokenizer
from transformer.inference.attention import places, weights_of_rows
from transformer.nn import models
from transformer.runs.restore import Trained
from transformer.tokens import EOS, PAD, Batch, Tokens

SEEDS = 2  # trained with train.seed 0, as in `make run`, and 1
PAIRS = 150
ROOM = 24  # positions of a row, enough for every sentence
BLOCKED = -1e9  # added to a logit, it makes the weight 0
BLOCKABLE = ('encoder/self_attention', 'decoder/cross_attention')


@functools.cache
def trained(seed: int) -> Trained:
    """Trains the model of `make run`, once for all claims measured in one call.

    A claim's seeds begin with 1, but `make run` has the seed 0.
    """
    config = configs.replace(configs.resolve(tiny.get_config()), {'train.seed': seed - 1})
    return train_on(prepared(config), config, config.train.steps, seed - 1)


def _tokens(tokenizer: Tokenizer, texts: list[str]) -> Tokens:
    return padded(tokenizer.encode_batch(texts), (len(texts), ROOM))


def _pairs() -> list[tuple[Sentence, Sentence]]:
    """Draws different minimal pairs, none with a sentence of the training text."""
    rng, pairs = random.Random(0), {}
    trained_on = {source for source, _ in sentence_pairs('train')}
    while len(pairs) < PAIRS:
        pair = minimal_pair(rng, 'word')
        texts = tuple(map(english, pair))
        if not trained_on.intersection(texts):
            pairs.setdefault(texts, pair)
    return list(pairs.values())


class Questions(NamedTuple):
    """Sentences in pairs, 2k and 2k + 1, whose last adjective decides which of two nouns "it" refers to.

    Attributes:
      batch: the sentences and their reference translations.
      asked: the position of the pronoun in each target.
      answers: the index of that pronoun in `pronouns`.
      pronouns: the tokens of all pronouns.
      it: marks "it" in the source.
      antecedent: marks the noun that "it" refers to.
      other: marks the other noun.
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
    """Makes a batch of the minimal pairs, with marks on the words in question."""
    # All seeds share the tokenizer.
    source, target = (trained(1).codecs[side] for side in ('source', 'target'))
    sentences = [sentence for pair in _pairs() for sentence in pair]
    batch = {
        'source': _tokens(source, list(map(english, sentences))),
        'target': _tokens(target, list(map(german, sentences))),
    }
    marks = np.zeros((3, len(sentences), ROOM), bool)
    asked = []
    for row, sentence in enumerate(sentences):
        pronoun = sentence.added.subject
        # The two nouns differ in gender; the antecedent comes first.
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


class PronounAnswers(NamedTuple):
    """A model's answer to each question, given the reference up to the pronoun.

    Attributes:
      right: whether the right pronoun is the likeliest pronoun.
      logp: log p of the right pronoun, among the pronouns.
      text: log p of the whole reference.
    """

    right: Bool[np.ndarray, 'B']
    logp: Float[np.ndarray, 'B']
    text: Float[np.ndarray, 'B']


# By kind of attention, such as `encoder/self_attention`: the keys hidden from each query, in all layers.
Blocked = Mapping[str, Bool[np.ndarray, 'B Q K']]


def answers(model: Trained, blocked: Blocked) -> PronounAnswers:
    """Computes a model's answers to the questions, with parts of attention blocked."""
    asked = questions()
    logits = _logits(model.config, model.params, asked.batch, _masks(blocked))
    target = asked.batch['target']
    logp = -optax.softmax_cross_entropy_with_integer_labels(logits, target.tokens)
    rows = np.arange(len(asked.asked))
    at_pronoun = np.asarray(logits, np.float64)[rows, asked.asked][:, list(asked.pronouns)]
    among = at_pronoun - np.log(np.exp(at_pronoun).sum(axis=-1, keepdims=True))
    return PronounAnswers(
        among.argmax(axis=-1) == asked.answers,
        among[rows, asked.answers],
        np.where(target.segments > 0, logp, 0.0).sum(axis=-1),
    )


def translations(model: Trained, blocked: Blocked) -> Int[np.ndarray, 'B T']:
    """Translates the questions greedily, with parts of attention blocked; pads after the ends.

    Attention of the pronoun is blocked at the pronoun's position in the reference.
    """
    asked, masks = questions(), _masks(blocked)
    written = np.zeros_like(asked.batch['target'].tokens)
    everywhere = np.ones_like(written)
    ended = np.zeros(len(written), bool)
    for place in range(ROOM):
        target = Tokens(written, everywhere, asked.batch['target'].positions)
        logits = _logits(model.config, model.params, asked.batch | {'target': target}, masks)
        written[:, place] = np.where(ended, PAD, np.asarray(logits[:, place]).argmax(axis=-1))
        ended |= written[:, place] == EOS
    return written


def _masks(blocked: Blocked) -> Blocked:
    """Adds an empty mask for each kind that is not blocked, so that one program serves all."""
    shape = (len(questions().asked), ROOM, ROOM)
    return {kind: np.broadcast_to(blocked.get(kind, False), shape) for kind in BLOCKABLE}


@functools.partial(jax.jit, static_argnums=0)
def _logits(
    config: Config, params: models.Params, batch: Batch, blocked: Blocked
) -> Float[jax.Array, 'B T V']:
    def block(call, args, kwargs, context):
        result, path = call(*args, **kwargs), context.module.path
        if context.method_name == 'prepare' and (kind := f'{path[0]}/{path[-1]}') in blocked:
            added = jnp.where(blocked[kind], BLOCKED, 0.0)[:, None].repeat(config.model.h, axis=1)
            return result._replace(bias=added if result.bias is None else result.bias + added)
        return result

    with nn.intercept_methods(block):
        return models.build(config).apply({'params': params}, batch, train=False)


def attended(model: Trained) -> Float[np.ndarray, 'N H B Q K']:
    """Computes the attention weights of the encoder's heads on the questions, by layer."""
    weights = weights_of_rows(model.config, model.params, questions().batch)['encoder/self_attention']
    return weights.swapaxes(1, 2)


def preference(weights: Float[np.ndarray, 'N H B Q K'], asked: Questions) -> Float[np.ndarray, 'N H B']:
    """Computes how much more "it" attends to the antecedent than to the other noun, by head and question."""
    from_it = (weights * asked.it[:, :, None]).sum(axis=-2) / asked.it.sum(axis=-1, keepdims=True)
    return (from_it * asked.antecedent).sum(axis=-1) - (from_it * asked.other).sum(axis=-1)
