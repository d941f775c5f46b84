"""Figures: their content, sizes and names, and the page in a browser."""

import json
import pathlib
import re

import matplotlib
import matplotlib.figure
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from PIL import Image

from experiments.figures import __main__ as command
from experiments.figures import differences, model, plots
from experiments.sweeps import runs
from transformer import config as configs
from transformer import files as written
from transformer.config import ConfigError
from transformer.inference import attention as attentions
from transformer.inference import attention_figures
from transformer.inference.attention import Attended, Attention
from transformer.nn import models, positions
from transformer.runs import metrics_file
from transformer.runs.hashes import named_leaves
from transformer.tasks.translation import attention as translated

RESULTS = pathlib.Path(__file__).parents[2] / 'experiments' / 'results'
PIECES = ['▁Two', '▁dog', 's', '▁ran', '.']


@pytest.fixture(autouse=True)
def _no_open_figures():
    """Closes all figures, because pyplot keeps them, and warns if they are many."""
    matplotlib.pyplot.close('all')


def test_paths_in_the_figure_of_the_model():
    """It has the parameters of the base model except biases, of each stack those of the first layer."""
    drawn = pathlib.Path(model.__file__).with_name('model.svg').read_text()
    assert drawn == model.draw()
    paths = set(re.findall('class="path">([^<]+)<', drawn))
    base = models.parameter_shapes(configs.resolve(configs.config_dict()))
    first = {path for path in named_leaves(base) if not re.search('layer_[1-9]', path)}
    assert paths | {re.sub('(kernel|scale)$', 'bias', path) for path in paths - {'embedding/table'}} == first


def test_words_in_pieces():
    assert attentions.places(PIECES, 'dogs') == [1, 2]
    assert attentions.has_word(PIECES, 'dogs') and not attentions.has_word(PIECES, 'it')
    assert attentions.last_word(PIECES) == 'ran' and attentions.last_word(['▁?']) is None
    quoted = ['▁The', '▁(', 'cat', "'", 's', ')']
    assert [word for word, _ in attentions.words_of(quoted)] == ['The', '(', 'cat', "'s", ')']
    assert attentions.places(quoted, 'cat') == [2]
    # The word that a figure draws by default is one of these, too.
    assert translated._pronoun_or_last_word(['▁Da', '▁geht', "'", 's', '.', '</s>']) == 'geht'
    # Bytes of characters that the vocabulary lacks.
    lacking = [f'<0x{byte:02X}>' for byte in 'é—日'.encode()]
    words = [('Un', [0]), ('Café', [1, 2, 3, 4, 5]), ('—', [6, 7, 8]), ('日', [9, 10, 11])]
    assert attentions.words_of(['▁Un', '▁', '<0x43>', 'af', *lacking]) == words
    # Byte-level pieces can have several bytes; a control character keeps its code.
    pieces = ['▁<0xF0><0x9F>', '<0x98>', '<0x80>', '▁<0x0A>', 'a']
    assert attentions.words_of(pieces) == [('😀', [0, 1, 2]), ('<0x0A>', [3]), ('a', [4])]
    # The first byte is no character; the second only begins one, which another piece does not end.
    words = [('a', [0]), ('\ufffd', [1]), ('b', [2, 3]), ('c', [4]), ('\ufffd', [5])]
    assert attentions.words_of(['▁a', '<0xA9>', '▁b', '<0xC3>', '▁c', '<0xA9>']) == words
    # The second letter of a Hindi word is a vowel's mark.
    assert attentions.places(['▁हि', 'न्दी', '।'], 'हिन्दी') == [0, 1]


def seen(queries: list[str], keys: list[str], *, causal: bool = False, heads: int = 3) -> Attended:
    """Makes softmax weights of random logits, of two layers."""
    logits = np.random.default_rng(len(keys)).normal(size=(2, heads, len(queries), len(keys))) * 2
    if causal:
        logits = np.where(np.tri(len(queries), len(keys), dtype=bool), logits, -np.inf)
    weights = np.exp(logits)
    return Attended('of a test', weights / weights.sum(-1, keepdims=True), queries, keys)


