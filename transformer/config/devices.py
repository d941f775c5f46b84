"""Checks and completes resolved configs for the devices at hand."""

import dataclasses

from transformer.config.declare import ConfigError
from transformer.config.options import Config
from transformer.config.values import couples_batch

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
    if config.model.attention == 'flash' and platform not in FLASH:
        raise ConfigError(
            f"model.attention='flash': a {platform} has no such kernel; 'chunked' computes the same and "
            'needs as little memory'
        )
    if config.model.attention == 'flash' and platform == 'gpu':
        # As cuDNN has it.
        _check_gpu('model.dtype', config.model.dtype, config.model.dtype == 'bfloat16', 'bfloat16')
        _check_gpu('model.d_k', config.model.d_k, config.model.d_k % 8 == 0, 'a multiple of 8')


def _check_gpu(key: str, value: object, fits: bool, needed: str) -> None:
    if not fits:
        raise ConfigError(
            f"{key}={value}: model.attention='flash' on a GPU needs {needed}; 'chunked' computes the same"
        )


def portable(config: Config, platform: str) -> Config:
    """Replaces a kernel that the devices lack by one that computes the same."""
    lacking = config.model.attention == 'flash' and platform not in FLASH
    model = dataclasses.replace(config.model, attention='chunked') if lacking else config.model
    return dataclasses.replace(config, model=model)
