"""A training on scenes: resumed, evaluated, diagnosed, warm-started, and its commands."""

import json
import pathlib

import numpy as np
import PIL.Image
import pytest
import toys
from etils import epath

import transformer
from transformer.actions import train as action
from transformer.cli import main as run
from transformer.config import config_dict, resolve
from transformer.runs import warm_start

SMALL = {
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'data.source': 'scenes',
    'data.name': None,
    'data.train': 'train[:128]',
    'data.dev': 'dev[:40]',
    'data.test': 'unseen[:40]',
    'train.steps': 4,
    'train.warmup_steps': 4,
    'train.checkpoint_every': 2,
    'train.eval_every': 4,
    'train.log_every': 1,
}
CONFIG = resolve(
    config_dict(
        SMALL
        | {
            'train.task': 'contrastive',
            'images.patch': 16,
            'data.language': 'en',
            'data.tokenizer': 'words',
            'data.pieces': 60,
            'data.batching': 'padded',
            'data.max_len': 40,
            'data.row_len': 40,
            'data.batch_tokens': 40 * 64,
        }
    )
)


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('contrastive') / 'run'
    action.run_training(CONFIG, epath.Path(folder), '')
    return folder


def test_a_killed_training_ends_as_one_that_was_not(trained, tmp_path):
    result = toys.resumed(trained, tmp_path / 'run', 2, evaluate=False)
    whole = json.loads((trained / 'result.json').read_text())
    assert result['params_sha256'] == whole['params_sha256']
    assert (whole['tokens'], whole['scores']['test']['images']) == (4 * 64, 40)
    metrics = [json.loads(line) for line in (trained / 'metrics.jsonl').read_text().splitlines()]
    assert metrics[0]['guess'] == pytest.approx(np.log(8)) and metrics[0]['scale'] == pytest.approx(1 / 0.07)


def test_other_generated_pictures(trained, tmp_path, capfd):
    call = ['run.py', 'evaluate', f'--workdir={trained}']
    assert run.main([*call, '--config.data.test=unseen[:40]']) == 0
    (name,) = {*json.loads((trained / 'result.json').read_text())['evaluations']}
    result = json.loads((trained / 'result.json').read_text())
    same = result['scores']['test'], result['evaluations'][name]
    assert same[0]['image_of_text'] == same[1]['image_of_text'] and name.startswith('unseen')
    assert run.main([*call, '--config.data.test=unseen', '--config.data.dir=x']) == 2
    # Files have a folder, whatever the model learned from.
    capfd.readouterr()
    of_files = ['--config.data.source=table', f'--config.data.dir={tmp_path}', '--config.data.test=own.tsv']
    assert run.main([*call, *of_files]) == 2
    assert f'data.test: no file {tmp_path / "own.tsv"}' in capfd.readouterr().err


def test_commands(trained, tmp_path, capfd):
    rng = np.random.default_rng(0)
    for name in ('a.png', 'b.png'):
        PIL.Image.fromarray(rng.integers(0, 256, (9, 12, 3)).astype(np.uint8)).save(tmp_path / name)
    (tmp_path / 'lines').write_text('a red circle\na blue square\n')
    files, model = [str(tmp_path / name) for name in ('a.png', 'b.png')], transformer.load(trained)

    def call(*words: str) -> list[list[str]]:
        capfd.readouterr()
        assert run.main(['run.py', words[0], f'--workdir={trained}', *words[1:]]) == 0
        return [line.split('\t') for line in capfd.readouterr().out.splitlines()]

    lines = f'--input={tmp_path / "lines"}'
    rows = call('retrieve', lines, f'--images={tmp_path}', '--nbest=2', '--scores')
    assert [row[0] for row in rows] == ['0', '0', '1', '1'] and {row[1] for row in rows} == set(files)
    found = model.retrieve(['a red circle'], images=str(tmp_path), best=2)[0]
    assert [row[1] for row in rows[:2]] == [one.text for one in found]
    assert [float(row[2]) for row in rows[:2]] == pytest.approx([one.score for one in found], abs=1e-4)
    rows = call('retrieve', f'--texts={tmp_path / "lines"}', *files)
    assert [row[0] for row in rows] == files and {row[1] for row in rows} <= {'a red circle', 'a blue square'}
    rows = call('classify', '--classes=circle,square', '--nbest=2', '--scores', files[0])
    assert sum(float(row[2]) for row in rows) == pytest.approx(1, abs=2e-4)
    call('embed', f'--output={tmp_path / "vectors.npy"}', *files)
    np.testing.assert_allclose(np.load(tmp_path / 'vectors.npy'), model.embed_images(files), atol=1e-5)
    call('embed', lines, f'--output={tmp_path / "vectors.npy"}')
    vectors = model.embed(['a red circle', 'a blue square'])
    np.testing.assert_allclose(np.load(tmp_path / 'vectors.npy'), vectors, atol=1e-5)
    (tmp_path / 'empty').write_text('')
    call('embed', f'--input={tmp_path / "empty"}', f'--output={tmp_path / "vectors.npy"}')
    assert np.load(tmp_path / 'vectors.npy').shape == (0, vectors.shape[1])
    for words in (['retrieve', lines, files[0]], ['retrieve', files[0]], ['classify', files[0]]):
        assert run.main(['run.py', words[0], f'--workdir={trained}', *words[1:]]) == 2


def test_a_tower_starts_from_a_run_of_its_own(trained, tmp_path):
    """The encoder of images, from a training on the classes of pictures."""
    small = {key: value for key, value in SMALL.items() if key != 'data.test'}
    images = {'train.task': 'images', 'images.patch': 16, 'data.source': 'pictures', 'data.batch_tokens': 320}
    once = {'train.steps': 1, 'train.checkpoint_every': 1}
    toys.trained(resolve(config_dict(small | images | once)), tmp_path / 'images', evaluate=False)
    start = [f'image={tmp_path / "images"}', f'text={trained}:2']
    with pytest.raises(Exception, match='shares no parameter'):
        action.run_training(CONFIG, epath.Path(tmp_path / 'new'), '', init_from=start, evaluate=False)
    start = warm_start.origins([f'image={tmp_path / "images"}'])
    record = warm_start.start(CONFIG, start, epath.Path(tmp_path / 'new')).record
    shapes = {name for name in record['left'] if name.startswith('image/')}
    assert shapes == {'image/projection/kernel', 'image/head/kernel', 'image/head/bias'}
    assert 'image/class_token' in record['taken'] and 'image/patch/bias' in record['taken']
