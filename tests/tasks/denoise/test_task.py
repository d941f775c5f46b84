"""Denoising: spans and prefixes recomputed by their definition; the loss in numpy; gaps; resuming."""

import collections
import io
import itertools
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest
import toys
from etils import epath
from random_models import rows_of

import transformer
from transformer import config as configs
from transformer.actions import train as action
from transformer.cli import main as run
from transformer.config import ConfigError, config_dict, resolve
from transformer.config.tasks import Denoise
from transformer.data import text_input
from transformer.data.tokenizers.listed import PiecesTokenizer
from transformer.nn import cost, models
from transformer.tasks import gaps, sums_of, task_of
from transformer.tasks.denoise import fill, noise, task
from transformer.tokens import EOS, UNK, Tokens
from transformer.training.step import initial_state

OPTIONS = {
    'train.task': 'denoise',
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'model.positions': 'buckets',
    'data.source': 'grammar',
    'data.name': None,
    'data.language': 'de',
    'data.train_examples': 200,
    'data.dev': 'dev[:100]',
    'data.test': 'test[:50]',
    'data.pieces': 400,
    'data.batching': 'packed',
    'data.row_len': 40,
    'data.max_len': 40,
    'data.batch_tokens': 640,
    'denoise.sentinels': 9,
    'decode.max_source_len': 40,
    'decode.extra_len': 8,
    'train.steps': 4,
    'train.warmup_steps': 4,
    'train.checkpoint_every': 2,
    'train.eval_every': 4,
    'train.log_every': 1,
}
RUNNING = {'data.batching': 'running', 'data.row_len': 32}
LAST = 400 + 9 - 1  # the piece of a first span


def config_of(**changes) -> configs.Config:
    return resolve(config_dict(OPTIONS | {key.replace('__', '.'): value for key, value in changes.items()}))


@pytest.fixture(scope='module', autouse=True)
def _few_gaps():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaps, 'MOST', 20)
        yield


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> pathlib.Path:
    """Returns the work directory of a model."""
    return tmp_path_factory.mktemp('denoise') / 'run'


@pytest.fixture(scope='module', autouse=True)
def finished(trained, _few_gaps) -> action.Finished:
    return action.run_training(config_of(), epath.Path(trained), '')


def bits_of(rng, rows: Tokens) -> np.ndarray:
    shape = (len(rows.tokens), noise.DRAWS, rows.tokens.shape[1])
    return rng.integers(0, 2**64, shape, dtype=np.uint64)


def texts_of(field: Tokens) -> list[list[list[int]]]:
    """Reads the texts of each row, and checks that positions count each text's pieces."""
    found = []
    for tokens, segments, positions in zip(*field, strict=True):
        parts = [(segments == n) for n in range(1, segments.max() + 1)]
        for part in parts:
            np.testing.assert_array_equal(positions[part], np.arange(part.sum()))
        assert not tokens[segments == 0].any()
        found.append([tokens[part].tolist() for part in parts])
    return found


def restored(
    source: list[int], target: list[int], last: int, lowest: int
) -> tuple[list[int], list[list[int]]]:
    """Puts the spans of a target into its source, and returns the text and the spans."""
    assert source[-1] == target[-1] == EOS and EOS not in source[:-1] + target[:-1]
    sentinels = [piece for piece in target if piece >= lowest]
    assert sentinels == [piece for piece in source if piece >= lowest]
    assert sentinels == [last - number for number in range(len(sentinels))]
    places = [target.index(piece) for piece in sentinels]
    spans = [target[a + 1 : b] for a, b in itertools.pairwise([*places, len(target) - 1])]
    text = [piece for one in source for piece in (spans[last - one] if one >= lowest else [one])]
    return text, spans


def test_spans_by_their_definition():
    """Amounts by rounding half to even; visible first, hidden last; one sentinel a span; then the end."""
    rng, options = np.random.default_rng(0), Denoise()
    texts = [[rng.integers(3, 400, n).tolist() + [EOS] for n in rng.integers(0, 70, 3)] for _ in range(60)]
    rows = rows_of(texts, 210)
    found = noise.add_noise(options, np.arange(3, 400), 499, {210: (220, 220)}, rows, bits_of(rng, rows))
    for row, sources, targets in zip(texts, *map(texts_of, found.values()), strict=True):
        for text, source, target in zip(row, sources, targets, strict=True):
            n = len(text) - 1
            again, spans = restored(source, target, 499, 400)
            assert again == text
            if n < 2:
                assert source == text and target == [EOS]
                continue
            hidden = min(max(round(0.15 * n), 1), n - 1)
            assert sum(map(len, spans)) == hidden and all(spans)
            assert len(spans) == max(round(hidden / 3), 1)
            # Visible pieces are between any two spans, and before the first.
            marks = [i for i, piece in enumerate(source) if piece >= 400]
            assert marks[0] > 0 and marks[-1] == len(source) - 2 and min(np.diff(marks), default=2) > 1


