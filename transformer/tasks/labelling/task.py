"""Labelling with an encoder: data, loss and scores of a tag for each word."""

import collections
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from transformer.config import Config, ConfigError
from transformer.data.dataset import Dataset, Split
from transformer.data.fields import Reading, Tags, Words, split_at_blanks
from transformer.data.text_input import cut_entry, cut_rows, row_batches
from transformer.data.tokenizers.base import Tokenizer
from transformer.inference import batch_shapes
from transformer.inference.generate import OnDone, as_texts
from transformer.nn import ensemble
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import bootstrap
from transformer.tasks import findings as shared
from transformer.tasks.contract import CUT, Hypothesis, Measure, Scored, Task, means_of
from transformer.tasks.labelling import conlleval
from transformer.tokens import Batch, Tokens
from transformer.training import losses


def reading(config: Config) -> Reading:
    """Returns the fields: the words of a sentence, and their tags.

    Raises:
      ConfigError: the pieces are words of a list, whose places in a text are not known.
    """
    if config.data.tokenizer == 'words':
        raise ConfigError('data.tokenizer=words: a tag needs the place of each piece in its sentence')
    options = ('source', 'columns', 'language', 'tokenizer', 'pieces', 'max_len', 'train_examples')
    return Reading({'text': Words(config.data.language, 'data.language'), 'tags': Tags(of='text')}, options)


def sums(config: Config, params: ensemble.Params, batch: Batch, key: Array | None) -> losses.Sums:
    """Computes the cross-entropy of each word's tag at its first piece, smoothed in training."""
    batch = losses.all_rows(batch)
    tags = batch['tags'].tokens
    logits = ensemble.logits(config, params, batch, key)
    return losses.class_sums(config, key, logits, jnp.maximum(tags - 1, 0), (tags > 0).astype(jnp.float32))


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes the loss, the accuracy and, of tags B- and I-, the F1 of chunks as conlleval counts them.

    If the training split is available, `baseline` is the accuracy of each word's most frequent tag there. The
    output lines are the tags of each sentence.
    """
    means = means_of(TASK, trained, dataset, split, progress)
    sentences = [line.split(' ') if line else [] for line in dataset.texts(split)['text']]
    names, numbers = trained.codecs['tags'].names, dataset.splits[split].fields['tags']
    gold = [[names[tag - 1] for tag in numbers[i][numbers[i] > 0]] for i in range(len(numbers))]
    found = list(_labels(trained, sentences, counting(progress, 'sentences', len(sentences))))
    predicted = [[tag for tag, _ in tags] for tags in found]
    right = np.array(
        [(sum(map(str.__eq__, *pair)), len(pair[0])) for pair in zip(gold, predicted, strict=True)]
    )
    share = lambda counts: float(counts[:, 0].sum() / max(counts[:, 1].sum(), 1))
    means['accuracy'] = bootstrap.estimate(share, right)
    if any(name.startswith('B-') for name in names):
        means['f1'] = conlleval.score(gold, predicted).f1()
    if 'train' in dataset.splits:
        means['baseline'] = most_frequent_tags(
            dataset.splits['train'], dataset.splits[split], trained.codecs['text']
        )
    means |= cut_entry(trained.config, dataset, split)
    return Scored(means, {}, [' '.join(tags) for tags in predicted])


def most_frequent_tags(train: Split, test: Split, tokenizer: Tokenizer) -> float:
    """Returns the share of a split's words whose tag is the most frequent one of the word in training.

    A word that training lacks gets the most frequent tag of all.
    """
    counts, total = collections.defaultdict(collections.Counter), collections.Counter()
    for word, tag in _words(train, tokenizer):
        counts[word][tag] += 1
        total[tag] += 1
    usual = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    [(other, _)] = total.most_common(1)
    right = [usual.get(word, other) == tag for word, tag in _words(test, tokenizer)]
    return sum(right) / len(right)


def _words(split: Split, tokenizer: Tokenizer) -> Iterator[tuple[str, int]]:
    """Yields the text and the tag of each word."""
    text, tags = split.fields['text'], split.fields['tags']
    # The blank before the next word can be a piece of its own.
    spelled = functools.cache(lambda pieces: tokenizer.decode(pieces).strip(' '))
    for i in range(len(text)):
        pieces, marks = np.asarray(text[i]), np.asarray(tags[i])
        # The end, which is the last piece, belongs to no word.
        for begin, end in itertools.pairwise([*np.flatnonzero(marks), len(pieces) - 1]):
            yield spelled(tuple(pieces[begin:end].tolist())), int(marks[begin])


def findings(trained: Trained, dataset: Dataset, outcome: shared.Outcome) -> Iterator[shared.Finding]:
    """Yields a finding if the tags are hardly better than the most frequent tag, or each word's usual tag."""
    del trained
    accuracy, usual = outcome.score('accuracy', 'score'), outcome.score('baseline')
    tags = dataset.splits[outcome.split].fields['tags'].tokens
    yield from shared.guesses(accuracy, tags[tags > 0])
    if None not in (accuracy, usual) and accuracy <= usual:
        yield shared.Finding(
            f"{100 * accuracy:.1f} % of the words right; by each word's usual tag {100 * usual:.1f} %",
            'the model uses hardly any word but the one that it labels',
            'train.steps, model.N, model.d_model',
        )


