"""Damaged models of other programs, and damaged work directories, are mistakes of the user.

fuzz.py has what runs by hand: a thousand damages, and whole commands.
"""

import pytest
from interop import fuzz

pytest.importorskip('safetensors.numpy')


def test_damaged_folders(tmp_path):
    ends = list(fuzz.fuzz('readers', 40, tmp_path))
    assert [end for end in ends if 'status' not in end[1]] == []
    assert {end for _, end in ends} == {'status 0', 'status 2'}
