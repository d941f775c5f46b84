"""A user's mistakes: one line on standard error, exit status 2, nothing lost."""

import dataclasses
import functools
import gzip
import inspect
import io
import json
import logging
import os
import pathlib
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

import calls
import jax
import numpy as np
import pytest
from etils import epath

import run
import transformer
from experiments.figures import __main__ as figures
from transformer import config as configs
from transformer import files, parallel
from transformer.actions.compare import Side
from transformer.actions.compare import compare as run_comparison
from transformer.actions.evaluate import evaluate
from transformer.actions.load import LoadedModel, load
from transformer.cli import flags, streams, terminal
from transformer.cli.commands import COMMANDS, OF_TASKS, TOOLS
from transformer.cli.help import help_text
from transformer.cli.run import less_memory
from transformer.config import ConfigError, declare
from transformer.config.files import read_config_file
from transformer.config.foreign_names import OURS
from transformer.data import text_input
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.inference import generate
from transformer.inference.attention import last_word
from transformer.runs import owner, restore
from transformer.runs import workdir as workdirs
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.hashes import fingerprint
from transformer.runs.workdir import Run
from transformer.tasks.translation import bleu
from transformer.tasks.translation import task as translation

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures('in_the_root')
TINY = {
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 32,
    'model.h': 2,
    'model.vocab_size': 400,
    'data.source': 'text',
    'data.pieces': 400,
    'data.max_len': 32,
    'data.row_len': 32,
    'data.batch_tokens': 512,
    'train.steps': 3,
    'train.eval_every': 2,
    'train.checkpoint_every': 1,
    'train.keep': 2,
    'train.average_last': 0,
    'decode.extra_len': 4,
}
GPT = '--config=configs/gpt_grammar.py'
WORDS = ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'ten']
ZAHLEN = ['eins', 'zwei', 'drei', 'vier', 'fünf', 'sechs', 'sieben', 'acht', 'neun', 'zehn']


@pytest.fixture(scope='session')
def texts(tmp_path_factory) -> pathlib.Path:
    """Numbers in English and German: 200 lines to train on, 10 to develop, 10 to test."""
    folder = tmp_path_factory.mktemp('texts')
    for name, first, count in (('train', 0, 200), ('dev', 200, 10), ('test', 210, 10)):
        for language, words in (('en', WORDS), ('de', ZAHLEN)):
            lines = [' '.join(words[int(d)] for d in str(7919 * i)) for i in range(first, first + count)]
            (folder / f'{name}.{language}').write_text('\n'.join(lines) + '\n')
    return folder


def arguments(texts: pathlib.Path, workdir: pathlib.Path, **changes) -> list[str]:
    options = {**TINY, 'data.dir': texts, 'data.dev': 'dev', **changes}
    return [
        f'--workdir={workdir}',
        '--config=configs/multi30k.py',
        '--config.data.test=test',
        *(f'--config.{key}={value}' for key, value in options.items()),
    ]


@pytest.fixture(scope='session')
def trained(texts, tmp_path_factory) -> pathlib.Path:
    os.chdir(ROOT)
    workdir = tmp_path_factory.mktemp('runs') / 'trained'
    assert run.main(['run.py', *arguments(texts, workdir)]) == 0
    return workdir


def snapshot(folder: pathlib.Path) -> dict[str, bytes]:
    """Reads every file below a folder."""
    files = [path for path in sorted(folder.rglob('*')) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def fails(capfd, *argv: str) -> str:
    """Returns the one line that a call prints on standard error."""
    capfd.readouterr()
    assert run.main(['run.py', *map(str, argv)]) == 2
    error = capfd.readouterr().err
    assert error.startswith('error: ')
    assert error.count('\n') == 1
    assert 'Traceback' not in error
    return error


@pytest.mark.parametrize(
    ('argv', 'parts'),
    [
        (['--config.model.possitions=none'], ['model.possitions', "'model.positions'"]),
        (['--config.model.positions=sinusodal'], ["'sinusodal'", "'sinusoidal'", 'rotary']),
        (['--config.model.h=five'], ['model.h', "'five'", 'int']),
        (['--config.model.h=0'], ['model.h=0', 'at least 1']),
        (['--config.model.P_drop=nan'], ['model.P_drop=nan']),
        (['--config.model.h=7'], ['model.h=7', 'd_model=128']),
        (['--config.data.batch_tokens=100'], ['data.batch_tokens=100', 'microbatches']),
        (['--config.train.accumulate=3'], ['train.accumulate=3', 'microbatches=8']),
        (['--config.train.microbatches=12'], ['train.microbatches=12', '8 devices']),
        (['--config.model.vocab_size=300'], ['model.vocab_size=300', 'data.pieces']),
        (['--config.data.stride=4'], ['data.stride=4', "train.task='translation'", 'language']),
        (['--config.model.kind=decoder'], ["model.kind='decoder'", "train.task='translation'", 'language']),
        (['--config.data.batching=running'], ['data.batching=running', 'train.task=language']),
        ([GPT, '--config.model.N_decoder=3'], ['model.N_decoder=3', "train.task='language'"]),
        (['--config.model.kind=recurrent', '--config.model.h=4'], ['model.h=4', "model.kind='recurrent'"]),
        ([GPT, '--config.model.tie_embeddings=decoder'], ['model.tie_embeddings', 'all or none']),
        ([GPT, '--config.train.bleu_every=5'], ['train.watch_every=5', 'translation']),
        ([GPT, '--config.data.target_language=fr'], ['data.target_language', 'translation']),
        ([GPT, '--config.data.tokenizer=bytes'], ['data.pieces=1000', '259']),
        ([GPT, '--config.data.documents=files'], ['data.documents=files', 'running']),
        ([GPT, '--config.data.stride=41'], ['data.stride=41', 'data.row_len=40']),
        ([GPT, '--config.data.language=fr'], ['fr']),
        (['--config.data.dir=tests'], ['data.dir', "data.source='grammar'", 'text']),
        (['--config.data.train=own'], ['data.train', "data.source='grammar'", 'text']),
        (['--config=parsing_grammar', '--config.data.dir=tests'], ['data.dir', "'grammar'", 'trees']),
        (['--config=bert_grammar', '--config.data.test=own'], ['data.test', "'grammar'", 'text']),
        (['--config=vit_pictures', '--config.data.dev=own'], ['data.dev', "'pictures'", 'folders']),
        (['--config=configs/huge.py'], ['configs/huge.py', 'no such file']),
        (['--config', 'configs/huge.py'], ['configs/huge.py', 'no such file', str(ROOT / 'configs')]),
        (['--config=elsewhere/configs/big.py'], ['no such file', '--config=big']),
        (['--speed=1'], ['speed']),
        (
            ['--config.model.positions=rotary', '--config.model.sinusoid=t2t'],
            ['model.sinusoid', "model.positions='rotary'"],
        ),
        (['trian'], ["'trian'", 'did you mean train?']),
        (['frobnicate'], ["'frobnicate'", 'train', 'evaluate']),
        (['evaluate', '--workdir=nowhere'], ['nowhere', 'not a work directory']),
        (['translate', '--workdir=configs'], ['configs', 'not a work directory']),
        (['--config=configs/multi30k.py'], ['data.dir']),
        (['--config=configs/multi30k.py', '--config.data.dir=nowhere'], ['nowhere']),
        (
            ['--config=configs/multi30k.py', '--config.data.dir=tests', '--config.data.train=/a/b'],
            ['data.train', '/a/b.en', 'relative'],
        ),
    ],
    ids=lambda value: ' '.join(value) if value and value[0].startswith('-') else None,
)
def test_a_wrong_call(capfd, tmp_path, argv, parts):
    where = [] if any('workdir' in arg for arg in argv) else [f'--workdir={tmp_path / "w"}']
    line = fails(capfd, *argv, *where)
    assert all(part in line for part in parts), line
    assert not (tmp_path / 'w').exists()


@pytest.mark.parametrize(
    ('written', 'meant'),
    [
        ('model.possitions', 'model.positions'),
        ('modle.positions', 'model.positions'),
        ('positions', 'model.positions'),
        ('train.beam', 'decode.beam'),
        ('train.warmup_step', 'train.warmup_steps'),
        ('train.colour', None),
    ],
)
def test_only_what_is_near_is_suggested(written, meant):
    with pytest.raises(ConfigError) as error:
        declare.check_name(configs.OPTIONS, written)
    hint = f'; did you mean {meant!r}?' if meant else ''
    assert str(error.value) == f'{written}: no such option{hint}'


@pytest.mark.parametrize(
    ('word', 'parts'),
    [
        ('--config.lr=1', ['lr', 'train.lr_constant', 'train.peak_lr']),
        ('--config.train.num_epochs=3', ['train.num_epochs', 'train.epochs']),
        ('--config.train.batch-size=3', ['train.batch-size', 'data.batch_tokens']),
        ('--config.model.num_heads=4', ['model.num_heads', 'model.h']),
        ('--config.model.dropout=0.1', ['model.dropout', 'model.P_drop']),
        ('--num_layers=2', ['--num_layers', '--config.model.N=']),
        ('--model.h=2', ['--model.h', '--config.model.h=']),
        ('--max_len=2', ['--config.model.max_len=', '--config.data.max_len=']),
        ('--workdr=w', ['--workdr', '--workdir']),
    ],
)
def test_names_of_other_libraries_and_of_options_lead_to_ours(capfd, word, parts):
    line = fails(capfd, word)
    for part in parts:
        assert part in line


def test_every_foreign_name_means_an_option():
    for name, ours in OURS.items():
        for key in ours.split(' or '):
            assert key in configs.OPTIONS
        assert name not in {key.rpartition('.')[2] for key in configs.OPTIONS}


def test_options_of_decoding_have_short_names():
    parsed = calls.parse(['run.py', 'translate', '--beam=7', '--temperature=0.5'])
    assert parsed.changes == {'decode.beam': 7, 'decode.temperature': 0.5}


def test_a_file_as_a_word_leads_to_standard_input(capfd):
    assert 'translate < a.en' in fails(capfd, 'translate', 'a.en')


def chosen(argv: Sequence[str], caplog) -> tuple[configs.Config, list[str]]:
    """Returns the config of a call, and its warnings."""
    caplog.clear()
    config = flags.config(calls.parse(['run.py', 'config', *argv]))
    return config, [record.getMessage() for record in caplog.records]


def test_a_generated_source_drops_the_files_of_a_config_file(caplog):
    changes = ['--config=configs/multi30k.py', '--config.data.source=grammar']
    config, (line,) = chosen(changes, caplog)
    assert (config.data.dev, config.data.test) == ('validation', 'test')
    assert 'data.dev' in line and 'data.test' in line


def test_control_characters_of_the_input_do_not_reach_the_terminal(capfd):
    line = fails(capfd, 'translate', '--workdir=a\x1b[31m\x07b\u202ec')
    assert r'a\x1b[31m\x07b\u202ec' in line and line[:-1].isprintable()
    record = logging.LogRecord('', 0, '', 0, 'line %d: %s\nü', (2, 'x\x9b1m'), None)
    assert terminal.LogFormatter().format(record) == 'line 2: x\\x9b1m\nü'
    # What others wrote into a model or a file name keeps its letters, blanks and lines.
    assert terminal.fold('a\x1b]0;b\x07\tü\xa0\n') == 'a\\x1b]0;b\\x07\tü\xa0\n'


def test_a_command_in_an_error_can_be_pasted(capfd, tmp_path):
    folder = tmp_path / 'my  model'
    folder.mkdir()
    (folder / 'config.json').write_text('{}')
    assert shlex.quote(str(folder)) in fails(capfd, 'translate', f'--workdir={folder}')


def test_a_command_line_drops_what_its_choices_make_meaningless(caplog):
    config, warnings = chosen(['--config=configs/tiny.py', '--config.model.kind=recurrent'], caplog)
    assert (config.model.kind, config.model.d_ff) == ('recurrent', configs.Model().d_ff)
    (line,) = warnings
    assert 'configs/tiny.py' in line and 'model.d_ff=512' in line and 'model.h=4' in line
    config, warnings = chosen([GPT, '--config.train.task=translation'], caplog)
    assert config.data.language is None and len(warnings) == 1
    assert chosen([GPT], caplog)[1] == []


def test_a_command_line_sets_options_back_to_none(tmp_path, caplog):
    file = tmp_path / 'mine.py'
    file.write_text(
        'from transformer.config import config_dict\n'
        "def get_config():\n    return config_dict({'train.peak_lr': 0.5, 'train.bleu_every': 3})\n"
    )
    assert chosen([f'--config={file}'], caplog)[0].train.peak_lr == 0.5
    config, _ = chosen([f'--config={file}', '--config.train.peak_lr=none'], caplog)
    assert config.train.peak_lr is None
    # train.watch_every had another name.
    assert config.train.watch_every == 3
    config, _ = chosen([f'--config={file}', '--config.train.bleu_every=4'], caplog)
    assert config.train.watch_every == 4


def test_numbers_of_numpy_are_those_of_python():
    changes = {'model.h': 4, 'decode.alpha': 0.5, 'train.beta1': 0.0, 'model.remat': True}
    numpys = {key: np.asarray(value)[()] for key, value in changes.items()}
    config = configs.config_dict(numpys | {'train.beta1': np.int32(0)})
    assert configs.to_json(configs.resolve(config)) == configs.to_json(
        configs.resolve(configs.config_dict(changes))
    )
    with pytest.raises(ConfigError, match='model.h=4.5: expected int, got float'):
        configs.config_dict({'model.h': np.float64(4.5)})


def test_old_names_stay_readable():
    new = configs.resolve(configs.config_dict({'train.watch_every': 5}))
    old = json.loads(configs.to_json(new))
    old['train']['bleu_every'] = old['train'].pop('watch_every')
    assert configs.from_json(json.dumps(old)) == new
    written = configs.config_dict()
    written.train.bleu_every = 5
    assert configs.resolve(written) == new
    del old['decode']
    assert configs.from_json(json.dumps(old)) == new


@pytest.mark.parametrize(('epochs', 'per_epoch', 'steps'), [(1.1, 100, 110), (0.11, 30, 4), (2.0, 30, 60)])
def test_epochs_are_another_way_to_say_steps(epochs, per_epoch, steps):
    changes = {'train.schedule': 'linear', 'train.warmup_steps': 2, 'train.epochs': epochs}
    config = configs.with_steps(configs.resolve(configs.config_dict(changes)), per_epoch)
    # The learning rate falls to 0 at the last update.
    assert (config.train.steps, config.train.epochs, config.train.decay_steps) == (steps, None, steps)
    assert configs.with_steps(config, 99) is config
    with pytest.raises(ConfigError, match='train.epochs'):
        configs.resolve(configs.config_dict({**changes, 'train.steps': 9}))


def test_a_group_of_one_task():
    @dataclasses.dataclass(frozen=True)
    class Own:
        rate: float = declare.option(0.15, 'a share', minimum=0.0)
        kept: int = declare.option(1, 'a number', only=('own.rate', (0.5,)))

    @dataclasses.dataclass(frozen=True)
    class WithGroup(configs.Config):
        own: Own = declare.group(Own, only=('train.task', ('language',)), free='evaluation')

    before = declare.markdown(configs.OPTIONS)
    table = declare.declared(WithGroup)
    assert declare.markdown(configs.OPTIONS) == before
    values = {key: field.default for key, field in table.items()}
    assert table['own.rate'].metadata['free'] == 'evaluation'
    declare.check_meaning(table, values)
    with pytest.raises(ConfigError, match="own.rate=0.5: .*train.task='translation'"):
        declare.check_meaning(table, values | {'own.rate': 0.5})
    declare.check_meaning(table, values | {'own.rate': 0.5, 'own.kept': 2, 'train.task': 'language'})
    assert declare.drop_unused(table, values | {'own.rate': 0.5}, ['train.task']) == (values, ['own.rate'])


def test_a_config_file_with_a_mistake(capfd, tmp_path):
    file = tmp_path / 'mine.py'
    file.write_text(
        'from transformer.config import config_dict\n'
        "def get_config():\n    return config_dict({'model.layers': 3})\n"
    )
    assert 'model.layers' in fails(capfd, f'--config={file}')
    file.write_text('def get_config():\n    return 1 / 0\n')
    line = fails(capfd, f'--config={file}')
    assert 'mine.py' in line and 'division by zero' in line
    file.write_text('def get_config():\n    pass\n')
    assert f'{file}: get_config() returns no config' in fails(capfd, f'--config={file}')
    file.write_text('raise SystemExit(0)')
    assert f'{file}: SystemExit: 0' in fails(capfd, f'--config={file}')
    # An option that lacks its group would be ignored.
    file.write_text(
        'from transformer.config import config_dict\n'
        'def get_config():\n    config = config_dict({})\n    config.d_model = 8\n    return config\n'
    )
    line = fails(capfd, f'--config={file}')
    assert "d_model: no such option; did you mean 'model.d_model'?" in line


@pytest.mark.parametrize(
    ('file', 'content', 'parts'),
    [
        ('train.de', b'eins\n', ['train.en', 'train.de', '200', '1']),
        ('train.en', b'one\n' * 100 + b'\xff\n' + b'one\n' * 99, ['train.en', '101']),
        ('dev.de', None, ['dev.de']),
    ],
)
def test_bad_data(capfd, texts, tmp_path, file, content, parts):
    for path in texts.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / file).unlink() if content is None else (tmp_path / file).write_bytes(content)
    line = fails(capfd, *arguments(tmp_path, tmp_path / 'w'))
    assert all(part in line for part in parts), line
    assert not (tmp_path / 'w').exists()


