"""Masked words: hidden pieces, recomputed by their definition; the loss in numpy; verbs; resuming."""

import dataclasses
import io
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest
import sentencepiece
import toys
from etils import epath

import transformer
from transformer import config as configs
from transformer.actions import data as run_data
from transformer.actions import train as action
from transformer.cli import main as run
from transformer.config import ConfigError, config_dict, resolve
from transformer.config.tasks import Masked
from transformer.data import vocabulary
from transformer.data.fields import Gap
from transformer.data.generated.grammar.articles import article_gaps
from transformer.data.tokenizers import foreign, kinds
from transformer.data.tokenizers.base import BLANK
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.data.tokenizers.listed import PiecesTokenizer
from transformer.nn import cost
from transformer.runs import restore
from transformer.runs.workdir import Run
from transformer.tasks import gaps, sums_of, task_of
from transformer.tasks.gaps import GAP
from transformer.tasks.masked import masking, predict, task
from transformer.tasks.masked.masking import MASK, hide
from transformer.tokens import EOS, Tokens
from transformer.training.step import initial_state

OPTIONS = {
    'train.task': 'masked',
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'model.positions': 'learned',
    'model.max_len': 40,
    'model.activation': 'gelu',
    'model.vocab_size': 400,
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
    'train.steps': 4,
    'train.warmup_steps': 4,
    'train.checkpoint_every': 2,
    'train.eval_every': 4,
    'train.log_every': 1,
}


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> pathlib.Path:
    """Returns the work directory of a model."""
    return tmp_path_factory.mktemp('masked') / 'run'


@pytest.fixture(scope='module', autouse=True)
def _few_gaps():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaps, 'MOST', 20)
        yield


@pytest.fixture(scope='module', autouse=True)
def finished(trained, _few_gaps) -> action.Finished:
    return action.run_training(resolve(config_dict(OPTIONS)), epath.Path(trained), '')


def rows_of(rng, rows=400, width=40) -> Tokens:
    """Draws rows of one text each, with its end; the last one is empty."""
    lengths = rng.integers(2, width + 1, rows)
    lengths[-1] = 0
    real = np.arange(width) < lengths[:, None]
    tokens = np.where(real, rng.integers(3, 400, (rows, width)), 0)
    tokens[np.arange(rows - 1), lengths[:-1] - 1] = EOS
    positions = np.where(real, np.arange(width), 0)
    return Tokens(*(x.astype(np.int32) for x in (tokens, real, positions)))


def bits_of(rng, rows: Tokens) -> np.ndarray:
    shape = (len(rows.tokens), 3, rows.tokens.shape[1])
    return rng.integers(0, 2**64, shape, dtype=np.uint64)


def test_what_is_hidden():
    """15 % of each row's pieces, never an end; of these 80 % masked, 10 % random, 10 % as they were."""
    rng = np.random.default_rng(0)
    rows = rows_of(rng)
    hidden = hide(rows, Masked(), np.arange(3, 400), bits_of(rng, rows))
    outcomes = []
    for r, (before, after) in enumerate(zip(rows.tokens, hidden['text'].tokens, strict=True)):
        pieces = [i for i, token in enumerate(before) if rows.segments[r, i] and token != EOS]
        chosen = hidden['places'][r][hidden['weight'][r] > 0].tolist()
        assert len(chosen) == len(set(chosen)) == (max(1, np.rint(0.15 * len(pieces))) if pieces else 0)
        assert set(chosen) <= set(pieces)
        np.testing.assert_array_equal(hidden['target'][r][: len(chosen)], before[chosen])
        unchanged = [i for i in range(len(before)) if i not in chosen]
        np.testing.assert_array_equal(after[unchanged], before[unchanged])
        outcomes += [
            'masked' if after[i] == MASK else 'kept' if after[i] == before[i] else 'random' for i in chosen
        ]
    shares = {name: outcomes.count(name) / len(outcomes) for name in ('masked', 'random', 'kept')}
    expected = {'masked': 0.8, 'random': 0.1, 'kept': 0.1}
    # Four standard deviations of a share.
    for name, share in expected.items():
        assert abs(shares[name] - share) < 4 * (share * (1 - share) / len(outcomes)) ** 0.5
    assert (hidden['text'].tokens[:, :][hidden['text'].segments > 0] >= EOS).all()


