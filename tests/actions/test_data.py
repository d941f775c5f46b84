"""Data of configs: paths that stay valid in any folder."""

import os

import pytest

from transformer import config as configs
from transformer.actions import data as run_data
from transformer.config import ConfigError
from transformer.runs import restore


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


def test_a_comma_in_the_folder_separates_no_names(tmp_path, monkeypatch):
    (tmp_path / 'a,b').mkdir()
    monkeypatch.chdir(tmp_path / 'a,b')
    options = {'data.vocabulary': 'separate', 'data.tokenizer_model': 'en.model,de.model'}
    options['model.tie_embeddings'] = 'none'
    config = run_data.with_absolute_paths(configs.resolve(configs.config_dict(options)))
    assert config.data.tokenizer_model == 'en.model,de.model'


@pytest.mark.parametrize(
    ('task', 'source', 'flags'),
    [
        ('translation', 'grammar', ['--source=FILE', '--reference=FILE']),
        ('language', 'text', ['--text=FILE']),
        ('denoise', 'grammar', ['--text=FILE']),
        ('classify', 'table', None),
        ('images', 'pictures', None),
    ],
)
def test_flags_for_files_of_a_users_own(task, source, flags):
    config = {'train.task': task, 'data.source': source, 'data.name': None}
    config |= {'data.language': 'de'} if task == 'denoise' else {}
    assert run_data.own_files(configs.resolve(configs.config_dict(config))) == flags


def test_a_trained_models_tokenizer_stays():
    config = configs.resolve(configs.config_dict({'data.tokenizer_model': 'here/en.model'}))
    assert restore.changed(config, {'data.tokenizer_model': 'here/en.model'}) == config
    with pytest.raises(ConfigError, match='data.tokenizer_model=other.model'):
        restore.changed(config, {'data.tokenizer_model': 'other.model'})


def test_a_trained_models_options_have_earlier_names():
    config = configs.resolve_values({'train.watch_every': 7})
    assert restore.changed(config, {'train.bleu_every': 5}).train.watch_every == 5
    with pytest.raises(ConfigError, match='data.train_examples=5'):
        restore.changed(config, {'data.train_pairs': 5})