def test_too_many_pieces(capfd, texts, tmp_path):
    changes = {'data.pieces': 5000, 'model.vocab_size': 5000}
    assert 'data.pieces=5000' in fails(capfd, *arguments(texts, tmp_path / 'w', **changes))


def test_the_work_directory_of_another_config(capfd, texts, trained):
    before = snapshot(trained)
    line = fails(capfd, *arguments(texts, trained, **{'model.d_ff': 64}))
    assert 'model.d_ff' in line and '32' in line and '64' in line
    assert snapshot(trained) == before


def test_a_work_directory_alone_is_resumed_by_its_own_config(trained):
    call = calls.parse(['run.py', f'--workdir={trained}', '--config.train.steps=9'])
    config = flags.config(call)
    assert (config.train.steps, config.model.d_ff) == (9, 32)
    assert calls.parse(['run.py', '--workdir=nowhere']).file == 'configs/tiny.py'


def test_a_config_is_found_by_name_and_a_file_of_that_name_wins(monkeypatch, tmp_path):
    found = lambda name: calls.parse(['run.py', f'--config={name}']).file
    assert found('big') == found('big.py') == 'configs/big.py'
    monkeypatch.chdir(tmp_path)
    packaged = found('big')
    assert packaged == str(ROOT / 'configs' / 'big.py')
    (tmp_path / 'big.py').write_text('')
    assert (found('big.py'), found('big')) == ('big.py', packaged)
    for name, said in (
        ('folder/big', 'mean --config=big[?]'),
        ('folder/bigg', 'mean --config=big[?]'),
        ('xyz', 'files in .*configs'),
    ):
        with pytest.raises(ConfigError, match=f'--config={name}.*{said}'):
            found(name)


def test_options_that_need_less_memory(use_devices):
    use_devices(2)
    told = lambda changes: less_memory(configs.resolve(configs.config_dict(changes)))
    assert 'train.accumulate (1 now, at most 4) or model.remat' in told({})
    assert told({'train.accumulate': 4, 'model.remat': True}) == 'a smaller data.batch_tokens'
    with pytest.raises(ConfigError, match='4 devices x train.accumulate=4'):
        configs.check_devices(configs.resolve(configs.config_dict({'train.accumulate': 4})), 4)
    batch = {'train.task': 'contrastive', 'data.source': 'scenes', 'data.language': 'de'}
    batch |= {'contrastive.negatives': 'batch'}
    assert 'accumulate' not in told(batch) and 'remat' not in told({'model.kind': 'recurrent'})


def test_too_little_memory_is_one_line_and_leaves_the_folder_free(capfd, texts, tmp_path):
    line = fails(capfd, *arguments(texts, tmp_path / 'w', **{'model.d_ff': 10**13}))
    for part in ('memory', 'data.batch_tokens', 'model.remat'):
        assert part in line
    folder = epath.Path(tmp_path / 'w')
    other = configs.replace(Run.open(folder).config, {'model.d_ff': 16})
    workdirs.check_claim(folder, other, {'checksums': {}}, None)
    (folder / 'checkpoints' / '2').mkdir()
    with pytest.raises(ConfigError, match=r'model\.d_ff'):
        workdirs.check_claim(folder, other, {'checksums': {}}, None)


def test_an_error_lists_only_some_of_many_differences(capfd, texts, trained):
    changes = {f'model.{name}': 64 for name in ('d_model', 'd_ff', 'd_k', 'd_v')}
    changes |= {'train.beta1': 0.5, 'train.beta2': 0.5, 'train.adam_eps': 0.1, 'train.eps_ls': 0.5}
    line = fails(capfd, *arguments(texts, trained, **changes, **{'train.seed': 7, 'train.clip_norm': 1.0}))
    assert line.count(' there and ') == workdirs.SHOWN and 'and 2 more differ' in line


def test_a_changed_option_is_refused_before_data_are_read(capfd, trained, tmp_path):
    line = fails(capfd, *arguments(tmp_path / 'nowhere', trained, **{'model.d_ff': 64}))
    assert 'model.d_ff' in line and 'nowhere' not in line


def test_the_work_directory_of_other_data(capfd, texts, trained, tmp_path):
    for path in texts.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / 'dev.de').write_bytes((texts / 'dev.de').read_bytes().replace(b'eins', b'zwei'))
    before = snapshot(trained)
    line = fails(capfd, *arguments(tmp_path, trained))
    assert 'dev' in line and '--workdir' in line
    assert snapshot(trained) == before
    # Texts can differ where pieces do not: further references.
    run_there = Run.open(epath.Path(trained))
    checksums = run_there.manifest['checksums'] | {'test.target.txt': '0'}
    with pytest.raises(ConfigError, match='made from other test data'):
        workdirs.check_same(run_there, run_there.manifest | {'checksums': checksums})


def test_a_folder_that_is_no_work_directory(capfd, texts, tmp_path):
    (tmp_path / 'thesis.tex').write_text('All you need')
    assert 'config.json' in fails(capfd, *arguments(texts, tmp_path))
    assert snapshot(tmp_path) == {'thesis.tex': b'All you need'}


@pytest.mark.parametrize(
    ('argv', 'parts'),
    [
        (['evaluate', '--split=tset'], ['tset', 'dev, test']),
        (['evaluate', '--checkpoint=77'], ['trained:77: no such checkpoint', 'latest', '2, 3']),
        (['evaluate', '--checkpoint=best,'], ['--checkpoint=best,: ']),
        (['evaluate', '--checkpoint=average'], ['no average']),
        (['average'], ['--config.data.dir', 'work directory']),
        (['evaluate', '--config.model.d_ff=99'], ['model.d_ff=99', '32']),
        (['evaluate', '--config.decode.beam=0'], ['decode.beam=0']),
    ],
)
def test_a_wrong_use_of_a_trained_model(capfd, monkeypatch, texts, trained, argv, parts):
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'one\n')))
    before = snapshot(trained)
    line = fails(capfd, *argv, f'--workdir={trained}', f'--config.data.dir={texts}')
    assert all(part in line for part in parts), line
    assert snapshot(trained) == before


