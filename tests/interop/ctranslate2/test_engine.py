"""CTranslate2 in place of our search: the same outputs and scores, from a copy that is written once.

The model is the public one of tests/interop/ctranslate2/aren_transliteration.
"""

import dataclasses
import io
import json
import pathlib
import re
import shutil
import sys

import numpy as np
import pytest

import transformer
from transformer.cli import commands, main
from transformer.config import ConfigError
from transformer.interop import engines
from transformer.interop import import_model as importing
from transformer.interop.ctranslate2 import engine, writing
from transformer.runs import restore, workdir
from transformer.runs.workdir import Run
from transformer.tasks import task_of
from transformer.tokens import PAD, UNK

ctranslate2 = pytest.importorskip('ctranslate2')
FOLDER = pathlib.Path(__file__).parent / 'aren_transliteration'
NAMES = [one['source'] for one in json.loads((FOLDER / 'ctranslate2.json').read_text())][:12]
OPTIONS = {'train.task': 'transliteration', 'decode.alpha': 0.0, 'decode.extra_len': 32}


@pytest.fixture(scope='module')
def imported(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('imported') / 'aren'
    importing.import_model(FOLDER, folder, OPTIONS)
    return folder


@pytest.fixture
def folder(imported, tmp_path) -> pathlib.Path:
    """Copies the imported model; the copy receives CTranslate2's."""
    return pathlib.Path(shutil.copytree(imported, tmp_path / 'aren'))


@pytest.fixture
def translate(monkeypatch, capfd, folder):
    """Returns a function that runs the command on texts, and returns status, output lines and error lines."""

    def run(texts: list[str], *argv: str) -> tuple[int, list[str], list[str]]:
        stdin = io.TextIOWrapper(io.BytesIO(''.join(f'{text}\n' for text in texts).encode()))
        monkeypatch.setattr(sys, 'stdin', stdin)
        capfd.readouterr()
        status = main.main(['run.py', 'translate', f'--workdir={folder}', *argv])
        out, err = capfd.readouterr()
        return status, out.split('\n')[:-1], err.split('\n')[:-1]

    return run


def test_a_line_for_a_line_as_from_our_own_search(translate):
    texts = [*NAMES[:6], '', '  ', NAMES[6] * 3, *NAMES[6:]]
    how = ['--nbest=2', '--scores', '--max_source_len=9']
    (_, ours, our_errors), (status, theirs, errors) = (
        translate(texts, *how, f'--engine={name}') for name in engines.ENGINES
    )
    assert status == 0 and len(theirs) == len(ours) == 2 * len(texts)
    for own, other in zip(ours, theirs, strict=True):
        (text, score), (their_text, their_score) = own.rsplit('\t', 1), other.rsplit('\t', 1)
        assert text == their_text and float(score) == pytest.approx(float(their_score), abs=2e-4)
    assert theirs[12:16] == ['6\t\t0.0000'] * 2 + ['7\t\t0.0000'] * 2
    # The same lines are cut, with the same words.
    assert errors[1:] == our_errors[1:] and re.match('line 9: cut, its .* decode.max_source_len', errors[1])
    assert 'float32' in errors[0]


def test_json_greedy_and_a_file(translate, tmp_path):
    how = ['--config.decode.method=greedy', '--json']
    assert translate(NAMES, *how, '--engine=ctranslate2', f'--output={tmp_path / "out"}')[0] == 0
    _, ours, _ = translate(NAMES, *how)
    for own, other in zip(ours, (tmp_path / 'out').read_text().splitlines(), strict=True):
        own, other = json.loads(own), json.loads(other)
        assert (own['line'], own['text']) == (other['line'], other['text'])
        assert own['score'] == pytest.approx(other['score'], abs=2e-5)


@pytest.fixture
def both(folder):
    """Loads the model here, and in CTranslate2."""
    run = Run.open(folder)
    return transformer.load(folder), engines.load(None, run, 'ctranslate2', None, 'scored', {})


def test_scores_are_log_p_and_our_penalty(both):
    ours, theirs = both
    texts = NAMES[:8]
    found = theirs(texts, best=3, alpha=0.6)
    for text, hypotheses in zip(texts, found, strict=True):
        pairs = [(text, hypothesis.text) for hypothesis in hypotheses]
        for hypothesis, one in zip(hypotheses, ours.likelihoods(pairs), strict=True):
            assert one.pieces[-1] == '</s>'
            score = one.total / ((5 + len(one.pieces)) / 6) ** 0.6
            assert hypothesis.score == pytest.approx(score, abs=2e-5)
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True) and len(scores) == 3
    # Another penalty chooses others; the score of greedy search is log p, without one.
    assert found != theirs(texts, best=3, alpha=0.0)
    with pytest.raises(ConfigError, match='^decode.alpha=0.6: '):
        theirs(texts, method='greedy', alpha=0.6)
    for text, [greedy] in zip(texts, theirs(texts, method='greedy'), strict=True):
        [one] = ours.likelihoods([(text, greedy.text)])
        assert greedy.score == pytest.approx(one.total, abs=2e-5)


