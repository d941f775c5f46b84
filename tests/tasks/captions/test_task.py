"""Captions: batches, loss and search against their definitions, judged captions, the command, warm starts."""

import json
import pathlib
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import PIL.Image
import programs
import pytest
import toys
from etils import epath

import transformer
from transformer import parallel, tasks
from transformer.actions import train as action
from transformer.cli import main as run
from transformer.cli import streams
from transformer.config import ConfigError, config_dict, image_tower, resolve
from transformer.data.arrays import Dense, dtype_of, ragged
from transformer.data.dataset import Split
from transformer.data.generated.scenes import captions
from transformer.data.rows import padded
from transformer.data.sources import images
from transformer.data.text_input import Given
from transformer.inference.attention import attention_weights, one_row, words_of
from transformer.nn import models
from transformer.runs import restore, warm_start
from transformer.runs.workdir import Run
from transformer.tasks import sums_of, task_of
from transformer.tasks.captions import captioner, draw, scores
from transformer.tasks.captions.captioner import caption
from transformer.tasks.images import looks as drawing
from transformer.tokens import EOS, Tokens
from transformer.training.step import gradients, initial_state

OPTIONS = {
    'train.task': 'captions',
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'image_model.d_model': 12,
    'image_model.positions': 'learned',
    'images.patch': 16,
    'data.source': 'scenes',
    'data.name': None,
    'data.language': 'de',
    'data.train': 'train[:48]',
    'data.dev': 'dev[:8]',
    'data.test': 'test[:8]',
    'data.tokenizer': 'words',
    'data.pieces': 60,
    'data.batching': 'padded',
    'data.max_len': 40,
    'data.batch_tokens': 640,
    'train.steps': 4,
    'train.warmup_steps': 4,
    'train.checkpoint_every': 2,
    'train.eval_every': 4,
    'train.watch_every': 4,
    'train.log_every': 1,
    'decode.beam': 2,
    'decode.extra_len': 12,
}
CONFIG = resolve(config_dict(OPTIONS))
# Options that no recurrent model has.
TRANSFORMERS = {'model.d_ff', 'model.h', 'image_model.d_model', 'image_model.positions'}


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('captions') / 'run'
    action.run_training(CONFIG, epath.Path(folder), '')
    return folder


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    return tasks.prepare(CONFIG, tmp_path_factory.mktemp('cache'))


@pytest.fixture(scope='module')
def model(trained) -> restore.Trained:
    """Loads the model with parameters that make captions of different images differ."""
    loaded, _ = restore.load(Run.open(trained))
    rng = np.random.default_rng(3)
    drawn = jax.tree.map(lambda x: x + rng.normal(size=x.shape).astype(np.float32) * 0.5, loaded.params)
    return loaded._replace(params=drawn)


def test_every_picture_has_its_caption(dataset):
    batches = task_of(CONFIG).batches(CONFIG, dataset, 'train')
    assert (batches.shapes, batches.steps_per_epoch, batches.rows(0)) == (1, 3, 16)
    codec, seen = dataset.codecs['text'], []
    right = {
        p.tobytes(): captions.caption('train', i, 'de') for i, p in enumerate(captions.scenes('train', 0, 48))
    }
    for step in range(3):
        batch = batches.batch(step)
        assert batch['image'].shape == (16, 1, 32, 32, 3)
        for image, row, segments in zip(
            batch['image'], batch['text'].tokens, batch['text'].segments, strict=True
        ):
            pieces = row[segments > 0].tolist()
            assert codec.encode(right[image.tobytes()]) == pieces and pieces[-1] == EOS
            seen.append(image.tobytes())
    assert sorted(seen) == sorted(right)


def logp_of(model, images: np.ndarray, text: Tokens) -> np.ndarray:
    """Computes log p of every piece, 0 for padding, from the logits of the full pass."""
    logits = np.float64(programs.apply(model.config, model.params, {'image': images, 'text': text}))
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    gold = np.take_along_axis(logp, text.tokens[..., None], axis=-1)[..., 0]
    return np.where(text.segments > 0, gold, 0.0)


def test_the_loss_in_numpy(model, dataset):
    batch = task_of(CONFIG).batches(CONFIG, dataset, 'train').batch(0)
    rows = jax.tree.map(lambda x: jnp.asarray(x)[None], batch)
    found = jax.jit(sums_of(CONFIG))(model.params, rows, None)
    assert float(found['weight']) == (batch['text'].segments > 0).sum()
    expected = -logp_of(model, batch['image'], batch['text']).sum()
    assert float(found['loss']) == pytest.approx(expected, rel=1e-5)


