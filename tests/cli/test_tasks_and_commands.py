"""Every pair of a task and a command: it works, or is refused in one line with status 2."""

import json
import pathlib

import jax
import numpy as np
import PIL.Image
import pytest
import toys
from etils import epath

from transformer import config as configs
from transformer import tasks
from transformer.cli import main as run
from transformer.config import TASKS, has
from transformer.nn import models
from transformer.runs import workdir
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.hashes import fingerprint

# The tasks whose models have each command. All others refuse it.
COMMANDS = {
    'translate': {'translation', 'transliteration'},
    'parse': {'parsing'},
    'generate': {'language'},
    'fill': {'masked'},
    'embed': {'masked'},
    'classify': {'images', 'classify'},
    'label': {'labelling'},
    'answer': {'answers'},
    'score-pairs': {'translation', 'transliteration', 'language'},
    'figure': {'translation', 'language'},
}
# What `evaluate` reads from files that are named by flags, and the formats that a model can be exported to.
FILES = {
    '--source=x --reference=x': {'translation', 'transliteration', 'parsing'},
    '--text=x': {'language', 'masked'},
}
FORMATS = {
    'ctranslate2': {'translation', 'transliteration', 'parsing', 'language'},
    'huggingface': {'translation', 'transliteration', 'parsing', 'language', 'masked', 'images'},
    'safetensors': set(TASKS),
}
TREE = '(TOP (S (NP (DT the) (NN dogfox)) (VP (VBZ jumpsquick) (NP (NNP Berlin) (NN hwvy)))))'


def write(folder: pathlib.Path) -> pathlib.Path:
    """Writes data for every task."""
    words = [
        'the',
        'old',
        'dog',
        'cat',
        'sleeps',
        'sees',
        'a',
        'big',
        'house',
        'Berlin',
        'quickly',
        'jumps',
        'over',
        'lazy',
        'fox',
    ]
    lines = [' '.join(np.random.default_rng(n).choice(words, 7)) for n in range(60)]
    question = {'question': 'Who?', 'answers': [{'answer_start': 0, 'text': lines[0][:3]}]}
    squad = {'data': [{'paragraphs': [{'context': ' '.join(lines[:3]), 'qas': [question] * 60}]}]}
    contents = {
        'train.en': '\n'.join(lines),
        'train.de': '\n'.join(reversed(lines)),
        'train.trees': '\n'.join([TREE] * 60),
        'train.tsv': 'text\tlabel\n' + '\n'.join(f'{line}\t{len(line) % 3}' for line in lines),
        'train.json': json.dumps(squad),
    }
    for name, content in contents.items():
        (folder / name).write_text(content + '\n')
    for kind in ('a', 'b'):
        (folder / 'train' / kind).mkdir(parents=True)
        PIL.Image.new('L', (4, 4), 99).save(folder / 'train' / kind / 'x.png')
    return folder


DATA = {
    'translation': {'data__source': 'text'},
    'transliteration': {'data__source': 'text'},
    'parsing': {'data__source': 'trees', 'data__train': 'train.trees'},
    'language': {'data__source': 'text', 'data__language': 'en'},
    'masked': {'data__source': 'text', 'data__language': 'en'},
    'images': {'data__source': 'folders', 'images__size': 4, 'images__patch': 2, 'images__pixels': 'grey'},
    'classify': {'data__source': 'table', 'data__train': 'train.tsv'},
    'labelling': {'data__source': 'trees', 'data__train': 'train.trees'},
    'answers': {'data__source': 'squad', 'data__train': 'train.json'},
}
PIECES = ('data.pieces', 'data.batching', 'data.row_len', 'data.max_len')


@pytest.fixture(scope='module')
def runs(tmp_path_factory) -> dict[str, pathlib.Path]:
    """Makes a work directory of each task, with an untrained model."""
    files, folders = write(tmp_path_factory.mktemp('files')), {}
    for task, of_data in DATA.items():
        train = of_data.get('data__train', 'train')
        options = {key: value for key, value in toys.OPTIONS.items() if task != 'images' or key not in PIECES}
        # Bytes need no learning; trees have pieces of their own.
        kinds = {'images': {}, 'parsing': {'data.pieces': 300}}
        few = kinds.get(task, {'data.tokenizer': 'bytes', 'data.pieces': 259})
        same = few | {'data.dev': train, 'data.test': train, 'data.dir': str(files), 'train.task': task}
        named = {key.replace('__', '.'): value for key, value in of_data.items()}
        config = configs.resolve(configs.config_dict(options | same | named))
        dataset = tasks.prepare(config, tmp_path_factory.mktemp('cache'))
        if has(config, 'classes'):
            labels = dataset.codecs['tags' if task == 'labelling' else 'label']
            config = configs.with_classes(config, labels.names)
        folder = folders[task] = tmp_path_factory.mktemp('runs') / task
        params = models.initialize(config, jax.random.key(0))
        workdir.claim(epath.Path(folder), config, dataset.codecs, dataset.manifest)
        workdir.copy_data(epath.Path(folder), dataset)
        checkpoints = Checkpoints(epath.Path(folder) / 'checkpoints', 1)
        checkpoints.save(0, params, None, {'tokens': 0, 'params_sha256': fingerprint(params)})
        checkpoints.close()
    return folders


def refused(call: list[str], capfd) -> str:
    capfd.readouterr()
    assert run.main(['run.py', *call]) == 2, call
    out, err = capfd.readouterr()
    assert out == '' and err.count('\n') == 1 and err.startswith('error: '), err
    return err


def test_the_tables_name_every_command_that_tasks_declare():
    declared = tasks.declared_commands()
    assert {name: set(by_task) for name, by_task in declared.items()} == {
        name: own for name, own in COMMANDS.items() if name in declared
    }
    assert set(DATA) == set(TASKS)


@pytest.mark.parametrize('task', TASKS)
def test_commands_that_a_model_does_not_have_are_refused(runs, task, capfd, tmp_path):
    workdir_flag = f'--workdir={runs[task]}'
    for command, own in COMMANDS.items():
        if task not in own:
            assert f'train.task={task}' in refused([command, workdir_flag], capfd)
    (tmp_path / 'x').write_text('a\n')
    for flags, own in FILES.items():
        if task not in own:
            given = flags.replace('=x', f'={tmp_path / "x"}').split()
            refused(['evaluate', workdir_flag, *given], capfd)
    for name, own in FORMATS.items():
        if task not in own:
            refused(['export', workdir_flag, f'--format={name}', f'--output={tmp_path / name}'], capfd)
            assert not (tmp_path / name).exists()


def test_two_tasks_cannot_declare_a_command_with_different_flags(monkeypatch):
    from transformer.tasks import classify

    other = classify.COMMANDS['classify']._replace(flags={})
    monkeypatch.setitem(classify.COMMANDS, 'classify', other)
    with pytest.raises(ValueError, match='classify declares classify'):
        tasks.declared_commands()
