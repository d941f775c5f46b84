"""Table 1, measured: counts in compiled programs, exponents, path lengths, and the command."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.compiled import hlo
from experiments.complexity import __main__ as complexity
from experiments.complexity import charts, layers, measure, paths, tables
from experiments.rendering import formats
from experiments.tables.user_files import ROOT

COMMITTED = ROOT / 'experiments' / 'results' / 'complexity'
D, TRIPS, INNER = 16, 7, 5


def program(function, *shapes: tuple[int, ...]) -> hlo.CompiledProgram:
    given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return hlo.parse(jax.jit(function).lower(*given).compile().as_text())


def repeated(x, kernel, trips: int, unroll: int = 1):
    """Multiplies x by a kernel a number of times."""
    return jax.lax.scan(lambda x, _: (jnp.tanh(x @ kernel), None), x, length=trips, unroll=unroll)[0]


def nested(x, kernel):
    return jax.lax.scan(lambda x, _: (repeated(x, kernel, INNER), None), x, length=TRIPS)[0]


SHAPES = (1, D), (D, D)
PRODUCT = 2 * D * D


def test_the_body_of_a_loop_counts_as_often_as_it_runs():
    once, looped = program(jnp.matmul, *SHAPES), program(lambda x, w: repeated(x, w, TRIPS), *SHAPES)
    assert hlo.flops(once) == PRODUCT
    # Besides the products there is little: the loop's counter.
    assert TRIPS * PRODUCT <= hlo.flops(looped) <= 1.05 * TRIPS * PRODUCT
    assert hlo.steps(once) == 1 and hlo.steps(looped) == TRIPS


def test_a_loop_costs_what_it_costs_without_a_loop():
    whole = program(lambda x, w: repeated(x, w, TRIPS, unroll=TRIPS), *SHAPES)
    looped = program(lambda x, w: repeated(x, w, TRIPS), *SHAPES)
    assert hlo.steps(whole) == 1
    np.testing.assert_allclose(hlo.flops(looped), hlo.flops(whole), rtol=0.02)


def test_nested_loops_multiply():
    found = program(nested, *SHAPES)
    assert hlo.steps(found) == TRIPS * INNER
    assert TRIPS * INNER * PRODUCT <= hlo.flops(found) <= 1.1 * TRIPS * INNER * PRODUCT


def test_only_loops_that_must_wait_for_each_other_add_up():
    apart = lambda x, w: repeated(x, w, 3) + repeated(x + 1, w, 4)
    behind = lambda x, w: repeated(repeated(x, w, 3), w, 4)
    assert [hlo.steps(program(function, *SHAPES)) for function in (apart, behind)] == [4, 7]


def test_the_backward_pass_of_a_loop_runs_after_it():
    backward = jax.grad(lambda x, w: repeated(x, w, TRIPS).sum(), argnums=1)
    assert hlo.steps(program(backward, *SHAPES)) == 2 * TRIPS


def test_a_loop_of_unknown_length_is_refused():
    halve = lambda x: jax.lax.while_loop(lambda x: x.sum() > 1, lambda x: x / 2, x)
    with pytest.raises(ValueError):
        hlo.flops(program(halve, (D,)))


def test_exponents_of_a_known_power_law():
    points = [(n, d, k) for n in (8, 16, 64) for d in (2, 3, 5) for k in (1, 3)]
    records = [{'n': n, 'd': d, 'k': k, 'flops': 7 * n**2 * d * k**0.5} for n, d, k in points]
    found = measure.exponents(records, ['n', 'd', 'k'], 'flops')
    assert found == {'n': pytest.approx(2), 'd': pytest.approx(1), 'k': pytest.approx(0.5)}
    # Some programs need no temporary memory.
    assert (
        measure.exponents([*records, {'n': 9, 'd': 9, 'k': 9, 'flops': 0}], ['n', 'd', 'k'], 'flops') == found
    )


def test_where_curves_cross():
    square, line = ({n: factor * n**power for n in (4, 16, 64, 256)} for factor, power in ((1, 2), (100, 1)))
    assert measure.crossing(square, line) == pytest.approx(100)
    assert measure.crossing(line, square) is None
    # Lengths that only one of them has do not count.
    assert measure.crossing(square, {n: line[n] for n in (16, 256)}) == pytest.approx(100)
    assert measure.crossing({4: square[4]}, line) is None


def test_where_a_curve_lies_above_another_in_words():
    square, line = ({n: factor * n**power for n in (4, 16, 64, 256)} for factor, power in ((1, 2), (100, 1)))
    higher = {n: 2 * value for n, value in line.items()}
    above, below = tables._where_above(square, line), tables._where_above(line, square)
    assert '100' in above and '100' in below and above != below
    assert 'every' in tables._where_above(higher, line) and 'no' in tables._where_above(line, higher)


def band(n: int, offsets: tuple[int, ...]) -> np.ndarray:
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    return np.isin(distance, offsets)


def test_paths_in_graphs_that_are_known():
    # One position back in a layer: n - 1 layers. Two: half as many.
    assert paths.longest([band(6, (0, 1))] * 9) == 5
    assert paths.longest([band(6, (0, 1, 2))] * 9) == 3
    # The first layer connects neighbours, the second what is two apart: 4 positions, not 5.
    doubling = [band(4, (0, 1)), band(4, (0, 2)), band(4, (0, 4))]
    assert paths.longest(doubling) == 2
    with pytest.raises(ValueError):
        paths.longest([band(5, (0, 1)), band(5, (0, 2))])
    # A recurrence: inputs at first, then one state back; the first input needs n steps to the last output.
    assert paths.longest([band(5, (0,)), *[band(5, (1,))] * 9]) == 5
    with pytest.raises(ValueError):
        paths.longest([band(5, (0, 2))] * 9)


def test_dependence_is_read_off_the_jacobian():
    shifted = lambda x: jnp.concatenate([x[:1], x[:-1] * x[1:]])
    np.testing.assert_array_equal(paths.dependence(shifted, 4), band(4, (0, 1)))


def test_the_stacked_layers_depend_as_the_product_of_their_dependences_says():
    """Two dilated convolutions as one function."""
    build = lambda dilation: layers.convolution(12, paths.D, taps=3, dilation=dilation, causal=True)
    lower, upper = build(1), build(3)
    segments = jnp.ones((1, 12), jnp.int32)

    def both(x):
        inner = lower.apply([layers.random(lower.arrays)[0], x[None]], segments)
        return upper.apply([layers.random(upper.arrays)[0], inner], segments)[0]

    np.testing.assert_array_equal(paths.dependence(both, 12), band(12, tuple(range(9))))


@pytest.mark.parametrize('kind', paths.kinds(taps=3, window=2), ids=lambda kind: kind.name)
def test_path_lengths_are_those_of_the_formulas(kind):
    expected = {
        'self-attention': [1, 1, 1],
        'recurrent': [3, 9, 10],
        'convolutional': [1, 4, 5],
        'convolutional, dilated': [1, 2, 3],
        'self-attention, restricted': [1, 4, 5],
    }[kind.name]
    assert [paths.longest(kind.dependences(n)) for n in (3, 9, 10)] == expected
    assert [kind.formula(n) for n in (3, 9, 10)] == expected


def test_a_convolution_is_the_sum_over_its_taps():
    n, d = 11, 3
    for dilation, causal in ((1, False), (2, False), (3, True)):
        layer = layers.convolution(n, d, taps=3, dilation=dilation, causal=causal)
        kernel, x = layers.random(layer.arrays)
        expected = np.zeros((n, d))
        for tap, i in np.ndindex(3, n):
            j = i + dilation * (tap - (2 if causal else 1))
            if 0 <= j < n:
                expected[i] += np.asarray(x[0, j]) @ np.asarray(kernel[tap])
        found = layer.apply((kernel, x), jnp.ones((1, n), jnp.int32))
        np.testing.assert_allclose(found[0], expected, atol=1e-5)


def test_both_passes_give_outputs_and_gradients():
    layer = layers.recurrent(4, 3)
    arrays, segments, gradient = layers.random(layer.arrays), jnp.ones((1, 4), jnp.int32), jnp.ones((4, 1, 3))
    found, gradients = layers.both(layer)(arrays, segments, gradient)
    np.testing.assert_allclose(found, layers.forward(layer)(arrays, segments, gradient), rtol=1e-6)
    assert jax.tree.map(jnp.shape, gradients) == jax.tree.map(jnp.shape, arrays)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradients))


def rows(page: str, heading: str) -> list[list[str]]:
    """Parses the cells of the table below a heading."""
    table = page.partition(f'## {heading}\n\n')[2].partition('\n\n')[0]
    return [[cell.strip() for cell in line.strip('|').split('|')] for line in table.splitlines()[2:]]


@pytest.fixture(scope='module')
def measured(tmp_path_factory):
    """Makes the smallest run of the command, and returns its folder."""
    folder = tmp_path_factory.mktemp('complexity')
    words = ['--longest=1024', '--d_model=128', '--memory_gib=0.02', f'--output={folder}']
    with pytest.MonkeyPatch.context() as patch:
        # Only one run is timed.
        patch.setattr(hlo, 'LONG', 0.0)
        assert complexity.main(['complexity', *words]) == 0
    return folder


def check_table_1(found) -> None:
    """Checks that the exponents are the paper's, and the path lengths the formulas'."""
    for kind in layers.TYPES:
        for passes in layers.PASSES:
            records = tables.of(found['layers'], kind.name, passes)
            one_by_one = kind.name == 'recurrent'
            times = {'forward': 1, 'both': 2}[passes] if one_by_one else 1
            assert [r['steps'] for r in records] == [times * r['n'] if one_by_one else 1 for r in records]
            powers = measure.exponents(records, list(kind.exponents), 'flops')
            assert powers == pytest.approx(kind.exponents, abs=0.15), (kind.name, passes)
    assert all(record['length'] == record['formula'] for record in found['paths'])


def test_the_smallest_run(measured):
    found = json.loads((measured / 'complexity.json').read_text())
    assert {path.name for path in measured.iterdir()} == {
        'complexity.json', 'table.md', 'layers.png', 'kernels.png'
    }  # fmt: skip
    check_table_1(found)
    first = {row[0]: row for row in rows((measured / 'table.md').read_text(), 'Table 1, measured')}
    assert [row[5] for row in first.values()] == ['1', 'n', '1', '1', '1']
    assert first['recurrent'][6] == '2n'
    assert tables.crossings(found)[64] == pytest.approx(64, rel=0.1)


def test_what_does_not_fit_is_not_run(measured):
    found = json.loads((measured / 'complexity.json').read_text())
    for record in found['kernels']:
        assert (record['seconds'] is None) == (record['needed'] > found['limit'])
    left_out = {(r['name'], r['n'], r['pass']) for r in found['kernels'] if r['seconds'] is None}
    assert ('full', 1024, 'both') in left_out and ('chunked', 1024, 'both') not in left_out
    page = (measured / 'table.md').read_text()
    assert re.search(r'0.02 GiB: full at n = 1,024.* 0.0\d+ GiB', page)
    assert re.search(r'- chunked at n = 1,024.* 0.0\d+ GiB', page)
    for record in found['kernels']:
        record['seconds'] = None if (record['name'], record['n']) == ('sparse', 1024) else record['seconds']
    notes = re.findall(r'^- .*GiB.*$', tables.text(found, formats.markdown, '## '), re.MULTILINE)
    assert len([note for note in notes if 'sparse' in note]) == 2 and len(notes) == len(set(notes))
    times = {tuple(row[:2]): row[9] for row in rows(page, 'Attention kernels by length')}
    assert times['full', '1,024'] == 'not run'


def test_a_result_is_shown_again(measured, tmp_path, capsys):
    words = [f'--result={measured / "complexity.json"}', f'--output={tmp_path}']
    assert complexity.main(['complexity', *words]) == 0
    for name in ('table.md', 'complexity.json'):
        assert (tmp_path / name).read_text() == (measured / name).read_text()
    assert 'Table 1, measured' in capsys.readouterr().out


def test_what_a_result_holds_is_not_measured_otherwise(measured, tmp_path, capsys):
    call = ['complexity', f'--result={measured / "complexity.json"}', f'--output={tmp_path}']
    assert complexity.main([*call, '--longest=1024']) == 2
    assert '--longest' in capsys.readouterr().err


def test_a_result_of_which_nothing_ran_is_shown(measured, tmp_path):
    found = json.loads((measured / 'complexity.json').read_text())
    for record in (*found['layers'], *found['kernels']):
        record.update({'seconds': None} if 'seconds' in record else {})
    page = tables.text(found, formats.markdown, '## ')
    charts.write(found, tmp_path)
    assert (tmp_path / 'layers.png').exists() and 'not run' in page
    assert 'takes more seconds' not in page and 'Local attention, r' not in page


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, 'everything', lambda *_: pytest.fail('it was measured'))
    (tmp_path / 'file').touch()
    assert complexity.main(['complexity', f'--output={tmp_path}/file/out']) == 2
    assert capsys.readouterr().err.count('\n') == 1


@pytest.mark.parametrize('word', ['--d_model=200', '--longest=10', '--result=nowhere.json'])
def test_mistakes_are_one_line(capsys, word):
    assert complexity.main(['complexity', word]) == 2
    error = capsys.readouterr().err
    assert word in error and error.count('\n') == 1


WITHOUT_PATHS = json.dumps({key: 1 for key in complexity.SHAPE if key != 'paths'})
EMPTY = json.dumps({key: [] for key in complexity.SHAPE})


@pytest.mark.parametrize('content', ['{"d_model": 64, "la', '{}', '[]', WITHOUT_PATHS, EMPTY])
def test_a_result_that_is_none(capsys, tmp_path, content):
    (tmp_path / 'bad.json').write_text(content)
    words = [f'--result={tmp_path}/bad.json', f'--output={tmp_path}/out']
    assert complexity.main(['complexity', *words]) == 2
    error = capsys.readouterr().err
    assert f'{tmp_path}/bad.json' in error and error.count('\n') == 1
    assert not (tmp_path / 'out').exists()


def test_a_result_without_a_cost(measured, tmp_path, capsys):
    found = json.loads((measured / 'complexity.json').read_text())
    del found['kernels'][0]['seconds']
    (tmp_path / 'bad.json').write_text(json.dumps(found))
    words = [f'--result={tmp_path}/bad.json', f'--output={tmp_path}/out']
    assert complexity.main(['complexity', *words]) == 2
    assert "kernels.0: lacks 'seconds'" in capsys.readouterr().err
    (tmp_path / 'bad.json').write_text(json.dumps({**found, 'kernels': []}))
    assert complexity.main(['complexity', *words]) == 2
    assert 'kernels is empty' in capsys.readouterr().err


def test_the_committed_result():
    """Its tables follow from its numbers, and these agree with Table 1."""
    found = json.loads((COMMITTED / 'complexity.json').read_text())
    assert tables.text(found, formats.markdown, '## ') == (COMMITTED / 'table.md').read_text()
    check_table_1(found)
    at = {(record['name'], record['n'], record['pass']): record for record in found['kernels']}
    for passes in layers.PASSES:
        full, local = at['full', 4096, passes], at['local', 4096, passes]
        assert full['temporary'] > 8 * local['temporary']
        assert full['seconds'] > 8 * local['seconds']
        assert at['chunked', 16384, passes]['seconds'] is not None
        assert at['full', 16384, passes]['seconds'] is None
    assert {d: n / d for d, n in tables.crossings(found).items()} == {
        d: pytest.approx(1, rel=0.1) for d in (64, 128, 256, 512)
    }
    assert found['seconds'] < 600
