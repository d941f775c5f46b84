"""Warm start: copies from another run, refusals, and that resuming is exact."""

import json
import pathlib
import shutil

import calls
import jax
import numpy as np
import pytest
from etils import epath

import run
import transformer
from transformer import config as configs
from transformer.cli import flags as arguments
from transformer.data import codec
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.runs import restore, warm_start, workdir
from transformer.runs.hashes import fingerprint, named_leaves
from transformer.runs.workdir import Run

pytestmark = pytest.mark.usefixtures('in_the_root')
TINY = {
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 32,
    'model.h': 2,
    'model.vocab_size': 400,
    'data.source': 'text',
    'data.pieces': 400,
    'data.dev': 'dev',
    'data.test': 'dev',
    'data.max_len': 32,
    'data.row_len': 32,
    'data.batch_tokens': 512,
    'train.steps': 3,
    'train.eval_every': 2,
    'train.checkpoint_every': 1,
    'train.keep': 3,
    'train.average_last': 0,
    'decode.extra_len': 0,
    'decode.method': 'greedy',
}
SEPARATE = {'data.vocabulary': 'separate', 'model.tie_embeddings': 'none', 'data.pieces': 290}
WORDS = ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'ten']
ZAHLEN = ['eins', 'zwei', 'drei', 'vier', 'fünf', 'sechs', 'sieben', 'acht', 'neun', 'zehn']


def write_texts(folder: pathlib.Path, seed: int) -> pathlib.Path:
    """Numbers in English and German."""
    for name, count in (('train', 200), ('dev', 4)):
        for language, words in (('en', WORDS), ('de', ZAHLEN)):
            lines = [' '.join(words[int(d)] for d in str(seed * (i + count))) for i in range(count)]
            (folder / f'{name}.{language}').write_text('\n'.join(lines) + '\n')
    return folder


def train(folder: pathlib.Path, texts: pathlib.Path, *flags: str, **changes) -> int:
    options = {**TINY, 'data.dir': texts, **changes}
    shown = [f'--config.{key}={value}' for key, value in options.items()]
    return run.main(['run.py', f'--workdir={folder}', '--config=configs/multi30k.py', *shown, *flags])


def result_of(folder: pathlib.Path) -> dict:
    return json.loads((folder / 'result.json').read_text())


@pytest.fixture(scope='module')
def texts(tmp_path_factory) -> list[pathlib.Path]:
    return [write_texts(tmp_path_factory.mktemp('texts'), seed) for seed in (7919, 104729)]


