"""Work directories: what counts as work."""

import pytest
from etils import epath

from transformer.runs import workdir


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


def test_lines_are_written_under_the_lock_of_scores(tmp_path, monkeypatch):
    folder, changes = epath.Path(tmp_path), []
    monkeypatch.setattr(workdir, 'update_result', lambda _, change: changes.append(change))
    workdir.write_evaluation(folder, 'test.latest', {'loss': 1.0}, ['a', 'b'])
    assert not (folder / 'translations').exists()
    (change,) = changes
    assert change({'steps': 3}) == {'steps': 3, 'evaluations': {'test.latest': {'loss': 1.0}}}
    assert (folder / 'translations' / 'test.latest.txt').read_text() == 'a\nb\n'