@pytest.mark.parametrize(
    ('argv', 'parts'),
    [
        (['config', '--split=dev'], ['--split', 'config does not take it', '--diff']),
        (['config', '--workdir=w'], ['w: not a work directory']),
        (['config', '--markdown', '--workdir=w'], ['--markdown: ', 'alone']),
        (['config', '--config=tiny', '--workdir=/no/such'], ['--workdir: ', '--config']),
        (['config', '--diff=maybe'], ['--diff=maybe: Non-boolean argument to boolean flag']),
        (['train', '--config=multi30k', '--config.data.dir='], ['data.dir=: names nothing']),
        (['tranlsate'], ["'tranlsate'", 'did you mean translate?']),
        (['config', '--markdown', '--diff'], ['--markdown: ', 'alone']),
        (['config', '--markdown', '--config.model.h=4'], ['--markdown: ', 'alone']),
        (['translate', '--split=dev'], ['--split', 'translate does not take it', '--nbest']),
        (['train', '--checkpoint=best'], ['--checkpoint', 'train does not take it']),
        (['train', '--config='], ['--config=: ']),
        (['translate', '--workdir=w', '--workdir=x'], ['--workdir=x', 'twice']),
        (['train', '--config.model.h=2', '--config.model.h=4'], ['--config.model.h', 'twice']),
        (['translate', '--workdir=w', '--beam=2', '--config.decode.beam=4'], ['decode.beam', 'twice']),
        (['train', '--workdir='], ['--workdir=: ']),
        (['translate', '--workdir=w', '--output='], ['--output=: ']),
        (['translate', '--workdir=w', '--output=-'], ['--output=-: ', 'standard']),
        (['score', '--nbest=2'], ['--nbest', 'score does not take it']),
        (['score', '--config.model.h=2'], ['--config.model.h', 'score', 'no config']),
        (['translate', '--config.data.dir=.'], ['--config.data.dir', 'translate does not take it']),
        (['translate', '--config.train.steps=9'], ['--config.train.steps', 'translate does not']),
        (['evaluate', '--config.train.steps=9'], ['--config.train.steps', 'evaluate does not']),
        (['diagnose', '--config.decode.beam=9'], ['--config.decode.beam', 'diagnose does not']),
        (['figure', '--workdir=w', '--config.model.h=2'], ['--config.model.h', 'figure does not']),
        (
            ['evaluate', '--workdir=w', '--config=configs/base.py'],
            ['--config=configs/base.py', 'not together with --workdir=w, whose own config evaluate uses'],
        ),
        (['evaluate', 'dev'], ["'dev'", 'evaluate takes only flags']),
        (['evaluate', '--config=configs/wmt14_en_fr.py'], ['--workdir: missing', 'runs/wmt14_en_fr']),
    ],
    ids=' '.join,
)
def test_what_a_command_would_ignore_is_refused(capfd, argv, parts):
    line = fails(capfd, *argv)
    assert all(part in line for part in parts), line


@pytest.mark.parametrize(
    ('argv', 'part'),
    [
        ([], '--last: missing'),
        (['--last=3'], 'no checkpoint 1 to average, only 2, 3'),
        (['--last=5', '--every=2'], 'its 3 updates allow; choose --last=2'),
        (['--last=2', '--every=7'], 'its 3 updates allow; choose --last=1'),
    ],
)
def test_checkpoints_that_are_not_there_to_average(capfd, trained, argv, part):
    before = snapshot(trained)
    assert part in fails(capfd, 'average', f'--workdir={trained}', *argv)
    assert snapshot(trained) == before


def test_an_average_of_checkpoints_that_are_gone_is_refused_before_training(capfd, texts, trained):
    before = snapshot(trained)
    changes = {'train.average_last': 4, 'train.steps': 4}
    line = fails(capfd, *arguments(texts, trained, **changes))
    assert 'train.average_last=4' in line and 'checkpoints 1;' in line and 'at most 3' in line
    assert snapshot(trained) == before


def test_a_work_directory_that_another_process_writes(capfd, texts, trained):
    with owner.hold(epath.Path(trained)):
        for argv in (arguments(texts, trained), ['average', f'--workdir={trained}', '--last=1', '--every=1']):
            assert f'{trained}: in use by process {os.getpid()} on ' in fails(capfd, *argv)


def test_training_from_python_goes_on_after_a_kill_before_the_first_step(capfd, texts, trained, tmp_path):
    workdir = tmp_path / 'w'
    workdir.mkdir()
    (workdir / 'tokenizer.model').write_bytes(b'half')
    config = flags.config(calls.parse(['run.py', *arguments(texts, workdir)]))
    told = []
    result = transformer.train(config, workdir, on_metrics=lambda *line: told.append(line))
    assert (workdir / 'tokenizer.model').read_bytes() == (trained / 'tokenizer.model').read_bytes()
    assert result == json.loads((workdir / 'result.json').read_text())
    lines = [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]
    assert lines == [{'step': step, **numbers} for step, numbers in told]
    assert [line['step'] for line in lines] == [1, 2, 3]
    error = capfd.readouterr().err
    for part in (
        'devices: 8 (cpu), processes: 1, parameters: ',
        f'corpus: train in {texts}: 200 examples of ',
        f'work directory: {workdir}\n',
    ):
        assert part in error, error
    for wrong in ('configs/none.py', None, 3):
        with pytest.raises(ConfigError, match=str(wrong)):
            transformer.train(wrong, workdir)
    last = transformer.load(workdir, 3).trained
    assert fingerprint(last.params) == result['params_sha256']
    copied = pickle.loads(pickle.dumps(transformer.load(workdir, 3)))
    assert copied.translate(['the dog']) == transformer.load(workdir, 3).translate(['the dog'])
    # Work directories can be paths.
    with pytest.raises(ConfigError, match='no-such-run'):
        transformer.train(config, tmp_path / 'other', init_from=tmp_path / 'no-such-run')


def test_processes_share_the_work_of_three_commands():
    sharing = {name for name, command in COMMANDS.items() if 'distributed' in command.flags}
    assert sharing == {'train', 'evaluate', 'average'}