@pytest.fixture(scope='module')
def origin(texts, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('runs') / 'origin'
    assert train(folder, texts[0], '--no-evaluation') == 0
    return folder


@pytest.fixture(scope='module')
def warmed(origin, texts, tmp_path_factory) -> pathlib.Path:
    """Trains on other text, from the first step of `origin`."""
    folder = tmp_path_factory.mktemp('runs') / 'warm'
    assert train(folder, texts[1], f'--init_from={origin}:1', '--no-evaluation') == 0
    return folder


def fails(capfd, *arguments, **changes) -> str:
    capfd.readouterr()
    assert train(*arguments, **changes) == 2
    error = capfd.readouterr().err
    assert error.startswith('error: ') and error.count('\n') == 1
    return error


def tree(**shapes) -> dict:
    return {name: {'kernel': np.zeros(shape, np.float32)} for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ('word', 'parts'),
    [
        ('a', ('a', '')),
        ('a:best', ('a', 'best')),
        ('a:2,b:3', ('a', '2,b:3')),
        ('b:c', ('b:c', '')),
        ('b:c:300', ('b:c', '300')),
        ('nowhere:300', ('nowhere', '300')),
    ],
)
def test_a_folder_with_or_without_a_checkpoint(tmp_path, monkeypatch, word, parts):
    monkeypatch.chdir(tmp_path)
    for folder in ('a', 'b', 'b:c'):
        (tmp_path / folder).mkdir()
    assert restore.parse_checkpoint(word) == parts


def test_what_agrees_in_name_shape_and_type_is_taken():
    own, other = tree(a=(2, 3), b=(4,), c=(5,), e=(6,)), tree(a=(2, 3), b=(7,), d=(5,), e=(6,))
    other['e']['kernel'] = other['e']['kernel'].astype(np.float16)
    other['a']['kernel'] += 1
    taken, left = warm_start.compare_leaves(own, other)
    assert taken == ['a/kernel']
    assert left == {
        'b/kernel': 'float32 (7,) there, float32 (4,) here',
        'c/kernel': 'only in the new model',
        'd/kernel': 'only in the other run',
        'e/kernel': 'float16 (6,) there, float32 (6,) here',
    }
    merged = named_leaves(warm_start.merge(own, other, taken))
    assert list(merged) == ['a/kernel', 'b/kernel', 'c/kernel', 'e/kernel']
    assert merged['a/kernel'].all() and not merged['b/kernel'].any()
    record = {'workdir': 'w', 'checkpoint': 'best', 'steps': [3], 'taken': taken, 'left': left}
    assert list(warm_start.describe(record | {'left': left | {'x': left['b/kernel']}})) == [
        'starts from w, checkpoint best (step 3): 1 arrays taken, 5 left out',
        '  float32 (7,) there, float32 (4,) here: b/kernel and 1 more',
        '  only in the new model: c/kernel',
        '  only in the other run: d/kernel',
        '  float16 (6,) there, float32 (6,) here: e/kernel',
    ]


def test_the_default_work_directory_names_the_start():
    call = calls.parse(['run.py', '--init_from=runs/news:300'])
    assert arguments.work_directory(call) == 'runs/tiny-init=news_300'


def test_a_warm_start_is_recorded_and_keeps_the_tokenizer(origin, warmed):
    record = result_of(warmed)['init_from']
    there, found = restore.load(Run.open(origin), '1')
    assert record['workdir'] == str(origin) and record['checkpoint'] == '1' and record['steps'] == [1]
    assert record['params_sha256'] == fingerprint(jax.device_get(there.params))
    assert record['taken'] == sorted(named_leaves(there.params)) and record['left'] == {}
    assert record == json.loads((warmed / 'init_from.json').read_text())
    assert (warmed / 'tokenizer.model').read_bytes() == (origin / 'tokenizer.model').read_bytes()
    lock = Run.open(epath.Path(warmed)).manifest
    digest = there.codecs['source'].sha256
    assert lock['given_tokenizer_sha256'] == {'source': digest, 'target': digest}
    assert lock['tokenizer_sha256'] == digest
    assert 'init_from' not in result_of(origin)


def test_the_other_run_is_found_from_any_folder(origin, tmp_path, monkeypatch):
    monkeypatch.chdir(origin.parent)
    config = Run.open(epath.Path(origin)).config
    found = warm_start.start(config, warm_start.origins([f'{origin.name}:1']), epath.Path(tmp_path / 'new'))
    assert found.record['workdir'] == str(origin)


def test_it_starts_where_the_other_run_was_and_not_as_the_seed_says(origin, warmed, texts, tmp_path):
    # No update moves a parameter by more than the learning rate, about 2e-5 here.
    start, first = (restore.load(Run.open(folder), '1')[0].params for folder in (origin, warmed))
    away = [np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (start, first)), strict=True)]
    assert 0 < max(away) < 1e-3