def test_special_pieces_are_never_hidden_or_drawn():
    """Pieces 3 and 7 are special; a row of special pieces alone has no weight."""
    rng = np.random.default_rng(1)
    tokens = rng.integers(3, 9, (200, 12))
    tokens[:, 0], tokens[0], tokens[:, -1] = 3, 3, EOS
    rows = Tokens(tokens, np.ones_like(tokens), np.broadcast_to(np.arange(12), tokens.shape))
    hidden = hide(rows, Masked(0.5), np.array([4, 5, 6, 8]), bits_of(rng, rows))
    chosen = hidden['weight'] > 0
    assert set(hidden['target'][chosen].tolist()) == {4, 5, 6, 8}
    assert not hidden['weight'][0].any() and chosen[1:].any(axis=1).all()
    changed = hidden['text'].tokens[hidden['text'].tokens != tokens]
    assert set(changed.tolist()) == {MASK, 4, 5, 6, 8}


def test_the_share_of_all_pieces_and_its_limit():
    """BERT's: min(5, max(1, round(0.15 n))) of n pieces, ends among them, if so many can be hidden."""
    rng = np.random.default_rng(2)
    rows = rows_of(rng, 300, 48)
    tokens = rows.tokens.copy()
    # The first piece of a row, and in short rows nearly all, are special.
    tokens[:, 0] = np.where(rows.segments[:, 0], 3, 0)
    tokens[:20, :8] = np.where(rows.segments[:20, :8], 3, 0)
    rows = rows._replace(tokens=tokens)
    hidden = hide(rows, Masked(of='all', most=5), np.arange(4, 400), bits_of(rng, rows))
    assert hidden['places'].shape == (300, 5)
    counts = []
    for before, segments, weight in zip(rows.tokens, rows.segments, hidden['weight'], strict=True):
        n, available = int(segments.sum()), int((before >= 4).sum())
        assert weight.sum() == min(5, max(1, round(0.15 * n)), available)
        counts.append((n, available))
    assert min(counts)[1] == 0 and max(counts)[0] > 36


def test_whole_words():
    """All pieces of a word or none; a word for which no room is left is passed over, as in BERT's code."""
    rng = np.random.default_rng(3)
    rows = rows_of(rng, 300)
    begins = np.arange(400) % 3 == 0  # pieces 3, 6, 9, ...
    bits = bits_of(rng, rows)
    hidden = hide(rows, Masked(), np.arange(3, 400), bits, begins)
    full = 0
    for r, (tokens, segments) in enumerate(zip(rows.tokens, rows.segments, strict=True)):
        places = [i for i, token in enumerate(tokens) if segments[i] and token != EOS]
        words = []
        for i in places:
            if begins[tokens[i]] or not words:
                words.append([])
            words[-1].append(i)
        room = max(1, round(0.15 * len(places))) if places else 0
        expected = []
        for word in sorted(words, key=lambda word: bits[r, 0, word[0]]):
            if len(expected) + len(word) <= room:
                expected += word
        assert hidden['places'][r][hidden['weight'][r] > 0].tolist() == sorted(expected)
        full += len(expected) == room
    assert full > 200


def test_masks_differ_by_step_and_row_in_training_and_are_fixed_on_dev(finished):
    config = resolve(config_dict(OPTIONS))
    dataset = finished.dataset
    batches = {split: task_of(config).batches(config, dataset, split) for split in ('train', 'dev')}
    train, dev = batches['train'], batches['dev']
    first, epoch = train.batch(0), train.steps_per_epoch
    np.testing.assert_array_equal(train.batch(0)['places'], first['places'])
    assert not np.array_equal(train.batch(epoch)['places'], first['places'])
    assert not np.array_equal(first['places'][0], first['places'][1])
    for name, part in train.batch(0, slice(4, 8)).items():
        for found, whole in zip(jax.tree.leaves(part), jax.tree.leaves(first[name]), strict=True):
            np.testing.assert_array_equal(found, whole[4:8])
    again = task_of(config).batches(config, dataset, 'dev')
    np.testing.assert_array_equal(again.batch(1)['target'], dev.batch(1)['target'])