def test_a_text_does_not_depend_on_others_and_progress_is_counted(both):
    _, theirs = both
    done = []
    # Without room for more pieces than the source has, searches reach their limits.
    together = theirs(NAMES, best=2, extra_len=0, on_done=done.append)
    assert sum(done) == len(NAMES) and len(done) > 1
    for name, hypotheses in zip(NAMES, together, strict=True):
        [alone] = theirs([name], best=2, extra_len=0)
        assert [one.text for one in alone] == [one.text for one in hypotheses]
        assert [one.score for one in alone] == pytest.approx([one.score for one in hypotheses], abs=1e-5)
    greedy = {'method': 'greedy', 'extra_len': 0}
    ours, others = both[0].hypotheses(NAMES, **greedy), theirs(NAMES, **greedy)
    assert [one[0].text for one in others] == [one[0].text for one in ours]
    expected = [one[0].score for one in ours]
    assert [one[0].score for one in others] == pytest.approx(expected, abs=2e-5)
    assert any(len(one[0].text) == len(name) for one, name in zip(together, NAMES, strict=True))


def test_pieces_that_are_never_written(both, tmp_path):
    """A model that finds the unknown piece, or the start, the likeliest: our search never writes them."""
    trained = both[0].trained
    bias = np.array(trained.params['softmax_bias'])
    bias[[PAD, UNK]] = 40.0
    changed = trained._replace(params={**trained.params, 'softmax_bias': bias})
    (tmp_path / 'model').mkdir()
    writing.write(changed.config, changed.params, changed.codecs, tmp_path / 'model')
    theirs = engine.Translator(changed, tmp_path / 'model').hypotheses(NAMES, method='greedy')
    ours = task_of(changed.config).verbs['hypotheses'](changed, NAMES, method='greedy')
    assert ours[0][0].score < -10
    for own, other in zip(ours, theirs, strict=True):
        assert own[0].text == other[0].text
        assert own[0].score == pytest.approx(other[0].score, rel=1e-5)


def test_the_copy_is_written_once_and_again_if_it_is_damaged(translate, folder, monkeypatch):
    written = []
    write = writing.write
    monkeypatch.setattr(writing, 'write', lambda *args: (written.append(args[-1]), write(*args))[1])
    how = ['--engine=ctranslate2']
    status, expected, _ = translate(NAMES, *how)
    assert status == 0 and written == [None]
    [copy] = (folder / 'ctranslate2').iterdir()
    sha256 = restore.params_sha256(Run.open(folder), 'latest')
    assert copy.name == f'{sha256[:16]}-float32'
    # A folder that a killed process left does not count.
    (copy.parent / f'.{copy.name}.1').mkdir()
    assert translate(NAMES, *how, '--beam=2')[0] == 0 and written == [None]
    content = (copy / 'model.bin').read_bytes()

    def damage(file: str, new: bytes | None) -> None:
        (copy / file).unlink() if new is None else (copy / file).write_bytes(new)

    record = (copy / engines.RECORD).read_bytes()
    for count, (file, new) in enumerate(
        [
            ('model.bin', content[:-5] + b'\1' + content[-4:]),
            ('config.json', None),
            ('more.txt', b'1'),
            (engines.RECORD, b'{'),
            (engines.RECORD, record.replace(sha256.encode(), b'0' * 64)),
            (engines.RECORD, record.replace(b'"format": 1', b'"format": 0')),
        ],
        start=2,
    ):
        damage(file, new)
        status, lines, errors = translate(NAMES, *how)
        assert (status, lines, len(written)) == (0, expected, count), file
        assert len(errors) == 2 and str(copy) in errors[0]
        assert (copy / 'model.bin').read_bytes() == content
    assert translate(NAMES, *how, '--quantization=int8')[0] == 0 and written[-1] == 'int8'
    assert (copy.parent / f'{sha256[:16]}-int8').is_dir()