def test_scores_of_a_search_in_the_full_pass(model, dataset):
    """Without a length penalty they are log p, and neither they nor samples depend on other images."""
    images, codec = dataset.splits['dev'].fields['image'].values, dataset.codecs['text']
    best, greedy = caption(model, images, best=2, alpha=0.0), caption(model, images, method='greedy')
    assert len({of_image[0].text for of_image in best}) > 1
    longest = CONFIG.decode.extra_len
    for rank in range(2):
        # A caption that was cut has no end.
        pieces = [codec.encode(of_image[rank].text)[:longest] for of_image in best]
        expected = logp_of(model, images[:, None], padded(pieces, (8, longest))).sum(axis=1)
        np.testing.assert_allclose([of_image[rank].score for of_image in best], expected, atol=1e-3)
    for (first, second), [likeliest] in zip(best, greedy, strict=True):
        assert first.score >= max(second.score, likeliest.score - 1e-4) and first.text != second.text
    alone = caption(model, images[1:2], best=2, alpha=0.0)
    assert [one.text for one in alone[0]] == [one.text for one in best[1]]
    samples = caption(model, images[:2], method='sample', samples=3, seed=5)
    again = caption(model, images[1:2], method='sample', samples=3, seed=5, first=1)
    assert [one.text for one in samples[1]] == [one.text for one in again[0]]
    assert len({one.text for one in samples[0]}) > 1


def given(dataset, images: np.ndarray, texts: list[str]) -> Given:
    codec = dataset.codecs['text']
    split = Split({'image': Dense(images), 'text': ragged(codec.encode_batch(texts), dtype_of(codec.size))})
    return Given(epath.Path('.'), dataset.codecs, {'dev': split}, {}, {'text': texts}, False)


def test_an_image_with_several_captions_has_one_output(model, dataset):
    images, texts = dataset.splits['dev'].fields['image'].values[:3], dataset.texts('dev')['text']
    several = given(dataset, images[[0, 1, 0, 2]], [texts[0], texts[1], texts[4], texts[2]])
    scored = task_of(CONFIG).evaluate(model, several, 'dev')
    lines = [best.text for best, *_ in caption(model, images)]
    assert scored.lines == [lines[0], lines[1], lines[0], lines[2]] and scored.scores['images'] == 3
    expected = scores.score(lines, [[texts[0], texts[4]], [texts[1]], [texts[2]]], 'de')
    assert {name: scored.scores[name] for name in expected} == expected


def test_captions_are_judged(model, dataset, monkeypatch):
    """The source's own captions are true; those of other pictures hardly ever are."""
    texts, images = dataset.texts('dev')['text'], dataset.splits['dev'].fields['image'].values
    judged = [captions.holds(texts[-1 - i], captions.facts('dev', i), 'de') is True for i in range(8)]
    for shown, share in ((texts, 1.0), (texts[::-1], sum(judged) / 8), (['kein Satz'] * 8, 0.0)):
        answers = [[transformer.tasks.contract.Hypothesis(text, 0.0)] for text in shown]
        monkeypatch.setattr('transformer.tasks.captions.task.caption', lambda *_, a=answers, **__: a)
        scored = task_of(CONFIG).evaluate(model, dataset, 'dev')
        assert scored.scores['facts']['score'] == share
    assert len(images) == 8 and sum(judged) < 4


def test_gradients_do_not_depend_on_devices_and_accumulation(monkeypatch, dataset):
    def of(devices: int, accumulate: int):
        chosen = jax.devices()[:devices]
        monkeypatch.setattr(parallel, 'devices', lambda: chosen)
        changed = resolve(config_dict(OPTIONS | {'train.accumulate': accumulate}))

        def step(params, batch):
            return parallel.sum_over_devices(
                gradients(changed, sums_of(changed), params, batch, jnp.int32(3))
            )

        batch = task_of(CONFIG).batches(CONFIG, dataset, 'train').batch(1)
        batch = parallel.to_devices(batch, changed.train.microbatches)
        params = initial_state(changed).params
        return jax.device_get(parallel.map_sums(step)(parallel.replicate(params), batch))

    expected, same = of(1, 1)
    norm = np.sqrt(sum(np.square(x).sum() for x in jax.tree.leaves(expected)))
    found, sums = of(2, 2)
    assert float(sums['loss']) == pytest.approx(float(same['loss']), rel=1e-5)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.linalg.norm(ours - theirs) <= 1e-5 * norm


