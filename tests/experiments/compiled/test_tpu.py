"""The cost of programs on TPUs, from their text, and compiled for a chip where the compiler is installed."""

import functools
import json
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import benchmark, sweep
from experiments.compiled import hlo, lower, tpu
from transformer import config as configs
from transformer.config import ConfigError
from transformer.nn import models

ROWS, WIDTH, TRIPS = 8, 32, 5
KNOWN = r'"known_trip_count":\{"n":"\d+"\},?'
TINY = ['--config=configs/tiny.py', '--set=data.batch_tokens=2048']


def text_of(function, *shapes: tuple[int, ...]) -> str:
    given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.jit(function).lower(*given).compile().as_text()


def trips(text: str) -> list[int | None]:
    program = hlo.parse(text)
    return [
        i.trips for each in program.computations.values() for i in each.values() if i.operation == 'while'
    ]


def test_the_trips_of_a_loop_by_its_condition():
    """A TPU's program does not say how often a loop runs."""
    repeat = lambda x, w: jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, length=TRIPS)[0]
    text = text_of(repeat, (ROWS, WIDTH), (WIDTH, WIDTH))
    silent = re.sub(KNOWN, '', text)
    assert silent != text
    assert trips(text) == trips(silent) == [TRIPS]
    assert hlo.flops(hlo.parse(silent)) == hlo.flops(hlo.parse(text))
    until = lambda x: jax.lax.while_loop(lambda x: x.sum() > 1, lambda x: x / 2, x)
    assert trips(text_of(until, (WIDTH,))) == [None]
    # Conditions that compare something other than a counter.
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
    # A bound on the trips is not their number.
    going_on = lambda carry: (carry[1].sum() > 1) & (carry[0] < TRIPS)
    bounded = lambda x: jax.lax.while_loop(going_on, lambda carry: (carry[0] + 1, carry[1] / 2), (0, x))
    assert trips(text_of(bounded, (WIDTH,))) == [None]


# A loop whose condition says that it runs five times, and a sum over devices.
PROGRAM = """HloModule jit_f

%body (b: (s32[], f32[8])) -> (s32[], f32[8]) {
  %b = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%b), index=0
  %x = f32[8] get-tuple-element(%b), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %sine = f32[8] sine(%x), metadata={op_name="jit(f)/sin"}, backend_config={"estimated_cycles":"30"}
  ROOT %both = (s32[], f32[8]) tuple(%next, %sine)
}

%condition (c: (s32[], f32[8])) -> pred[] {
  %c = (s32[], f32[8]) parameter(0)
  %j = s32[] get-tuple-element(%c), index=0
  %bound = s32[] constant(5)
  ROOT %less = pred[] compare(%j, %bound), direction=LT
}

%add (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %plus = f32[] add(%p, %q)
}

ENTRY %main (y: f32[8], q: bf16[2,3,8,16], k: bf16[2,3,8,32]) -> f32[8] {
  %y = f32[8] parameter(0)
  %q = bf16[2,3,8,16] parameter(1)
  %k = bf16[2,3,8,32] parameter(2)
  %zero = s32[] constant(0)
  %start = (s32[], f32[8]) tuple(%zero, %y)
  %loop = (s32[], f32[8]) while(%start), condition=%condition, body=%body
  %last = f32[8] get-tuple-element(%loop), index=1
  %sum = f32[8] all-reduce(%last), to_apply=%add, backend_config={"estimated_cycles":"50"}
  %begun = (f32[8], f32[8], u32[]) copy-start(%sum)
  %copied = f32[8] copy-done(%begun)
  ROOT %splash_mha_fwd.1 = f32[8] custom-call(%copied, %q, %k), \
custom_call_target="tpu_custom_call", operand_layout_constraints={f32[8]{0}, \
bf16[2,3,8,16]{3,2,1,0}, bf16[2,3,8,32]{3,2,1,0}}
}
"""


def test_the_cost_counts_the_trips_of_loops():
    sizes = {'argument': 32, 'output': 32, 'alias': 32, 'temp': 8, 'generated_code': 2}
    program = types.SimpleNamespace(
        as_text=lambda: PROGRAM,
        memory_analysis=lambda: types.SimpleNamespace(
            **{f'{kind}_size_in_bytes': size for kind, size in sizes.items()}
        ),
        cost_analysis=lambda: {'flops': 9.0, 'bytes accessed': 100.0},
    )
    cost = tpu.cost(program)
    # Each trip reads and writes 32 bytes for the sine alone.
    assert cost.bytes_accessed == 100 + 4 * hlo.counted(hlo.parse(PROGRAM), 'body')['bytes accessed'] > 356
    assert cost.cycles == 5 * 30 + 50 and cost.collectives == {'all-reduce': 1}
    assert cost.costliest == [(0.75, 'sine', 'jit(f)/sin'), (0.25, 'sum', '')]
    assert tpu.needed(cost) == 32 + 8 + 2
    assert cost.not_estimated == {'asynchronous copy': 1, 'kernel': 1}
    assert cost.largest == [(32, 'f32[8]', 3), (4, 's32[]', 1)]
    # Logits, and sums by weights.
    assert cost.kernel_flops == 2 * (2 * 2 * 3 * 16 * 32 * 8)


