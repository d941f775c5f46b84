"""The benchmarks run through the real code, and print each figure beside its aim."""

import re

import numpy as np
import pytest

from experiments import benchmark


def test_data(capsys):
    assert benchmark.main(['benchmark', 'data', '--pairs=3000']) == 0
    shown = capsys.readouterr().out
    aims = re.findall(r'^(.*?)  .*at (?:most|least) .*: [\d.e-]+ of it$', shown, re.MULTILINE)
    assert aims == [
        'preparing after tokenising',
        'peak memory of preparing',
        'packed: planning an epoch',
        'packed: real tokens',
        'packed: batches',
        'bucketed: planning an epoch',
        'bucketed: batches',
        'peak memory in all',
    ]


def test_the_text_has_lengths_like_wmt_and_is_the_same_every_time(tmp_path):
    for name in ('first', 'second'):
        benchmark.write_text(tmp_path, name, 3000, 0)
    sides = [(tmp_path / f'first.{language}').read_text().splitlines() for language in ('en', 'de')]
    assert sides == [(tmp_path / f'second.{language}').read_text().splitlines() for language in ('en', 'de')]
    lengths = np.array([[len(line.split()) for line in side] for side in sides])
    assert lengths.shape == (2, 3000)
    assert ((np.median(lengths, axis=1) > 17) & (np.median(lengths, axis=1) < 22)).all()
    assert (lengths.max(axis=1) > 100).all()
    assert np.corrcoef(np.log(lengths))[0, 1] > 0.9


@pytest.mark.parametrize(
    'words, expected',
    [
        ([], 'no command; choose one of data, average, replicas'),
        (['model'], "'model': no such command"),
        (['data', '--pairs=0'], '--pairs=0: 0 is not a positive integer'),
        (['average', '--pairs=9'], '--pairs: average does not take it'),
        (['data', '--pairs=9'], 'data.pieces=37000: the training text allows'),
    ],
)
def test_mistakes_are_one_line(capsys, words, expected):
    assert benchmark.main(['benchmark', *words]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count('\n') == 1
