"""What programs cost on TPUs: counted in their text, and compiled for a chip where its compiler is there."""

import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import benchmark, sweep
from experiments.compiled import hlo, lower, tpu, traffic
from transformer import config as configs
from transformer.config import ConfigError

ROWS, WIDTH, TRIPS = 8, 32, 5
KNOWN = r'"known_trip_count":\{"n":"\d+"\},?'
TINY = ['--config=configs/tiny.py', '--set=data.batch_tokens=2048']


def text_of(function, *shapes: tuple[int, ...]) -> str:
    given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.jit(function).lower(*given).compile().as_text()


def moved(text: str) -> int:
    program = hlo.parse(text)
    return sum(each.moved for each in traffic.ran(program, program.entry))


def trips(text: str) -> list[int | None]:
    program = hlo.parse(text)
    return [i.trips for each in program.computations.values() for i in each.values() if i.is_loop]


@pytest.mark.parametrize(
    'result, sizes, in_hbm',
    [
        ('f32[3,5]{1,0}', [60], [True]),
        ('pred[3]{0}', [3], [True]),
        ('s32[]', [4], [True]),
        # Tiles of 8 x 128 fill up the last two axes in the order of memory.
        ('f32[3,5]{1,0:T(8,128)}', [8 * 128 * 4], [True]),
        ('bf16[384,64,8,64]{3,2,1,0:T(8,128)(2,1)}', [384 * 64 * 8 * 128 * 2], [True]),
        ('bf16[384,64,8,64]{1,3,2,0:T(8,128)(2,1)}', [384 * 8 * 64 * 128 * 2], [True]),
        ('f32[100]{0:T(1024)S(1)}', [4096], [False]),
        ('(f32[2,2]{1,0}, /*index=1*/u32[4]{0:S(1)}, token[])', [16, 16, 0], [True, False, True]),
        ('s4[16]{0:E(4)}', [8], [True]),
    ],
)
def test_the_bytes_of_arrays(result, sizes, in_hbm):
    found = traffic.arrays(result)
    assert [array.size for array in found] == sizes
    assert [array.in_hbm for array in found] == in_hbm


def test_a_product_reads_its_factors_and_writes_itself():
    found = moved(text_of(jnp.matmul, (ROWS, WIDTH), (WIDTH, WIDTH)))
    assert found == 4 * (2 * ROWS * WIDTH + WIDTH * WIDTH)


def test_a_loop_moves_its_parts_and_not_the_whole():
    """Each trip reads a row of one array, and writes a row of another."""

    def each_row(x, w):
        return jax.lax.scan(lambda total, row: (jnp.tanh(total @ w), row * total), x[0], x)

    row, trips = 4 * WIDTH, 100
    found = moved(text_of(each_row, (trips, WIDTH), (WIDTH, WIDTH)))
    kernel = 4 * WIDTH * WIDTH
    # Beside the kernel there are some vectors a trip; the whole arrays would be 200 of them.
    assert trips * (kernel + 2 * row) <= found <= trips * (kernel + 20 * row)


def test_the_trips_of_a_loop_by_its_condition():
    """A TPU's program does not say how often a loop runs."""
    repeat = lambda x, w: jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, length=TRIPS)[0]
    text = text_of(repeat, (ROWS, WIDTH), (WIDTH, WIDTH))
    silent = re.sub(KNOWN, '', text)
    assert silent != text
    assert trips(text) == trips(silent) == [TRIPS]
    assert moved(silent) == moved(text)
    until = lambda x: jax.lax.while_loop(lambda x: x.sum() > 1, lambda x: x / 2, x)
    assert trips(text_of(until, (WIDTH,))) == [None]
    # Nor where what is compared is no counter.
    for going_on, grow, x in (
        (lambda x: x < 0.5, lambda x: x * 1.5, jnp.float32),
        (lambda x: x < 1000, lambda x: x * x + 1, jnp.int32),
        (lambda x: x < jnp.inf, lambda x: x * 2, jnp.float32),
        (lambda x: x < 1000, lambda x: x + 2, jnp.int32),
    ):
        loop = jax.jit(functools.partial(jax.lax.while_loop, going_on, grow))
        text = loop.lower(jax.ShapeDtypeStruct((), x)).compile().as_text()
        assert trips(re.sub(KNOWN, '', text)) == [None]
    by_two = lambda x: jax.lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 2, jnp.sin(c[1])), (0, x))
    assert trips(re.sub(KNOWN, '', text_of(by_two, (WIDTH,)))) == [None]
    # At most so often is not so often.
    going_on = lambda carry: (carry[1].sum() > 1) & (carry[0] < TRIPS)
    bounded = lambda x: jax.lax.while_loop(going_on, lambda carry: (carry[0] + 1, carry[1] / 2), (0, x))
    assert trips(text_of(bounded, (WIDTH,))) == [None]