def label(
    trained: Trained, texts: Iterable[str], *, first: int = 0, on_done: OnDone = lambda texts: None
) -> list[list[Hypothesis]]:
    """Returns each text's answer: a line for each of its words between blanks, with a tab and the tag."""
    sentences = [split_at_blanks(text) for text in as_texts(texts, 'texts')]
    answers = []
    for words, tags in zip(sentences, _labels(trained, sentences, on_done, first), strict=True):
        lines = [f'{word}\t{tag}\n' for word, (tag, _) in zip(words, tags, strict=True)]
        answers.append([Hypothesis(''.join(lines), float(sum(logp for _, logp in tags)))])
    return answers


def _labels(
    trained: Trained, sentences: Sequence[Sequence[str]], on_done: OnDone, first: int | None = None
) -> Iterator[list[tuple[str, float]]]:
    """Yields the likeliest tag of each word, with its log p. `first` is as for `cut_rows`."""
    config, tokenizer, names = trained.config, trained.codecs['text'], trained.codecs['tags'].names
    rows = cut_rows(config, tokenizer.encode_batch([' '.join(words) for words in sentences]), first)
    outputs = batch_shapes.run_pieces(_log_p, trained, rows, on_done)
    for words, row, logp in zip(sentences, rows, outputs, strict=True):
        places, _ = tokenizer.word_places(words) if words else ([], 0)
        # A word beyond the pieces that are read (`cut_rows`) gets the tag of the last of them.
        at = logp[np.minimum(places, len(row) - 1)] if words else np.zeros((0, len(names)))
        yield [(names[int(tag)], float(best)) for tag, best in zip(at.argmax(-1), at.max(-1), strict=True)]


def _log_p(config: Config, params: ensemble.Params, key: None, text: Tokens) -> Float[Array, 'R S K']:
    return jax.nn.log_softmax(ensemble.logits(config, params, {'text': text}, key), axis=-1)


TASK = Task(
    reading=reading,
    batches=row_batches,
    sums=sums,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss per word', ('loss',)),
        Measure('accuracy', 'words right', ('accuracy', 'score'), 2, 'higher', percent=True),
        Measure('f1', 'F1 of chunks', ('f1', 'score'), 2, 'higher'),
        Measure('baseline', "words right by each word's usual tag", ('baseline',), 2, 'higher', percent=True),
        CUT,
    ),
    findings=findings,
    verbs={'label': label},
)
