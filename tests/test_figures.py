"""Pictures of attention: what they show, how large they are, and what they are called."""

import numpy as np
import pytest
from etils import epath
from matplotlib import image

from transformer import figures
from transformer.options import ConfigError
from transformer.tasks import contract
from transformer.tasks.contract import View

PIECES = ['▁Two', '▁dog', 's', '▁ran', '.']


def view(queries: int, keys: int, looked_at: list[int] | None, sentence: str = 'Two dogs ran.') -> View:
    """Of two layers with three heads; the query at i attends to the key at i, or the last one."""
    weights = np.zeros((2, 3, queries, keys))
    for i in range(queries):
        weights[:, :, i, min(i, keys - 1)] = 1.0
    names = [f'▁{i}' for i in range(max(queries, keys))]
    title = contract.title('encoder', 'dogs' if looked_at else None, sentence)
    return View(title, weights, names[:queries], names[:keys], looked_at)


def size(path) -> tuple[int, int]:
    height, width, _ = image.imread(path).shape
    return width, height


def test_a_word_has_a_row_for_each_head_and_all_words_one_each():
    at_word, everything = figures.Map(view(5, 4, [1, 2])), figures.Map(view(5, 4, None))
    assert at_word.rows.shape == (2 * 3 + 1, 4) and at_word.labels[-1] == 'mean'
    np.testing.assert_allclose(at_word.rows, np.tile([0, 0.5, 0.5, 0], (7, 1)))
    np.testing.assert_array_equal(everything.rows, np.eye(4)[[0, 1, 2, 3, 3]])
    assert everything.labels == ['0', '1', '2', '3', '4']


def test_long_sentences_stand_below_each_other_and_their_text_is_whole(tmp_path):
    folder = epath.Path(tmp_path)
    short = size(figures.draw_attention(folder, [[view(4, 4, None), view(4, 4, None)]], 'short'))
    # With what TeX would take for a formula, and a text far longer than its picture is wide.
    long = [view(40, 40, None, 'word $x_ ' * 100) for _ in range(2)]
    wide = size(figures.draw_attention(folder, [long], 'long'))
    assert wide[0] < 2 * 40 * 0.42 * figures.DPI and wide[1] > 2 * 40 * 0.24 * figures.DPI
    assert short[0] > short[1]


def test_a_figure_does_not_replace_another(tmp_path):
    folder, names = epath.Path(tmp_path), []
    (tmp_path / 'figures').mkdir()
    for views in ([view(4, 4, [1])], [view(4, 4, [1])], [view(4, 4, None)], [view(4, 4, None, '我 们/..')]):
        names.append(figures.free_name(folder, views))
        (tmp_path / 'figures' / f'{names[-1]}.png').touch()
    assert names == ['dogs-two-dogs-ran', 'dogs-two-dogs-ran-2', 'all-words-two-dogs-ran', 'all-words-我-们']


def test_words_in_pieces():
    assert contract.places(PIECES, 'dogs') == [1, 2]
    assert contract.places(PIECES, None) is None
    assert contract.has_word(PIECES, 'dogs') and not contract.has_word(PIECES, 'it')
    with pytest.raises(ConfigError, match="--word=it: not a word of 'Two dogs ran .'"):
        contract.places(PIECES, 'it')
