"""Language modelling: a decoder predicts each piece of a text from those before it."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from etils import epath
from jaxtyping import Array

from transformer.config import Config, ConfigError, Data, Decode
from transformer.data import cache as corpus_cache
from transformer.data import text_input
from transformer.data.batches import Batches, Running, Windows
from transformer.data.dataset import Dataset
from transformer.data.sources import reader
from transformer.inference import generate as generation
from transformer.inference import likelihood
from transformer.inference.attention import (
    DECODER_SELF_ATTENTION,
    START_MARK,
    Attended,
    View,
    attention,
    last_word,
    one_row,
    places,
    title,
)
from transformer.nn import ensemble
from transformer.runs.restore import Trained
from transformer.tasks import comparison
from transformer.tasks.comparison import Measure
from transformer.tasks.contract import Evaluation, Hypothesis, Likelihood, Task, bound
from transformer.tokens import EOS, Batch
from transformer.training import losses, split_sums

# Texts that an evaluation samples: where the text's source can judge them, and where nothing can.
JUDGED, SHOWN = 1000, 10
SAMPLING = {'method': 'sample'}  # whatever `decode.method` says


def reading(data: Data) -> reader.Reading:
    """One field, of one language or none."""
    options = (
        'source', 'language', 'documents', 'batching', 'tokenizer', 'pieces', 'max_len', 'train_pairs',
    )  # fmt: skip
    return reader.Reading({'text': data.language}, options)


def prepare(config: Config, cache: epath.PathLike, progress: corpus_cache.Progress, **how) -> Dataset:
    """The documents of every split; `how` are the keywords of `corpus.prepare`."""
    return corpus_cache.prepare(config.data, reading(config.data), cache, progress, **how)


def batches(config: Config, dataset: Dataset, split: str) -> Batches | Running | Windows:
    """Documents in rows, or rows cut from the running text; outside training, windows side by side.

    Learned positions end with their table: outside training longer documents in rows are cut, and told.
    """
    data, train, training = config.data, config.train, split == 'train'
    split_corpus = dataset.splits[split]
    if data.batching != 'running':
        if config.model.positions == 'learned' and not training:
            split_corpus = text_input.cut_and_told(split_corpus, config.model.max_len, split)
        return Batches(split_corpus, data, train.microbatches, train.seed, training)
    if training:
        return Running(split_corpus, data, train.microbatches, train.seed, training)
    return Windows(split_corpus, data, train.microbatches, data.row_len)


def sums(config: Config, params: ensemble.Params, batch: Batch, key: Array | None) -> losses.Sums:
    """Cross-entropy of every piece, or of those with a weight where the batch has weights."""
    weights = batch['weight'] if 'weight' in batch else (batch['text'].segments > 0).astype(jnp.float32)
    return likelihood.sums(config, params, batch, key, weights)


def decoding(config: Config, split: str) -> dict[str, object]:
    """Those of the config, but that texts are sampled."""
    del split
    return dataclasses.asdict(config.decode) | SAMPLING


def evaluate(trained: Trained, dataset: Dataset, split: str) -> tuple[dict[str, object], list[str]]:
    """Loss and perplexity in several units, and sampled texts.

    Every document is read in windows of `data.row_len` pieces, `data.stride` pieces apart; `context`
    says how much each piece saw. Perplexity per word and bits per byte divide the same loss, ends of
    documents included, by the words (between blanks) and bytes (newlines too) of the raw text: they
    compare models with different vocabularies. Where the source of the text can tell, `grammatical` is
    the share of `JUDGED` sampled texts that are.
    """
    config, data = trained.config, trained.config.data
    windows = Windows(dataset.splits[split], data, config.train.microbatches, data.stride)
    total = split_sums.total(bound(sums, config), trained.params, windows)
    raw = dataset.raw(split, 'text')
    # Document by document: the last word of one and the first of the next are two.
    words, size = sum(len(text.split()) for text in dataset.texts(split)['text']), len(raw)
    least, mean = windows.context()
    judge = reader.judge(data, reading(data))
    samples = _samples(trained, JUDGED if judge else SHOWN)
    scores = {
        'decode': decoding(config, split),
        **losses.means(total),
        'pieces': int(total['weight']),
        'word': {'perplexity': losses.perplexity(total['nll'] / max(words, 1)), 'count': words},
        'bits_per_byte': total['nll'] / math.log(2) / max(size, 1),
        'bytes': size,
        'context': {'window': data.row_len, 'stride': data.stride, 'least': least, 'mean': round(mean, 2)},
    }
    if judge:
        right = sum(map(judge, samples))
        scores['grammatical'] = right / len(samples)
    return scores, [line for sample in samples for line in sample.split('\n')]


def _samples(trained: Trained, count: int) -> list[str]:
    """Texts that continue nothing."""
    found = Generator(trained).hypotheses([''], samples=count, **SAMPLING)
    return [hypothesis.text for hypothesis in found[0]]


def dev_scores(trained: Trained, dataset: Dataset) -> dict[str, float]:
    """Nothing beside the likelihood."""
    del trained, dataset
    return {}


def describe(scores: dict[str, object]) -> list[str]:
    """Lines for the likelihood, for what each piece saw, and for the samples."""
    word, context = scores['word'], scores['context']
    lines = [
        f'loss {scores["loss"]:.4f}  perplexity {scores["perplexity"]:.3f} per piece '
        f'({scores["pieces"]:,}), {word["perplexity"]:.3f} per word ({word["count"]:,})  '
        f'{scores["bits_per_byte"]:.4f} bits per byte ({scores["bytes"]:,})  '
        f'checkpoint {scores["checkpoint"]}',
        f'context: windows of {context["window"]} pieces, {context["stride"]} new ones in each; each piece '
        f'saw {context["mean"]:g} earlier ones on average, at least {context["least"]} '
        'or all there were',
    ]
    if 'grammatical' in scores:
        share, decode = 100 * scores['grammatical'], scores['decode']
        lines.append(
            f'grammatical: {share:.1f} % of {JUDGED:,} samples, temperature {decode["temperature"]:g}'
        )
    return lines


def compare(
    config: Config, first: Evaluation, second: Evaluation, texts: Mapping[str, Sequence[str]], show: int
) -> tuple[dict[str, object], list[str]]:
    """The likelihoods of two models, and their differences."""
    del config, texts, show
    measures = {
        'loss per piece': Measure(('loss',)),
        'perplexity per piece': Measure(('perplexity',), 3),
        'perplexity per word': Measure(('word', 'perplexity'), 3),
        'bits per byte': Measure(('bits_per_byte',)),
        'grammatical': Measure(('grammatical',)),
    }
    scores = comparison.differences(first, second, measures)
    return {'scores': scores}, comparison.table(scores, measures)


def examples(trained: Trained, dataset: Dataset) -> list[str]:
    """Three samples."""
    del dataset
    samples = _samples(trained, 3)
    return [f'  {line}' for sample in samples for line in [*sample.split('\n'), '']][:-1]


def likelihoods(
    trained: Trained,
    texts: Sequence[tuple[str]],
    numbers: Sequence[int],
    on_done: generation.OnDone = lambda texts: None,
) -> list[Likelihood]:
    """log p of each text, read as an evaluation reads a document: in windows of `data.row_len` pieces.

    A window begins every `data.stride` pieces, and scores those that no earlier one has reached.
    """
    del numbers
    data, tokenizer = trained.config.data, trained.codec
    encoded = tokenizer.encode_batch([text for (text,) in texts])
    windows, owners = [], []
    for i, tokens in enumerate(encoded):
        last = max(len(tokens) - data.row_len, 0)
        for begin in range(0, last + data.stride, data.stride):
            windows.append({'text': tokens[begin : begin + data.row_len]})
            owners.append(i)
    logp: list[list[np.ndarray]] = [[] for _ in texts]
    share = len(texts) / max(len(windows), 1)
    found = likelihood.log_likelihoods(trained, windows, lambda count: on_done(count * share))
    for i, scored in zip(owners, found, strict=True):
        logp[i].append(scored[data.row_len - data.stride if logp[i] else 0 :])
    pieces = map(tokenizer.pieces, encoded)
    return [Likelihood(*pair) for pair in zip(pieces, map(np.concatenate, logp), strict=True)]


def views(trained: Trained, sentence: str | None, word: str | None, target_word: str | None) -> list[View]:
    """What the decoder attends to when it has just read a word.

    Args:
      sentence: a sample if None.
      word: the last word of the sentence if None; all pieces if it has no words.

    Raises:
      ConfigError: the sentence lacks the word, or there is a target word.
    """
    if target_word:
        raise ConfigError(f'--target_word={target_word}: a language model has no target')
    sentence, _, [seen] = attended(trained, sentence)
    word = word or last_word(seen.queries[1:])
    where = places(seen.queries[1:], word)
    looked_at = None if where is None else [i + 1 for i in where]
    return [View(title('decoder', word, sentence), seen.weights, seen.queries, seen.keys, looked_at)]


def attended(trained: Trained, sentence: str | None) -> tuple[str, str, list[Attended]]:
    """What the decoder attends to in a sentence, a sample if None. It writes nothing to it.

    A query is the piece that the decoder has read last, the start token first.
    """
    config = trained.config
    if sentence is None:
        sentence = _samples(trained, 1)[0]
    tokens = trained.codec.encode(sentence)
    if len(tokens) > config.data.row_len:
        logging.warning(
            'only the first %d of %d pieces are drawn (data.row_len)', config.data.row_len, len(tokens)
        )
    tokens = tokens[: config.data.row_len]
    pieces = trained.codec.pieces(tokens)
    [weights] = attention(config, trained.params, {'text': one_row(tokens)}).values()
    # The query at a position has read the piece before that position.
    read = [START_MARK, *pieces[:-1]]
    return sentence, '', [Attended(DECODER_SELF_ATTENTION, weights, read, read)]


class Generator:
    """A model that continues texts.

    Args:
      on_cut: gets the number of a prompt longer than `decode.max_source_len`, and its length.
    """

    def __init__(self, trained: Trained, on_cut: Callable[[int, int], None] = lambda number, length: None):
        self.trained = trained
        self.on_cut = on_cut

    def generate(self, prompts: Sequence[str], **options) -> list[str]:
        """Each prompt with its best or only continuation; arguments as for `hypotheses`."""
        return [found[0].text for found in self.hypotheses(prompts, **options)]

    def hypotheses(
        self,
        prompts: Sequence[str],
        *,
        best: int = 1,
        samples: int = 1,
        first: int = 0,
        seed: int | None = None,
        on_done: generation.OnDone = lambda prompts: None,
        **options,
    ) -> list[list[Hypothesis]]:
        """Prompts with what follows: the `best` best of beam search, otherwise `samples` of each.

        The score is that of what follows. The model reads and writes at most `data.row_len` pieces at a
        time. Without beam search it reads the end of a longer text, writes half a row, and reads again.

        Args:
          first: the number of the first prompt; what is sampled depends on it and on `seed`.
          seed: `train.seed` if None.
          on_done: gets how many more prompts are continued.
          options: those of `Decode`, as temperature=0.8.

        Raises:
          ConfigError: an option is impossible or does not go with the kind of search, or the prompts are
            not a list of texts.
        """
        generation.check_texts(prompts, 'prompts')
        config = self.trained.config
        settings = generation.settings_of(config, options)
        generation.check_counts(settings, best, samples, seed)
        key = generation.sampling_key(config, seed)
        prompted = self._encode(prompts, settings, first)
        rows = [tokens for tokens in prompted for _ in range(samples)]
        numbers = [(first + i) * samples + k for i in range(len(prompts)) for k in range(samples)]
        rows_done = lambda count: on_done(count / samples)
        if settings.method == 'beam':
            found = self._beams(settings, best, rows, numbers, key, rows_done)
        else:
            found = [[one] for one in self._one_by_one(settings, rows, numbers, key, rows_done)]
        texts = [self._text(prompt, *pair) for prompt, row in zip(rows, found, strict=True) for pair in row]
        each = best if settings.method == 'beam' else samples
        return [texts[i : i + each] for i in range(0, len(texts), each)]

    def _encode(self, prompts: Sequence[str], settings: Decode, first: int) -> list[list[int]]:
        """Prompts without an end; of one that is too long its last pieces."""
        encoded = [
            tokens[:-1] if prompt else []
            for tokens, prompt in zip(self.trained.codec.encode_batch(prompts), prompts, strict=True)
        ]
        for i, tokens in enumerate(encoded):
            if len(tokens) > settings.max_source_len:
                self.on_cut(first + i, len(tokens))
                encoded[i] = tokens[-settings.max_source_len :]
        return encoded

    def _text(self, prompt: list[int], tokens: list[int], score: float) -> Hypothesis:
        # Together, since a piece alone may lose the blank before it or be a part of a character.
        return Hypothesis(self.trained.codec.decode(prompt + tokens), score)

    def _beams(self, settings, best, rows, numbers, key, on_done) -> list[list[tuple[list[int], float]]]:
        window = self.trained.config.data.row_len
        for row, number in zip(rows, numbers, strict=True):
            if len(row) + settings.extra_len > window:
                raise ConfigError(
                    f'decode.extra_len={settings.extra_len}: with method beam, prompt {number + 1} '
                    f'({len(row)} pieces) and its output must fit into data.row_len={window}'
                )
        if not settings.extra_len:
            return [[([], 0.0)] * best for _ in rows]
        asked = generation.Asked(settings, best, extend=True)
        found = generation.search(self.trained, asked, rows, numbers, key, on_done)
        return [list(zip(row.tokens.tolist(), row.scores.tolist(), strict=True)) for row in found]

    def _one_by_one(self, settings, rows, numbers, key, on_done) -> list[tuple[list[int], float]]:
        """Each row's continuation, in parts that fit into a training row with what they see."""
        window = self.trained.config.data.row_len
        # Each row by itself, so that no other one changes its text.
        fits = [len(row) + settings.extra_len <= window for row in rows]
        half = max(window // 2, 1)
        written = [[] for _ in rows]
        logp = np.zeros(len(rows))
        for whole in (True, False):
            going = [i for i in range(len(rows)) if fits[i] == whole]
            step = settings.extra_len if whole else half
            for number, done in enumerate(range(0, settings.extra_len, max(step, 1))):
                if not going:
                    break
                part = min(step, settings.extra_len - done)
                last = done + part == settings.extra_len
                asked = generation.Asked(dataclasses.replace(settings, extra_len=part), 1, extend=True)
                seen = [(rows[i] + written[i])[-max(window - part, 1) :] for i in going]
                part_key = jax.random.fold_in(key, number) if number else key
                found = generation.search(
                    self.trained,
                    asked,
                    seen,
                    [numbers[i] for i in going],
                    part_key,
                    on_done if last else lambda rows: None,
                )
                for i, row in zip(going, found, strict=True):
                    written[i] += row.tokens[0][:part].tolist()
                    logp[i] += float(row.scores[0])
                before = len(going)
                going = [i for i, row in zip(going, found, strict=True) if EOS not in row.tokens[0]]
                on_done(0 if last else before - len(going))
        return list(zip(written, logp.tolist(), strict=True))


def warn_of_cut(number: int, length: int) -> None:
    """Says which prompt, counted from 0, was too long to be read whole."""
    logging.warning('prompt %d: only the end of its %d pieces is read', number + 1, length)


TASK = Task(
    prepare=prepare,
    batches=batches,
    sums=sums,
    decoding=decoding,
    evaluate=evaluate,
    dev_scores=dev_scores,
    describe=describe,
    compare=compare,
    examples=examples,
    writer=lambda trained: Generator(trained, warn_of_cut),
    likelihoods=likelihoods,
    attended=attended,
    views=views,
    pictured=lambda dataset: [],
)
