"""JSON of another shape in a work directory is named in one line."""

import json
import os
import pathlib
import shutil

import pytest
from etils import epath

from transformer.actions.evaluate import check_evaluation
from transformer.cli import main
from transformer.config import ConfigError, config_dict, resolve
from transformer.interop import import_model as importing
from transformer.runs import metrics_file, warm_start
from transformer.runs.workdir import Run, check_folder

pytest.importorskip('safetensors.numpy')

MODELS = pathlib.Path(__file__).parent.parent / 'interop' / 'hugging_face'
# What reads each file of a work directory.
READERS = {
    'config.json': Run.open,
    'data.lock.json': lambda folder: Run.open(folder).codecs,
    'tokenizer.model': lambda folder: Run.open(folder).codecs,
    'init_from.json': lambda folder: Run.open(folder).start(),
    'result.json': lambda folder: Run.open(folder).result(),
    'metrics.jsonl': lambda folder: list(metrics_file.read(folder)),
}
OTHER = ('{}', '[]', 'null', '3', '"x"', '[[]]', '{"a": null}', '{"scores": 1}', '{"evaluations": {"a": 0}}')
# An object without scores is a result, and an object of objects that are empty a config.
FINE = {('result.json', '{}'), ('result.json', '{"a": null}'), ('config.json', '{}')}


@pytest.fixture(scope='module')
def imported(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('imported')
    for kind in ('bert', 'vit'):
        importing.import_model(MODELS / kind, folder / kind, {})
    return folder


@pytest.fixture
def workdir(imported, tmp_path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(imported / 'bert', tmp_path / 'bert'))


@pytest.mark.parametrize('name', READERS)
def test_values_of_another_shape(workdir, name):
    for content in OTHER:
        (workdir / name).write_text(f'{content}\n')
        if (name, content) in FINE:
            READERS[name](workdir)
            continue
        with pytest.raises(ConfigError) as error:
            READERS[name](workdir)
        assert str(workdir) in str(error.value) and '\n' not in str(error.value)


def test_class_names_that_are_no_texts(imported, tmp_path):
    folder = pathlib.Path(shutil.copytree(imported / 'vit', tmp_path / 'vit'))
    for content in ('{}', 'null', '[1]', '["\\ud800"]', '5'):
        (folder / 'labels.json').write_text(content)
        with pytest.raises(ConfigError, match='labels.json'):
            _ = Run.open(folder).codecs


def test_a_start_that_takes_what_no_model_has(workdir):
    config = Run.open(workdir).config
    record = {'workdir': str(workdir), 'checkpoint': '0', 'steps': [0], 'params_sha256': '', 'left': {}}
    with pytest.raises(ConfigError, match='has changed'):
        warm_start.first_params(config, record | {'taken': ['x']}, {})
    for steps in ([], [1, 2]):
        with pytest.raises(ConfigError, match='no such checkpoint|names no checkpoint'):
            warm_start.first_params(config, record | {'taken': [], 'steps': steps}, {})


def test_scores_that_are_no_numbers(workdir, tmp_path, capsys):
    entry = {'checkpoint': 'latest', 'steps': [0], 'loss': 'x'}
    (workdir / 'result.json').write_text(json.dumps({'scores': {'test': entry}}))
    call = ['run.py', 'export', f'--workdir={workdir}', f'--output={tmp_path / "out"}']
    assert main.main([*call, '--format=huggingface']) == 2
    assert "result.json: loss: damaged: got 'x'" in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()


def test_a_damaged_result_is_noticed_before_the_work(workdir):
    run = Run.open(workdir)
    (workdir / 'result.json').write_text('')
    for check in (
        lambda: check_evaluation(run, 'scored', None),
        lambda: check_folder(run.folder, run.config),
    ):
        with pytest.raises(ConfigError, match='result.json: damaged'):
            check()


def test_a_folder_whose_name_is_not_utf8_is_refused(tmp_path):
    folder = tmp_path / os.fsdecode(b'run-\xff')
    folder.mkdir()
    for name in ('config.json', 'data.lock.json'):
        (folder / name).write_text('{}')
    with pytest.raises(ConfigError, match='not UTF-8; rename it'):
        Run.open(folder)
    # Before a training, whose first checkpoint could not be written.
    for new in (folder, folder / 'run'):
        with pytest.raises(ConfigError, match='not UTF-8; rename it'):
            check_folder(epath.Path(new), resolve(config_dict({})))