def test_a_killed_training_ends_as_one_that_was_not(trained, tmp_path):
    result = toys.resumed(trained, tmp_path / 'run', 2, evaluate=False)
    assert result['params_sha256'] == json.loads((trained / 'result.json').read_text())['params_sha256']
    assert len((trained / 'translations' / 'test.latest.txt').read_text().splitlines()) == 8
    last = [json.loads(line) for line in (trained / 'metrics.jsonl').read_text().splitlines()][-1]
    assert {'dev_loss', 'dev_facts', 'dev_cider', 'dev_bleu'} <= last.keys()


def test_caption(trained, tmp_path, capfd):
    rng = np.random.default_rng(4)
    files = [str(tmp_path / name) for name in ('a.png', 'b.jpg')]
    for file in files:
        PIL.Image.fromarray(rng.integers(0, 256, (40, 30, 3)).astype(np.uint8)).save(file)
    call = ['run.py', 'caption', f'--workdir={trained}', '--extra_len=4', *files]
    assert run.main([*call, '--nbest=2', '--scores', f'--draw={tmp_path / "drawn"}']) == 0
    rows = [line.split('\t') for line in capfd.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == [files[0]] * 2 + [files[1]] * 2
    loaded = transformer.load(trained)
    found = [one for answers in loaded.caption(files, best=2, extra_len=4) for one in answers]
    assert [(row[1], float(row[2])) for row in rows] == [(one.text, round(one.score, 4)) for one in found]
    assert sorted(path.name for path in (tmp_path / 'drawn').iterdir()) == [
        '1-a.png', '2-b.png', 'captions.html',
    ]  # fmt: skip
    assert run.main([*call, '--json']) == 0
    objects = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(one['file'], one['text']) for one in objects] == [(files[0], rows[0][1]), (files[1], rows[2][1])]


@pytest.mark.parametrize('lacking', ['attention', 'matplotlib'])
def test_a_drawing_that_is_impossible_is_refused_before_the_search(trained, tmp_path, monkeypatch, lacking):
    loaded = restore.load(Run.open(trained))[0]
    if lacking == 'attention':
        of_recurrent = {key: value for key, value in OPTIONS.items() if key not in TRANSFORMERS}
        changes = {'model.kind': 'recurrent', 'model.alignment': 'none'}
        loaded = loaded._replace(config=resolve(config_dict(of_recurrent | changes)))
    else:
        monkeypatch.setitem(sys.modules, 'matplotlib', None)
    monkeypatch.setattr(captioner.generate, 'search', lambda *how: 1 / 0)
    pixels = np.zeros((1, *captioner.image_type(loaded.config).shape), np.uint8)
    with pytest.raises(
        ConfigError, match=f'^--draw.*{"figures" if lacking == "matplotlib" else "alignment"}'
    ):
        captioner.caption(loaded, pixels, draw=str(tmp_path / 'drawn'))


def test_captions_are_written_in_parts(trained, tmp_path, capfd, caplog, monkeypatch):
    """A part is written before the next is read; a file that cannot be read only lacks its own answer."""
    rng, shown = np.random.default_rng(5), []
    files = [str(tmp_path / f'{number}.png') for number in range(12)]
    for file in files:
        PIL.Image.fromarray(rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)).save(file)
    damaged = {files[3], files[9], files[10]}
    for file in damaged:
        pathlib.Path(file).write_bytes(b'no image')
    read = images.read
    monkeypatch.setattr(streams, 'FILES', 1)  # for each of eight devices
    show = lambda path: shown.append((str(path), capfd.readouterr().out))
    monkeypatch.setattr(images, 'read', lambda path, size: show(path) or read(path, size))
    call = ['run.py', 'caption', f'--workdir={trained}', '--extra_len=4', *files]
    assert run.main(call) == 2
    captured = capfd.readouterr()
    parts = [out for _, out in shown if out] + [captured.out]
    readable = [file for file in files if file not in damaged]
    found = transformer.load(trained).caption(readable, extra_len=4)
    lines = [f'{file}\t{best.text}\n' for file, [best] in zip(readable, found, strict=True)]
    assert parts == [''.join(lines[:7]), ''.join(lines[7:])]
    assert next(file for file, out in shown if out) == files[8]
    assert [message.split(': ')[0] for message in caplog.messages] == sorted(damaged, key=files.index)
    [error] = captured.err.splitlines()
    assert error.startswith('error: caption: 3 of 12 files ')
    # The page has all pictures.
    assert run.main([*call, f'--draw={tmp_path / "drawn"}']) == 2
    capfd.readouterr()
    assert len([*(tmp_path / 'drawn').iterdir()]) == len(readable) + 1
    assert (tmp_path / 'drawn' / 'captions.html').read_text().count('"words"') == len(readable)


