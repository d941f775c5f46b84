"""Work directories that earlier commits made are still evaluated, used and continued."""

import json
import math
import pathlib
import shutil
import tarfile

import pytest

import transformer
from transformer.cli import main as run
from transformer.runs.workdir import Run

# What each commit wrote with its own run.py: config.py; text/, the data; run/, the work directory of 300
# updates; resumed.json, the result after 304.
COMMITS = 'b87eb5f', '514c2c0'


@pytest.fixture(scope='module', params=COMMITS)
def unpacked(request, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp(request.param)
    with tarfile.open(pathlib.Path(__file__).with_name(f'{request.param}.tar.gz')) as archive:
        archive.extractall(folder, filter='data')
    return folder


@pytest.fixture
def earlier(unpacked, tmp_path) -> pathlib.Path:
    """Makes each test a copy of its own."""
    return pathlib.Path(shutil.copytree(unpacked, tmp_path / 'earlier'))


@pytest.mark.usefixtures('all_resamples')
def test_evaluate_finds_the_same_scores(earlier):
    before = Run.open(earlier / 'run').result()['scores']
    shutil.rmtree(earlier / 'text')
    assert run.main(['run.py', 'evaluate', f'--workdir={earlier / "run"}', '--split=dev,test']) == 0
    after = Run.open(earlier / 'run').result()
    assert after['scores'] == before
    for found, split in zip(after['evaluations'].values(), ('dev', 'test'), strict=True):
        assert found['loss'] == pytest.approx(before[split]['loss'], rel=1e-5)
        assert found['bleu'] == before[split]['bleu']


def test_load_translates_the_same(earlier):
    english = (earlier / 'text' / 'dev.en').read_text().splitlines()
    lines = (earlier / 'run' / 'translations' / 'dev.latest.txt').read_text().splitlines()
    assert transformer.load(earlier / 'run').translate(english) == lines


def test_a_training_continues_as_it_would_have(earlier):
    expected = json.loads((earlier / 'resumed.json').read_text())
    call = [f'--workdir={earlier / "run"}', f'--config={earlier / "config.py"}']
    options = [f'--config.data.dir={earlier / "text"}', '--config.train.steps=304']
    assert run.main(['run.py', *call, *options]) == 0
    result = Run.open(earlier / 'run').result()
    assert result['steps'] == 304
    for split, scores in expected['scores'].items():
        assert math.isclose(result['scores'][split]['loss'], scores['loss'], rel_tol=1e-3)