def test_every_cut_is_equally_likely():
    """Three parts of six items: ten ways. Two parts of two: one. One part of four: one."""
    rng, draws = np.random.default_rng(1), 20_000
    items, parts = np.tile([6, 2, 4], draws), np.tile([3, 2, 1], draws)
    keys = rng.integers(0, 2**64, items.sum(), dtype=np.uint64)
    found = noise._parts(items, parts, keys).reshape(draws, 6)
    assert (found[:, 3:] == [1, 1, 4]).all() and (found > 0).all() and (found[:, :3].sum(1) == 6).all()
    counts = np.array([*collections.Counter(map(tuple, found[:, :3].tolist())).values()])
    assert len(counts) == 10
    # Five standard deviations of a count.
    assert np.abs(counts - draws / 10).max() < 5 * (draws * 0.09) ** 0.5


def test_special_pieces_are_never_hidden_but_unknown_ones_can_be():
    rng = np.random.default_rng(2)
    texts = [[rng.choice([UNK, 4, 5, 7], 20).tolist() + [EOS]] for _ in range(200)]
    rows = rows_of(texts, 21)
    options = Denoise(density=0.5, span=1.0)
    found = noise.add_noise(options, np.array([4, 5]), 99, {21: (21, 21)}, rows, bits_of(rng, rows))
    hidden = set()
    for (text,), (source,), (target,) in zip(texts, *map(texts_of, found.values()), strict=True):
        assert source.count(7) == text.count(7)
        hidden |= set(target)
    assert hidden & {UNK, 4, 5, 7} == {UNK, 4, 5}


def test_a_prefix_has_any_length_with_equal_probability():
    """Of n pieces the source has 1 to n - 1, and the target the others."""
    rng, options = np.random.default_rng(3), Denoise(objective='prefix')
    texts = [[[3, 4, 5, 6, 7, EOS], [8, EOS], [EOS]] for _ in range(4000)]
    rows = rows_of(texts, 9)
    found = noise.add_noise(options, np.arange(3, 400), 0, {9: (9, 9)}, rows, bits_of(rng, rows))
    lengths = []
    for row, sources, targets in zip(texts, *map(texts_of, found.values()), strict=True):
        for text, source, target in zip(row, sources, targets, strict=True):
            assert source[:-1] + target == text and source[-1] == EOS
        assert targets[1:] == [[EOS], [EOS]]
        lengths.append(len(sources[0]) - 1)
    counts = np.bincount(lengths)
    assert len(counts) == 5 and counts[0] == 0
    assert np.abs(counts[1:] - 1000).max() < 5 * (4000 * 3 / 16) ** 0.5


@pytest.mark.parametrize(
    ('row_len', 'options', 'raw', 'target'),
    [
        (512, Denoise(), 568, 114),
        # 512 pieces of which half are hidden: each side has 384 in all, 256 and the spans and the end.
        (512, Denoise(density=0.5), 766, 512),
        (512, Denoise(objective='prefix'), 512, 512),
    ],
)
def test_running_text_fills_the_source(row_len, options, raw, target):
    assert options.raw_length(row_len) == raw
    (source,), (found,) = options.lengths(np.array([raw]))
    assert (source, found) == (row_len, target)


@pytest.mark.parametrize(
    'changes', [{}, {'denoise.density': 0.5}, {'denoise.objective': 'prefix', 'denoise.sentinels': 100}]
)
def test_operations_are_counted_of_rows_as_wide_as_a_batch_has(changes, finished):
    config = config_of(**{k.replace('.', '__'): v for k, v in (RUNNING | changes).items()})
    batch = task_of(config).batches(config, finished.dataset, 'train').batch(0)
    blank = models.blank(config, len(batch['source'].tokens), cost.row_length(config))
    assert {side: t.tokens.shape for side, t in batch.items()} == {
        side: t.tokens.shape for side, t in blank.items()
    }
    # Of a row that is one text with an end.
    packed = config_of(**{k.replace('.', '__'): v for k, v in changes.items()})
    (source,), (target,) = packed.denoise.lengths(np.array([39]))
    widths = [t.tokens.shape[1] for t in models.blank(packed, 1, 40).values()]
    assert widths == [source, target] and max(widths) <= 40