def test_where_the_decoder_looks(tmp_path):
    """Attention to the patches and to a class token adds up to 1; a word has the mean of its pieces."""
    looks = []
    for pool in ('mean', 'token'):
        changes = {'data.tokenizer': 'bpe', 'data.pieces': 330, 'images.pool': pool}
        changes |= {'data.max_len': 200, 'data.batch_tokens': 1600}
        config = resolve(config_dict(OPTIONS | changes))
        data = tasks.prepare(config, tmp_path)
        params = programs.initialize(config, jax.random.key(0))
        image, codec = data.splits['dev'].fields['image'].values[0], data.codecs['text']
        text = 'Ein grünes Kreuz, rot.'
        looks.append(draw.look(restore.Trained(config, params, data.codecs), image, text))
        assert looks[-1].words == ['Ein', 'grünes', 'Kreuz', ',', 'rot', '.']
        batch = {'image': image[None, None], 'text': one_row(codec.encode(text))}
        [heads] = attention_weights(config, params, batch)['decoder/cross_attention']
        assert heads.shape == (2, len(codec.encode(text)), 4 + (pool == 'token'))
        of_pieces = heads.mean(axis=0)[:, -4:]
        np.testing.assert_allclose(looks[-1].weights[-1].ravel(), of_pieces[-2], atol=1e-6)
        words = words_of(codec.pieces(codec.encode(text)[:-1]))
        longest = max(range(len(words)), key=lambda i: len(words[i][1]))
        expected = of_pieces[words[longest][1]].mean(axis=0)
        np.testing.assert_allclose(looks[-1].weights[longest].ravel(), expected, atol=1e-6)
        assert len(words[longest][1]) > 1
    np.testing.assert_allclose(looks[0].weights.sum((1, 2)), 1, atol=1e-5)
    assert (looks[1].weights.sum((1, 2)) < 1).all()
    assert len(drawing.draw(looks).axes) == 2 * 7


@pytest.mark.parametrize('width', [390, 1280])
def test_the_page_darkens_the_picture_for_a_word(tmp_path, opened, width):
    weights = np.array([[[0.2, 0.4], [0.1, 0.0]], [[0.0, 0.1], [0.1, 0.3]]], np.float32)
    looks = [
        drawing.Look(np.full((4, 4, channels), 200, np.uint8), words, weights)
        for channels, words in ((3, ['ein', '</script>']), (1, ['W' * 60, 'zwei']))
    ]
    (tmp_path / 'page.html').write_text(draw.page(looks))
    page = opened(tmp_path / 'page.html', width, 800)
    shades = (
        'canvas => [...canvas.getContext("2d").getImageData(0, 0, 4, 4).data].filter((_, i) => i % 4 === 0)'
    )
    canvas = page.locator('canvas').first
    shown = lambda: np.array(canvas.evaluate(shades)).reshape(4, 4)
    assert (shown() == 200).all() and page.locator('canvas').count() == 2
    for number, word in enumerate(looks[0].words):
        button = page.get_by_role('button', name=word, exact=True)
        button.focus()
        page.keyboard.press('Enter')
        light = 1 - draw.DARKEST * (1 - weights[number] / weights[number].max())
        np.testing.assert_allclose(shown(), 200 * light.repeat(2, 0).repeat(2, 1), atol=1)
        assert button.get_attribute('aria-pressed') == 'true'
    button.click()
    page.mouse.move(0, 0)
    assert (shown() == 200).all()
    page.get_by_role('button', name='ein', exact=True).hover()
    assert shown()[3, 3] == pytest.approx(200 * (1 - draw.DARKEST), abs=1)
    assert page.evaluate('document.documentElement.scrollWidth') <= width
    side_by_side = canvas.bounding_box()['x'] + canvas.bounding_box()['width'] < button.bounding_box()['x']
    assert side_by_side == (width == 1280)