def copied(trained: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    for name, content in snapshot(trained).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_averages_the_last_checkpoints(capfd, texts, trained, tmp_path):
    workdir = copied(trained, tmp_path / 'w')
    both = ['--config.decode.beam=1', f'--workdir={workdir}']
    average = ['run.py', 'average', f'--workdir={workdir}']
    last_two = [*average, '--last=2', '--every=1']
    # Of several processes the first one does it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, 'is_primary', lambda: False)
        assert run.main(last_two) == 0
    assert not capfd.readouterr().out and not (workdir / 'average').exists()
    assert run.main(last_two) == 0
    assert '2, 3' in capfd.readouterr().out
    assert run.main(['run.py', 'evaluate', '--checkpoint=average', *both]) == 0
    result = json.loads((workdir / 'result.json').read_text())
    evaluation = result['evaluations']['test.average.beam=1']
    assert (evaluation['checkpoint'], evaluation['steps']) == ('average', [2, 3])
    averaged, second, third = (load(workdir, choice).trained.params for choice in ('average', '2', '3'))
    jax.tree.map(
        np.testing.assert_array_equal, averaged, jax.tree.map(lambda a, b: (a + b) / 2, second, third)
    )
    call = ['run.py', 'export', f'--workdir={workdir}', '--format=safetensors', '--checkpoint=average']
    assert run.main([*call, f'--output={tmp_path / "exported"}']) == 0
    assert restore.origin(Run.open(tmp_path / 'exported'), 'scored')[:2] == ('average', [2, 3])
    exported = [*both[:1], f'--workdir={tmp_path / "exported"}', '--checkpoint=average']
    assert 'one checkpoint' in fails(capfd, 'evaluate', *exported)
    # A new average replaces the old one. Its last checkpoint is the training's, though no multiple of 2.
    assert run.main([*average, '--last=1', '--every=2']) == 0
    jax.tree.map(np.testing.assert_array_equal, load(workdir, 'average').trained.params, third)
    # What a kill leaves while an average is written is none.
    averaging = configs.replace(Run.open(workdir).config, {'train.average_last': 2})
    assert restore.scored(averaging, epath.Path(workdir)) == 'average'
    shutil.rmtree(workdir / 'average' / '0')
    assert restore.scored(averaging, epath.Path(workdir)) == averaging.train.scored
    assert 'has no average' in fails(capfd, 'evaluate', '--checkpoint=average', *both)
    assert '--prompt=' in fails(capfd, 'score-pairs', f'--workdir={workdir}', '--prompt=')


def test_a_figure_of_a_sentence_without_it_shows_all_words(capfd, trained):
    """No word of the toy model's output is a pronoun; what is drawn is in test_figures.py."""
    call = ['run.py', 'figure', f'--workdir={trained}', '--sentence=one two three']
    capfd.readouterr()
    assert run.main(call) == 0
    path = pathlib.Path(capfd.readouterr().out.strip())
    assert path.parent == trained / 'figures' and path.stat().st_size > 1000
    path.unlink()
    path.parent.rmdir()
    for flag in ('--word=it', '--target_word=nowhere'):
        assert run.main([*call, flag]) == 2
        assert f'{flag}: not a word of' in capfd.readouterr().err


def test_figures_of_all_kinds_of_attention(capfd, trained, tmp_path, monkeypatch):
    call = [
        'figures',
        'attention',
        f'--workdir={trained}',
        f'--output={tmp_path}',
        '--sentence=one two three',
    ]
    assert figures.main([*call, '--attention=decoder', '--layer=1', '--heads=2,1']) == 0
    names = ('attention.html', 'lines.svg', 'lines.png', 'heads.svg', 'heads.png')
    assert capfd.readouterr().out.split() == [str(tmp_path / name) for name in names]
    svg = (tmp_path / 'lines.svg').read_text()
    assert all(part in svg for part in ('decoder self-attention', 'layer 1 of 1', 'head 2', 'head 1'))
    model, _ = restore.load(Run.open(trained))
    sentence, written, kinds = translation.attention(model, 'one two three')
    assert [each.name for each in kinds] == [
        'encoder self-attention', 'encoder-decoder attention', 'decoder self-attention',
    ]  # fmt: skip
    encoder, cross, decoder = kinds
    assert sentence == 'one two three' and encoder.queries == encoder.keys == cross.keys
    assert decoder.queries == cross.queries and decoder.keys == ['·', *cross.queries[:-1]]
    side = model.codecs['target']
    assert cross.queries == side.pieces(side.encode(written))
    for each in kinds:
        assert each.weights.shape == (1, 2, len(each.queries), len(each.keys))
        np.testing.assert_allclose(each.weights.sum(-1), 1.0, rtol=1e-5)
    # It reads no piece before it has written it; the queries are those of the pieces written next.
    assert (np.triu(decoder.weights, 1) == 0).all() and (np.tril(decoder.weights) > 0).any()
    page = (tmp_path / 'attention.html').read_text()
    assert all(f'"name":"{each.name}"' in page for each in kinds) and sentence in page
    for bad in ('--layer=2', '--heads=3', '--word=nowhere'):
        assert figures.main([*call, bad]) == 2
        assert f'error: {bad}: ' in capfd.readouterr().err.splitlines()[-1]
    # The word that is looked at in the translation is one of its pieces' words.
    monkeypatch.setattr(
        'transformer.tasks.translation.attention.translate', lambda *_: pytest.fail('searched')
    )
    with pytest.raises(ConfigError, match='--word=nowhere'):
        translation.attention(model, 'one two three', word='nowhere')
    monkeypatch.setattr('transformer.tasks.translation.attention.translate', lambda *_: ["three two's."])
    _, looked_at, _ = translation.attention(model, 'one two three', word='one').kinds
    assert looked_at.word == last_word(looked_at.queries)


def test_diagnosis(capfd, texts, trained, tmp_path):
    workdir = copied(trained, tmp_path / 'w')
    call = ['run.py', 'diagnose', f'--workdir={workdir}', f'--config.data.dir={texts}']
    capfd.readouterr()
    assert run.main(call) == 0
    out = capfd.readouterr().out
    for part in (
        'target tokens per update',
        'warm-up of 1,000',
        'train.average_last=5',
        'findings on test: ',
    ):
        assert part in out, out
    assert '--split=pronoun: choose among dev, test' in fails(capfd, *call[1:], '--split=pronoun')
    # Of a training that was stopped before its end there are scores alone.
    result = json.loads((workdir / 'result.json').read_text())
    (workdir / 'result.json').write_text(json.dumps({'scores': {'test': result['scores']['test']}}))
    assert run.main(call) == 0
    assert capfd.readouterr().out == out
    # Without scores of a split, the training itself is examined.
    assert run.main([*call, '--split=dev']) == 0
    dev = capfd.readouterr().out
    assert 'warm-up of 1,000' in dev and 'target tokens per update' not in dev
    # So it is without the outputs that were scored.
    (workdir / 'translations' / 'test.latest.txt').unlink()
    assert run.main(call) == 0
    shown = capfd.readouterr()
    assert 'test.latest.txt' in shown.err and 'target tokens per update' not in shown.out


def test_prepare_says_what_the_data_is_and_what_was_expected(capfd, texts, tmp_path):
    config = tmp_path / 'numbers.py'
    config.write_text((ROOT / 'configs' / 'multi30k.py').read_text())
    call = ['run.py', 'prepare', f'--config={config}', *arguments(texts, tmp_path / 'w')[2:]]
    assert run.main(call) == 0
    out = capfd.readouterr().out
    assert 'data.train: from train.en (200 lines), train.de (200 lines)' in out
    assert (
        'data.dev: 10 examples read, none left out; 10 examples of ' in out and 'tokenizer: 400 pieces' in out
    )
    assert pathlib.Path(out.split('lock file: ')[1].strip()).exists()
    lock_file = config.with_suffix('.lock.json')
    for expected, line in (
        ({'train': 200, 'dev': 10, 'test': 10}, f'all as {lock_file} says'),
        ({'train': 201}, f'data.train: 200 examples read, {lock_file} says 201'),
    ):
        lock_file.write_text(json.dumps({'pairs_read': expected}))
        assert run.main(call) == 0
        assert capfd.readouterr().out.splitlines()[-1] == line
    lock_file.write_text('[]')
    assert lock_file.name in fails(capfd, *call[1:])
    assert not (tmp_path / 'w').exists()


def test_training_keeps_and_averages_what_its_config_says(capfd, texts, tmp_path):
    # The last update is averaged too, though it is no multiple of 2.
    changes = {'train.steps': 7, 'train.keep': 1, 'train.average_last': 3, 'train.average_every': 2}
    assert run.main(['run.py', *arguments(texts, tmp_path / 'w', **changes)]) == 0
    result = json.loads((tmp_path / 'w' / 'result.json').read_text())
    assert {(s['checkpoint'], *s['steps']) for s in result['scores'].values()} == {('average', 4, 6, 7)}
    # What the training scored is also what is loaded.
    capfd.readouterr()
    averaged = load(tmp_path / 'w').trained.params
    assert 'average of checkpoints 4, 6, 7' in capfd.readouterr().err
    jax.tree.map(np.testing.assert_array_equal, averaged, load(tmp_path / 'w', 'average').trained.params)
    kept = {int(path.name) for path in (tmp_path / 'w' / 'checkpoints').iterdir()}
    # Of the multiples of 2 as many as if the last update were one.
    assert kept == {2, 4, 6, 7}
    # Where there are fewer, those are averaged that there are.
    fewer = changes | {'train.average_every': 4}
    capfd.readouterr()
    argv = [word for word in arguments(texts, tmp_path / 'v', **fewer) if 'train.steps' not in word]
    assert run.main(['run.py', *argv, f'--config.train.epochs={result["epochs"]}']) == 0
    assert 'train.average_last=3' in capfd.readouterr().err
    result = json.loads((tmp_path / 'v' / 'result.json').read_text())
    assert result['scores']['test']['steps'] == [4, 7]
    assert result['config']['train']['steps'] == 7


def flip_a_bit(step: pathlib.Path) -> None:
    largest = max((path for path in step.rglob('*') if path.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)


def test_a_flipped_bit_is_noticed_and_the_checkpoint_before_is_used(capfd, texts, trained, tmp_path):
    workdir = copied(trained, tmp_path / 'w')
    result = json.loads((workdir / 'result.json').read_text())
    flip_a_bit(workdir / 'checkpoints' / '3')
    assert run.main(['run.py', *arguments(texts, workdir)]) == 0
    error = capfd.readouterr().err
    assert 'checkpoint 3 is damaged' in error
    assert (workdir / 'damaged' / '3').exists()
    assert json.loads((workdir / 'result.json').read_text())['params_sha256'] == result['params_sha256']


def test_no_undamaged_checkpoint(capfd, texts, trained, tmp_path):
    workdir = copied(trained, tmp_path / 'w')
    for step in (workdir / 'checkpoints').iterdir():
        if step.name.isdecimal():
            flip_a_bit(step)
    before = snapshot(workdir)
    line = fails(capfd, *arguments(texts, workdir))
    assert 'damaged' in line.lower()
    assert snapshot(workdir) == before


def test_a_read_only_folder(capfd, texts):
    # For root every folder can be written; nothing can be made in /proc.
    line = fails(capfd, *arguments(texts, '/proc/runs'))
    assert '/proc/runs' in line


def test_an_evaluation_that_cannot_be_saved_is_refused_before_it_is_computed(capfd, monkeypatch, trained):
    with pytest.raises(OSError) as error:
        workdirs.check_writable(epath.Path('/proc'))
    assert error.value.filename == '/proc'

    def refuse(folder):
        raise PermissionError(1, 'not permitted', str(folder))

    monkeypatch.setattr(workdirs, 'check_writable', refuse)
    monkeypatch.setattr(restore, 'load_and_report', lambda *_: pytest.fail('the model was loaded'))
    files = [f'--source={trained}/config.json', f'--reference={trained}/config.json']
    for argv in ([], files):
        assert str(trained) in fails(capfd, 'evaluate', f'--workdir={trained}', *argv)


def test_without_standard_error_messages_are_no_output(capfd, monkeypatch):
    monkeypatch.setattr(sys, 'stderr', None)
    assert run.main(['run.py', 'config', '--config=missing']) == 2
    sys.stderr.close()
    assert capfd.readouterr().out == ''


def test_a_full_disk(texts, tmp_path):
    code = (
        'import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); '
        'import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); '
        'import run; sys.exit(run.main(sys.argv))'
    )
    cache = {**os.environ, 'TRANSFORMER_CACHE': str(tmp_path / 'cache')}
    done = subprocess.run(
        [sys.executable, '-c', code, *arguments(texts, tmp_path / 'w')],
        capture_output=True,
        text=True,
        env=cache,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count('\n') == 1 and 'too large' in done.stderr.lower(), done.stderr
    # Hidden and unfinished, for the next call to finish; nothing looks complete.
    assert all(path.name.startswith('.') for path in (tmp_path / 'cache' / 'corpora').iterdir())


def test_a_loss_that_is_not_finite(capfd, texts, tmp_path):
    argv = arguments(texts, tmp_path / 'w', **{'train.lr_constant': 1e30, 'train.steps': 50})
    capfd.readouterr()
    assert run.main(['run.py', *argv]) == 3
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert 'not finite at step' in last and 'last good checkpoint' in last


def test_finished_training_starts_again_at_its_end(texts, trained):
    result = json.loads((trained / 'result.json').read_text())
    assert run.main(['run.py', *arguments(texts, trained)]) == 0
    again = json.loads((trained / 'result.json').read_text())
    assert again['params_sha256'] == result['params_sha256']
    assert again['steps'] == result['steps'] == 3
    assert result['scores']['test']['bleu']['sacrebleu'].keys() == {'score', 'interval', 'signature'}
    assert again['scores'] == result['scores']
    steps = [json.loads(line)['step'] for line in (trained / 'metrics.jsonl').read_text().splitlines()]
    assert steps == sorted(steps)


def test_a_training_that_stops_early(capfd, texts, tmp_path):
    changes = {
        # Without learning, every evaluation finds the same.
        'train.peak_lr': 0.0,
        'train.schedule': 'cosine',
        'train.warmup_steps': 1,
        'train.clip_norm': 1.0,
        'train.weight_decay': 0.1,
        'train.ema': 0.9,
        'train.best_by': 'bleu',
        'train.bleu_every': 1,
        'train.patience': 2,
        'train.steps': 9,
        'decode.method': 'greedy',
    }
    argv = ['run.py', *arguments(texts, tmp_path / 'w', **changes)]
    capfd.readouterr()
    assert run.main(argv) == 0
    assert 'train.patience=2' in capfd.readouterr().err
    result = json.loads((tmp_path / 'w' / 'result.json').read_text())
    assert result['steps'] == 3 and result['scores']['test']['steps'] == [1]
    kept = {path.name for path in (tmp_path / 'w' / 'checkpoints').iterdir()}
    assert kept == {'1', '2', '3'}
    metrics = (tmp_path / 'w' / 'metrics.jsonl').read_text()
    assert 'moving average' in fails(capfd, 'average', f'--workdir={tmp_path / "w"}', '--last=2')
    # Fewer steps than there are: nothing is trained and nothing is lost.
    shorter = [word if 'train.steps' not in word else '--config.train.steps=2' for word in argv]
    longer = [word if 'train.steps' not in word else '--config.train.steps=20' for word in argv[1:]]
    assert run.main([*shorter, '--config.train.decay_steps=9']) == 0
    assert 'train.steps=2' in capfd.readouterr().err
    again = json.loads((tmp_path / 'w' / 'result.json').read_text())
    assert (again['steps'], again['params_sha256']) == (3, result['params_sha256'])
    assert again['scores'] == result['scores']
    assert (tmp_path / 'w' / 'metrics.jsonl').read_text() == metrics
    # Where the learning rate ends is a part of what is learned.
    assert 'train.steps=20: at most 9,' in fails(capfd, *longer)
    # With a floor it does not end.
    opened = Run.open(tmp_path / 'w')
    floor = configs.replace(opened.config, {'train.least_lr': 0.1})
    more = configs.replace(floor, {'train.steps': 20, 'train.decay_steps': 20})
    with pytest.raises(ConfigError, match='continue with --config.train.decay_steps=9'):
        workdirs._check_options(dataclasses.replace(opened, config=floor), more)
    line = fails(capfd, *shorter[1:])
    assert 'train.steps=2: ' in line and '--config.train.decay_steps=9' in line
    line = fails(capfd, *shorter[1:], '--config.train.decay_steps=5')
    assert 'train.decay_steps is 9 there and 5 now' in line


def translate(monkeypatch, capfdbinary, text: bytes, *argv: str) -> tuple[list[bytes], bytes]:
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text)))
    capfdbinary.readouterr()
    assert run.main(['run.py', 'translate', *argv]) == 0
    out, err = capfdbinary.readouterr()
    assert out.endswith(b'\n') or not out
    return out.split(b'\n')[:-1], err


def test_translate_gives_a_line_for_a_line(monkeypatch, capfdbinary, trained):
    lines = [
        b'one two',
        b'',
        b'\xf0\x9f\x99\x82 one',
        b'a\x00b\x1b[1m\x85',
        b'\xff\xfe',
        b'   ',
        b'\xe2\x80\xa8two',
    ]
    long = b' '.join([b'nine'] * 200)
    lines = [*lines, long, b'one two']
    for end in (b'\n', b''):
        found, err = translate(monkeypatch, capfdbinary, b'\n'.join(lines) + end, f'--workdir={trained}')
        assert len(found) == len(lines)
        assert found[0] == found[-1]
        assert found[1] == found[5] == b''
        which, cut, invalid = err.splitlines()
        assert re.fullmatch(rf'{trained}: checkpoint 3 \(latest\)', which.decode())
        longest = Run.open(str(trained)).config.decode.max_source_len
        assert b'line 8' in cut and f'decode.max_source_len={longest}'.encode() in cut
        assert b'UTF-8 in 2 lines, the first is line 4;' in invalid
    assert translate(monkeypatch, capfdbinary, b'', f'--workdir={trained}') == ([], which + b'\n')


