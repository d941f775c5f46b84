"""Times updates on a GPU: kernels, generators and rematerialisation, beside PyTorch's compiled updates."""

import contextlib
import importlib.util
import os
from collections.abc import Sequence

from experiments.speed import interleaved, subprocesses, training, updates
from transformer import config as configs
from transformer import parallel
from transformer.cli.terminal import fold
from transformer.config import Config, ConfigError, has
from transformer.nn import cost

# Changes of a model with `train.prng=rbg`. Each compiles for a minute or two.
VARIANTS = {
    'full': {},
    'flash': {'model.attention': 'flash'},
    'threefry': {'train.prng': 'threefry'},
    'remat': {'model.remat': True},
}
# NVIDIA's data sheets: dense products of bfloat16 (the T4: float16) per second.
PEAKS = {
    'H200': 989e12, 'H100 PCIe': 756e12, 'H100 NVL': 835e12, 'H100': 989e12, 'A100': 312e12, 'L4': 121e12,
    'T4': 65e12,
}  # fmt: skip


def prepare() -> None:
    """Leaves memory for PyTorch; must run before JAX looks for devices."""
    os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')


def peak_of(kind: str) -> float | None:
    """Returns the peak FLOPs per second of a GPU such as `NVIDIA H200`, or None if it is not known."""
    words = f' {kind.replace("-", " ")} '
    return next((peak for name, peak in PEAKS.items() if f' {name} ' in words), None)


def _unlike_pytorch(config: Config) -> str:
    """Returns the first option, with its value, that `torch_models.Transformer` does not support, or ''."""
    m, width = config.model, config.model.d_model // config.model.h
    theirs = {
        'norm': 'post', 'norm_type': 'layernorm', 'activation': 'relu', 'd_k': width, 'd_v': width,
        'positions': 'sinusoidal', 'tie_embeddings': 'all', 'biases': 'all',
    }  # fmt: skip
    return next((f'model.{k}={getattr(m, k)}' for k, value in theirs.items() if getattr(m, k) != value), '')


def measure(config: Config, name: str, variants: Sequence[str], rounds: int, count: int) -> dict[str, object]:
    """Times our updates and PyTorch's compiled ones of a batch of full rows, and prints and returns speeds.

    Args:
      variants: names in `VARIANTS`; the first is compared with the others and with PyTorch's.
      count: the updates of each side in a round.
    """
    if unknown := [variant for variant in variants if variant not in VARIANTS]:
        raise ConfigError(f'--variants={unknown[0]}: choose from {", ".join(VARIANTS)}')
    if not has(config, 'pair') or config.model.kind != 'transformer':
        raise ConfigError(f'--config={name}: only Transformers of pairs of texts are timed')
    if parallel.platform() != 'gpu' or parallel.device_count() != 1:
        found = f'{parallel.device_count()} x {parallel.platform()}'
        raise ConfigError(f'needs one GPU, found {found}; CUDA_VISIBLE_DEVICES=0 chooses the first')
    batch, kind = updates.random_batch(config), parallel.devices()[0].device_kind
    rows, length = batch['target'].tokens.shape
    what = f'updates of {name}: {rows} x {length} tokens a side, {config.model.vocab_size:,} pieces'
    print(fold(f'{what}, {config.model.dtype}; {kind}, {rounds} rounds of {count}'), flush=True)
    sides, memory = {}, {}
    with contextlib.ExitStack() as stack:
        theirs = None
        if other := _unlike_pytorch(config):
            print(f'PyTorch: skipped, the model timed here does not support {other}')
        elif importlib.util.find_spec('torch'):
            theirs = subprocesses.start(stack, training.pytorch, config, [batch], config.model.dtype, 'cuda')
        else:
            print("PyTorch: skipped, it is not installed: pip install '.[bench]'")
        for variant in variants:
            own = configs.replace(config, {'train.prng': 'rbg'} | VARIANTS[variant])
            memory[variant] = updates.peak_memory(own)
            sides[variant] = updates.make_passes(own, [batch])
        if theirs:
            sides['PyTorch, compiled'] = theirs
            memory['PyTorch, compiled'] = theirs(1) / 2**30
        comparison = interleaved.compare(interleaved.measure(sides, rounds, count), rows * length)
    interleaved.print_comparison(comparison, 'tokens', {})
    flops, peak = cost.update_flops(config), peak_of(kind)
    for side, speed in comparison['tokens_per_second'].items():
        used = f'{flops * speed / (rows * length) / peak:.1%} of the peak, ' if peak else ''
        print(f'{side:<34} {1000 * rows * length / speed:.1f} ms, {used}{memory[side]:.2f} GiB')
    return {'what': what, 'device': kind, 'formula': flops, 'peak': peak, 'memory': memory, **comparison}