def test_words_get_the_sum_and_give_the_mean_of_their_pieces():
    pieces, words = ['▁Two', '▁dog', 's', '▁', '.', '</s>'], ['Two', 'dogs', '␣', '.', '</s>']
    given = seen(pieces, ['·', *pieces[:-1]])
    found = attentions.by_words(given)
    assert (found.queries, found.keys) == (words, ['·', *words[:-1]])
    w = given.weights
    np.testing.assert_allclose(found.weights[:, :, 0, 2], w[:, :, 0, 2] + w[:, :, 0, 3])
    np.testing.assert_allclose(found.weights[:, :, 1, 0], (w[:, :, 1, 0] + w[:, :, 2, 0]) / 2)
    np.testing.assert_allclose(found.weights.sum(-1), 1.0)
    # The start is a word of its own, also before a piece that continues a word.
    assert attentions.by_words(seen(['·', 'a', 'b'], ['·', 'a', 'b'])).keys == ['·', 'ab']


@pytest.mark.parametrize('query', [None, 'cat'])
def test_lines_have_the_colour_of_their_head_and_are_as_strong_as_their_weight(query):
    given = seen(['The', 'cat', 'ran'], ['Die', 'Katze'])
    figure = attention_figures.draw_lines([[given._replace(word=query)]], 1, [0, 2])
    query = None if query is None else given.queries.index(query)
    lines = [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]
    assert len(lines) == 2
    # Beside a word, the first head has the left half and the other the right half.
    for head, place, drawn in zip([0, 2], [-0.2, 0.2], lines, strict=True):
        ends = {tuple(map(tuple, line.round(9))): colour for line, colour in zip(
            drawn.get_segments(), drawn.get_edgecolors(), strict=True
        )}  # fmt: skip
        expected = {
            ((round(q + 0.4 * place, 9), 1.0), (round(k + place, 9), 0.0)): weight
            for (q, k), weight in np.ndenumerate(given.weights[1, head])
            if weight >= attention_figures.LEAST and query in (None, q)
        }
        assert ends.keys() == expected.keys() and expected
        for end, weight in expected.items():
            np.testing.assert_allclose(ends[end], to_rgba(attention_figures.head_colours(3)[head], weight))
    [legend] = figure.legends
    named = {text.get_text(): to_rgba(line.get_color()) for text, line in zip(
        legend.get_texts(), legend.get_lines(), strict=True
    )}  # fmt: skip
    assert named == {f'head {head + 1}': to_rgba(attention_figures.head_colours(3)[head]) for head in (0, 2)}
    boxes = figure.axes[0].patches
    assert len(boxes) == (0 if query is None else 4)
    if query is not None:
        np.testing.assert_allclose([b.get_facecolor()[3] for b in boxes], given.weights[1, [0, 2], 1].ravel())


def test_panels_are_of_the_kinds_whose_word_is_looked_at():
    words = ['▁The', '▁cat', '▁ran']
    kinds = [seen(words, words), seen(words, words)._replace(word='cat')]
    for chosen, count in ((kinds, 1), (kinds[:1], 1), (kinds[:1] * 2, 2)):
        drawn = attention_figures.draw_focus([Attention('The cat ran', '', chosen)] * 2)
        assert len([axis for axis in drawn.axes if axis.get_title('left')]) == 2 * count
    with pytest.raises(ConfigError, match='--word=dog'):
        attention_figures.draw_focus([Attention('', '', [kinds[0]._replace(word='dog')])])


def test_a_head_that_attends_evenly_to_many_words_has_no_lines():
    words = [f'word{i}' for i in range(60)]
    even = seen(words, words)._replace(weights=np.full((1, 2, 60, 60), 1 / 60), word='word3')
    figure = attention_figures.draw_lines([[even]])
    assert not [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]


def test_every_head_has_a_colour_of_its_own():
    for heads in (1, 8, 10, 16, 20, 33):
        assert len(set(attention_figures.head_colours(heads))) == heads