def random_batch(rows=16):
    rng = np.random.default_rng(1)
    texts = rows_of(rng, rows)
    return hide(texts, Masked(), np.arange(3, 400), bits_of(rng, texts))


def test_the_loss_is_that_of_the_hidden_pieces_alone():
    config = resolve(config_dict(OPTIONS))
    params = initial_state(config).params
    batch = random_batch()
    logits = np.float64(programs.apply(config, params, {'text': batch['text']}))
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = [
        (r, place, target)
        for r in range(len(batch['weight']))
        for place, target, weight in zip(
            batch['places'][r], batch['target'][r], batch['weight'][r], strict=True
        )
        if weight
    ]
    found = jax.jit(sums_of(config))(params, jax.tree.map(lambda x: jnp.asarray(x)[None], batch), None)
    assert float(found['weight']) == len(chosen)
    assert float(found['loss']) == pytest.approx(-sum(logp[r, p, t] for r, p, t in chosen), rel=1e-5)
    assert float(found['correct']) == sum(logp[r, p].argmax() == t for r, p, t in chosen)


def test_sums_add_up_over_microbatches():
    together, alone = toys.sums_of_microbatches(resolve(config_dict(OPTIONS)), random_batch())
    assert together == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize('rate', [0.15, 0.5])
def test_flops_count_the_softmax_at_hidden_pieces(rate):
    """Two for each entry of a matrix at each position, and for attention; three passes; 16 rows."""
    config = resolve(config_dict(OPTIONS | {'masked.rate': rate}))
    width, length, inner, pieces = 16, 40, 24, 400
    hidden = {0.15: 6, 0.5: 20}[rate]
    layers = length * (4 * width**2 + 2 * width * inner) + 2 * length**2 * width
    head = hidden * (width**2 + width * pieces)
    assert cost.update_flops(config) == 3 * 16 * 2 * (layers + head)


BERT = {
    'model.token_types': 2,
    'model.norm_embedding': True,
    'model.scale_embeddings': False,
    'model.softmax_bias': True,
}


@pytest.mark.parametrize('changes', [{}, BERT], ids=['ours', 'bert'])
def test_padding_packing_and_order_change_nothing(changes):
    config = resolve(config_dict(OPTIONS | changes))
    params = initial_state(config).params
    apply = lambda *parts: programs.apply(config, params, {'text': Tokens(*parts)})
    rng = np.random.default_rng(2)
    one, two = rng.integers(3, 400, (1, 5)), rng.integers(3, 400, (1, 4))
    ones, place = np.ones_like, lambda x: np.arange(x.shape[1])[None]
    alone = [apply(x, ones(x), place(x))[0] for x in (one, two)]
    packed = apply(
        np.concatenate([one, two, [[0, 0]]], axis=1),
        np.array([[1] * 5 + [2] * 4 + [0] * 2]),
        np.array([[*range(5), *range(4), 0, 0]]),
    )[0]
    np.testing.assert_allclose(packed[:5], alone[0], atol=2e-5)
    np.testing.assert_allclose(packed[5:9], alone[1], atol=2e-5)
    both = np.concatenate([one[:, :4], two])
    turned = apply(both[::-1], ones(both), np.concatenate([place(two)] * 2))
    np.testing.assert_allclose(
        turned[::-1], apply(both, ones(both), np.concatenate([place(two)] * 2)), atol=2e-5
    )


def test_a_killed_training_ends_as_one_that_was_not(trained, tmp_path):
    result = toys.resumed(trained, tmp_path / 'run', 2, evaluate=False)
    whole = json.loads((trained / 'result.json').read_text())
    assert result['params_sha256'] == whole['params_sha256']
    assert set(whole['scores']['dev']) >= {'loss', 'perplexity', 'accuracy', 'gaps'}