def test_chunks_of_running_text(finished):
    """Without the ends of texts; each epoch begins elsewhere; dev is read once, in order."""
    config, dataset = config_of(**{k.replace('.', '__'): v for k, v in RUNNING.items()}), finished.dataset
    raw = config.denoise.raw_length(32)
    for split, epoch in (('dev', 0), ('train', 1)):
        field = dataset.splits[split].fields['text']
        text = [int(piece) for piece in field.tokens if piece != EOS]
        batches = task_of(config).batches(config, dataset, split)
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        rows = []
        for step in steps:
            batch = batches.batch(step)
            assert batch['source'].tokens.shape == (batches.rows(step), 32)
            for pair in zip(*map(texts_of, batch.values()), strict=True):
                if pair[0]:
                    ((source,), (target,)) = pair
                    rows.append(restored(source, target, LAST, 400)[0][:-1])
        assert sum(map(len, rows)) == len(text)
        if split == 'dev':
            assert [piece for row in rows for piece in row] == text
            assert {len(row) for row in rows[:-1]} == {raw}
        else:
            # The circle is cut into rows of `raw` pieces, in a drawn order.
            circle = text + text
            starts = {tuple(circle[i : i + raw]): i for i in range(len(text))}
            begins = sorted(starts[tuple(row)] for row in rows if len(row) == raw)
            assert len({begin % raw for begin in begins if begin >= begins[0]}) <= 2 and begins[0] > 0
        filled = [len(row) for row in rows if len(row) < raw]
        assert len(filled) <= 1


def test_noise_differs_by_step_and_row_in_training_and_is_fixed_on_dev(finished):
    config, dataset = config_of(), finished.dataset
    batches = {split: task_of(config).batches(config, dataset, split) for split in ('train', 'dev')}
    train, dev = batches['train'], batches['dev']
    first = train.batch(0)
    for name, part in train.batch(0, slice(4, 8)).items():
        for found, whole in zip(part, first[name], strict=True):
            np.testing.assert_array_equal(found, whole[4:8])
    later = [
        train.batch(step)['source'].tokens for step in range(train.steps_per_epoch, 2 * train.steps_per_epoch)
    ]
    assert not any(np.array_equal(first['source'].tokens, one) for one in later)
    again = task_of(config).batches(config, dataset, 'dev')
    np.testing.assert_array_equal(again.batch(1)['target'].tokens, dev.batch(1)['target'].tokens)
    texts = [text for row in texts_of(first['source']) for text in row]
    targets = [text for row in texts_of(first['target']) for text in row]
    known = {tuple(dataset.splits['train'].fields['text'][i]) for i in range(len(dataset.splits['train']))}
    assert all(tuple(restored(*pair, LAST, 400)[0]) in known for pair in zip(texts, targets, strict=True))


@pytest.mark.parametrize('batching', ['packed', 'bucketed', 'running'])
@pytest.mark.parametrize('objective', ['spans', 'prefix'])
def test_every_layout_keeps_its_texts(finished, objective, batching):
    """Nothing is cut at a row's end, in any layout, and widths are those of the fullest rows."""
    more = {} if objective == 'spans' else {'denoise__sentinels': 100}
    config = config_of(denoise__objective=objective, data__batching=batching, **more)
    split = finished.dataset.splits['dev'].fields['text']
    batches = task_of(config).batches(config, finished.dataset, 'dev')
    texts, fullest = [], collections.defaultdict(int)
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        for pair in zip(*map(texts_of, batch.values()), strict=True):
            for source, target in zip(*pair, strict=True):
                spans = objective == 'spans'
                texts.append(restored(source, target, LAST, 400)[0] if spans else source[:-1] + target)
        for name, field in batch.items():
            width = field.tokens.shape[1]
            fullest[name, width] = max(fullest[name, width], (field.segments > 0).sum(1).max())
    if batching == 'running':
        joined = [piece for text in texts for piece in text[:-1]]
        assert joined == [piece for piece in split.tokens.tolist() if piece != EOS]
    else:
        assert sorted(texts) == sorted(split[i].tolist() for i in range(len(split)))
    if objective == 'spans':
        assert all(width == most for (_, width), most in fullest.items())


def random_batch(rows=16):
    rng = np.random.default_rng(1)
    texts = [[rng.integers(3, 400, n).tolist() + [EOS] for n in rng.integers(2, 18, 2)] for _ in range(rows)]
    laid = rows_of(texts, 40)
    return noise.add_noise(Denoise(), np.arange(3, 400), LAST, {40: (40, 16)}, laid, bits_of(rng, laid))