def test_all_heads_as_a_grid():
    given = seen(['a', 'b', 'c'], ['a', 'b'])
    figure = attention_figures.draw_heads(given)
    *axes, bar = figure.axes
    maps = [axis.images[0].get_array() for axis in axes]
    np.testing.assert_allclose(maps, given.weights.reshape(6, 3, 2))
    # A quarter of the weight is half of the way up the colours.
    assert axes[0].images[0].norm(0.25) == 0.5 and 0.5 in bar.get_yticks()


def test_a_figure_for_print_has_its_width_and_texts_that_can_be_read(tmp_path, capsys):
    call = ['figures', 'schedule', 'configs/base.py', 'configs/big.py', f'--output={tmp_path}']
    for file_format in ('png', 'pdf'):
        assert command.main([*call, '--width=8.4cm', f'--format={file_format}']) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ['schedule.pdf', 'schedule.png']
    # 300 dots, or 72 points, per inch.
    with Image.open(tmp_path / 'schedule.png') as image:
        assert image.width == int(8.4 / 2.54 * 300)
    [points] = re.findall(rb'/MediaBox \[ 0 0 ([\d.]+) ', (tmp_path / 'schedule.pdf').read_bytes())
    assert float(points) == pytest.approx(8.4 / 2.54 * 72)
    figure = attention_figures.draw_heads(seen(['a', 'b', 'c'], ['a', 'b']))
    plots.fit(figure, 1.0)
    assert figure.get_figwidth() == 1.0
    assert min(text.get_fontsize() for text in figure.findobj(matplotlib.text.Text)) == 6.0
    # The fonts of the PDF are TrueType.
    assert b'/FontFile2' in (tmp_path / 'schedule.pdf').read_bytes()
    for wrong in ('8.4', '-1cm', '1cm', '99in', 'wide'):
        assert command.main([*call, f'--width={wrong}']) == 2
        assert f'--width={wrong}' in capsys.readouterr().err


def inside(figure) -> list[bool]:
    """Returns whether each entry of a figure's legend is inside the figure."""
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.legends[0].get_texts()]
    return [figure.bbox.x0 <= b.x0 and b.x1 <= figure.bbox.x1 and b.y0 >= figure.bbox.y0 for b in boxes]


@pytest.mark.parametrize('heads, words', [(8, 14), (16, 14), (8, 40)])
def test_lines_of_many_heads_or_words_in_print(heads, words):
    names = [f'word{i}' for i in range(words)]
    figure = attention_figures.draw_lines([[seen(names, names, heads=heads)]])
    assert all(inside(figure))
    plots.fit(figure, 8.4 / 2.54)
    assert inside(figure) == [True] * heads
    assert figure.get_figheight() >= 0.7 * figure.get_figwidth()
    [axis, *_] = figure.axes
    # The lines take a third of the height at least, and are no wider than a head's place or the thinnest.
    assert axis.get_window_extent().height > figure.bbox.height / 3
    width = axis.collections[0].get_linewidth()[0]
    place = 0.8 / heads * 72 * axis.get_window_extent().width / figure.dpi / words
    assert plots.THINNEST <= width <= max(1.2 * place, plots.THINNEST)


def test_numbers_of_many_heads_do_not_meet():
    figure = attention_figures.draw_heads(seen(['a', 'b', 'c'], ['a', 'b'], heads=16))
    plots.fit(figure, 8.4 / 2.54)
    figure.draw_without_rendering()
    titles = [axis.title for axis in figure.axes[:16]]
    assert [title.get_text() for title in titles] == [str(head) for head in range(1, 17)]
    ends = [title.get_window_extent() for title in titles]
    assert all(left.x1 < right.x0 for left, right in zip(ends, ends[1:], strict=False))


def test_a_width_that_is_refused_leaves_no_page(tmp_path, capsys):
    call = ['figures', 'attention', f'--workdir={tmp_path / "none"}', f'--output={tmp_path / "drawn"}']
    assert command.main([*call, '--width=8.4']) == 2
    assert '--width=8.4' in capsys.readouterr().err and not (tmp_path / 'drawn').exists()