def test_a_failed_call_leaves_no_folder(trained, tmp_path, capfd):
    (tmp_path / 'c.png').write_bytes(b'no image')
    call = ['run.py', 'caption', f'--workdir={trained}', str(tmp_path / 'c.png')]
    for folder in (tmp_path / 'new' / 'folder', tmp_path / 'c.png', ''):
        assert run.main([*call, f'--draw={folder}']) == 2
        assert ('--draw=' in capfd.readouterr().err) == (folder != tmp_path / 'new' / 'folder')
    assert [path.name for path in tmp_path.iterdir()] == ['c.png']


def test_several_captions_of_a_greedy_config(trained, tmp_path, capfd):
    folder = pathlib.Path(shutil.copytree(trained, tmp_path / 'greedy'))
    config = json.loads((folder / 'config.json').read_text())
    config['decode']['method'] = 'greedy'
    (folder / 'config.json').write_text(json.dumps(config))
    PIL.Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / 'a.png')
    call = ['run.py', 'caption', f'--workdir={folder}', '--nbest=2', str(tmp_path / 'a.png')]
    assert run.main(call) == 2
    assert run.main([*call, '--method=beam']) == 0
    assert len(capfd.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ('images', 'named'),
    [
        ('x.png', "images='x.png'"),
        (np.zeros((1, 9, 9, 3), np.uint8), r'images: .*\(1, 9, 9, 3\)'),
        (np.zeros((1, 32, 32, 3)), 'images: float64'),
    ],
)
def test_images_that_are_none(model, images, named):
    with pytest.raises(ConfigError, match=named):
        caption(model, images)


def test_an_ensemble_reads_images_in_one_way(trained, tmp_path):
    other = tmp_path / 'other'
    shutil.copytree(trained, other)
    config = json.loads((other / 'config.json').read_text())
    config['images']['sinusoids'] = not config['images']['sinusoids']
    (other / 'config.json').write_text(json.dumps(config))
    with pytest.raises(ConfigError, match='images.sinusoids'):
        restore.load(Run.open(trained), f'latest,{other}:latest')


@pytest.mark.parametrize(('norm_final', 'of_images'), [(None, True), (False, False)])
def test_the_last_norm_of_the_image_encoder(norm_final, of_images):
    changes = {'model.norm': 'pre', 'model.norm_final': norm_final, 'image_model.norm': 'pre'}
    assert image_tower(resolve(config_dict({**OPTIONS, **changes}))).norm_final is of_images


def test_an_ensemble_is_not_drawn(model):
    with pytest.raises(ConfigError, match='draw'):
        caption(model._replace(params=(model.params,) * 2), [], draw='folder')


@pytest.mark.parametrize(
    ('place', 'of'),
    [
        ('image', {'train.task': 'images', 'images.classes': 3, 'model.d_model': 12, 'model.max_len': 5}),
        ('', {'train.task': 'contrastive', 'model.positions': 'sinusoidal'}),
    ],
)
def test_every_array_of_another_models_image_encoder_is_taken(place, of):
    changes = {key: value for key, value in OPTIONS.items() if key.split('.')[0] != 'decode'} | of
    if place:
        of_texts = ('data.language', 'data.tokenizer', 'data.pieces', 'data.batching', 'data.max_len')
        changes = {k: v for k, v in changes.items() if not k.startswith('image_model') and k not in of_texts}
        changes |= {'model.positions': 'learned', 'data.source': 'pictures'}
    changes.pop('train.watch_every')
    other = warm_start.placed(models.parameter_shapes(resolve(config_dict(changes))), place)
    taken, left = warm_start.compare_leaves(models.parameter_shapes(CONFIG), other)
    own = warm_start.named_leaves(models.parameter_shapes(CONFIG))
    expected = {name for name in own if name.startswith('image/')}
    assert len(expected) == 20 and {name for name in taken if name.startswith('image/')} == expected
    heads = {'image/head/kernel', 'image/head/bias', 'image/projection/kernel'}
    assert {name for name in left if name.startswith('image/')} <= heads


@pytest.mark.parametrize(
    ('option', 'value'),
    [
        ('images.classes', 3),
        ('images.mixup', 0.2),
        ('data.batching', 'running'),
        ('decode.max_source_len', 20),
        ('decode.extra_len', 0),
        ('model.tie_embeddings', 'decoder'),
        ('data.language', None),
        ('model.kind', 'convolutional'),
    ],
)
def test_impossible_options(option, value):
    with pytest.raises(ConfigError, match=option):
        resolve(config_dict(OPTIONS | {option: value}))