def test_the_loss_is_that_of_every_piece_of_the_target():
    config = config_of()
    params = initial_state(config).params
    batch = random_batch()
    logits = np.float64(programs.apply(config, params, batch))
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    real = batch['target'].segments > 0
    chosen = np.take_along_axis(logp, batch['target'].tokens[..., None], -1)[..., 0][real]
    found = jax.jit(sums_of(config))(params, jax.tree.map(lambda x: jnp.asarray(x)[None], batch), None)
    assert float(found['weight']) == real.sum()
    assert float(found['loss']) == pytest.approx(-chosen.sum(), rel=1e-5)
    assert float(found['correct']) == (logp.argmax(-1) == batch['target'].tokens)[real].sum()


def test_sums_add_up_over_microbatches():
    together, alone = toys.sums_of_microbatches(config_of(), random_batch())
    assert together == pytest.approx(alone, rel=1e-5)


def test_a_killed_training_ends_as_one_that_was_not(trained, tmp_path):
    result = toys.resumed(trained, tmp_path / 'run', 2, evaluate=False)
    whole = json.loads((trained / 'result.json').read_text())
    assert result['params_sha256'] == whole['params_sha256']
    assert set(whole['scores']['dev']) >= {'loss', 'perplexity', 'accuracy', 'gaps'}


def test_a_gap_takes_the_blank_before_it(trained):
    model = transformer.load(trained).trained
    encode = model.codecs['text'].encode
    hund, katze = encode('Der Hund')[1:-1], encode('die Katze.')[1:]
    assert fill.holed(model, '[MASK] Hund sieht [MASK] Katze.') == [
        LAST, *hund, *encode('sieht')[:-1], LAST - 1, *katze
    ]  # fmt: skip


def test_log_p_of_a_form_is_that_of_its_target(trained):
    model = transformer.load(trained).trained
    source, target = [LAST, *model.codecs['text'].encode('Hund')], [LAST, *model.codecs['text'].encode('Der')]
    row = lambda pieces: rows_of([[pieces]], len(pieces))
    logits = np.float64(
        programs.apply(model.config, model.params, {'source': row(source), 'target': row(target)})
    )[0]
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    found = fill.log_p(model, ['[MASK] Hund'], ['Der'], lambda rows: None)
    assert found == pytest.approx([sum(logp[i, piece] for i, piece in enumerate(target))], rel=1e-5)


def test_spans_of_a_target(trained):
    model = transformer.load(trained).trained
    target = [7, LAST - 1, 5, 6, LAST - 5, 8, LAST, 9, EOS, 5]
    assert fill.split_spans(model, target, 2) == [[9], [5, 6]]


def test_a_model_fills_the_gaps_that_it_was_trained_to_fill(trained, monkeypatch, caplog):
    """With a search that always writes two spans."""
    model = transformer.load(trained)
    encode = model.trained.codecs['text'].encode
    written = [LAST, *encode('Der kleine')[:-1], LAST - 1, *encode('eine')]
    seen = {}

    def search(trained, asked, rows, numbers, key, on_done, pieces):
        seen.update(rows=rows, numbers=numbers, pieces=pieces, settings=asked.settings)
        found = fill.generate.Hypotheses(np.array([written]), np.array([-1.5]))
        return [found for _ in rows]

    monkeypatch.setattr(fill.generate, 'search', search)
    lines = [
        '[MASK] Hund sieht [MASK] Katze.',
        'kein Platz',
        '[MASK]' * 10,
        '[MASK]' + ' Hund' * 40,
        '[MASK].',
    ]
    with caplog.at_level('WARNING', logger='absl'):
        found = model.fill(lines, first=3, beam=1)
    longest = model.trained.config.decode.max_source_len
    (line, length, limit) = caplog.records[-1].args
    assert (line, limit) == (7, longest) and length > longest
    assert [[tuple(one) for one in line] for line in found] == [
        [('Der kleine\teine', -1.5)], [('', 0.0)], [('', 0.0)], [('', 0.0)], [('Der kleine', -1.5)]
    ]  # fmt: skip
    assert seen['settings'].beam == 1 != model.trained.config.decode.beam
    assert seen['numbers'] == [3, 7] and seen['pieces'] == LAST + 1