def test_gaps_are_articles_that_the_sentence_decides():
    text = 'Der Bauer sah einen Hund.'
    found = article_gaps(text, '[MASK]')
    assert found[0] == Gap('[MASK] Bauer sah einen Hund.', ('Der', 'Die', 'Das', 'Den', 'Dem', 'Des'), 'Der')
    assert [gap.right for gap in found] == ['Der', 'einen']
    filled = [(found[0], 'Der'), (found[1], 'einen'), (found[1], 'ein')]
    assert gaps.score(filled) == {'gaps': {'accuracy': 2 / 3, 'count': 3}} and gaps.score([]) == {}
    assert gaps.complete(filled) == [text, text, 'Der Bauer sah ein Hund.']
    # "die Kinder" may be subject or object, singular or plural only by its article: not every gap is decided.
    assert not article_gaps('Das ist kein Satz der Grammatik.', '[MASK]')


def test_a_model_that_learned_nothing_is_diagnosed(trained, capfd):
    assert run.main(['run.py', 'diagnose', f'--workdir={trained}']) == 0
    out = capfd.readouterr().out
    assert 'the frequencies of pieces alone' in out and 'training examples' in out


def test_fill_and_embed(trained):
    model = transformer.load(trained)
    lines = ['[MASK] Bauer schläft.', 'kein Platz', 'Der [MASK].', '']
    found = model.fill(lines, best=3)
    assert [len(words) for words in found] == [3, 3, 3, 3]
    assert found[1] == found[3] == [('', 0.0)] * 3
    probabilities = [word.score for word in found[0]]
    assert probabilities == sorted(probabilities, reverse=True) and 0 < sum(probabilities) <= 1
    vectors = model.embed(['Der Hund schläft.', 'Ja.'])
    assert vectors.shape == (2, 16)
    # Alone or among others, a text has the same vector.
    np.testing.assert_allclose(model.embed(['Ja.'])[0], vectors[1], atol=1e-5)
    assert not np.allclose(vectors, model.embed(['Der Hund schläft.', 'Ja.'], pool='first'))
    with pytest.raises(ConfigError, match='pool'):
        model.embed(['Ja.'], pool='last')


@pytest.fixture(params=['bpe', 'byte_bpe'])
def tokenized(trained, request):
    """Returns the model with a tokenizer that was learned from the texts of dev, and these texts."""
    model, dataset = restore.load(Run.open(trained))[0], Run.open(trained).copied_data()
    texts = dataset.texts('dev')['text']
    tokenizer = kinds.read(vocabulary.train([*texts, *(f'({text}' for text in texts)], 400, request.param))
    return model._replace(codecs={'text': tokenizer}), dataset


def likeliest(pieces: list[int]) -> np.ndarray:
    """Returns log p of 400 pieces, of which some are likelier, the first ones most."""
    logp = np.full(400, -9.0, np.float32)
    logp[pieces] = -np.arange(1, len(pieces) + 1) / 100
    return logp


def test_a_form_in_a_gap_is_the_piece_that_it_has_there(tokenized, monkeypatch):
    model, dataset = tokenized

    def run(output, trained, rows, numbers, on_done, choose):
        for number, (line, row) in enumerate(zip(numbers, rows, strict=True)):
            text = dataset.texts('dev')['text'][line]
            [piece] = [a for a, b in zip(model.codecs['text'].encode(text), row, strict=True) if a != b]
            yield choose(number, likeliest([piece]))

    monkeypatch.setattr(task, 'run', run)
    filled = task.fill_gaps(model, dataset, 'dev', 60)
    assert len(filled) == 60 and all(form == gap.right for gap, form in filled)
    assert {'den', 'der'} <= {form for _, form in filled}


@pytest.mark.parametrize('text', ['[MASK] Bauer schläft.', 'Der Hund sieht [MASK] Bauer.', '([MASK] Bauer'])
def test_the_candidates_are_the_pieces_of_the_words_that_could_be_there(tokenized, monkeypatch, text):
    model, _ = tokenized
    codec = model.codecs['text']
    hidden = predict.gapped(model, text)
    place = hidden.index(MASK)
    there = [codec.encode(text.replace(GAP, word))[place] for word in ('der', 'sieht', 'Bauer')]
    choose_all = lambda output, trained, rows, numbers, on_done, choose: [choose(0, likeliest(there))]
    monkeypatch.setattr(predict, 'run', choose_all)
    [words] = predict.fill(model, [text], best=3)
    assert [word.text for word in words] == [p.removeprefix(BLANK) for p in codec.pieces(there)]


