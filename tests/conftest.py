"""Eight fake devices, strict broadcasting, a cache of its own."""

import os

# Tests compile much and compute little: the fastest compilation is the fastest test.
FLAGS = '--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0'
os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {FLAGS}'

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update('jax_numpy_rank_promotion', 'raise')


@pytest.fixture(scope='session', autouse=True)
def _own_cache(tmp_path_factory):
    os.environ['TRANSFORMER_CACHE'] = str(tmp_path_factory.mktemp('cache'))
    # Of the terminal that pytest runs in, which would fold the tables that tests read.
    os.environ.pop('COLUMNS', None)


@pytest.fixture(scope='module', autouse=True)
def _few_programs():
    """Each compiled program takes memory maps, of which a process may have only so many."""
    yield
    jax.clear_caches()