def test_types_of_kernels(translate):
    # Not every processor computes in int16.
    int16 = 'int16' if 'int16' in ctranslate2.get_supported_compute_types('cpu') else 'int8'
    for quantization, dtype in (('int8', 'int8'), ('int16', int16), ('float16', 'float32')):
        status, lines, errors = translate(NAMES, '--engine=ctranslate2', f'--quantization={quantization}')
        assert status == 0 and len(lines) == len(NAMES) and dtype in errors[-1]


def test_a_work_directory_that_cannot_be_written(translate, folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, 'not permitted', str(path))

    with monkeypatch.context() as patch:
        patch.setattr(workdir, 'check_writable', refuse)
        status, lines, errors = translate(NAMES, '--engine=ctranslate2')
        assert (status, lines, errors) == (2, [], [f'error: {folder}: not permitted'])
        assert not (folder / 'ctranslate2').exists()
    assert translate(NAMES, '--engine=ctranslate2')[0] == 0
    monkeypatch.setattr(workdir, 'check_writable', refuse)
    assert translate(NAMES, '--engine=ctranslate2')[0] == 0


REFUSED = [
    (['--quantization=int8'], '--quantization=int8: .*--engine=ctranslate2'),
    (['--engine=x'], '--engine=x'),
    (['--engine=ctranslate2', '--quantization=int4'], '--quantization=int4'),
    (['--engine=ctranslate2', '--config.decode.method=sample'], 'decode.method=sample'),
    (['--engine=ctranslate2', '--config.decode.method=sample', '--samples=2'], 'decode.method=sample'),
    (['--engine=ctranslate2', '--seed=1'], 'seed=1'),
    (['--engine=ctranslate2', '--samples=2'], 'samples=2'),
    (['--engine=ctranslate2', '--nbest=9'], 'nbest=9'),
    (['--engine=ctranslate2', '--checkpoint=0,latest'], '--checkpoint=0,latest'),
    (['--engine=ctranslate2', '--checkpoint=7'], ':7'),
    (['--engine=ctranslate2', '--max_source_len=2040'], 'decode.max_source_len=2040'),
]


@pytest.mark.parametrize(('argv', 'part'), REFUSED, ids=str)
def test_what_is_refused_by_name(translate, folder, argv, part):
    status, lines, errors = translate(NAMES, *argv)
    assert (status, lines, len(errors)) == (2, [], 1) and re.search(part, errors[0])
    assert not (folder / 'ctranslate2').exists()


def test_a_model_that_ctranslate2_lacks_is_refused_by_its_option(folder):
    run = Run.open(folder)
    model = dataclasses.replace(run.config.model, norm_type='rmsnorm')
    config = dataclasses.replace(run.config, model=model)
    with pytest.raises(ConfigError, match='model.norm_type=rmsnorm'):
        engines.check(Run(run.folder, config), 'ctranslate2', None, 'scored', {})


def test_a_checkpoint_that_changes_before_it_is_copied(folder, monkeypatch):
    monkeypatch.setattr(restore, 'params_sha256', lambda run, choice: '0' * 64)
    with pytest.raises(ConfigError, match='--checkpoint=latest'):
        engines.exported(Run.open(folder), 'latest', None)
    assert [path.name for path in (folder / 'ctranslate2').iterdir() if path.is_dir()] == []


def test_only_commands_of_hypotheses_have_engines():
    takers = {name for name, command in commands.COMMANDS.items() if 'engine' in command.flags}
    assert takers == {'translate'}
    assert commands.FLAGS['engine'].choices == engines.ENGINES
