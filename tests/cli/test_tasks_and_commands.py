"""Every pair of a task and a command: it works, or is refused in one line with status 2."""

import inspect
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
from transformer.actions import data as run_data
from transformer.actions.load import load
from transformer.cli import commands
from transformer.cli import main as run
from transformer.config import TASKS, ConfigError, has
from transformer.config.conditions import SMOOTHED
from transformer.data.dataset import Dataset
from transformer.nn import heads, models
from transformer.runs import workdir
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.hashes import fingerprint
from transformer.tasks.commands import TaskCommand
from transformer.training import losses

# The tasks whose models have each command. All others refuse it.
COMMANDS = {
    'translate': {'translation', 'transliteration', 'text_to_text'},
    'summarise': {'text_to_text'},
    'parse': {'parsing'},
    'generate': {'language'},
    'fill': {'masked', 'denoise'},
    'embed': {'masked', 'contrastive'},
    'retrieve': {'contrastive'},
    'caption': {'captions'},
    'classify': {'images', 'classify', 'contrastive'},
    'label': {'labelling'},
    'answer': {'answers', 'text_to_text'},
    'score-pairs': {'translation', 'transliteration', 'text_to_text', 'language'},
    'figure': {'translation', 'language'},
}
# The lines that a command reads, by task if they differ, and its other arguments.
PAIR, TEXT = 'the old dog\tdog old the\n', 'the old dog\n'
INPUTS = {
    'fill': 'the [MASK] dog\n',
    'answer': 'Who?\tthe old dog\n',
    'score-pairs': {'language': TEXT, 'translation': PAIR, 'transliteration': PAIR, 'text_to_text': PAIR},
    'classify': {'classify': TEXT, 'images': '', 'contrastive': ''},
}
SHORT = ['--method=greedy', '--extra_len=2']
ARGUMENTS = {
    'figure': ['--sentence=the old dog'],
    **dict.fromkeys(('translate', 'summarise', 'parse', 'generate', 'caption'), SHORT),
}
# Further arguments of models without classes of their own.
ZERO_SHOT = {'classify': ['--classes=dog,cat']}
# What `evaluate` reads from files that are named by flags, and the formats that a model can be exported to.
FILES = {
    '--source=x --reference=x': {'translation', 'transliteration', 'parsing'},
    '--text=x': {'language', 'masked', 'denoise', 'words'},
}
FORMATS = {
    'ctranslate2': {'translation', 'transliteration', 'text_to_text', 'parsing', 'language'},
    'huggingface': {
        'translation',
        'transliteration',
        'text_to_text',
        'parsing',
        'language',
        'masked',
        'images',
        'contrastive',
    },
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
        'sets.tsv': 'set\tsource\ttarget\n'
        + '\n'.join(f'{"abc"[n % 3]}\t{x}\t{x[:8]}' for n, x in enumerate(lines)),
        'train.json': json.dumps(squad),
        'pictures.tsv': 'image\ttext\n'
        + '\n'.join(f'train/{"ab"[n % 2]}/x.png\t{line}' for n, line in enumerate(lines)),
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
    'denoise': {'data__source': 'text', 'data__language': 'en', 'denoise__sentinels': 2},
    'images': {'data__source': 'folders', 'images__size': 4, 'images__patch': 2, 'images__pixels': 'grey'},
    'contrastive': {
        'data__source': 'scenes',
        'data__dir': None,
        'data__train': 'dev',
        'data__language': 'en',
        'images__patch': 16,
    },
    'captions': {
        'data__source': 'table',
        'data__train': 'pictures.tsv',
        'images__size': 4,
        'images__patch': 2,
        'images__pixels': 'grey',
    },
    'classify': {'data__source': 'table', 'data__train': 'train.tsv'},
    'labelling': {'data__source': 'trees', 'data__train': 'train.trees'},
    'answers': {'data__source': 'squad', 'data__train': 'train.json'},
    'text_to_text': {
        'data__source': 'table',
        'data__train': 'sets.tsv',
        'text_to_text__prefix': 'a=summarise,b=answer,c=translate English to German',
    },
    'words': {'data__source': 'text', 'data__language': 'en', 'model__kind': 'table'},
}
PIECES = ('data.pieces', 'data.batching', 'data.row_len', 'data.max_len')
LAYERED = ('model.N', 'model.d_ff', 'model.h')