SENTENCE = 'The </script> cat & the Donaudampfschifffahrtsgesellschaft saw <b>it</b>.'


FIRST = attention_figures.FirstView(kind=0, layer=1, heads=[0, 1, 2], word=None)


@pytest.fixture
def page_file(tmp_path):
    words = ['The', '</script>', 'cat', '&', 'the', 'Donaudampfschifffahrtsgesellschaft', 'saw', 'it', '.']
    written = [f'Wort{i}' for i in range(14)]
    kinds = [
        seen(words, words)._replace(name='encoder self-attention'),
        seen(written, words)._replace(name='encoder-decoder attention'),
        seen(written, ['·', *written[:-1]], causal=True, heads=12)._replace(name='decoder self-attention'),
    ]
    file = tmp_path / 'attention.html'
    file.write_text(attention_figures.page(Attention(SENTENCE, 'Die <i>Katze</i>', kinds), 'a model', FIRST))
    return file, kinds


@pytest.mark.parametrize('width', [390, 1280])
def test_the_page_of_attention(page_file, opened, width):
    file, kinds = page_file
    page = opened(file, width, 844)
    assert page.locator('h1').inner_text() == SENTENCE and page.title() == f'Attention: {SENTENCE}'
    choose = lambda name: page.get_by_role('button', name=name, exact=True)
    fits = lambda: page.evaluate('document.documentElement.scrollWidth') <= width
    count = lambda: page.locator('#drawn line').count()
    strong = lambda weights: int((np.rint(1000 * weights) >= 1000 * attention_figures.LEAST).sum())
    words = lambda side: page.locator(f'#{side} li').all_inner_texts()
    # At first the last layer of the first kind, with all heads and words.
    assert fits() and words('queries') == kinds[0].queries and count() == strong(kinds[0].weights[1])
    # The scale from 0 to 1 has the colours of the maps.
    colour = lambda selector, x, y: page.locator(selector).first.evaluate(
        f'canvas => [...canvas.getContext("2d").getImageData({x}, {y}, 1, 1).data]'
    )
    assert colour('#scale', 0, 0) == [255] * 4 and colour('#scale', 1000, 0) == [0, 0, 60, 255]
    weight = int(np.rint(1000 * kinds[0].weights[0, 0, 2, 1]))
    assert colour('#maps canvas', 1, 2) == colour('#scale', weight, 0)
    choose('it').click()
    assert count() == strong(kinds[0].weights[1, :, 7])
    assert choose('it').get_attribute('aria-pressed') == 'true'
    most = kinds[0].weights[1, :, 7]
    told = [f'head {h + 1}: {kinds[0].keys[row.argmax()]} ({row.max():.2f})' for h, row in enumerate(most)]
    assert page.locator('#told').inner_text() == f'“it” attends most to: {", ".join(told)}'
    shown = (
        page.locator('#keys .boxes').nth(2).locator('i').evaluate_all('all => all.map(i => +i.style.opacity)')
    )
    np.testing.assert_allclose(shown, kinds[0].weights[1, :, 7, 2], atol=6e-4)
    # A line ends where its words stand, in the first of three heads' places; a word is 28 pixels high.
    box = lambda selector, place: page.locator(selector).nth(place).bounding_box()
    middle = lambda found: found['y'] + found['height'] / 2
    line = page.locator('#drawn line').first.evaluate('l => [l.y1, l.y2].map(y => y.baseVal.value)')
    top = box('#drawn', 0)['y']
    place = 28 * 0.8 * (0.5 / 3 - 0.5)
    assert abs(top + line[0] - 0.4 * place - middle(box('#queries li', 7))) < 2
    first = int(np.flatnonzero(np.rint(1000 * kinds[0].weights[1, 0, 7]) >= 20)[0])
    assert abs(top + line[1] - place - middle(box('#keys li', first))) < 2
    choose('it').click()
    assert page.locator('#told').inner_text() == '' and count() == strong(kinds[0].weights[1])
    # What the mouse is over is shown until it leaves.
    choose('cat').hover()
    assert count() == strong(kinds[0].weights[1, :, 2])
    page.mouse.move(0, 0)
    assert count() == strong(kinds[0].weights[1])
    # Layer, heads and kind, by buttons and by the maps; all with the keyboard too.
    page.locator('#layer').get_by_role('button', name='1', exact=True).click()
    head = page.locator('#heads').get_by_role('button', name='2', exact=True)
    head.focus()
    page.keyboard.press('Enter')
    assert count() == strong(kinds[0].weights[0, [0, 2]])
    assert page.evaluate('document.activeElement.textContent') == '2'
    choose('none').click()
    assert count() == 0
    choose('all').click()
    assert count() == strong(kinds[0].weights[0])
    choose('layer 2, head 3').click()
    assert count() == strong(kinds[0].weights[1, 2])
    choose('decoder self-attention').click()
    assert words('keys') == kinds[2].keys and count() == strong(kinds[2].weights[1]) and fits()
    choose('Wort0').click()
    assert page.locator('#told').inner_text().count('· (1.00)') == 12
    choose('encoder-decoder attention').click()
    assert words('queries') == kinds[1].queries and words('keys') == kinds[1].keys and fits()


