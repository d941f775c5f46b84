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