def test_every_array_of_a_tuple_is_counted():
    result = '(f32[8]{0:T(128)}, bf16[4096,4096]{1,0:T(8,128)(2,1)S(1)})'
    instruction = types.SimpleNamespace(operation='fusion', result=result)
    assert tpu._largest([instruction]) == [(2 * 4096**2, 'bf16[4096,4096]', 1), (32, 'f32[8]', 1)]


def test_flops_of_the_kernel_of_short_rows():
    """Gradients: the logits again, and four gradients, of 2 rows with 32 features of all heads."""
    text = 'operand_layout_constraints={s32[2,1,128]{2,1,0}, s32[2,1,128]{2,1,0}, bf16[2,32,128]{2,1,0}, ' + (
        'bf16[2,32,128]{2,1,0}, bf16[2,32,128]{2,1,0}, bf16[2,32,128]{2,1,0}}'
    )
    instruction = types.SimpleNamespace(text=text)
    assert tpu._kernel_flops('short_attention_gradients.7', instruction) == 2 * 5 * 2 * 32 * 128 * 128


def test_the_roofline():
    # 50 cycles a second.
    chip = tpu.Chip('a chip', flops=100.0, bandwidth=10.0, memory=1.0, flops_per_cycle=2.0)
    cost = tpu.Cost(200.0, 80.0, 400.0, {}, {}, [], {}, [], 0.0)
    assert tpu.roofline(cost, chip) == {'products': 2.0, 'bytes': 8.0, 'cycles': 8.0, 'utilisation': 0.25}
    assert tpu.roofline(cost._replace(cycles=100.0), chip)['utilisation'] == 1.0


def test_utilisation_counts_no_product_twice():
    chip = tpu.Chip('a chip', flops=100.0, bandwidth=10.0, memory=1.0, flops_per_cycle=2.0)
    # 200 FLOPs, of which 50 are computed again, in 8 seconds.
    cost = tpu.Cost(200.0, 80.0, 400.0, {}, {}, [], {}, [], 0.0)
    assert tpu.roofline(cost, chip, 150.0)['utilisation'] == 150 / 100 / 8
    # The formula's products in kernels take no cycles here.
    assert tpu.roofline(cost._replace(kernel_flops=10.0), chip, 250.0)['utilisation'] == 200 / 100 / 8


def test_the_fastest_accumulation_is_estimated(monkeypatch):
    """A program's cycles here are |8 - positions of a chunk / 1,000|, plus 1."""
    chip = tpu.Chip('a chip', flops=100.0, bandwidth=10.0, memory=1.0, flops_per_cycle=2.0)
    monkeypatch.setattr(tpu, 'devices_of', lambda topology: [types.SimpleNamespace(platform='tpu')])
    monkeypatch.setattr(tpu, 'chip_of', lambda topology, device: chip)
    monkeypatch.setattr(tpu, 'compile_update', lambda config, devices: config)

    def cost(config):
        chunks = configs.with_accumulation(config, 'tpu', 1).train.accumulate
        cycles = 1 + abs(8 - config.data.batch_tokens / 1000 / chunks)
        return tpu.Cost(1.0, 1.0, 50 * cycles, {'temp': 2**30, 'alias': 0}, {}, [], {}, [], 0.0)

    monkeypatch.setattr(tpu, 'cost', cost)
    config = configs.resolve(configs.config_dict({'data.batch_tokens': 16_000}))
    assert tpu.estimate('v5e:1x1', (1, 2, 4), config) == (1.0, 1.0, 2)
    # By default the fewest chunks of at most 6,144 positions of base.
    assert tpu.estimate('v5e:1x1', (), config) == (5.0, 1.0, 4)

    def narrow(config, devices):
        if config.train.accumulate < 4:
            raise ConfigError('does not fit')
        return config

    monkeypatch.setattr(tpu, 'compile_update', narrow)
    assert tpu.estimate('v5e:1x1', (1, 2, 4), config) == (5.0, 1.0, 4)
    with pytest.raises(ConfigError, match='does not fit'):
        tpu.estimate('v5e:1x1', (1, 2), config)


@pytest.mark.parametrize(
    ('positions', 'width', 'devices', 'chunks'),
    [
        (192 * 128, 512, 1, 4),
        (192 * 128, 512, 8, 1),
        (192 * 128 + 128, 512, 1, 8),
        # ViT S/16 with 128 images: 8,192 positions of 384 numbers are 6,144 of 512.
        (128 * 197, 384, 1, 4),
        (8 * 6144, 64, 1, 1),
        (8 * 6144 + 1, 64, 1, 2),
        (192 * 128, 1024, 1, 4),
        (10**6, 512, 1, 8),
    ],
)
def test_default_accumulation_on_tpus(positions, width, devices, chunks):
    config = configs.resolve(configs.config_dict({'data.batch_tokens': positions, 'model.d_model': width}))
    assert configs.with_accumulation(config, 'tpu', devices).train.accumulate == chunks
    assert configs.with_accumulation(config, 'cpu', devices).train.accumulate == 1


