"""The notebook: executed from top to bottom with a model that trains in seconds, and as it is committed.

The execution takes more than a minute. It is skipped if neither the notebook nor a program that it calls has
changed since the branch left main; with the environment variable CI it always runs.

    python tests/pages/test_colab.py

executes the notebook as it is, in some minutes, and writes its outputs into it.
"""

import base64
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

nbformat = pytest.importorskip('nbformat', reason="needs nbclient: pip install '.[test]'")
nbclient = pytest.importorskip('nbclient', reason="needs nbclient: pip install '.[test]'")

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOK = ROOT / 'experiments' / 'colab.ipynb'
# The notebook, this test, and the programs that the notebook calls.
WATCHED = (
    'experiments/colab.ipynb', 'tests/pages/test_colab.py', 'run.py', 'configs/tiny.py', 'transformer/cli',
    'transformer/actions', 'experiments/sweep.py', 'experiments/report.py', 'experiments/sweeps',
    'experiments/reports', 'experiments/rendering', 'experiments/tables',
)  # fmt: skip
# For the training and each row of the sweep: enough that translations have words.
OPTIONS = {
    'train.steps': 60,
    'train.warmup_steps': 20,
    'train.eval_every': 100,
    'train.checkpoint_every': 100,
    'model.N': 1,
    'model.d_model': 32,
    'model.d_ff': 64,
    'model.h': 2,
    'data.train_examples': 2000,
    'data.dev': 'dev[:50]',
    'data.test': 'test[:50]',
    'data.batch_tokens': 512,
    'decode.method': 'greedy',
    'decode.extra_len': 0,
}


def is_changed() -> bool:
    """Returns whether a watched file differs from the commit at which the branch left main, or is unknown."""

    def git(*words: str) -> str | None:
        done = subprocess.run(['git', '-C', str(ROOT), *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    start = git('merge-base', 'HEAD', 'origin/main') or git('merge-base', 'HEAD', 'main')
    return start is None or git('diff', '--name-only', start, '--', *WATCHED) != ''


def execute(folder: pathlib.Path) -> nbformat.NotebookNode:
    """Executes the notebook beside an archive of the checkout; nbclient raises the error of a cell."""
    with tempfile.TemporaryDirectory() as packed:
        copy = pathlib.Path(packed, 'checkout')
        for name in ('configs', 'experiments', 'transformer'):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns('__pycache__', 'results'))
        shutil.copy(ROOT / 'run.py', copy)
        shutil.make_archive(str(folder / 'project'), 'gztar', packed)
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        book,
        timeout=3600,
        resources={'metadata': {'path': str(folder)}},
        record_timing=False,
        coalesce_streams=True,
    ).execute()
    # Without the version of Python that executed it.
    book.metadata['language_info'] = {'name': 'python'}
    return book


def text(book: nbformat.NotebookNode, name: str) -> str:
    """Returns the text that a cell printed or displayed, without standard error."""
    (cell,) = [cell for cell in book.cells if cell.id == name]
    outputs = [o for o in cell.outputs if o.get('name') != 'stderr']
    shown = [o.get('text') or o['data'].get('text/markdown', '') for o in outputs]
    return ''.join(shown)


def pictures(book: nbformat.NotebookNode) -> list[bytes]:
    data = [o.get('data', {}) for cell in book.cells for o in cell.get('outputs', [])]
    return [base64.b64decode(d['image/png']) for d in data if 'image/png' in d]


def check(book: nbformat.NotebookNode, steps: int) -> None:
    """Checks the outputs of an execution whose training had so many steps."""
    nbformat.validate(book)
    codes = [cell for cell in book.cells if cell.cell_type == 'code']
    assert all(cell.outputs for cell in codes)
    assert not [o for cell in codes for o in cell.outputs if o.output_type == 'error']
    assert [cell.execution_count for cell in codes] == list(range(1, len(codes) + 1))
    assert re.search(rf'^step {steps}/{steps}  .*\bdev_loss ', text(book, 'train'), re.MULTILINE)
    translations = text(book, 'translate').splitlines()
    assert len(translations) == 4
    assert all(re.fullmatch(r'[\w\', ]+\. → .*\w.*', line) for line in translations)
    (picture,) = pictures(book)
    assert picture.startswith(b'\x89PNG') and 10_000 < len(picture) < 200_000
    status = text(book, 'sweep')
    assert '3 of 3 runs to do' in status and '0 of 3 done; running: ' in status
    report = [
        [cell.strip() for cell in line.split('|')]
        for line in text(book, 'report').splitlines()
        if line.startswith('|')
    ]
    ours = [report[0].index(name) for name in ('PPL ours', 'BLEU ours', 'params ours', 'hours')]
    cells = {line[1]: [line[i] for i in ours] for line in report[2:]}
    for row in ('base', 'A1', 'C1'):
        assert re.search(rf'^{row}-seed1 +done ', status, re.MULTILINE)
        assert all(re.match(r'\d+\.\d', cell) for cell in cells[row]), cells[row]
    plan = {line.split()[0]: line.split() for line in text(book, 'plan').splitlines() if line}
    assert plan['row'][-1] == 'hours' and 0 < float(plan['base'][-1]) < float(plan['big'][-1])
    assert 'run.py prepare --config=configs/wmt14_en_de.py' in text(book, 'wmt')


@pytest.mark.skipif(not os.environ.get('CI') and not is_changed(), reason='unchanged; CI=1 runs it')
def test_it_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.setenv('TRANSFORMER_COLAB_OPTIONS', ' '.join(f'{k}={v}' for k, v in OPTIONS.items()))
    # One device has all processors; eight would share them.
    flags = f'{os.environ["XLA_FLAGS"]} --xla_force_host_platform_device_count=1'
    monkeypatch.setenv('XLA_FLAGS', flags)
    monkeypatch.setenv('IPYTHONDIR', str(tmp_path / 'ipython'))
    check(execute(tmp_path), OPTIONS['train.steps'])
    [result] = tmp_path.glob('transformer-unpacked/*/runs/colab/grammar/result.json')


def test_it_is_committed_with_its_outputs():
    book = nbformat.read(NOTEBOOK, as_version=4)
    check(book, 1000)
    codes = [cell for cell in book.cells if cell.cell_type == 'code']
    assert all(not cell.metadata for cell in book.cells)
    outputs = str([cell.outputs for cell in codes])
    assert not re.findall(r'(?<![\w.])/(?:\w|\.)[\w.-]*/', re.sub(r"'image/png': '[^']*'", '', outputs))


def test_text_precedes_every_cell_of_code():
    kinds = [cell.cell_type for cell in nbformat.read(NOTEBOOK, as_version=4).cells]
    assert all(here == 'markdown' for here, after in zip(kinds, kinds[1:], strict=False) if after == 'code')


if __name__ == '__main__':
    os.environ.pop('TRANSFORMER_COLAB_OPTIONS', None)
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(execute(pathlib.Path(folder)), NOTEBOOK)