def test_the_page_of_attention_by_touch_and_as_it_was_asked_for(page_file, opened):
    file, kinds = page_file
    first = attention_figures.FirstView(kind=1, layer=0, heads=[2], word=3)
    file.write_text(attention_figures.page(Attention(SENTENCE, 'Die <i>Katze</i>', kinds), 'a model', first))
    page = opened(file, 390, 844, has_touch=True)
    count = lambda: page.locator('#drawn line').count()
    strong = lambda weights: int((np.rint(1000 * weights) >= 1000 * attention_figures.LEAST).sum())
    word = page.get_by_role('button', name='Wort3', exact=True)
    assert count() == strong(kinds[1].weights[0, 2, 3]) and word.get_attribute('aria-pressed') == 'true'
    word.tap()
    assert count() == strong(kinds[1].weights[0, 2])
    word.tap()
    assert count() == strong(kinds[1].weights[0, 2, 3])
    # Lines have room to be seen.
    assert page.locator('#drawn').bounding_box()['width'] >= 90


def test_positions_and_schedule():
    table = positions.sinusoid(20, 8, 'paper')
    drawn, alike, *_ = plots.draw_positions(table, 'sinusoids').axes
    np.testing.assert_array_equal(drawn.images[0].get_array(), table)
    # sin a sin b + cos a cos b = cos(a - b): of four waves, each of the norm 1.
    waves = 10000.0 ** -(np.arange(4) / 4)
    apart = np.arange(20)[:, None] - np.arange(20)
    np.testing.assert_allclose(
        alike.images[0].get_array(), np.cos(apart[..., None] * waves).mean(-1), atol=1e-5
    )
    config = configs.resolve(configs.config_dict({'train.steps': 500, 'train.warmup_steps': 100}))
    (line,) = plots.draw_schedule({'base': config}).axes[0].lines
    steps, rates = line.get_data()
    np.testing.assert_array_equal(steps, np.arange(1, 501))
    np.testing.assert_allclose(rates, 512**-0.5 * np.minimum(steps**-0.5, steps * 100**-1.5), rtol=1e-5)


