"""The score of translations during a training."""

import pathlib

import pytest

from transformer.config import config_dict, resolve
from transformer.data.dataset import Dataset
from transformer.runs.restore import Trained
from transformer.tasks.translation import task


@pytest.mark.parametrize(('method', 'used'), [('beam', 'beam'), ('sample', 'greedy')])
def test_the_watched_bleu_is_of_dev(monkeypatch, method, used):
    """Each translation repeats its source, which is right in dev alone."""
    asked = []
    monkeypatch.setattr(task, 'translate', lambda _, texts, **how: asked.append(how['method']) or texts)
    right = {'source': ['a b c d e'], 'target': ['a b c d e']}
    texts = {'dev': right, 'test': right | {'source': ['v w x y z']}}
    monkeypatch.setattr(Dataset, 'texts', lambda _, split: texts[split])
    config = resolve(config_dict({'decode.method': method}))
    found = task.watch(Trained(config, {}, {}), Dataset(pathlib.Path(), {}, {}, {}))
    assert found == {'bleu': pytest.approx(100.0)} and asked == [used]
