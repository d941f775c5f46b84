"""CLIP models of transformers run here with its numbers, leave and come back, and ours become theirs.

clip/ holds a small random model as transformers 5.24 saves it, expected_clip.json what it computes with it.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest
from random_models import random_model

import transformer
from transformer.config import ConfigError, config_dict, resolve
from transformer.data.tokenizers.hugging_face import learn_byte_level, load_library
from transformer.interop import export_model as exporting
from transformer.interop import import_model as importing
from transformer.interop.hugging_face import writing
from transformer.runs.hashes import fingerprint
from transformer.runs.restore import Trained
from transformer.runs.workdir import Run
from transformer.tasks import task_of
from transformer.tasks.contrastive import vectors
from transformer.tokens import EOS

safetensors = pytest.importorskip('safetensors.numpy')

FOLDER = pathlib.Path(__file__).parent
EXPECTED = json.loads((FOLDER / 'expected_clip.json').read_text())
PATCH, PLACES = (
    f'vision_model.embeddings.{name}.weight' for name in ('patch_embedding', 'position_embedding')
)


def images(size: int = 12) -> np.ndarray:
    return np.random.default_rng(EXPECTED['seed']).integers(0, 256, (3, size, size, 3), dtype=np.uint8)


def both(trained: Trained, pixels: np.ndarray, texts: list[str]) -> list[np.ndarray]:
    return [vectors.embed_pixels(trained, pixels), vectors.embed(trained, texts)]


@pytest.fixture(scope='module')
def workdir(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('imported') / 'clip'
    importing.import_model(FOLDER / 'clip', folder, {})
    return folder


@pytest.mark.parametrize('key', ['image_model.N', 'contrastive.causal', 'contrastive.d_e', 'images.size'])
def test_options_that_the_model_has(tmp_path, key):
    value = {'contrastive.causal': False}.get(key, 1)
    with pytest.raises(ConfigError, match=f'^{key}: the model has'):
        importing.import_model(FOLDER / 'clip', tmp_path / 'out', {key: value})
    assert not (tmp_path / 'out').exists()


def test_settings_of_both_towers_that_are_not_imported_are_listed(tmp_path):
    shutil.copytree(FOLDER / 'clip', tmp_path / 'in')
    path = tmp_path / 'in' / 'config.json'
    content = json.loads(path.read_text())
    content['text_config'] |= {'odd': 1, 'eos_token_id': 2}
    path.write_text(json.dumps(content))
    run = importing.import_model(tmp_path / 'in', tmp_path / 'out', {})
    unused = run.manifest['imported']['unused']['config.json']
    assert 'text_config.odd' in unused
    assert not {'text_config', 'text_config.eos_token_id', 'text_config.hidden_size'} & {*unused}


def test_vectors_and_logits(workdir):
    trained = transformer.load(workdir).trained
    order = np.array(trained.codecs['text'].order)
    rows = trained.codecs['text'].encode_batch(EXPECTED['texts'])
    assert [order[row].tolist() for row in rows] == EXPECTED['ids']
    ours = both(trained, images(), EXPECTED['texts'])
    for found, name in zip(ours, ('image', 'text'), strict=True):
        np.testing.assert_allclose(found, EXPECTED[name], atol=1e-5)
    expected = np.array(EXPECTED['logits'])
    logits = np.exp(trained.params['log_scale']) * ours[0] @ ours[1].T
    np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())


def test_a_model_leaves_and_comes_back(workdir, tmp_path):
    run = Run.open(workdir)
    others = ['crop_size', 'do_resize', 'image_processor_type', 'resample', 'size']
    assert run.manifest['imported']['unused']['preprocessor_config.json'] == others
    exporting.export_model(run, 'scored', tmp_path / 'out', 'huggingface')
    theirs, again = (
        safetensors.load_file(folder / 'model.safetensors') for folder in (FOLDER / 'clip', tmp_path / 'out')
    )
    assert {name: x.shape for name, x in theirs.items()} == {name: x.shape for name, x in again.items()}
    for name in theirs.keys() - {PATCH, PLACES}:
        np.testing.assert_array_equal(again[name], theirs[name], err_msg=name)
    # Patches read pixels from -1 to 1, in place of those with CLIP's mean and deviation.
    pixels = json.loads((FOLDER / 'clip' / 'preprocessor_config.json').read_text())
    mean, std = np.array(pixels['image_mean']), np.array(pixels['image_std'])
    square = images()[0, 4:8, :4] / 255
    read = lambda arrays, x: np.einsum('dchw,hwc->d', arrays[PATCH], x) + arrays[PLACES][4]
    np.testing.assert_allclose(read(again, 2 * square - 1), read(theirs, (square - mean) / std), atol=1e-5)
    settings = json.loads((FOLDER / 'clip' / 'config.json').read_text())
    written = json.loads((tmp_path / 'out' / 'config.json').read_text())
    for part in ('text_config', 'vision_config'):
        same = settings[part].keys() & written[part].keys() - {'bos_token_id'}
        assert len(same) >= 10 and {n: settings[part][n] for n in same} == {n: written[part][n] for n in same}
    assert json.loads((tmp_path / 'out' / 'preprocessor_config.json').read_text())['image_mean'] == [0.5] * 3
    back = importing.import_model(tmp_path / 'out', tmp_path / 'back', {})
    assert back.config == run.config
    params = [transformer.load(folder).trained.params for folder in (run.folder, back.folder)]
    assert fingerprint(params[0]) == fingerprint(params[1])


OWN = {
    'train.task': 'contrastive',
    'model.N': 2,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'model.norm': 'pre',
    'model.positions': 'learned',
    'model.max_len': 40,
    'model.activation': 'gelu',
    'image_model.N': 1,
    'image_model.d_model': 12,
    'image_model.h': 3,
    'image_model.norm_embedding': True,
    'image_model.activation': 'quick_gelu',
    'contrastive.d_e': 10,
    'images.size': 8,
    'data.source': 'scenes',
    'data.name': None,
    'data.language': 'en',
    'data.pieces': 400,
    'data.batching': 'padded',
    'data.max_len': 40,
    'data.row_len': 40,
}


def test_a_model_of_ours_becomes_theirs(tmp_path):
    """Its patches have a bias, which becomes a part of their positions, and its embeddings are scaled."""
    trained = random_model(resolve(config_dict(OWN)))
    trained = trained._replace(codecs={'image': None, 'text': trained.codecs['text']})
    writing.write(trained.config, trained.params, trained.codecs, tmp_path)
    foreign = importing.import_model(tmp_path, tmp_path / 'run', {})
    back, texts = transformer.load(foreign.folder).trained, ['The dog sleeps.', 'a man', '']
    assert 'bias' not in back.params['image']['patch'] and back.config.image_model.activation == 'quick_gelu'
    pairs = zip(*(both(one, images(8), texts) for one in (trained, back)), strict=True)
    for ours, again in pairs:
        np.testing.assert_allclose(again, ours, atol=1e-5)
    assert task_of(foreign.config) is task_of(trained.config)


def test_a_text_of_bytes_ends_as_the_models_texts_do(tmp_path):
    words = learn_byte_level(['the dog sleeps the cat'] * 9, 262)
    sizes = {'data.tokenizer': 'byte_bpe', 'data.pieces': words.size, 'model.vocab_size': words.size}
    trained = random_model(resolve(config_dict(OWN | sizes)))
    writing.write(trained.config, trained.params, {'image': None, 'text': words}, tmp_path)
    theirs, order = (
        load_library().Tokenizer.from_file(str(tmp_path / 'tokenizer.json')),
        np.array(words.order),
    )
    for text in ('the dog', 'Ünï 🙂', ''):
        assert theirs.encode(text).ids == order[words.encode(text)].tolist()
    files = (json.loads((tmp_path / name).read_text()) for name in ('tokenizer_config.json', 'config.json'))
    settings, model = files
    assert settings['pad_token'] == settings['eos_token'] == words.name(EOS)
    assert model['text_config']['pad_token_id'] == model['text_config']['eos_token_id'] == order[EOS]


@pytest.mark.parametrize(
    ('option', 'value'),
    [
        ('contrastive.causal', False),
        ('image_model.norm_embedding', False),
        ('image_model.norm', 'post'),
        ('image_model.positions', 'sinusoidal'),
        ('image_model.activation', 'swiglu'),
        ('images.pool', 'mean'),
        ('images.pixels', 'grey'),
        ('images.stem', 'convolutions'),
        ('images.sinusoids', True),
        ('model.norm', 'post'),
        ('model.norm_embedding', True),
        ('model.token_types', 2),
    ],
)
def test_models_without_a_place_there_are_refused(option, value):
    with pytest.raises(ConfigError, match=option):
        writing.check(resolve(config_dict(OWN | {option: value})))
    writing.check(resolve(config_dict(OWN)))


@pytest.mark.parametrize(
    ('file', 'change', 'named'),
    [
        ('config.json', {'vision_config': 5}, 'vision_config'),
        ('config.json', {'text_config.num_hidden_layers': 10**6}, 'model.N=1000000'),
        ('config.json', {'vision_config.num_hidden_layers': 10**6}, 'image_model.N=1000000'),
        ('config.json', {'vision_config.image_size': 10**9}, PLACES),
        ('config.json', {'vision_config.layer_norm_eps': 1e-6}, 'layer_norm_eps'),
        ('config.json', {'vision_config.num_channels': 1}, 'num_channels=1'),
        ('config.json', {'text_config.hidden_act': 'mish'}, "hidden_act='mish'"),
        ('config.json', {'projection_dim': 11}, 'projection'),
        ('config.json', {'text_config.eos_token_id': 5}, 'text_config.eos_token_id=5'),
        ('preprocessor_config.json', {'image_mean': [0.5]}, 'image_mean'),
        ('preprocessor_config.json', {'image_std': [0.5, 0.0, 0.5]}, 'image_std'),
        ('preprocessor_config.json', {'do_normalize': False}, 'do_normalize'),
        ('preprocessor_config.json', {'rescale_factor': 0.5}, 'rescale_factor'),
        ('model.safetensors', {'logit_scale': np.array(np.nan, 'f')}, 'log_scale'),
        ('model.safetensors', {'logit_scale': None}, 'logit_scale: missing'),
        ('model.safetensors', {'logit_scale': np.ones(2, 'f')}, 'log_scale'),
        ('model.safetensors', {PATCH: np.ones((12, 2, 4, 4), 'f')}, 'patch'),
        ('model.safetensors', {'visual_projection.weight': None}, 'visual_projection.weight: missing'),
        ('model.safetensors', {'text_model.other.weight': np.ones(2, 'f')}, 'other.weight'),
    ],
)
def test_what_is_no_clip_model_is_refused_by_name(tmp_path, file, change, named):
    shutil.copytree(FOLDER / 'clip', tmp_path / 'in')
    path = tmp_path / 'in' / file
    if path.suffix == '.json':
        content = json.loads(path.read_text())
        for name, value in change.items():
            part, _, own = name.rpartition('.')
            (content[part] if part else content)[own] = value
        path.write_text(json.dumps(content))
    else:
        arrays = safetensors.load_file(path) | change
        safetensors.save_file({name: x for name, x in arrays.items() if x is not None}, path)
    with pytest.raises(ConfigError, match=named):
        importing.import_model(tmp_path / 'in', tmp_path / 'out', {})
    assert not (tmp_path / 'out').exists()