@pytest.fixture(scope='module')
def datasets() -> dict[str, Dataset]:
    """Returns the data of each task, once `runs` has prepared it."""
    return {}


@pytest.fixture(scope='module')
def runs(tmp_path_factory, datasets) -> dict[str, pathlib.Path]:
    """Makes a work directory of each task, with an untrained model."""
    files, folders = write(tmp_path_factory.mktemp('files')), {}
    for task, of_data in DATA.items():
        train = of_data.get('data__train', 'train')
        unused = {'images': PIECES, 'words': LAYERED}.get(task, ())
        options = {key: value for key, value in toys.OPTIONS.items() if key not in unused}
        # Bytes need no learning; trees and hidden words have pieces of their own.
        kinds = {'images': {}, 'parsing': {'data.pieces': 300}, 'masked': {'data.pieces': 300}}
        kinds['words'] = {'data.tokenizer': 'words', 'data.pieces': 18}
        kinds['contrastive'] = {'data.tokenizer': 'words', 'data.pieces': 100}
        few = kinds.get(task, {'data.tokenizer': 'bytes', 'data.pieces': 259})
        same = few | {
            'data.dev': f'{train}[:5]',
            'data.test': train,
            'data.dir': str(files),
            'train.task': task,
        }
        named = {key.replace('__', '.'): value for key, value in of_data.items()}
        config = configs.resolve(configs.config_dict(options | same | named))
        dataset = datasets[task] = tasks.prepare(config, tmp_path_factory.mktemp('cache'))
        if has(config, 'classes'):
            labels = dataset.codecs['tags' if task == 'labelling' else 'label']
            config = configs.with_classes(config, labels.names)
        folder = folders[task] = tmp_path_factory.mktemp('runs') / task
        shapes, rng = models.parameter_shapes(config), np.random.default_rng(0)
        params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32) / 4, shapes)
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


@pytest.mark.parametrize('task', TASKS)
def test_commands_that_a_model_has_work(runs, task, capfd, tmp_path, monkeypatch):
    monkeypatch.setattr('transformer.tasks.language.task.SHOWN', 2)
    workdir_flag, lines = f'--workdir={runs[task]}', tmp_path / 'lines'
    for command in (name for name, own in COMMANDS.items() if task in own):
        text = INPUTS.get(command, TEXT)
        lines.write_text(text if isinstance(text, str) else text[task])
        read = [] if command == 'figure' else [f'--input={lines}']
        arguments = [*ARGUMENTS.get(command, [])]
        PIL.Image.new('L', (4, 4), 99).save(tmp_path / 'x.png')
        if (task, command) in {('images', 'classify'), ('contrastive', 'classify'), ('captions', 'caption')}:
            read = [str(tmp_path / 'x.png')]
        if task == 'contrastive':
            arguments += ZERO_SHOT.get(command, [])
            arguments += [f'--images={tmp_path}'] if command == 'retrieve' else []
        capfd.readouterr()
        assert run.main(['run.py', command, workdir_flag, *arguments, *read]) == 0, command
        assert capfd.readouterr().out.count('\n') >= 1
    short = SHORT if has(workdir.Run.open(runs[task]).config, 'writes') else []
    for call in (['evaluate', *short], ['diagnose']):
        assert run.main(['run.py', *call, workdir_flag, '--split=dev']) == 0
    # Nobody trained it, and five examples are few.
    out = capfd.readouterr().out
    assert '0 updates with a warm-up of' in out and 'examples in dev' in out


