"""Checks and completes resolved configs for the devices at hand."""

import dataclasses

from transformer.config.declare import ConfigError
from transformer.config.options import Config
from transformer.config.values import couples_batch, has, image_tower

# Platforms with a fused attention kernel.
FLASH = ('gpu', 'tpu')
# The chunk with the fewest cycles of the base model on a TPU v5e (experiments/results/performance.md).
TPU_POSITIONS, TPU_WIDTH = 6144, 512


def check_devices(config: Config, devices: int) -> None:
    """Raises ConfigError if the microbatches cannot be divided among the devices."""
    accumulate = config.train.accumulate or 1
    if config.train.microbatches % (devices * accumulate):
        raise ConfigError(
            f'train.microbatches={config.train.microbatches}: must be a multiple of '
            f'{devices} devices x train.accumulate={accumulate}'
        )


def with_accumulation(config: Config, platform: str, devices: int) -> Config:
    """Derives `train.accumulate`: 1, or on TPUs the fewest chunks of at most TPU_POSITIONS a side.

    Models narrower than base have more positions in a chunk, with as many numbers as base has. Wider
    models have no fewer, because the gradients of all parameters are added once a chunk.
    """
    check_devices(config, devices)
    if config.train.accumulate is not None:
        return config
    microbatches = config.train.microbatches // devices
    numbers = config.data.batch_tokens / devices * min(config.model.d_model, TPU_WIDTH)
    fit = (
        chunks
        for chunks in range(1, microbatches)
        if microbatches % chunks == 0 and numbers <= TPU_POSITIONS * TPU_WIDTH * chunks
    )
    chunks = next(fit, microbatches) if platform == 'tpu' and not couples_batch(config) else 1
    return dataclasses.replace(config, train=dataclasses.replace(config.train, accumulate=chunks))


def check_platform(config: Config, platform: str) -> None:
    """Raises ConfigError if the devices (cpu, gpu, tpu) lack a kernel that the config asks for."""
    if why := _lacking(config, platform):
        raise ConfigError(
            f"model.attention='flash': {why}; 'chunked' computes the same and needs as little memory"
        )


def portable(config: Config, platform: str) -> Config:
    """Replaces a kernel that the devices lack by one that computes the same."""
    attention = 'chunked' if _lacking(config, platform) else config.model.attention
    return dataclasses.replace(config, model=dataclasses.replace(config.model, attention=attention))


def _lacking(config: Config, platform: str) -> str:
    """Says why the devices have no kernel for a config, or returns '' if they have all that it asks for."""
    model = config.model
    if model.attention != 'flash':
        return ''
    if platform not in FLASH:
        return f'a {platform} has no such kernel'
    # cuDNN's limits.
    widths = [model.d_k, *([image_tower(config).d_k] if has(config, 'image') else [])]
    if platform == 'gpu' and model.dtype != 'bfloat16':
        return f"a GPU's kernel needs model.dtype=bfloat16, not {model.dtype}"
    if platform == 'gpu' and (odd := [width for width in widths if width % 8]):
        return f"a GPU's kernel needs queries and keys whose width 8 divides, not {odd[0]}"
    return ''
