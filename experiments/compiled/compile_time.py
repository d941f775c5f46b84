"""How long it takes to trace and compile a program, and to load it where it was compiled before."""

import tempfile
import time
from collections.abc import Callable

import jax
from jax.experimental.compilation_cache import compilation_cache
from jax.stages import Lowered


def seconds(lower: Callable[[], Lowered]) -> dict[str, float]:
    """Seconds of `tracing`, of `compiling`, and of `loading` the same program from a cache."""
    kept = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            _keep_in(folder, 0.0)
            for way in ('compiling', 'loading'):
                jax.clear_caches()
                times = [time.perf_counter()]
                lowered = lower()
                times.append(time.perf_counter())
                lowered.compile()
                times.append(time.perf_counter())
                found.setdefault('tracing', times[1] - times[0])
                found[way] = times[2] - times[1]
        finally:
            _keep_in(*kept)
    return found


def _keep_in(folder: str | None, least_seconds: float) -> None:
    jax.config.update('jax_compilation_cache_dir', folder)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', least_seconds)
    compilation_cache.reset_cache()