@pytest.mark.parametrize('task', TASKS)
def test_blank_batches_have_the_arrays_of_training(runs, task):
    run = workdir.Run.open(runs[task])
    found = tasks.task_of(run.config).batches(run.config, run_data.of_run(run), 'dev').batch(0)
    arrays = lambda batch: {
        jax.tree_util.keystr(path): (x.dtype, x.ndim) for path, x in jax.tree.leaves_with_path(batch)
    }
    rows, length = 2, 8
    blank = models.blank(run.config, rows, length) | heads.blank_labels(run.config, rows, length)
    assert arrays(blank) == arrays(found)
    assert all(len(x) == rows for x in jax.tree.leaves(blank))
    assert (blank.get('weight', np.ones(1)) == 1).all()
    if task == 'masked':
        # As many places as the rows of training have: 15 % of the pieces.
        width = found['text'].tokens.shape[1]
        full = heads.blank_labels(run.config, rows, width)
        assert full['target'].shape[1] == found['target'].shape[1] == round(0.15 * width)


@pytest.mark.parametrize('task', TASKS)
def test_the_seed_decides_order_and_noise_in_training(runs, datasets, task):
    config = configs.replace(workdir.Run.open(runs[task]).config, {'train.seed': 7})
    batches, seeds = tasks.task_of(config).batches(config, datasets[task], 'train'), []
    # Those with noise are made of others.
    while batches:
        seeds.append(batches._seed)
        batches = getattr(batches, '_batches', None)
    assert set(seeds) == {7} and len(seeds) == 1 + (task in ('masked', 'denoise', 'words'))


@pytest.mark.parametrize('task', TASKS)
def test_labels_are_smoothed_in_training_alone(runs, task, monkeypatch):
    """Traced only, so that no program is compiled."""
    config, seen, sums = workdir.Run.open(runs[task]).config, set(), losses._sums
    monkeypatch.setattr(
        losses, '_sums', lambda size, eps_ls, *of: seen.add(eps_ls) or sums(size, eps_ls, *of)
    )
    rows = models.blank(config, 8, 8) | heads.blank_labels(config, 8, 8)
    batch = jax.tree.map(lambda x: x[:, None], rows)
    for key, eps_ls in ((None, 0.0), (jax.random.key(0), 0.1)):
        seen.clear()
        jax.eval_shape(tasks.sums_of(config), models.parameter_shapes(config), batch, key)
        assert seen == {eps_ls} if task in SMOOTHED[1] else seen <= {0.0}


def test_two_tasks_cannot_declare_a_command_with_different_flags(monkeypatch):
    from transformer.tasks import classify

    other = classify.COMMANDS['classify']._replace(flags={})
    monkeypatch.setitem(classify.COMMANDS, 'classify', other)
    with pytest.raises(ValueError, match='classify declares classify'):
        tasks.declared_commands()


def test_every_verb_gives_at_least_one_answer(runs):
    more = {'retrieve': {'images': []}, 'retrieve_texts': {'texts': ['dog']}}
    more['classify'] = {'classes': 'dog,cat'}
    asked = set()
    for task, folder in runs.items():
        model = load(folder)
        for name, verb in tasks.task_of(model.trained.config).verbs.items():
            if 'best' in inspect.signature(verb).parameters:
                own = more.get(name, {}) if task == 'contrastive' else {}
                with pytest.raises(ConfigError, match='nbest=0: '):
                    getattr(model, name)([], best=0, **own)
                asked.add(name)
    assert {'hypotheses', 'parse', 'fill', 'classify', 'caption', 'retrieve', 'answer'} < asked


def test_a_command_has_the_notes_of_all_its_tasks():
    first, second = (TaskCommand('What it does.', note=note) for note in ('', 'One checkpoint.'))
    assert commands.command_of('fill', {'a': first, 'b': second, 'c': second}).note == 'One checkpoint.'