def test_a_resumed_warm_start_ends_as_one_that_ran_through(origin, warmed, texts, tmp_path, capfd):
    flag = f'--init_from={origin}:1'
    assert train(tmp_path / 'w', texts[1], flag, '--no-evaluation', **{'train.steps': 1}) == 0
    assert f'{origin}, checkpoint 1 (step 1): ' in capfd.readouterr().err
    # Without the flag it keeps its start, and the other run is no longer needed.
    gone = origin.rename(origin.with_name('gone'))
    assert train(tmp_path / 'w', texts[1], '--no-evaluation') == 0
    gone.rename(origin)
    assert result_of(tmp_path / 'w')['params_sha256'] == result_of(warmed)['params_sha256']
    assert result_of(tmp_path / 'w')['init_from'] == result_of(warmed)['init_from']
    assert run.main(['run.py', 'evaluate', f'--workdir={tmp_path / "w"}', '--split=dev']) == 0


def test_a_training_that_was_killed_before_its_first_checkpoint_starts_there_again(
    origin, warmed, texts, tmp_path, capfd
):
    shutil.copytree(warmed, tmp_path / 'w')
    shutil.rmtree(tmp_path / 'w' / 'checkpoints')
    assert train(tmp_path / 'w', texts[1], f'--init_from={origin}:1', '--no-evaluation') == 0
    assert result_of(tmp_path / 'w')['params_sha256'] == result_of(warmed)['params_sha256']
    # The other run has changed since.
    shutil.rmtree(tmp_path / 'w' / 'checkpoints')
    record = json.loads((warmed / 'init_from.json').read_text()) | {'steps': [2]}
    (tmp_path / 'w' / 'init_from.json').write_text(json.dumps(record))
    capfd.readouterr()
    assert train(tmp_path / 'w', texts[1]) == 2
    assert f'--init_from={origin}' in capfd.readouterr().err.splitlines()[-1]


def test_without_a_checkpoint_another_config_begins_anew(origin, tmp_path):
    run, folder = Run.open(epath.Path(origin)), epath.Path(tmp_path / 'run')
    origins = warm_start.origins([str(origin)])
    start = warm_start.start(run.config, origins, folder)
    workdir.claim(folder, run.config, run.codecs, run.manifest, start.record)
    other = configs.replace(run.config, {'model.d_ff': 48})
    assert warm_start.continued(run.config, folder).record == start.record
    assert warm_start.continued(other, folder) is None
    workdir.claim(folder, other, run.codecs, run.manifest)
    assert Run.open(folder).start() is None
    assert warm_start.start(other, origins, folder).record['taken'] != start.record['taken']


def test_another_start_of_a_work_directory_is_refused(origin, warmed, texts, capfd):
    error = fails(capfd, warmed, texts[1], f'--init_from={origin}:2')
    assert str(warmed) in error and str(origin) in error and '--workdir' in error
    # Of the same folder, which went on, the training can be resumed.
    assert 'leave out --init_from' in error
    error = fails(capfd, origin, texts[0], f'--init_from={warmed}')
    assert str(warmed) in error and str(origin) in error and 'train.seed' in error
    assert 'leave out' not in error


@pytest.mark.parametrize(
    ('flag', 'changes', 'parts'),
    [
        ('{}:9', {}, ['origin:9']),
        ('{}:newest', {}, ['origin:newest']),
        ('{}/no', {}, ['origin/no']),
        ('{}', {'data.pieces': 380}, ['data.pieces=380', '400']),
        ('{}', {'data.tokenizer': 'bytes', 'data.pieces': 259}, ["data.tokenizer='bytes'", "'bpe'"]),
        ('{}', SEPARATE | {'data.pieces': 400}, ["data.vocabulary='separate'", "'joint'"]),
        ('{}', {'model.d_model': 8, 'model.d_ff': 16}, ['--init_from=', 'float32 (2, 8) there']),
        # The first that differs in its shape, not the first that only the new model has.
        ('{}', {'model.d_model': 8, 'model.d_ff': 16, 'model.norm': 'pre'}, ['float32 (2, 8) there']),
    ],
)
def test_what_cannot_be_a_start_is_refused(origin, texts, tmp_path, capfd, flag, changes, parts):
    error = fails(capfd, tmp_path / 'w', texts[1], f'--init_from={flag.format(origin)}', **changes)
    assert all(part in error for part in parts), error
    assert not (tmp_path / 'w').exists()


