"""Diagnosing a work directory: which files it reads, and what it does without some of them."""

import json

import pytest
from etils import epath

from transformer import config as configs
from transformer.actions.diagnose import diagnose
from transformer.config import ConfigError
from transformer.runs.workdir import Run

CONFIG = configs.resolve(configs.config_dict({'train.steps': 9000}))
LOSSES = [{'step': 50, 'loss': 9.0}, {'step': 4000, 'dev_loss': 3.0}, {'step': 8500, 'dev_loss': 2.5}]


def run_of(folder, **contents) -> Run:
    """Makes a work directory with these files, and the manifest of a large dataset."""
    splits = {split: {'pairs': 5000, 'dropped': {}} for split in contents.pop('splits', ('train', 'dev'))}
    (folder / 'data.lock.json').write_text(json.dumps({'checksums': {}, 'splits': splits, 'files': {}}))
    for name, content in contents.items():
        (folder / name.replace('__', '.')).write_text(content)
    return Run(epath.Path(folder), CONFIG)


def test_a_training_without_scores_is_examined_by_its_curve(tmp_path):
    # A kill can cut the last line.
    text = ''.join(json.dumps(line) + '\n' for line in LOSSES) + '{"step": 999, "dev_'
    outcome, found = diagnose(run_of(tmp_path, metrics__jsonl=text), 'dev', {})
    assert (outcome.steps, outcome.losses, outcome.entry) == (8500, [(4000, 3.0), (8500, 2.5)], {})
    assert [finding.change for finding in found] == ['run train again', 'train.steps']


def test_without_its_outputs_a_training_is_examined_by_its_curve(tmp_path, caplog):
    scores = {'dev': {'checkpoint': 'latest', 'steps': [8500], 'lines_sha256': '0'}}
    text = ''.join(json.dumps(line) + '\n' for line in LOSSES)
    run = run_of(tmp_path, metrics__jsonl=text, result__json=json.dumps({'scores': scores}))
    outcome, found = diagnose(run, 'dev', {})
    assert (outcome.steps, outcome.entry) == (8500, {}) and found
    assert 'dev.latest' in caplog.text


@pytest.mark.parametrize(
    ('contents', 'split'),
    [({'splits': ()}, 'dev'), ({'splits': ('train', 'dev')}, 'test'), ({}, 'dev')],
    ids=['imported', 'no such split', 'neither scores nor metrics'],
)
def test_what_cannot_be_diagnosed(tmp_path, contents, split):
    with pytest.raises(ConfigError) as error:
        diagnose(run_of(tmp_path, **contents), split, {})
    # Diagnose takes no files, which other commands take in place of a split.
    assert '--source' not in str(error.value)
