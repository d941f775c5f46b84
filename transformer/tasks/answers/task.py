"""Extractive question answering with an encoder: windows of paragraphs, loss and scores of spans."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jaxtyping import Array, Float, Int

from transformer.config import Config, ConfigError
from transformer.data.arrays import Dense, dtype_of, ragged
from transformer.data.batches import RowBatches
from transformer.data.dataset import Dataset, Split
from transformer.data.fields import Reading, Span, Text
from transformer.inference import batch_shapes
from transformer.inference.generate import OnDone, as_texts, check_best
from transformer.nn import ensemble
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import findings as shared
from transformer.tasks.answers import squad_scores
from transformer.tasks.contract import Hypothesis, Measure, Scored, Task, means_of
from transformer.tokens import EOS, Batch, Tokens
from transformer.training import losses


class Window(NamedTuple):
    """A question and a part of its paragraph, in one row of pieces.

    Attributes:
      pieces: the question with its end, the part of the paragraph, and an end.
      before: the number of pieces before the paragraph's.
      start: the number of the paragraph's first piece in the window.
    """

    pieces: list[int]
    before: int
    start: int


def windows_of(config: Config, question: Sequence[int], context: Sequence[int]) -> list[Window]:
    """Cuts a paragraph, in pieces with an end, into windows of `data.max_len` pieces with the question.

    The windows begin `answers.stride` pieces apart. At least half of a window is left to the paragraph, so a
    long question is cut.
    """
    longest = config.data.max_len
    question, context = [*question[:-1]][: longest // 2 - 1] + [EOS], context[:-1]
    room = longest - len(question) - 1
    # The last window is the first that reaches the paragraph's end.
    last, step = max(len(context) - room, 0), min(config.answers.stride, room)
    starts = range(0, last + step, step) if last else [0]
    return [Window([*question, *context[s : s + room], EOS], len(question), s) for s in starts]


def reading(config: Config) -> Reading:
    """Returns the fields: a question, a paragraph, and the answers that are parts of it.

    Raises:
      ConfigError: the pieces are words, whose places in a text are not known.
    """
    if config.data.tokenizer == 'words':
        raise ConfigError('data.tokenizer=words: an answer needs the place of each piece in its paragraph')
    text = Text(config.data.language, 'data.language')
    options = ('source', 'language', 'tokenizer', 'pieces', 'train_examples')
    answer = Span(of='context', optional=config.answers.no_answer)
    return Reading({'question': text, 'context': text, 'answer': answer}, options, any_length=True)


def batches(config: Config, dataset: Dataset, split: str) -> RowBatches:
    """Lays out the windows of every question, each with the span of the first answer, or 0, 0 without it.

    Windows without the answer are left out, unless questions can have none.

    Raises:
      ConfigError: no window is left.
    """
    fields, train = dataset.splits[split].fields, config.train
    rows, spans, outside = [], [], 0
    for i in range(len(dataset.splits[split])):
        begin, end = fields['answer'][i].tolist()
        answered = begin < 0
        for window in windows_of(config, fields['question'][i].tolist(), fields['context'][i].tolist()):
            shift = window.before - window.start
            inside = begin >= 0 and window.before <= begin + shift and end + shift < len(window.pieces) - 1
            answered |= inside
            if inside or config.answers.no_answer:
                rows.append(window.pieces)
                spans.append((begin + shift, end + shift) if inside else (0, 0))
        outside += not answered
    if outside:
        logging.warning(
            'data.%s: no window has the whole answer to %d of %d questions; larger windows (data.max_len) or '
            'a smaller answers.stride can have it', split, outside, len(dataset.splits[split]),
        )  # fmt: skip
    if not rows and outside:
        raise ConfigError(f'data.{split}: no window has a whole answer; needs a larger data.max_len')
    if not rows:
        raise ConfigError(f'data.{split}: no question has an answer; answers.no_answer=True allows this')
    pieces = ragged(rows, dtype_of(dataset.codecs['context'].size))
    windows = Split({'text': pieces, 'span': Dense(np.array(spans, '<i4').reshape(-1, 2))})
    return RowBatches(windows, config.data, train.microbatches, train.seed, split == 'train')


def sums(config: Config, params: ensemble.Params, batch: Batch, key: Array | None) -> losses.Sums:
    """Computes the mean cross-entropy of each window's first and last piece among its own pieces."""
    batch = losses.all_rows(batch)
    text, spans, weight = batch['text'], batch['span'], batch['weight']
    # Means of logits can be compared between windows.
    logits = ensemble.mean_logits(config, params, batch, key)[:, None]
    examples = jnp.arange(1, spans.shape[1] + 1)[None, :, None]
    own = text.segments[:, None] == examples
    logp = jax.nn.log_softmax(jnp.where(own[..., None], logits, -1e9), axis=2)
    gold = own[..., None] & (text.positions[:, None, :, None] == spans[:, :, None])
    nll = -jnp.sum(jnp.where(gold, logp, 0.0), axis=(2, 3)) / 2
    return {'loss': jnp.sum(nll * weight), 'weight': jnp.sum(weight)}


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes the loss, exact match and F1. The output lines are the answers."""
    config, texts = trained.config, dataset.texts(split)
    means = means_of(TASK, trained, dataset, split, progress)
    pairs = list(zip(texts['question'], texts['context'], strict=True))
    found = _answers(trained, pairs, 1, counting(progress, 'questions', len(pairs)))
    lines = [best[0].text for best in found]
    gold = [[answer for _, answer in json.loads(line)] for line in texts['answer']]
    scored = squad_scores.score(lines, gold, answerable=not config.answers.no_answer)
    return Scored(means | scored.means(), {}, lines)


def findings(trained: Trained, dataset: Dataset, outcome: shared.Outcome) -> Iterator[shared.Finding]:
    """Yields a finding if the model knows hardly where an answer is, or answers the same or nothing."""
    windows = batches(trained.config, dataset, outcome.split).corpus.fields['text']
    yield from shared.unlearned(outcome, float(np.log(windows.lengths).mean()), 'any piece of a window')
    yield from shared.equal(outcome)
    if not trained.config.answers.no_answer:
        yield from shared.empty(outcome)


def answer(
    trained: Trained,
    texts: Iterable[str],
    *,
    best: int = 1,
    first: int = 0,
    on_done: OnDone = lambda texts: None,
) -> list[list[Hypothesis]]:
    """Returns the `best` likeliest answers to each question, which a tab separates from its paragraph.

    A text without a tab gets empty answers, with a warning. A score is the sum of two logits.
    """
    check_best(best)
    texts, pairs = as_texts(texts, 'texts'), []
    for number, text in enumerate(texts, first + 1):
        question, tab, context = text.partition('\t')
        pairs.append((question, context))
        if not tab:
            logging.warning('line %d: has no tab between a question and a paragraph', number)
    return _answers(trained, pairs, best, on_done, first)


def _answers(
    trained: Trained, pairs: Sequence[tuple[str, str]], best: int, on_done: OnDone, first: int | None = None
) -> list[list[Hypothesis]]:
    """Finds the likeliest spans of each question's paragraph in all its windows, or '' for no answer.

    `first` is the number of the first pair, for a warning of each question that is cut; None warns of none.
    """
    config, codecs = trained.config, trained.codecs
    questions = codecs['question'].encode_batch([question for question, _ in pairs])
    contexts = codecs['context'].encode_batch([context for _, context in pairs])
    windows, owners = [], []
    for i, pieces in enumerate(zip(questions, contexts, strict=True)):
        of_pair = windows_of(config, *pieces)
        read, asked = of_pair[0].before, len(pieces[0])
        if first is not None and read < asked:
            logging.warning(
                'line %d: only %d of the %d pieces of the question are read', first + i + 1, read, asked
            )
        windows += of_pair
        owners += [i] * len(of_pair)
    share = len(pairs) / max(len(windows), 1)
    rows, done = [window.pieces for window in windows], lambda count: on_done(count * share)
    outputs = batch_shapes.run_pieces(_logits, trained, rows, done)
    places = [codecs['context'].offsets(context) for _, context in pairs]
    found: list[list[Hypothesis]] = [[] for _ in pairs]
    nothing = [[] for _ in pairs]
    for i, window, logits in zip(owners, windows, outputs, strict=True):
        nothing[i].append(float(logits[0].sum()))
        text_of = lambda begin, end, i=i: pairs[i][1][places[i][begin][0] : places[i][end][1]].strip()
        spans = _spans(config, window, logits[: len(window.pieces)])
        texts = (Hypothesis(text_of(*span), score) for score, *span in spans)
        found[i] += _distinct((one for one in texts if one.text), best)
    if config.answers.no_answer:
        found = [[*of_pair, Hypothesis('', min(one))] for of_pair, one in zip(found, nothing, strict=True)]
    # Windows overlap, so a text can occur several times: its best score counts.
    ranked = (sorted(of_pair, key=lambda one: -one.score) for of_pair in found)
    return [_distinct(of_pair, best) or [Hypothesis('', 0.0)] for of_pair in ranked]


def _distinct(hypotheses: Iterable[Hypothesis], most: int) -> list[Hypothesis]:
    """Returns the first hypotheses with different texts."""
    distinct: dict[str, Hypothesis] = {}
    for one in hypotheses:
        distinct.setdefault(one.text, one)
        if len(distinct) == most:
            break
    return [*distinct.values()]


def _spans(
    config: Config, window: Window, logits: Float[np.ndarray, 'S 2']
) -> Iterator[tuple[float, int, int]]:
    """Yields the scores, first and last pieces in the paragraph of a window's spans, the likeliest first."""
    begin, end = logits[window.before : -1].T
    scores = begin[:, None] + end[None, :]
    lengths = np.arange(len(end))[None, :] - np.arange(len(begin))[:, None]
    possible = np.flatnonzero((lengths >= 0) & (lengths < config.answers.longest))
    order: Int[np.ndarray, ' n'] = possible[np.argsort(-scores.ravel()[possible], kind='stable')]
    for b, e in zip(*np.unravel_index(order, scores.shape), strict=True):
        yield float(scores[b, e]), int(b) + window.start, int(e) + window.start


def _logits(config: Config, params: ensemble.Params, key: None, text: Tokens) -> Float[Array, 'R S 2']:
    return ensemble.mean_logits(config, params, {'text': text}, key)


TASK = Task(
    reading=reading,
    batches=batches,
    sums=sums,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss per window', ('loss',)),
        Measure('exact', 'exact match', ('exact', 'score'), 2, 'higher'),
        Measure('f1', 'F1', ('f1', 'score'), 2, 'higher'),
    ),
    findings=findings,
    verbs={'answer': answer},
)