def test_separate_vocabularies_train_translate_and_start_another(texts, tmp_path, capfd):
    short = {**SEPARATE, 'train.steps': 1}
    assert train(tmp_path / 'a', texts[0], '--no-evaluation', **short) == 0
    assert train(tmp_path / 'b', texts[1], f'--init_from={tmp_path / "a"}', '--no-evaluation', **short) == 0
    assert result_of(tmp_path / 'b')['init_from']['left'] == {}
    there, here = (restore.load(Run.open(tmp_path / name))[0].codecs for name in ('a', 'b'))
    assert codec.contents(there) == codec.contents(here) and len(codec.contents(here)) == 2
    assert there['source'].encode('seven eight') != there['target'].encode('seven eight')
    for command in (['evaluate', '--split=dev'], ['diagnose', '--split=dev']):
        assert run.main(['run.py', *command, f'--workdir={tmp_path / "b"}']) == 0
    (written,) = transformer.load(tmp_path / 'b').translate(['seven eight'])
    assert isinstance(written, str)


@pytest.mark.parametrize(
    ('changes', 'parts'),
    [
        ({'data.vocabulary': 'separate'}, ["model.tie_embeddings='all'"]),
        (
            {**SEPARATE, 'data.tokenizer': 'bytes', 'data.pieces': 259},
            ["data.vocabulary='separate'", "data.tokenizer='bytes'"],
        ),
    ],
)
def test_what_separate_vocabularies_do_not_go_with(texts, tmp_path, capfd, changes, parts):
    error = fails(capfd, tmp_path / 'w', texts[0], **changes)
    assert all(part in error for part in parts), error


# What Marian's layout has and the default config does not.
MARIAN = {'model.softmax_bias': True, 'model.norm_epsilon': 1e-5, 'model.sinusoid': 'halves'}


def test_a_model_that_left_and_came_back_trains_on_with_the_same_bits(texts, tmp_path):
    folders = {name: tmp_path / name for name in ('origin', 'huggingface', 'ctranslate2', 'safetensors')}
    assert train(folders['origin'], texts[0], '--no-evaluation', **MARIAN) == 0
    for name, folder in folders.items():
        if name == 'origin':
            continue
        left = folder if name == 'safetensors' else tmp_path / f'{name}.left'
        flags = ['export', f'--workdir={folders["origin"]}', f'--format={name}', f'--output={left}']
        assert run.main(['run.py', *flags]) == 0
        if name != 'safetensors':
            assert run.main(['run.py', 'import', str(left), f'--output={folder}']) == 0
    # Each gives a training the same start, which with its config and text decides the bits.
    config, starts = Run.open(folders['origin']).config, []
    for name, folder in folders.items():
        found = warm_start.start(config, warm_start.origins([str(folder)]), epath.Path(tmp_path / 'new'))
        assert not found.record['left'], name
        starts.append((found.record['params_sha256'], codec.contents(found.codecs)))
    assert starts == starts[:1] * 4 and starts[0][0] == result_of(folders['origin'])['params_sha256']
    hashes = set()
    for name in ('origin', 'ctranslate2'):
        after = tmp_path / f'{name}.after'
        start = f'--init_from={folders[name]}'
        assert train(after, texts[1], start, '--no-evaluation', **MARIAN) == 0
        hashes.add(result_of(after)['params_sha256'])
    assert len(hashes) == 1 and hashes != {starts[0][0]}


