"""Work directories: what counts as work."""

import pytest
from etils import epath

from transformer import config as configs
from transformer import files
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.runs import parameters_file, workdir


@pytest.mark.parametrize(
    ('path', 'works'),
    [
        ('checkpoints/2', True),
        ('checkpoints/replaced/2', True),
        ('damaged/2', True),
        ('checkpoints/2.orbax-checkpoint-tmp', False),
        ('checkpoints/replaced', False),
    ],
)
def test_a_first_checkpoint_that_is_not_complete_is_no_work(tmp_path, path, works):
    (tmp_path / path).mkdir(parents=True)
    assert workdir.holds_work(epath.Path(tmp_path)) == works


def test_an_exported_model_is_no_work_directory_to_train_in(tmp_path):
    config = configs.resolve(configs.config_dict())
    (tmp_path / 'config.json').write_text(configs.to_json(config))
    (tmp_path / parameters_file.FILE).touch()
    with pytest.raises(configs.ConfigError, match='an exported model; .*--init_from='):
        workdir.check_folder(epath.Path(tmp_path), config)


def test_a_folder_with_a_config_is_complete(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(files, 'write_bytes', lambda path, content, **_: written.append(path.name))
    codecs = {'source': ByteTokenizer(), 'target': ByteTokenizer()}
    workdir.claim(epath.Path(tmp_path / 'w'), configs.resolve(configs.config_dict()), codecs, {})
    assert sorted(written[:-1]) == ['data.lock.json', 'environment.json', 'tokenizer.model']
    assert written[-1] == 'config.json'


def test_lines_are_written_under_the_lock_of_scores(tmp_path, monkeypatch):
    folder, changes = epath.Path(tmp_path), []
    monkeypatch.setattr(workdir, 'update_result', lambda _, change: changes.append(change))
    workdir.write_evaluation(folder, 'test.latest', {'loss': 1.0}, ['a', 'b'])
    assert not (folder / 'translations').exists()
    (change,) = changes
    assert change({'steps': 3}) == {'steps': 3, 'evaluations': {'test.latest': {'loss': 1.0}}}
    assert (folder / 'translations' / 'test.latest.txt').read_text() == 'a\nb\n'
