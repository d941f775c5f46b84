"""Counts the cycles of attention's kernels on TPUs: the bundles of instructions in each, compiled alone.

A bundle takes at least one cycle. Waiting for memory is not counted, and every branch is, so blocks that a
mask leaves out count too. A loop's two trips that only fill its pipeline count as whole ones, and the few
bundles after its test once: a few per cent too many.
"""

import os
import pathlib
import re

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from experiments.compiled import tpu
from transformer.config import ConfigError, Model
from transformer.nn.kernels import flash, short
from transformer.nn.kernels.kernel import AttentionInputs

_BUNDLE = re.compile(r'^ *(?:0x[0-9a-f]+|\d+) +(?:\w\w)?: (?P<loops>[> ]*)\{')
_LAST = re.compile(r'(\d+) /\* loop exit test')


def prepare(folder: pathlib.Path) -> None:
    """Prepares the compiler to write the instructions of all that it compiles; must run before it loads."""
    flags = f'--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true'
    os.environ['LIBTPU_INIT_ARGS'] = f'{os.environ.get("LIBTPU_INIT_ARGS", "")} {flags}'
    tpu.prepare()


def cycles(model: Model, rows: int, length: int, device: jax.Device, folder: pathlib.Path) -> dict[str, int]:
    """Compiles full attention's kernels, if it has them for these sizes, and flash attention's.

    Neither has a bias, or dropout of weights, whatever the model has.

    Returns:
      The cycles of each kernel by its name. The folder is empty again.
    """
    placed = lambda *shape, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=SingleDeviceSharding(device))
    heads, values = (placed(rows, length, model.h, d, dtype=model.dtype) for d in (model.d_k, model.d_v))
    segments = placed(rows, length, dtype=jnp.int32)
    inputs = AttentionInputs(heads, heads, values, segments, segments)

    def full(inputs, gradient):
        return short.attend(inputs, causal=True), short.gradients(inputs, gradient, causal=True)

    def splash(inputs, gradient):
        attend = lambda *x: flash.splash(AttentionInputs(*x, *inputs[3:5]), causal=True)
        outputs, pullback = jax.vjp(attend, *inputs[:3])
        return outputs, pullback(gradient)

    for function in (full, splash) if short.fits(inputs) else (splash,):
        jax.jit(function).lower(inputs, values).compile()
    return _read(folder)


def _read(folder: pathlib.Path) -> dict[str, int]:
    """Reads and removes what the compiler wrote, and returns the cycles of kernels."""
    counts = {}
    for file in sorted(folder.glob('*-schedule-analysis_final_bundles.txt')):
        name, number = re.fullmatch(r'\d+-(.+)-(\d+)-schedule-analysis.*', file.name).groups()
        # TLP is the whole program, which calls its instructions.
        if '"tpu_custom_call"' in file.read_text() and name != 'TLP':
            [program] = folder.glob(f'{file.name.split("-")[0]}-{name}-{int(number) + 1}-final_bundles.txt')
            counts[name] = bundles(program.read_text())
    for file in folder.iterdir():
        file.unlink()
    if not counts:
        raise ConfigError('this version of libtpu writes no instructions of a kernel')
    return counts


def bundles(text: str) -> int:
    """Counts the bundles that a program executes; each line has as many `>` as loops around it."""
    counts = [0] * 9
    for line in text.splitlines():
        if bundle := _BUNDLE.match(line):
            depth = bundle['loops'].count('>')
            counts[depth] += 1
            if last := _LAST.search(line):
                counts[depth - 1] += counts[depth] * int(last[1])
                counts[depth] = 0
    return sum(counts)