def test_a_line_that_cannot_be_filled_does_not_end_the_others(trained, monkeypatch, caplog):
    """With a tokenizer whose pieces do not show where an unknown one is."""
    model, asked = transformer.load(trained).trained, []
    words = PiecesTokenizer.from_pieces(['<pad>', '</s>', '<unk>', 'der', 'Hund'], ' ', end=True)

    def search(trained, settings, rows, numbers, *others, **more):
        asked.extend(numbers)
        return [fill.generate.Hypotheses(np.array([[EOS]]), np.zeros(1)) for _ in rows]

    monkeypatch.setattr(fill.generate, 'search', search)
    lines = ['der [MASK]', 'das [MASK]', 'kein Platz', 'Hund [MASK]']
    with caplog.at_level('WARNING', logger='absl'):
        found = fill.fill(model._replace(codecs={'text': words}), lines)
    assert asked == [0, 3] and len(found) == 4
    assert 'line 2: ' in caplog.text and 'line 3: ' in caplog.text


def test_texts_without_gaps(trained, tmp_path):
    model, file = transformer.load(trained).trained, tmp_path / 'own'
    file.write_text('Hallo\nGuten Tag\n')
    own = text_input.read({'text': file}, model.config.data, task.reading(model.config), model.codecs)
    assert task.fill_gaps(model, own, text_input.SPLIT, 10) == []


def test_the_likeliest_form_fills_a_gap(trained, finished, monkeypatch):
    """With log p of -1 for the sentences of dev, and of -2 for all others."""
    model, known = transformer.load(trained).trained, {*finished.dataset.texts('dev')['text']}
    whole = lambda pair: pair[0].replace(gaps.GAP, pair[1])
    log_p = lambda _, *pairs_and_done: np.array(
        [-1.0 if whole(pair) in known else -2.0 for pair in zip(*pairs_and_done[:2], strict=True)]
    )
    monkeypatch.setattr(task, 'log_p', log_p)
    filled = task.fill_gaps(model, finished.dataset, 'dev', 20)
    assert len(filled) == 20 and all(form == gap.right for gap, form in filled)


def test_the_command(trained, monkeypatch, capfd):
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO('Der [MASK] schläft.\n'.encode())))
    assert run.main(['run.py', 'fill', f'--workdir={trained}', '--nbest=2', '--scores']) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split('\t')[0] for line in lines] == ['0', '0']


def test_sentinels_are_pieces_above_those_of_the_tokenizer():
    assert config_of().model.vocab_size == 409
    assert models.parameter_shapes(config_of())['embedding']['table'].shape == (409, 16)
    assert config_of(denoise__objective='prefix', denoise__sentinels=100).model.vocab_size == 400
    with pytest.raises(ConfigError, match=r'model\.vocab_size=408'):
        config_of(model__vocab_size=408)


def test_refused_options(finished):
    with pytest.raises(ConfigError, match=r'denoise\.density'):
        config_of(denoise__objective='prefix', denoise__density=0.3)
    with pytest.raises(ConfigError, match=r'denoise\.span'):
        resolve(config_dict({'denoise.span': 2.0}))
    with pytest.raises(ConfigError, match=r'data\.pieces=400 \+ denoise\.sentinels=9$'):
        config_of(decode__beam=205)
    with pytest.raises(ConfigError, match=r'train\.watch_every=1'):
        action.check_best(config_of(train__watch_every=1))
    short = config_of(data__batching='running', data__row_len=2, data__max_len=2)
    with pytest.raises(ConfigError, match=r'data\.row_len=2'):
        task.batches(short, finished.dataset, 'train')
    config = config_of(denoise__density=0.5, denoise__span=1.0, denoise__sentinels=2)
    with pytest.raises(ConfigError, match=r'denoise\.sentinels=2'):
        task_of(config).batches(config, finished.dataset, 'train')


def test_a_model_of_prefixes_has_no_gaps(trained):
    model = transformer.load(trained).trained
    config = configs.replace(model.config, {'denoise.objective': 'prefix', 'denoise.sentinels': 100})
    with pytest.raises(ConfigError, match=r'denoise\.objective=prefix'):
        fill.fill(model._replace(config=config), ['Der [MASK].'])


def test_a_translator_of_the_same_size_has_the_same_parameters():
    """So it can start from a model of hidden spans."""
    shared = {key: value for key, value in OPTIONS.items() if key.startswith(('model', 'train.steps'))}
    sizes = {key: OPTIONS[key] for key in ('data.pieces', 'data.source', 'data.name')}
    translator = resolve(config_dict({**shared, **sizes, 'model.vocab_size': 409}))
    shapes = [models.parameter_shapes(config) for config in (config_of(), translator)]
    assert shapes[0] == shapes[1]