def test_a_training_starts_from_an_exported_average(origin, texts, tmp_path):
    folder = tmp_path / 'w'
    shutil.copytree(origin, folder)
    where, left = f'--workdir={folder}', tmp_path / 'left'
    assert run.main(['run.py', 'average', where, '--last=2', '--every=1']) == 0
    export = ['export', where, '--format=safetensors', '--checkpoint=average', f'--output={left}']
    assert run.main(['run.py', *export]) == 0
    assert train(tmp_path / 'next', texts[1], f'--init_from={left}', '--no-evaluation') == 0
    kept = json.loads((tmp_path / 'next' / 'init_from.json').read_text())
    assert (kept['checkpoint'], len(kept['steps'])) == ('average', 2)


def test_a_tokenizer_of_another_language_gets_a_line(origin, tmp_path, caplog):
    found = warm_start.origins([f'{origin}:1'])
    config = found[0].run.config
    warm_start.start(config, found, epath.Path(tmp_path))
    assert not caplog.messages
    french = configs.replace(config, {'data.target_language': 'fr'})
    warm_start.start(french, found, epath.Path(tmp_path))
    (message,) = caplog.messages
    assert f'--init_from={origin}:1' in message and 'de and en' in message and 'from fr' in message


def test_starts_that_contradict_each_other_are_refused(origin, tmp_path, monkeypatch):
    found = warm_start.origins([f'{origin}:1', f'{origin}:2'])
    config = found[0].run.config
    with pytest.raises(configs.ConfigError, match=f'^--init_from={origin}:2: .* already from .*{origin}:1$'):
        warm_start.start(config, found, epath.Path(tmp_path))
    found[1].run.codecs['target'] = ByteTokenizer()
    with pytest.raises(configs.ConfigError, match=f'^--init_from={origin}:2: its tokenizer of target'):
        warm_start.codecs_of(config, found)
    monkeypatch.setattr(warm_start, 'read_given', lambda data, names: dict.fromkeys(names, ByteTokenizer()))
    given = configs.replace(config, {'data.tokenizer_model': 'other.model'})
    with pytest.raises(configs.ConfigError, match=r'^data\.tokenizer_model=other\.model: '):
        warm_start.codecs_of(given, found[:1])


def test_outputs_for_other_classes_get_a_line(origin, caplog):
    [found] = warm_start.origins([f'{origin}:1'])
    # As a cached property, without a training of its own.
    found.run.codecs['label'] = codec.Labels(('a', 'b'))
    for names, others in ((('a', 'b'), []), (('a', 'b', 'c'), []), (('a', 'cat'), [('b', 'cat')])):
        caplog.clear()
        warm_start.warn_of_classes([found], {'text': None, 'label': codec.Labels(names)})
        assert [record.args[1:] for record in caplog.records] == others


def test_a_run_becomes_a_part_of_a_larger_model():
    """The parameters of two encoders become those of the towers `image` and `text`."""
    tower = {'encoder': {'kernel': np.ones((2, 3), np.float32)}, 'head': {'bias': np.ones(3, np.float32)}}
    towers = {name: {'encoder': {'kernel': np.zeros((2, 3), np.float32)}} for name in ('image', 'text')}
    assert warm_start.compare_leaves(towers, tower)[0] == []
    taken, left = warm_start.compare_leaves(towers, warm_start.placed(tower, 'image'))
    assert taken == ['image/encoder/kernel'] and set(left) == {'text/encoder/kernel', 'image/head/bias'}
    merged = warm_start.merge(towers, warm_start.placed(tower, 'image'), taken)
    assert merged['image']['encoder']['kernel'].all() and not merged['text']['encoder']['kernel'].any()


def test_a_place_is_told_from_a_folder_with_an_equals_sign(origin, monkeypatch):
    (named,) = warm_start.origins([f'encoder={origin}:1'])
    assert (named.place, named.choice, str(named.run.folder)) == ('encoder', '1', str(origin))
    twin = origin.with_name('h=4')
    shutil.copytree(origin, twin)
    monkeypatch.chdir(origin.parent)
    (whole,) = warm_start.origins(['h=4'])
    assert (whole.place, whole.choice) == ('', 'scored')
