"""What a preparation shows on a terminal, and elsewhere."""

import pytest

from transformer.runs import metrics


def show(stages):
    with stages:
        stages('tokenizer', 0, 99_999)
        stages('tokenizer', 99_999, 99_999)
        stages('train', 0, 100_000)
        stages('train', 60_000, 100_000)


def test_a_line_for_a_long_stage_without_a_terminal(capsys):
    show(metrics.Stages())
    assert capsys.readouterr() == ('', 'preparing train: 100000 examples\n')


def test_bars_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv('FORCE_COLOR', '1')
    show(metrics.Stages())
    shown = capsys.readouterr().err
    assert 'preparing tokenizer' in shown
    assert '99999/99999' in shown
    assert '60000/100000' in shown


@pytest.mark.parametrize('terminal', [True, False])
def test_nothing_is_shown_where_nothing_is_made(capsys, monkeypatch, terminal):
    if terminal:
        monkeypatch.setenv('FORCE_COLOR', '1')
    with metrics.Stages():
        pass
    show(metrics.Stages(quiet=True))
    assert capsys.readouterr() == ('', '')
