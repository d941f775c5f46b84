"""Data of configs: paths that stay valid in any folder."""

import os

import pytest

from transformer import config as configs
from transformer.actions import data as run_data


@pytest.mark.parametrize(
    ('vocabulary', 'names', 'absolute'),
    [
        ('joint', 'a,b.model', '{}/a,b.model'),
        ('separate', '../a/en.model,/b/de.model', '{}/a/en.model,/b/de.model'),
        ('joint', 'gs://a/b.model', 'gs://a/b.model'),
    ],
)
def test_a_tokenizer_is_found_from_any_folder(tmp_path, monkeypatch, vocabulary, names, absolute):
    monkeypatch.chdir(tmp_path)
    values = {'data.vocabulary': vocabulary, 'data.tokenizer_model': names, 'data.dir': 'text'}
    if vocabulary == 'separate':
        values['model.tie_embeddings'] = 'none'
    config = configs.resolve(configs.config_dict(values))
    changed = run_data.with_absolute_paths(config)
    parent = tmp_path.parent if names.startswith('..') else tmp_path
    assert changed.data.tokenizer_model == absolute.format(parent)
    assert changed.data.dir == os.path.join(tmp_path, 'text')
    # Work directories of earlier versions hold the relative path.
    assert not configs.differences(config, changed, free=False)