def test_curves(tmp_path, capsys):
    (tmp_path / 'run').mkdir()
    lines = [{'step': 1, 'loss': 3.0}, {'step': 2, 'loss': 2.0, 'dev_loss': 2.5}]
    (tmp_path / 'run' / 'metrics.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
    of_training, of_dev = plots.draw_curves({'run': [lines]}, ['loss', 'dev_loss']).axes[0].lines
    np.testing.assert_array_equal(of_training.get_data(), [[1, 2], [3.0, 2.0]])
    np.testing.assert_array_equal(of_dev.get_data(), [[2], [2.5]])
    call = ['figures', 'curves', str(tmp_path / 'run'), f'--output={tmp_path / "drawn"}']
    files = lambda: {f.name: f.read_bytes() for f in (tmp_path / 'drawn').iterdir()}
    assert command.main(call) == 0
    first = files()
    assert command.main(call) == 0
    assert files() == first and first.keys() == {'curves.png', 'curves.svg'}
    assert command.main([*call, '--metric=bleu']) == 2
    assert '--metric=bleu: choose one of dev_loss, loss' in capsys.readouterr().err


def test_curves_of_a_sweep_are_means_over_seeds(tmp_path):
    sweep = runs.Sweep('3', 'grammar', {}, (('base', 1), ('base', 2), ('A1', 1)))
    runs.write_sweep(tmp_path, sweep)
    losses = {'base-seed1': [4.0, 3.0], 'base-seed2': [6.0, 3.5, 9.0], 'A1-seed1': [5.0]}
    for name, values in losses.items():
        (tmp_path / name).mkdir()
        lines = (json.dumps({'step': 10 * k, 'dev_loss': loss}) + '\n' for k, loss in enumerate(values, 1))
        (tmp_path / name / 'metrics.jsonl').write_text(''.join(lines))
    groups = {}
    for name, folder in command._runs(tmp_path):
        groups.setdefault(name, []).append(list(metrics_file.read(folder)))
    assert {name: len(lines) for name, lines in groups.items()} == {'base': 2, 'A1': 1}
    figure = plots.draw_curves(groups, ['dev_loss'])
    base, A1 = figure.axes[0].lines
    # Only up to the last step that all seeds have.
    np.testing.assert_array_equal(base.get_data(), [[10, 20], [5.0, 3.25]])
    np.testing.assert_array_equal(A1.get_data(), [[10], [5.0]])
    [band] = figure.axes[0].collections
    assert {tuple(point) for point in band.get_paths()[0].vertices} >= {(10, 4.0), (10, 6.0), (20, 3.5)}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ['base', 'A1']
    assert command.main(['figures', 'curves', str(tmp_path), f'--output={tmp_path}', '--format=png']) == 0


def test_curves_of_rows_and_metrics_that_are_missing():
    lines = [{'step': 1, 'loss': 3.0}, {'step': 2, 'loss': 2.0, 'dev_loss': 2.5}]
    figure = plots.draw_curves({'A1': [lines, lines[:1]], 'A2': [lines[:1]]}, ['loss', 'dev_loss'])
    # Of A1, the mean loss of two runs and the dev loss of one; of A2, a point that can be seen.
    mean, dev, point, *_ = figure.axes[0].lines
    np.testing.assert_array_equal(mean.get_data(), [[1], [3.0]])
    np.testing.assert_array_equal(dev.get_data(), [[2], [2.5]])
    assert [line.get_marker() for line in (mean, dev, point)] == ['.'] * 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ['A1', 'A2', 'loss', 'dev_loss']
    assert plots.draw_curves({'A1': [lines[:1]]}, ['loss', 'dev_loss']).axes[0].get_ylabel() == 'loss'


@pytest.mark.parametrize('name', ['row', 'runs/a-work-directory-with-a-long-name-'])
def test_the_legend_of_twenty_curves_is_inside(name):
    lines = [{'step': 1, 'loss': 3.0, 'dev_loss': 2.5}]
    figure = plots.draw_curves({f'{name}{i}': [lines] for i in range(20)}, ['loss', 'dev_loss'])
    assert inside(figure) == [True] * 22
    plots.fit(figure, 8.4 / 2.54)
    assert inside(figure) == [True] * 22


def test_rows_of_two_sweeps_are_not_seeds_of_one(tmp_path, monkeypatch):
    for name in ('one', 'two'):
        (tmp_path / name).mkdir()
        runs.write_sweep(tmp_path / name, runs.Sweep('3', 'grammar', {}, (('base', 1),)))
        (tmp_path / name / 'base-seed1').mkdir()
        (tmp_path / name / 'base-seed1' / 'metrics.jsonl').write_text('{"step": 1, "loss": 3.0}\n')
    drawn = []
    monkeypatch.setattr(command, '_write', lambda call, name, figure: drawn.append(figure))
    folders = [str(tmp_path / name) for name in ('one', 'two', 'one')]
    assert command.main(['figures', 'curves', *folders]) == 0
    names = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert names == [f'{folder}: base' for folder in folders[:2]]


def test_a_picture_that_cannot_be_drawn_leaves_the_earlier_one(tmp_path):
    class Broken(matplotlib.figure.Figure):
        def savefig(self, file, **options):
            file.write(b'half of a picture')
            raise OSError('no font')

    (tmp_path / 'curves.png').write_bytes(b'earlier')
    with pytest.raises(OSError, match='no font'):
        written.write_figure(tmp_path / 'curves.png', Broken())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {'curves.png': b'earlier'}


def test_the_first_position_of_a_config_is_drawn_first(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(command, '_write', lambda call, name, figure: drawn.append(figure))
    file = tmp_path / 'config.py'
    file.write_text(
        'from transformer.config import config_dict\n\n\ndef get_config():\n'
        "    return config_dict({'model.first_position': 1, 'model.d_model': 8, 'model.h': 2})\n"
    )
    assert command.main(['figures', 'positions', str(file), '--length=5']) == 0
    expected = positions.sinusoid(6, 8, 'paper')[1:]
    np.testing.assert_array_equal(drawn[0].axes[0].images[0].get_array(), expected)


def test_mistakes_of_figures_are_one_line(tmp_path, capsys):
    (tmp_path / 'file').touch()
    for argv, part in (
        (['curves'], 'curves'),
        (['curves', str(tmp_path)], f'{tmp_path}: '),
        (['schedule', 'nowhere.py'], 'nowhere.py: '),
        (['schedule', 'skipgram'], 'skipgram: train.epochs=5.0'),
        (['positions', 'configs/base.py', f'--output={tmp_path / "file"}'], f'{tmp_path / "file"}'),
        (['positions', str(tmp_path)], f'{tmp_path}'),
        (['positions', 'configs/lstm_attention.py'], "model.kind='recurrent'"),
        (['attention', f'--workdir={tmp_path}'], f'{tmp_path}'),
        (['attention', '--attention=both'], '--attention'),
        (['attention', '--sentence= '], '--sentence'),
        (['attention', '--sentence=\udcff'], '--sentence'),
    ):
        output = [] if '--output' in argv[-1] else [f'--output={tmp_path / "drawn"}']
        assert command.main(['figures', *output, *argv]) == 2
        error = capsys.readouterr().err
        assert error.startswith('error: ') and part in error and error.count('\n') == 1
        assert 'twice' not in error
    assert command._parse_numbers('heads', '3,1,3', 4) == [2, 0]
    for flag, text, most in (
        ('heads', '0', None),
        ('heads', '5', None),
        ('heads', 'a', None),
        ('layer', '1,2', 1),
    ):
        with pytest.raises(ConfigError, match=f'--{flag}={text}: .* 1 to 4'):
            command._parse_numbers(flag, text, 4, most)


def test_differences_from_base_in_the_papers_order_beside_the_papers():
    figure = differences.draw(RESULTS / 'table3-grammar')
    papers, ours = figure.axes
    labels = [label.get_text() for label in papers.get_yticklabels()]
    assert len(labels) == 19 and labels[0] == 'big' and labels[-1] == 'N 2  C1'
    points = lambda axis: axis.collections[0].get_offsets()[:, 0]
    assert np.all(np.diff(points(papers)) >= 0)
    # The numbers of the report: row B1, d_k = 16, with the 95 % interval of five seeds.
    row = labels.index('d_k 16  B1')
    assert [f'{points(axis)[row]:.3f}' for axis in figure.axes] == ['0.240', '0.031']
    intervals = {line.get_ydata()[0]: line.get_xdata() for line in ours.lines if line.get_color() == 'C1'}
    assert [f'{end:.3f}' for end in intervals[row]] == ['0.019', '0.042']
    assert '0.90' in ours.get_title()
    with pytest.raises(ConfigError, match='architectures'):
        differences.draw(RESULTS / 'architectures')