def test_the_roofline():
    chip = tpu.Chip('a chip', flops=100.0, bandwidth=10.0, memory=1.0)
    cost = tpu.Cost(200.0, 80.0, 10.0, 7.0, {}, {}, [], [])
    assert tpu.roofline(cost, chip) == {
        'products': 2.0,
        'bytes': 8.0,
        'hbm': 1.0,
        'utilisation': 0.25,
        'hbm_utilisation': 1.0,
    }
    assert tpu.roofline(cost._replace(bytes_accessed=10.0), chip)['utilisation'] == 1.0


def test_without_the_compiler_it_is_skipped_or_refused(monkeypatch, capsys):
    monkeypatch.setattr(tpu.importlib.util, 'find_spec', lambda name: None)
    assert benchmark.main(['benchmark', 'tpu']) == 0
    assert "skipped, their compiler is not installed: pip install '.[tpu]'" in capsys.readouterr().out
    assert sweep.main(['sweep', 'plan', '--topology=v5e:1x1']) == 2
    assert "the compiler for TPUs is not installed: pip install '.[tpu]'" in capsys.readouterr().err


def test_the_tiny_model_for_one_chip(tmp_path, capsys):
    pytest.importorskip('libtpu')
    file = tmp_path / 'tpu.json'
    assert benchmark.main(['benchmark', 'tpu', *TINY, f'--output={file}']) == 0
    shown, found = capsys.readouterr().out, json.loads(file.read_text())
    assert 'an update of 16 x 128 tokens a side' in shown and '1 x TPU v5 lite (v5e:1x1), each:' in shown
    found = found['topologies']['v5e:1x1']
    # The compiler leaves out what is not needed, and counts elementwise work.
    np.testing.assert_allclose(found['update']['flops'], found['formula'], rtol=0.2)
    for cost in (found['update'], found['search step']):
        assert 0 < cost['hbm_bytes'] < 1.2 * cost['bytes_accessed']
        assert len(cost['arrays']) == len(cost['costliest']) == tpu.SHOWN
        assert 0 < cost['roofline']['utilisation'] < 1


def test_rematerialisation_needs_less_memory():
    pytest.importorskip('libtpu')
    tpu.prepare()
    small = {'model.N': 2, 'model.d_model': 128, 'model.vocab_size': 1000, 'data.pieces': 1000}
    config = configs.resolve(configs.config_dict({**benchmark.TPU_SIZES, **small}))

    def temporaries(remat: bool) -> int:
        program = lower.update(configs.replace(config, {'model.remat': remat}), tpu.devices_of('v5e:1x1'))
        return program.compile().memory_analysis().temp_size_in_bytes

    # Of two layers in each stack what one computes is in memory at a time.
    assert temporaries(True) < 0.75 * temporaries(False)


def test_rows_that_do_not_fit_are_refused(capsys):
    pytest.importorskip('libtpu')
    call = [
        'sweep',
        'plan',
        '--scale=grammar',
        '--rows=C6',
        '--topology=v5e:1x1',
        '--set=data.batch_tokens=4000000',
    ]
    assert sweep.main(call) == 2
    assert (
        "C6: an update with train.accumulate=1 does not fit into the TPU's memory" in capsys.readouterr().err
    )


@pytest.mark.parametrize('name', ['v5e', 'v5e:0x1', 'v5e:2x', ':2x4'])
def test_a_topology_that_is_none(name):
    with pytest.raises(ConfigError, match='expected a chip and its numbers, such as v5e:2x4'):
        tpu.devices_of(name)