def test_lines_from_a_file_and_to_a_file(monkeypatch, capfd, trained, tmp_path):
    (tmp_path / 'a').write_bytes(b'one two\r\n\nthree')
    monkeypatch.setattr(sys, 'stdin', None)
    call = ['translate', f'--workdir={trained}', f'--input={tmp_path / "a"}']
    assert run.main(['run.py', *call]) == 0
    printed = capfd.readouterr().out
    assert printed.count('\n') == 3
    assert run.main(['run.py', *call, f'--output={tmp_path / "b"}']) == 0
    assert capfd.readouterr().out == '' and (tmp_path / 'b').read_text() == printed
    (tmp_path / 'pairs').write_text('one two\teins zwei\nthree\tdrei\n')
    call_of_pairs = ['score-pairs', f'--workdir={trained}', f'--input={tmp_path / "pairs"}']
    assert run.main(['run.py', *call_of_pairs]) == 0
    printed = capfd.readouterr().out
    assert printed.count('\n') == 2
    assert run.main(['run.py', *call_of_pairs, f'--output={tmp_path / "pairs"}']) == 0
    assert capfd.readouterr().out == '' and (tmp_path / 'pairs').read_text() == printed
    (tmp_path / 'pairs').unlink()
    # An output that does not end is not there at all; an older one stays.
    (tmp_path / 'b').write_text('old')
    monkeypatch.setattr(streams, 'write', lambda *_, **__: 1 / 0)
    for output in 'bc':
        with pytest.raises(ZeroDivisionError):
            run.main(['run.py', *call, f'--output={tmp_path / output}'])
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != 'a'} == {'b': 'old'}
    missing = ['translate', f'--workdir={trained}', f'--input={tmp_path / "no"}']
    assert str(tmp_path / 'no') in fails(capfd, *missing)
    there = tmp_path / 'no-folder' / 'b'
    assert fails(capfd, *call, f'--output={there}').startswith(f'error: {there}: ')


def recorded(monkeypatch, seen: list) -> None:
    """Notes the rows of every search."""
    program = generate.batch_shapes.program

    def recording(*arguments):
        search = program(*arguments)

        def call(params, key, batches):
            seen.extend(source.tokens for source, _ in batches)
            return search(params, key, batches)

        return call

    monkeypatch.setattr(generate.batch_shapes, 'program', recording)


def test_a_long_sentence_is_cut(trained, monkeypatch):
    seen = []
    recorded(monkeypatch, seen)
    load(trained).translate(['nine ' * 200], max_source_len=16)
    (row,) = (row for tokens in seen for row in tokens if row.any())
    assert np.count_nonzero(row) == 16 and row[15] == 1


def test_a_search_that_is_left_starts_no_more_batches(trained, monkeypatch):
    closed = []

    def results(*arguments):
        try:
            found = np.ones((4, 1, 1), np.int32)
            while True:
                yield generate.Hypotheses(found, found[..., 0])
        finally:
            closed.append(arguments)

    def leave(rows):
        raise InterruptedError

    monkeypatch.setattr(generate.batch_shapes, 'program', lambda *arguments: results)
    with pytest.raises(InterruptedError) as kept:
        load(trained).hypotheses(['one two'], on_done=leave)
    # The traceback, which a notebook keeps, holds the search.
    assert len(closed) == 1 and kept.tb


def test_only_the_search_of_many_lines_begins_in_a_smaller_room(trained, monkeypatch):
    seen, beam_search = [], generate.beam_search

    def recording(step, rooms, *others, **options):
        seen.append([room.length for room in rooms])
        return beam_search(step, rooms, *others, **options)

    monkeypatch.setattr(generate, 'beam_search', recording)
    generate.batch_shapes.program.cache_clear()
    translator = load(trained)
    alone = translator.translate(['one two'], extra_len=10)
    many = translator.translate(['one two'] * 60, extra_len=10)
    # 32 and 8 pieces are the widths of their batches.
    assert seen == [[32 + 10], [6, 8 + 10]]
    assert many == alone * 60


def test_the_search_has_the_precision_of_the_training(trained, monkeypatch):
    seen, search_rows = [], generate.search_rows

    def recording(*arguments):
        seen.append(jax.config.jax_default_matmul_precision)
        return search_rows(*arguments)

    monkeypatch.setattr(generate, 'search_rows', recording)
    translator = load(trained)
    config = configs.replace(translator.trained.config, {'train.matmul_precision': 'highest'})
    LoadedModel(translator.trained._replace(config=config)).translate(['one two'])
    assert seen == ['highest']


@pytest.mark.parametrize(
    ('argv', 'told'),
    [
        (['--nbest=9'], 'nbest=9: decode.beam=4 finds only 4; set --config.decode.beam=9'),
        (
            ['--nbest=2', '--config.decode.method=greedy'],
            'nbest=2: decode.method=greedy finds only one; set --config.decode.method=beam, or for different '
            'samples set --config.decode.method=sample and --samples=2',
        ),
        (
            ['--nbest=2', '--config.decode.method=sample'],
            'nbest=2: decode.method=sample finds only one; set --config.decode.method=beam, or for different '
            'samples set --samples=2',
        ),
        (['--samples=2'], 'samples=2: decode.method=beam gives only one; set --config.decode.method=sample'),
        (
            ['--seed=7'],
            'seed=7: decode.method=beam draws nothing at random; a seed is for sampling: set '
            '--config.decode.method=sample',
        ),
        (['--top_k=5'], 'decode.top_k=5: for decode.method=sample, not beam'),
        (['--beam=5', '--method=greedy'], 'decode.beam=5: for decode.method=beam, not greedy'),
    ],
)
def test_what_the_search_cannot_give_is_refused_before_the_model_is_loaded(
    capfd, monkeypatch, trained, argv, told
):
    # Nobody has to type a line first.
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'')))
    assert fails(capfd, 'translate', *argv, f'--workdir={trained}') == f'error: {told}\n'


def test_samples_of_a_translation_depend_on_seed_and_line_alone(trained, monkeypatch):
    translator = load(trained)
    ask = functools.partial(translator.hypotheses, method='sample', samples=3)
    lines = ['one two', '', 'three four', 'one two']
    found = ask(lines, seed=5)
    assert found == ask(lines, seed=5) and found != ask(lines, seed=6)
    assert [len(samples) for samples in found] == [3] * 4 and found[1] == [('', 0.0)] * 3
    assert len({text for text, _ in found[0]}) > 1 and found[0] != found[3]
    # Not even on how the lines came.
    assert ask(lines[:2], seed=5) + ask(lines[2:], first=2, seed=5) == found
    # The random generator takes numbers of 32 bits.
    assert ask(lines, first=2**31, seed=5) == found


@pytest.mark.parametrize(
    ('arguments', 'told'),
    [
        ((['one'], {'samples': 0}), 'samples=0: must be from 1 to 10000'),
        ((['one'], {'best': 0}), 'nbest=0: must be at least 1'),
        ((['one'], {'seed': -1}), 'seed=-1: must be from 0 to 2147483647'),
        ((['one'], {'temperature': 1e38}), 'decode.temperature=1e+38: must be from 0.0001 to 1000000.0'),
        ((['one'], {'extra_len': 2**31}), 'decode.extra_len=2147483648: must be from 0 to 1073741823'),
        ((['one'], {'method': 'greedy', 'beam': 2}), 'decode.beam=2: for decode.method=beam, not greedy'),
        ((['one'], {'top_k': 5}), 'decode.top_k=5: for decode.method=sample, not beam'),
        (('one', {}), "sentences='one': a list of texts is expected, not one text"),
        ((['one'], {'first': -1}), 'first=-1: must be at least 0'),
    ],
)
def test_mistakes_in_python_are_told_in_one_line(trained, arguments, told):
    texts, options = arguments
    with pytest.raises(ConfigError) as raised:
        load(trained).translate(texts, **options)
    assert str(raised.value) == told
    with pytest.raises(ConfigError, match="sentences.1.=b'two': expected str, got bytes"):
        generate.as_texts(['one', b'two'], 'sentences')
    for wrong in (None, 5):
        with pytest.raises(ConfigError, match='sentences='):
            generate.as_texts(wrong, 'sentences')
    for pair in ('ab', None, ('a',), ('a', None), ('a', 'b', 'c')):
        with pytest.raises(ConfigError, match=r'pairs\[1\]='):
            generate.as_pairs([('a', 'b'), pair], 'pairs')
    assert len(generate.as_pairs(np.array([('a', 'b'), ('c', 'd')]), 'pairs')) == 2
    for pairs in (5, None, 'ab'):
        with pytest.raises(ConfigError, match='pairs=.*a list of pairs'):
            generate.as_pairs(pairs, 'pairs')
    with pytest.raises(ConfigError, match=r'sentence\[0\]=5'):
        load(trained).attention(5)
    with pytest.raises(ConfigError, match='None: not the name of a folder'):
        load(None)
    for best in (0, -1, 1.5, True):
        with pytest.raises(ConfigError, match='nbest='):
            generate.check_best(best)
    assert generate.as_texts(map(str, range(2)), 'texts') == ['0', '1']
    assert generate.as_texts(io.StringIO('one\n\ntwo'), 'texts') == ['one', '', 'two']
    with pytest.raises(ConfigError, match='seed=1.5: expected int, got float'):
        generate.check_counts(configs.Decode(), 1, 1, 1.5, 0)


def test_translate_nbest_and_scores(monkeypatch, capfdbinary, trained):
    where = f'--workdir={trained}'
    best, _ = translate(monkeypatch, capfdbinary, b'one two\nthree\n', where)
    found, _ = translate(monkeypatch, capfdbinary, b'one two\nthree\n', where, '--nbest=3', '--scores')
    rows = [line.rsplit(b'\t', 1) for line in found]
    numbers, texts_found = zip(*(left.split(b'\t', 1) for left, _ in rows), strict=True)
    assert list(numbers) == [b'0'] * 3 + [b'1'] * 3
    assert [texts_found[0], texts_found[3]] == best
    scores = [float(score) for _, score in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True) and scores[3:] == sorted(scores[3:], reverse=True)


@pytest.mark.parametrize('method', ['greedy', 'sample'])
def test_other_searches(monkeypatch, capfdbinary, trained, method):
    argv = [f'--workdir={trained}', f'--config.decode.method={method}']
    first, _ = translate(monkeypatch, capfdbinary, b'one two\nthree four\n', *argv)
    alone, _ = translate(monkeypatch, capfdbinary, b'one two\n', *argv)
    assert first[:1] == alone


def test_from_python_with_a_relative_path(monkeypatch, trained):
    monkeypatch.chdir(trained.parent)
    translator, same = transformer.load(trained.name), transformer.load(trained)
    assert len(translator.translate(['one', '', 'two \ud800'])) == 3
    assert translator.translate(['one'], beam=1) == same.translate(['one'], beam=1)
    assert 'translation: translate, hypotheses, likelihoods' in repr(translator)
    assert [*inspect.signature(translator.translate).parameters] == ['sentences', 'options']
    assert translator.translate.__doc__ == translation.translate.__doc__
    numpys = {'beam': np.int64(1), 'alpha': np.float32(0.6)}
    assert translator.translate(['one'], **numpys) == translator.translate(['one'], beam=1, alpha=0.6)