@pytest.mark.parametrize('text', ['1,', '0', 'x', '1;2'])
def test_what_is_no_list_of_numbers_is_refused(text, capsys):
    assert sweep.main(['sweep', 'plan', '--topology=v5e:1x1', f'--accumulate={text}']) == 2
    assert benchmark.main(['benchmark', 'tpu', f'--sentences={text}']) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [f'--accumulate={text}:' in lines[0], f'--sentences={text}:' in lines[1]] == [True, True]


def test_without_the_compiler_it_is_skipped_or_refused(monkeypatch, capsys):
    monkeypatch.setattr(tpu.importlib.util, 'find_spec', lambda name: None)
    assert benchmark.main(['benchmark', 'tpu']) == 0
    assert "pip install '.[tpu]'" in capsys.readouterr().out
    assert sweep.main(['sweep', 'plan', '--topology=v5e:1x1']) == 2
    assert '--topology' in capsys.readouterr().err


def test_the_tiny_model_for_one_chip(tmp_path, capsys):
    pytest.importorskip('libtpu')
    file = tmp_path / 'tpu.json'
    assert benchmark.main(['benchmark', 'tpu', *TINY, f'--output={file}']) == 0
    assert '16 x 128 tokens a side' in capsys.readouterr().out
    found = json.loads(file.read_text())['topologies']['v5e:1x1']
    # The compiler leaves out what is not needed, and counts elementwise work.
    np.testing.assert_allclose(found['update']['flops'], found['formula'], rtol=0.2)
    for cost in (found['update'], found['search step of 32']):
        assert cost['cycles'] > 0 and len(cost['costliest']) == tpu.SHOWN
        assert 0 < cost['roofline']['utilisation'] < 1


def test_rematerialisation_needs_less_memory():
    pytest.importorskip('libtpu')
    tpu.prepare()
    small = {'model.N': 2, 'model.d_model': 128, 'model.vocab_size': 1000, 'data.pieces': 1000}
    config = configs.resolve(configs.config_dict({**benchmark.ACCELERATOR_SIZES, **small}))

    def temporaries(remat: bool) -> int:
        program = lower.update(configs.replace(config, {'model.remat': remat}), tpu.devices_of('v5e:1x1'))
        return program.compile().memory_analysis().temp_size_in_bytes

    # Of two layers in each stack what one computes is in memory at a time.
    assert temporaries(True) < 0.75 * temporaries(False)


def test_rows_that_do_not_fit_are_refused(capsys):
    pytest.importorskip('libtpu')
    call = ['sweep', 'plan', '--scale=grammar', '--rows=C6', '--topology=v5e:1x1']
    assert sweep.main([*call, '--set=data.batch_tokens=4000000', '--set=train.accumulate=1']) == 2
    assert 'C6: an update with train.accumulate=1' in capsys.readouterr().err


@pytest.mark.parametrize('name', ['v5e', 'v5e:0x1', 'v5e:2x', ':2x4'])
def test_a_topology_that_is_none(name):
    with pytest.raises(ConfigError, match=f'--topology={name}'):
        tpu.devices_of(name)


def test_the_bytes_that_a_step_of_a_search_reads():
    """A further sentence adds its caches and what the decoder reads of the encoder's output."""
    sizes = {'model.N': 2, 'model.d_model': 16, 'model.h': 2, 'model.d_ff': 32, 'model.vocab_size': 64}
    rows = {'data.batching': 'packed', 'data.row_len': 8, 'data.max_len': 8, 'data.pieces': 50}
    config = configs.resolve_values(sizes | rows | {'decode.beam': 3, 'decode.extra_len': 4})
    length, state = 8 + 4, 3 * 4  # a beam's positions
    caches = 2 * (2 * 3 * length * 16 * 4 + 3 * length * 4)  # keys, values and writers, of two layers
    memory = 2 * (2 * 8 * 16 * 4 + 8 * 4)  # keys, values and segments
    found = lower.step_bytes(config, 2) - lower.step_bytes(config, 1)
    assert found == caches + memory + length * 4 + state
    # The rest are the parameters outside the encoder, in the model's type.
    leaves = jax.tree_util.tree_leaves_with_path(models.parameter_shapes(config))
    numbers = sum(leaf.size for path, leaf in leaves if "['encoder']" not in jax.tree_util.keystr(path[:1]))
    assert 0 < numbers < sum(leaf.size for _, leaf in leaves)
    for dtype, size in {'float32': 4, 'bfloat16': 2}.items():
        of_type = configs.replace(config, {'model.dtype': dtype})
        one, two = (lower.step_bytes(of_type, count) for count in (1, 2))
        assert 2 * one - two == size * numbers