def test_an_unknown_piece_is_no_gap(trained):
    model = transformer.load(trained).trained
    # It cuts [MASK] into letters, so "?" is the only unknown piece of the text.
    letters = PiecesTokenizer.from_pieces(['<pad>', '</s>', '<unk>', 'a', *'[MASK]'], '', end=True)
    with pytest.raises(ConfigError, match='characters'):
        predict.gapped(model._replace(codecs={'text': letters}), 'a?[MASK]')


def test_a_line_that_cannot_be_filled_does_not_end_the_others(trained, monkeypatch, caplog):
    model, gapped = transformer.load(trained), predict.gapped

    def some(trained, text):
        if 'zebra' in text:
            raise ConfigError('no')
        return gapped(trained, text)

    monkeypatch.setattr(predict, 'gapped', some)
    with caplog.at_level('WARNING', logger='absl'):
        found = model.fill(['Der [MASK] schläft.', 'zebra [MASK]', 'Die [MASK] schläft.'])
    assert [bool(best.text) for [best] in found] == [True, False, True]
    assert 'line 2: no' in caplog.text


def test_a_tokenizer_without_bytes_is_refused(trained, tmp_path):
    """As `spm_train` makes it by default: an unknown character would be the hidden piece."""
    data, config = run_data.of_run(Run.open(trained)), Run.open(trained).config
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(['der Hund schläft'] * 9), model_writer=made, vocab_size=18, minloglevel=2
    )
    (tmp_path / 'own.model').write_bytes(made.getvalue())
    own = dataclasses.replace(data, codecs={'text': foreign.read_foreign(tmp_path / 'own.model')})
    with pytest.raises(ConfigError, match='^data.tokenizer: .*byte_fallback'):
        task.batches(config, own, 'train')
    # An earlier training can be evaluated.
    assert task.batches(config, own, 'dev').steps_per_epoch


def test_fill_needs_pieces_that_begin_words(trained):
    model, _ = restore.load(Run.open(trained))
    with pytest.raises(ConfigError, match='fill'):
        predict.fill(model._replace(codecs={'text': ByteTokenizer()}), ['Der [MASK].'])


def test_the_commands(trained, monkeypatch, capfd, tmp_path):
    def call(*argv: str) -> list[str]:
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO('Der [MASK] schläft.\n'.encode())))
        capfd.readouterr()
        assert run.main(['run.py', *argv, f'--workdir={trained}']) == 0
        return capfd.readouterr().out.splitlines()

    words = call('fill', '--nbest=2', '--scores')
    assert [line.split('\t')[0] for line in words] == ['0', '0'] and len(words[0].split('\t')) == 3
    [vector] = call('embed', '--pool=first')
    assert json.loads(vector)['line'] == 0 and len(json.loads(vector)['vector']) == 16
    assert call('embed', '--pool=first', f'--output={tmp_path / "x.npy"}') == []
    array = np.load(tmp_path / 'x.npy')
    assert array.shape == (1, 16) and array.dtype == np.float32
    np.testing.assert_allclose(array[0], json.loads(vector)['vector'], rtol=1e-6)


def test_a_tokenizer_of_words_has_no_piece_for_what_is_hidden():
    config = resolve(config_dict(OPTIONS | {'data.tokenizer': 'words'}))
    with pytest.raises(ConfigError, match='^data.tokenizer=words'):
        task_of(config).reading(config)


def test_options_of_the_task_mean_nothing_elsewhere():
    with pytest.raises(ConfigError, match=r'masked\.rate'):
        resolve(config_dict({'masked.rate': 0.3}))
    assert configs.flatten(resolve(config_dict(OPTIONS | {'masked.rate': 0.3})))['masked.rate'] == 0.3
    assert pytest.approx(0.9) == masking.MASKED + masking.RANDOM