def test_config_prints_all_options_and_differences(capsys, trained):
    assert run.main(['run.py', 'config', '--config=configs/big.py']) == 0
    whole = capsys.readouterr().out
    assert 'model.d_model = 1024' in whole and 'decode.alpha = 0.6' in whole
    assert run.main(['run.py', 'config', '--config=configs/base.py', '--diff']) == 0
    assert capsys.readouterr().out == ''
    assert run.main(['run.py', 'config', '--config=configs/base.py', '--diff', '--config.model.h=4']) == 0
    changed = capsys.readouterr().out.splitlines()
    assert [line.split(' = ')[0] for line in changed] == ['model.h', 'model.d_k', 'model.d_v']
    assert run.main(['run.py', 'config', f'--workdir={trained}']) == 0
    assert f'model.d_model = {TINY["model.d_model"]} ' in capsys.readouterr().out


def test_a_config_beside_another_takes_earlier_values_and_names(tmp_path):
    of_text = {'train.task': 'language', 'data.source': 'text', 'data.language': 'en'}
    start = f'config_dict({of_text | {"model.N": 2, "model.h": 2, "model.P_drop": 0.3}})'
    beside = "config_beside(__file__, 'a.py', {'model.kind': 'decoder'})"
    for name, returned in (('a', start), ('b', beside)):
        imports = 'from transformer.config import config_beside, config_dict'
        (tmp_path / f'{name}.py').write_text(f'{imports}\ndef get_config():\n    return {returned}\n')
    config = configs.resolve(read_config_file(str(tmp_path / 'b.py')))
    assert (config.model.N, config.model.h, config.model.P_drop) == (2, 2, 0.3)


@pytest.mark.parametrize(
    ('changes', 'told'),
    [
        (
            {'data.documents': 'files', 'data.batching': 'running', 'data.tokenizer': 'words'},
            'data.tokenizer=bpe',
        ),
        ({'train.task': 'images', 'data.source': 'idx', 'data.tokenizer_model': 'm'}, 'data.tokenizer_model'),
    ],
)
def test_tokenizers_where_they_mean_nothing(changes, told):
    of_text = {'train.task': 'language', 'data.source': 'text', 'data.language': 'en'}
    start = {key: value for key, value in of_text.items() if 'train.task' not in changes}
    with pytest.raises(ConfigError, match=told):
        configs.resolve_values(start | changes)


def test_pairs_before_a_wrong_line_keep_their_scores(capfd, trained, tmp_path):
    (tmp_path / 'pairs').write_text('one\teins\ntwo\tzwei\nthree\n')
    flags = [f'--input={tmp_path / "pairs"}', f'--output={tmp_path / "scores"}']
    assert run.main(['run.py', 'score-pairs', f'--workdir={trained}', *flags]) == 2
    assert 'error: line 3: 1 column' in capfd.readouterr().err
    assert len((tmp_path / 'scores').read_text().splitlines()) == 2


def test_a_home_folder_in_a_value_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv('HOME', str(tmp_path))
    words = ['--workdir=~/w', '--config.data.dir=~/d', '--init_from=text=~/t']
    call = calls.parse(['run.py', 'train', *words])
    assert call.flags.workdir == f'{tmp_path}/w' and call.changes['data.dir'] == f'{tmp_path}/d'
    assert call.flags.init_from == [f'text={tmp_path}/t']
    assert calls.parse(['run.py', 'config', '--workdir=a~/b']).flags.workdir == 'a~/b'


def test_a_misspelled_option_of_the_search_names_it():
    with pytest.raises(ConfigError, match='did you mean --beam[?]'):
        calls.parse(['run.py', 'evaluate', '--beams=1'])


def test_help_names_every_command(capsys):
    assert run.main(['run.py', '--help']) == 0
    out = capsys.readouterr().out
    assert all(f'    {command} ' in out for command in COMMANDS)
    assert max(map(len, out.splitlines())) <= 80
    assert run.main(['run.py', 'help']) == 0
    assert capsys.readouterr().out == out


def test_help_as_a_value_is_a_value(capsys):
    call = calls.parse(['run.py', 'generate', '--workdir=w', '--prompt', 'help'])
    assert call.flags.prompt == 'help'
    assert run.main(['run.py', 'generate', '--workdir=w', '--prompt', 'help']) == 2
    found = capsys.readouterr()
    assert found.out == '' and found.err.startswith('error: w: ')


@pytest.mark.parametrize('command', COMMANDS)
def test_the_help_of_a_command_has_its_own_flags(capsys, command):
    assert run.main(['run.py', command, '--help']) == 0
    out = capsys.readouterr().out
    assert set(re.findall(r'^    --([\w-]+)', out, re.MULTILINE)) == set(COMMANDS[command].flags)
    assert max(map(len, out.splitlines())) <= 80
    for line in out.partition('Examples:')[2].splitlines():
        if line:
            line = line.replace('--config=FILE', '--config=configs/tiny.py')
            words = shlex.split(line.partition('run.py')[2].partition('<')[0], comments=True)
            assert calls.parse(['run.py', *words]).command == command


def test_help_without_docstrings():
    program = flags.Program('python -m experiments.sweep', None, COMMANDS, {})
    assert help_text(['sweep', '--help'], program).startswith('python -m experiments.sweep\n\nCommands')


@pytest.mark.parametrize('name', [*OF_TASKS, *TOOLS])
def test_help_explains_flags_as_their_own_command_declares_them(capsys, name):
    assert run.main(['run.py', name, '--help']) == 0
    out = ' '.join(capsys.readouterr().out.split())
    declared = next(iter(OF_TASKS[name].values())) if name in OF_TASKS else TOOLS[name]
    for flag, one in declared.flags.items():
        usage = f'--{flag}={one.value} ' if one.value else f'--{flag} '
        assert usage + one.meaning in out


@pytest.mark.parametrize(
    ('command', 'words'), [('classify', '[FILE...]'), ('embed', '[FILE...]'), ('caption', 'FILE...')]
)
def test_help_says_whether_files_must_be_named(capsys, command, words):
    assert run.main(['run.py', command, '--help']) == 0
    assert f'run.py {command} {words} [--FLAG=VALUE ...]' in capsys.readouterr().out


def test_forced_scores_add_up_to_the_loss(monkeypatch, capfdbinary, texts, trained):
    sides = [(texts / f'dev.{language}').read_text().splitlines() for language in ('en', 'de')]
    lines = ['\t'.join(pair) for pair in zip(*sides, strict=True)]
    given = '\r\n'.join(['\ufeff' + lines[0], *lines[1:]]).encode()
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(given)))
    capfdbinary.readouterr()
    assert run.main(['run.py', 'score-pairs', f'--workdir={trained}', '--pieces']) == 0
    out, err = capfdbinary.readouterr()
    rows = [line.split('\t') for line in out.decode().split('\n')[:-1]]
    assert len(rows) == len(lines) and err.count(b'\n') == 1
    loss = json.loads((trained / 'result.json').read_text())['scores']['dev']['loss']
    pieces = sum(len(row[1].split(' ')) // 2 for row in rows)
    assert sum(float(row[0]) for row in rows) == pytest.approx(-loss * pieces, rel=1e-5)
    contrast = 'kind\tsource\ttarget\tcontrast\n' + ''.join(
        f'kind\t{source}\t{target}\t{target} eins\n' for source, target in zip(*sides, strict=True)
    )
    for argv in ([], ['--json']):
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(contrast.encode())))
        call = ['run.py', 'score-pairs', f'--workdir={trained}', '--contrast', *argv]
        assert run.main(call) == 0
        out, err = capfdbinary.readouterr()
        assert out.count(b'\n') == len(lines) + len(argv)
        if argv:
            assert json.loads(out.splitlines()[-1])['kinds']['kind']['count'] == len(lines)
        else:
            assert err.decode().splitlines()[-1].endswith(f'of {len(lines)}')


def test_forced_scores_end_at_a_line_that_is_wrong(monkeypatch, capfdbinary, trained):
    """What comes before it is answered."""
    monkeypatch.setattr(
        sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'one\teins\ntwo\tzwei\nthree\nfour\tvier\n'))
    )
    assert run.main(['run.py', 'score-pairs', f'--workdir={trained}']) == 2
    out, err = capfdbinary.readouterr()
    assert out.count(b'\n') == 2 and b'error: line 3: 1 column; expected source, target' in err


WRONG = {'line': b'three\none\teins\n', 'gzip': gzip.compress(b'one\teins\n')}


@pytest.mark.parametrize('content', WRONG.values(), ids=WRONG)
def test_a_file_of_scores_keeps_what_it_held_if_no_line_has_one(capfd, trained, tmp_path, content):
    (tmp_path / 'lines').write_bytes(content)
    (tmp_path / 'scores').write_text('earlier\n')
    call = ['run.py', 'score-pairs', f'--workdir={trained}', f'--input={tmp_path / "lines"}']
    assert run.main([*call, f'--output={tmp_path / "scores"}']) == 2
    assert capfd.readouterr().err.splitlines()[-1].startswith('error: ')
    assert (tmp_path / 'scores').read_text() == 'earlier\n'


def test_files_whose_names_are_not_utf8_are_evaluated(trained, tmp_path, capfd):
    source, reference = (tmp_path / os.fsdecode(name) for name in (b'\xff.en', b'\xfe.de'))
    source.write_text('one\n')
    reference.write_text('eins\n')
    copy = shutil.copytree(trained, tmp_path / 'w')
    call = ['run.py', 'evaluate', f'--workdir={copy}', f'--source={source}', f'--reference={reference}']
    assert run.main(call) == 0


def test_an_ensemble_of_checkpoints(monkeypatch, capfdbinary, texts, trained, tmp_path):
    workdir = copied(trained, tmp_path / 'w')
    where = f'--workdir={workdir}'
    alone, _ = translate(monkeypatch, capfdbinary, b'one two\nthree\n', where, '--checkpoint=3')
    same, err = translate(monkeypatch, capfdbinary, b'one two\nthree\n', where, '--checkpoint=3,latest')
    assert same == alone and b'ensemble of checkpoints 3, latest' in err
    several = load(workdir, f'2,3,{trained}:latest').trained.params
    steps = [load(workdir, choice).trained.params for choice in ('2', '3', '3')]
    for member, step in zip(several, steps, strict=True):
        jax.tree.map(np.testing.assert_array_equal, member, step)
    call = ['--split=dev', '--config.decode.beam=1', f'--config.data.dir={texts}', where]
    assert run.main(['run.py', 'evaluate', '--checkpoint=2,3', *call]) == 0
    assert 'checkpoint 2,3' in capfdbinary.readouterr().out.decode()
    for choice, part in (('2,7', f'{workdir}:7: no such'), (f'2,{tmp_path}:best', 'not a work directory')):
        assert run.main(['run.py', 'translate', where, f'--checkpoint={choice}']) == 2
        assert part in capfdbinary.readouterr().err.decode()
    config = configs.from_json((workdir / 'config.json').read_text())
    (workdir / 'config.json').write_text(configs.to_json(configs.replace(config, {'model.h': 4})))
    assert run.main(['run.py', 'translate', f'--workdir={trained}', f'--checkpoint=2,{workdir}:2']) == 2
    assert 'model.' in capfdbinary.readouterr().err.decode()
    # Refused before the ensemble is loaded and told.
    assert run.main(['run.py', 'figure', f'--workdir={trained}', '--checkpoint=2,3', '--sentence=it']) == 2
    told = 'error: --checkpoint=2,3: figure shows one checkpoint, no ensemble\n'
    assert capfdbinary.readouterr().err.decode() == told


def test_members_of_an_ensemble_from_folders_of_one_name_are_told_apart(texts, trained, tmp_path):
    workdir = copied(trained, tmp_path / 'w')
    a, b = (copied(trained, tmp_path / name / 'm') for name in 'ab')
    scored = [
        evaluate(Run.open(epath.Path(workdir)), ['dev'], f'2,{other}:2', {'decode.beam': 1})[0]
        for other in (a, b)
    ]
    assert [one.entry['checkpoint'] for one in scored] == [f'2,{a}:2', f'2,{b}:2']
    assert list(entries(workdir)) == [one.name for one in scored]
    # A name that is too long for a file, in bytes, is cut.
    deep = copied(trained, tmp_path / ('\u0436' * 100) / ('e' * 20))
    [found] = evaluate(Run.open(epath.Path(workdir)), ['dev'], f'2,{deep}:2', {'decode.beam': 1})
    assert len(found.name.encode()) < 200 and (workdir / 'translations' / f'{found.name}.txt').is_file()


def test_a_damaged_result_and_a_checkpoint_without_a_name(capfd, trained, tmp_path):
    workdir = copied(trained, tmp_path / 'w')
    assert '--checkpoint=: names no checkpoint' in fails(
        capfd, 'evaluate', f'--workdir={workdir}', '--checkpoint='
    )
    (workdir / 'result.json').write_text('{"scores": {')
    assert f'{workdir}/result.json: ' in fails(capfd, 'compare', workdir, f'{workdir}:2')


def test_members_of_an_ensemble_may_differ_in_what_computes_the_same(trained, tmp_path, monkeypatch):
    other = copied(trained, tmp_path / 'o')
    config = configs.from_json((other / 'config.json').read_text())
    changed = configs.replace(config, {'model.remat': True})
    (other / 'config.json').write_text(configs.to_json(changed))
    assert len(load(trained, f'2,{other}:2').trained.params) == 2
    # As if trained so, and where there is such a kernel.
    monkeypatch.setattr(restore, '_check_config', lambda *_: None)
    changed = configs.replace(config, {'model.init': 'normal'})
    (other / 'config.json').write_text(configs.to_json(changed))
    assert len(load(trained, f'2,{other}:2').trained.params) == 2
    changed = configs.replace(config, {'train.task': 'transliteration'})
    (other / 'config.json').write_text(configs.to_json(changed))
    with pytest.raises(ConfigError, match='train.task'):
        load(trained, f'2,{other}:2')
    flash = json.loads(configs.to_json(config))
    flash['model']['attention'] = 'flash'
    for folder in (other, copied(trained, tmp_path / 'p')):
        (folder / 'config.json').write_text(json.dumps(flash))
    assert len(load(tmp_path / 'p', f'2,{other}:2').trained.params) == 2
    own, member = (Run.open(epath.Path(folder)) for folder in (trained, copied(trained, tmp_path / 'q')))
    member.codecs['target'] = ByteTokenizer()
    with pytest.raises(ConfigError, match=f'{tmp_path}/q:2: its tokenizer differs'):
        restore._member(own, own.config, member, '2')


@pytest.mark.parametrize('config', ['gru_bahdanau', 'conv_seq2seq'])
def test_a_model_of_other_layers_learns_translates_and_shows_its_alignment(
    monkeypatch, capfdbinary, texts, tmp_path, config
):
    changes = {key: value for key, value in TINY.items() if key not in ('model.h', 'model.d_ff')} | {
        'data.dir': texts, 'data.dev': 'dev', 'data.test': 'test', 'train.steps': 20, 'train.log_every': 1,
        'train.eval_every': 20, 'train.checkpoint_every': 20, 'train.warmup_steps': 10,
        **({'model.variational_dropout': True} if config == 'gru_bahdanau' else {}),
    }  # fmt: skip
    where = f'--workdir={tmp_path / "w"}'
    argv = [where, f'--config=configs/{config}.py', *(f'--config.{k}={v}' for k, v in changes.items())]
    assert run.main(['run.py', *argv]) == 0
    lines = [json.loads(line) for line in (tmp_path / 'w' / 'metrics.jsonl').read_text().splitlines()]
    assert len(lines) == 20 and lines[-1]['loss'] < lines[0]['loss']
    found, _ = translate(monkeypatch, capfdbinary, b'one two\nthree\n', where)
    assert len(found) == 2
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'one\teins\n')))
    assert run.main(['run.py', 'score-pairs', where]) == 0
    assert run.main(['run.py', 'figure', where, '--sentence=one two']) == 0
    (picture,) = (tmp_path / 'w' / 'figures').iterdir()
    assert picture.stat().st_size > 5_000
    capfdbinary.readouterr()
    assert run.main(['run.py', 'figure', where, '--sentence=one two', '--word=one']) == 2
    assert 'the encoder of this model has no attention' in capfdbinary.readouterr().err.decode()
    assert run.main(['run.py', *argv, '--config.model.residual=maybe']) == 2
    assert "model.residual='maybe': expected bool" in capfdbinary.readouterr().err.decode()


def entries(workdir: pathlib.Path) -> dict[str, dict]:
    """Reads the evaluations after the training."""
    return json.loads((workdir / 'result.json').read_text())['evaluations']


def test_a_later_evaluation_stands_beside_what_the_training_scored(capfd, trained, tmp_path):
    workdir = copied(trained, tmp_path / 'w')
    before = json.loads((workdir / 'result.json').read_text())
    lines = (workdir / 'translations' / 'test.latest.txt').read_bytes()
    call = ['run.py', 'evaluate', f'--workdir={workdir}']
    assert run.main([*call, '--checkpoint=2', '--config.decode.method=greedy', '--split=dev,test']) == 0
    out = capfd.readouterr().out
    assert f'saved in {workdir} as test.2.method=greedy\n' in out
    # With the options of the training its name would be that of the training's own lines.
    assert run.main(call) == 0
    result = json.loads((workdir / 'result.json').read_text())
    names = ['dev.2.method=greedy', 'test.2.method=greedy', 'test.latest.evaluated']
    assert list(result.pop('evaluations')) == names and result == before
    assert (workdir / 'translations' / 'test.latest.txt').read_bytes() == lines
    assert all((workdir / 'translations' / f'{name}.txt').exists() for name in names)
    evaluation = entries(workdir)['test.2.method=greedy']
    assert (evaluation['split'], evaluation['checkpoint'], evaluation['steps']) == ('test', '2', [2])
    assert evaluation['decode']['method'] == 'greedy'


def test_the_name_of_an_evaluation_says_what_differs_from_the_training(trained, tmp_path):
    workdir = epath.Path(copied(trained, tmp_path / 'w'))
    config = configs.from_json((workdir / 'config.json').read_text())
    assert config.decode.extra_len == TINY['decode.extra_len'] != configs.Decode().extra_len

    def name(checkpoint: str, of: str = 'test', **changes) -> str:
        changed = configs.replace(config, {f'decode.{key}': value for key, value in changes.items()})
        return workdirs.evaluation_name(Run.open(workdir), changed, of, checkpoint)

    assert name('2') == 'test.2' and name('latest') == 'test.latest.evaluated'
    assert name('2', beam=8, extra_len=50) == 'test.2.beam=8.extra_len=50'
    assert name('2', 'mine-01234567', alpha=1.0) == 'mine-01234567.2.alpha=1.0'
    assert len({name(f'2,/runs/a{mark}b:2') for mark in '/_'}) == 2
    # Files of one long name and different contents.
    assert len(text_input.name_of({'source': {'name': f'{"ä" * 90}.en', 'sha256': '1'}}).encode()) <= 80
    long = [text_input.name_of({'source': {'name': f'{"x" * 90}.en', 'sha256': digit}}) for digit in '12']
    assert len({name('2', of) for of in long}) == 2
    # Parts of one file, and columns whose names differ late.
    parts = [{f'x.tsv{part}': {'name': 'x.tsv', 'sha256': '1'}} for part in ('', '[:9]', '[9:]')]
    assert len({name('2', text_input.name_of(part)) for part in parts}) == 3
    assert len({name('2', f'mine-01234567.columns={"text+" * 20}{n}') for n in '12'}) == 2


def test_evaluates_without_the_corpus(capfd, monkeypatch, trained, tmp_path):
    """Dev and test from the work directory's own copy; the same sentences in files give the same scores."""
    workdir = copied(trained, tmp_path / 'w')
    scores = json.loads((workdir / 'result.json').read_text())['scores']['test']
    config = json.loads((workdir / 'config.json').read_text())
    config['data']['dir'] = '/gone'
    (workdir / 'config.json').write_text(json.dumps(config))
    for language, field in (('en', 'source'), ('de', 'target')):
        text = (workdir / 'data' / f'test.{field}.txt').read_bytes()
        (tmp_path / f'mine.{language}').write_bytes(b'\xef\xbb\xbf' + text.replace(b'\n', b'\r\n'))
    # From any folder, without a config file.
    monkeypatch.chdir(tmp_path)
    assert run.main(['run.py', 'evaluate', '--workdir=w']) == 0
    assert run.main(['run.py', 'evaluate', '--workdir=w', '--source=mine.en', '--reference=mine.de']) == 0
    of_split, of_files = entries(workdir).values()
    assert {name: of_split[name] for name in scores} == scores
    name = list(entries(workdir))[1]
    assert re.fullmatch(r'mine-[0-9a-f]{8}\.latest', name), name
    assert of_files['files']['target']['name'] == 'mine.de' and 'split' not in of_files
    assert {key: of_files[key] for key in scores} == scores
    lines = (workdir / 'translations' / f'{name}.txt').read_bytes()
    assert lines == (workdir / 'translations' / 'test.latest.txt').read_bytes()
    assert f'saved in w as {name}\n' in capfd.readouterr().out
    (workdir / 'data' / 'test.source.txt').write_bytes(b'damaged')
    assert run.main(['run.py', 'evaluate', '--workdir=w']) == 2
    warning, error = capfd.readouterr().err.splitlines()[-2:]
    assert 'test.source.txt is damaged' in warning and '/gone' in error


@pytest.mark.parametrize('command', [['evaluate'], ['diagnose'], ['compare', 'W', 'W']])
def test_a_split_that_cannot_be_scored_is_refused_before_any_data_is_read(
    capfd, monkeypatch, trained, command
):
    monkeypatch.setattr('transformer.actions.data.of_run', None)
    words = [str(trained) if word == 'W' else word for word in command]
    where = [] if 'compare' in command else [f'--workdir={trained}']
    assert '--split=train: choose among dev, test' in fails(capfd, *words, *where, '--split=train')


def test_a_checkpoint_that_is_not_there_is_refused_before_any_data_is_read(capfd, monkeypatch, trained):
    monkeypatch.setattr('transformer.actions.data.of_run', None)
    told = fails(capfd, 'evaluate', f'--workdir={trained}', '--checkpoint=2,7')
    choices = 'scored, best, latest, average or one of the steps 2, 3'
    assert told == f'error: {trained}:7: no such checkpoint; choose {choices}\n'


def test_evaluates_files_of_any_content(capfd, trained, tmp_path):
    workdir = copied(trained, tmp_path / 'w')
    lines = ['one\u2028two', 'a\x00b\x85', '', '  ', 'nine ' * 20_000, 'one two']
    (tmp_path / 'a.en').write_text('\n'.join(lines), newline='')
    (tmp_path / 'a.de').write_text('\r\n'.join(lines) + '\r\n', newline='')
    files = [f'--source={tmp_path / "a.en"}', f'--reference={tmp_path / "a.de"}']
    assert run.main(['run.py', 'evaluate', f'--workdir={workdir}', *files]) == 0
    ((name, found),) = entries(workdir).items()
    assert found['cut'] == 1 and np.isfinite(found['loss'])
    assert (workdir / 'translations' / f'{name}.txt').read_bytes().count(b'\n') == len(lines)
    before = snapshot(workdir)
    (tmp_path / 'a.de').write_text('eins\nzwei\n')
    assert 'a.en has 6 lines' in (line := fails(capfd, 'evaluate', f'--workdir={workdir}', *files))
    assert 'a.de has 2 lines' in line
    (tmp_path / 'a.de').write_bytes(b'eins\n\xff\n')
    assert 'a.de: line 2 is not UTF-8' in fails(capfd, 'evaluate', f'--workdir={workdir}', *files)
    # A pipe cannot be read twice.
    os.mkfifo(tmp_path / 'pipe')
    piped = [f'--source={tmp_path / "pipe"}', files[1]]
    assert f'{tmp_path}/pipe: ' in fails(capfd, 'evaluate', f'--workdir={workdir}', *piped)
    for wrong, part in (
        (files[:1], '--reference: missing; --source needs it'),
        ([f'--text={tmp_path / "a.en"}'], '--source=FILE --reference=FILE, not --text=FILE'),
        ([*files, '--split=dev'], '--split=dev: not together with files'),
        (['--config.data.test=own', '--split=dev'], '--split: not with data.test'),
    ):
        assert part in fails(capfd, 'evaluate', f'--workdir={workdir}', *wrong)
    assert snapshot(workdir) == before


def test_the_config_of_a_work_directory_is_a_config_file(capfd, trained, tmp_path):
    file = f'--config={trained / "config.json"}'
    assert run.main(['run.py', 'config', file]) == 0
    told = dict(line.partition('#')[0].split(' = ') for line in capfd.readouterr().out.splitlines())
    flat = configs.flatten(configs.from_json((trained / 'config.json').read_text()))
    assert {key: value.strip() for key, value in told.items()} == {k: str(v) for k, v in flat.items()}
    # What follows from other options follows from their changes too.
    config = flags.config(calls.parse(['run.py', file, '--config.model.h=4']))
    assert (config.model.d_k, config.model.d_v, config.model.d_ff) == (4, 4, 32)
    # A command that needs its model takes the folder.
    told = (
        f'translate needs a trained model, not a config; for the one in that folder give --workdir={trained}'
    )
    assert told in fails(capfd, 'translate', file)
    # Its own work directory is the default one.
    assert flags.work_directory(calls.parse(['run.py', file])) == f'runs/{trained.name}'
    own = shutil.copy(trained / 'config.json', tmp_path / 'own.json')
    assert flags.work_directory(calls.parse(['run.py', f'--config={own}'])) == 'runs/own'
    # A choice named none is no reset.
    call = calls.parse(['run.py', '--config=captions_pictures', '--config.image_model.positions=none'])
    assert flags.config(call).image_model.positions == 'none'
    # Two models can have options of one name.
    sizes = [f'--config.{group}.N=2' for group in ('model', 'image_model')]
    names = [flags.work_directory(calls.parse(['run.py', '--config=clip_pictures', one])) for one in sizes]
    assert names == ['runs/clip_pictures-N=2', 'runs/clip_pictures-image_model.N=2']
    damaged = tmp_path / 'config.json'
    damaged.write_text('{"model": 1}')
    with pytest.raises(ConfigError, match='expected an object'):
        flags.config(calls.parse(['run.py', f'--config={damaged}']))


def test_lines_that_were_not_scored_are_scored_anew(capfd, trained, tmp_path):
    first, second = copied(trained, tmp_path / 'a'), copied(trained, tmp_path / 'b')
    file = second / 'translations' / 'test.latest.txt'
    own = file.read_bytes()
    assert json.loads((second / 'result.json').read_text())['scores']['test']['lines_sha256'] == files.sha256(
        file
    )
    call = ['run.py', 'compare', str(first), str(second), '--json', '--show=3']

    def difference() -> float:
        assert run.main(call) == 0
        report = json.loads(capfd.readouterr().out)
        [test] = report['significance']
        assert test['difference'] == pytest.approx(report['scores']['bleu']['difference'])
        return test['difference']

    equal = difference()
    references = (second / 'data' / 'test.target.txt').read_bytes()
    for content in (references, own[:-20], b'', b'\xff\n' * 10):
        file.write_bytes(content)
        assert difference() == equal == 0
        # What was scored anew is found the next time.
        assert [*entries(second)] == ['test.latest.evaluated']
        (second / 'translations' / 'test.latest.evaluated.txt').unlink()
    file.write_bytes(references)
    assert run.main(['run.py', 'diagnose', f'--workdir={second}']) == 0
    assert str(file) in capfd.readouterr().err
    # An earlier version recorded no hash.
    result = json.loads((first / 'result.json').read_text())
    del result['scores']['test']['lines_sha256']
    (first / 'result.json').write_text(json.dumps(result))
    (first / 'translations' / 'test.latest.txt').write_bytes(references)
    assert difference() == 0


@pytest.mark.parametrize('choice', ['scored', 'best', 'latest'])
def test_a_training_beside_may_save_and_remove_checkpoints(monkeypatch, trained, tmp_path, choice):
    workdir = copied(trained, tmp_path / 'w')
    own_steps, own_content = Checkpoints.steps, Checkpoints.content
    # One listing shows that there are checkpoints, the second is chosen from; then step 3 is saved.
    listings = [[2], [2]]
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, 'steps', lambda self: listings.pop() if listings else own_steps(self))
        assert restore.origin(Run.open(workdir), choice).steps == [2]

    def remove_first(self, step: int) -> dict:
        shutil.rmtree(workdir / 'checkpoints' / '3', ignore_errors=True)
        return own_content(self, step)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, 'content', remove_first)
        patched.setattr(Checkpoints, 'best', lambda self, steps: max(steps))
        assert restore.load(Run.open(workdir), choice)[1].steps == [2]
    with pytest.raises(ConfigError, match='no such checkpoint'):
        restore.origin(Run.open(workdir), '3')


def edit_config(folder: pathlib.Path, group: str, **changes) -> None:
    config = json.loads((folder / 'config.json').read_text())
    config[group] |= changes
    (folder / 'config.json').write_text(json.dumps(config))


@pytest.mark.parametrize(
    'group, changes',
    [('model', {'norm': 'pre'}), ('model', {'activation': 'gelu'}), ('train', {'beta2': 0.5})],
)
def test_an_edited_config_is_refused(capfd, trained, texts, tmp_path, group, changes):
    workdir = copied(trained, tmp_path / 'w')
    assert run.main(['run.py', 'average', f'--workdir={workdir}', '--last=2', '--every=1']) == 0
    edit_config(workdir, group, **changes)
    before = snapshot(workdir)
    [name] = changes
    for call in (
        ['evaluate', f'--workdir={workdir}', '--split=dev'],
        ['evaluate', f'--workdir={workdir}', '--split=dev', '--checkpoint=average'],
        ['evaluate', f'--workdir={trained}', f'--checkpoint=latest,{workdir}:2'],
        ['translate', f'--workdir={workdir}', f'--input={texts / "dev.en"}'],
        ['compare', trained, workdir],
        ['average', f'--workdir={workdir}', '--last=2', '--every=1'],
        [f'--workdir={workdir}', '--config.train.steps=4'],
        [*arguments(texts, tmp_path / 'new'), f'--init_from={workdir}'],
    ):
        assert f'{group}.{name}' in fails(capfd, *call)
        assert snapshot(workdir) == before


def test_options_that_do_not_change_what_is_learned_may_be_edited(trained, tmp_path):
    workdir = copied(trained, tmp_path / 'w')
    edit_config(workdir, 'decode', beam=1)
    edit_config(workdir, 'train', keep=3)
    texts, model = ['one', 'one two', 'three'], load(trained)
    found = load(workdir).translate(texts)
    assert found == model.translate(texts, beam=1) and found != model.translate(texts)


def test_options_newer_than_a_checkpoint_are_not_compared(trained):
    config = Run.open(trained).config
    record = dataclasses.asdict(config)
    del record['model']['norm_epsilon']
    other = configs.replace(config, {'model.norm_epsilon': 1e-3, 'model.activation': 'gelu'})
    assert configs.record_differences(record, other) == {'model.activation': ('relu', 'gelu')}


def test_compares_two_models(capfd, monkeypatch, trained, tmp_path):
    first, second = copied(trained, tmp_path / 'a'), copied(trained, tmp_path / 'b')
    config = json.loads((second / 'config.json').read_text())
    config['decode']['method'] = 'greedy'
    (second / 'config.json').write_text(json.dumps(config))
    call = ['run.py', 'compare', str(first), f'{second}:2', '--show=3']
    assert run.main([*call, '--json']) == 0
    report = json.loads(capfd.readouterr().out)
    saved = json.loads((first / 'result.json').read_text())
    # What the training scored is not scored again.
    assert 'evaluations' not in saved and report['a']['name'] == 'test.latest'
    (name,) = entries(second)
    assert report['b']['name'] == name == 'test.2'
    [note] = report['notes']
    assert 'method beam and greedy' in note
    a, b = saved['scores']['test'], entries(second)[name]
    assert report['scores']['loss'] == {
        'a': a['loss'],
        'b': b['loss'],
        'difference': pytest.approx(b['loss'] - a['loss']),
    }
    assert report['scores']['bleu']['b'] == b['bleu']['sacrebleu']['score']
    [bootstrap] = report['significance']
    assert bootstrap['measure'] == 'bleu' and 0 <= bootstrap['p'] <= 1
    differences = [abs(row['difference']) for row in report['examples']]
    assert differences == sorted(differences, reverse=True) and len(differences) <= 3
    sources = (trained / 'data' / 'test.source.txt').read_text().splitlines()
    for row in report['examples']:
        assert row['source'] == sources[row['line']] and row['a'] != row['b']
        of_lines = [bleu.chrf_of_lines([row[side]], [row['target']])[0] for side in ('a', 'b')]
        assert row['chrf'] == pytest.approx(of_lines)
        assert row['difference'] == pytest.approx(of_lines[1] - of_lines[0])
    # Both are known now.
    known = lambda: run_comparison((Side(Run.open(first), 'latest'), Side(Run.open(second), '2')), 'test')
    with monkeypatch.context() as patched:
        # A training that was killed before it scored has the scores of the one before.
        before = (first / 'result.json').read_text()
        older = json.loads(before)
        older['config']['decode']['beam'] = 3
        # Without a config, too, its options are not this one's.
        unknown = {key: value for key, value in older.items() if key != 'config'}
        patched.setattr('transformer.actions.compare.evaluate', lambda *asked: 1 / 0)
        for content in (older, unknown):
            (first / 'result.json').write_text(json.dumps(content))
            with pytest.raises(ZeroDivisionError):
                known()
        (first / 'result.json').write_text(before)
    monkeypatch.setattr('transformer.actions.compare.evaluate', None)
    assert run.main(call) == 0
    out = capfd.readouterr().out
    bleus = report['scores']['bleu']
    assert f'{bleus["difference"]:+.2f}, p = {bootstrap["p"]:.3f}' in out
    assert 'beam' in out
    heading, *rows = [line.split() for line in out.splitlines()[3:8]]
    assert heading == ['A', 'B', 'B', 'minus', 'A']
    assert [row[0] for row in rows] == ['loss', 'perplexity', 'sacreBLEU', 'chrF']
    assert rows[2][1:] == [f'{bleus["a"]:.2f}', f'{bleus["b"]:.2f}', f'{bleus["difference"]:+.2f}']
    monkeypatch.setenv('COLUMNS', '80')
    assert run.main([*call[:-1], '--show=10']) == 0
    folded = capfd.readouterr().out
    # Paths stay whole.
    assert max(len(line) for line in folded.splitlines() if str(tmp_path) not in line) <= 80
    assert "the paper's BLEU  " in folded and folded.split()[:3] == out.split()[:3]
    monkeypatch.delenv('COLUMNS')
    # Other texts cannot be compared.
    (second / 'data' / 'test.target.txt').write_text('eins\n' * 10)
    lock = json.loads((second / 'data.lock.json').read_text())
    lock['checksums']['test.target.txt'] = files.sha256(second / 'data' / 'test.target.txt')
    (second / 'data.lock.json').write_text(json.dumps(lock))
    assert 'have different texts of test' in fails(capfd, 'compare', first, second)
    assert f'{second}:999: no such checkpoint' in fails(capfd, 'compare', first, f'{second}:999')
    one_side = fails(capfd, 'evaluate', '--workdir=w', '--source=mine.en')
    assert '--reference: missing; --source needs it' in one_side
    assert 'compare: needs A and B' in fails(capfd, 'compare')
    assert "compare: needs A and B, not only 'a'" in fails(capfd, 'compare', 'a')
    assert "'a', 'b', 'c': compare takes A and B" in fails(capfd, 'compare', 'a', 'b', 'c')
