"""Eight fake devices, strict broadcasting, a cache of its own."""

import ctypes
import gc
import importlib.metadata
import os
import pathlib
import shutil
import signal

# Tests compile much and compute little: the fastest compilation is the fastest test. Level 0 and no fusion
# emitters take 40 % of its time each; with one part it works in one thread, with less to do in all.
FLAGS = {
    'cpu': [
        '--xla_force_host_platform_device_count=8',
        '--xla_backend_optimization_level=0',
        '--xla_cpu_parallel_codegen_split_count=1',
    ],
    # Products in float32, not TF32, which Triton's have too, and sums in an order that stays.
    'cuda': ['--xla_gpu_enable_triton_gemm=false', '--xla_gpu_deterministic_ops=true'],
}
if int(importlib.metadata.version('jaxlib').split('.')[1]) < 11:
    # XLA ends a process that names a flag that it no longer has.
    FLAGS['cpu'].append('--xla_cpu_use_fusion_emitters=false')
# On a GPU JAX_PLATFORMS=cuda,cpu: callbacks need the CPU.
PLATFORM = os.environ.setdefault('JAX_PLATFORMS', 'cpu').partition(',')[0]
os.environ['XLA_FLAGS'] = ' '.join([os.environ.get('XLA_FLAGS', ''), *FLAGS.get(PLATFORM, [])])
if PLATFORM == 'cuda':
    os.environ['NVIDIA_TF32_OVERRIDE'] = '0'
    # Several processes share the GPU.
    os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'
# It puts the cache's path into the names of programs, which processes with folders of their own share here.
os.environ['JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES'] = 'none'

import jax  # noqa: E402
import pytest  # noqa: E402

from transformer import parallel, progress  # noqa: E402
from transformer.cli import memory  # noqa: E402
from transformer.runs import process  # noqa: E402
from transformer.tasks import bootstrap  # noqa: E402

jax.config.update('jax_numpy_rank_promotion', 'raise')
memory.collect_rarely()
# Some tests send Ctrl-C, which a shell makes all ignore that it starts in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Of the bootstrap, for tests that check intervals or p; all others have a tenth.
RESAMPLES = bootstrap.RESAMPLES
# Of a process of pytest, in bytes, beyond which it forgets compiled programs.
MOST_MEMORY = 2 * 2**30
# Of compiled programs that pytest keeps, in bytes.
MOST_PROGRAMS = 2**30

# The longest files start first, so that two processes end together.
LONG = (
    'test_contract', 'training/test_loop', 'cli/test_main', 'pages/test_colab', 'experiments/test_sweep',
    'inference/test_search', 'experiments/test_claims', 'test_end_to_end', 'nn/test_kernels',
    'runs/test_warm_start', 'tasks/language/test_task', 'cli/test_tasks_and_commands',
    'tasks/captions/test_task', 'actions/test_on_track', 'tasks/parsing/test_task',
    'tasks/classify/test_task', 'runs/test_checkpoint', 'interop/ctranslate2/test_writing',
    'experiments/test_benchmark', 'actions/test_train', 'tasks/contrastive/test_training',
    'tasks/denoise/test_task', 'tasks/text_to_text/test_task', 'experiments/test_complexity',
    'test_earlier_version', 'tasks/images/test_task', 'interop/ctranslate2/test_engine',
    'interop/hugging_face/test_reading', 'experiments/test_report', 'tasks/masked/test_task', 'test_paper',
)  # fmt: skip


def pytest_collection_modifyitems(items):
    folder = pathlib.Path(__file__).parent
    place = {folder / f'{name}.py': number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


def pytest_runtest_setup(item):
    if PLATFORM != 'cpu' and item.get_closest_marker('cpu'):
        pytest.skip('needs JAX_PLATFORMS=cpu')


def pytest_configure(config):
    if hasattr(config, 'cache') and 'PYTEST_XDIST_WORKER' not in os.environ:
        programs = config.cache.mkdir('programs')
        if sum(file.stat().st_size for file in programs.iterdir()) > MOST_PROGRAMS:
            shutil.rmtree(programs)


@pytest.fixture(scope='session', autouse=True)
def _own_cache(request, tmp_path_factory):
    # Reads XLA_FLAGS now: some tests set others for processes that they start.
    jax.devices()
    cache = tmp_path_factory.mktemp('cache')
    os.environ['TRANSFORMER_CACHE'] = str(cache)
    # Many tests compile the same program, in all processes of pytest and again when it is called again.
    if hasattr(request.config, 'cache'):
        (cache / 'programs').symlink_to(request.config.cache.mkdir('programs'))
    process.keep_programs()
    # Of the terminal that pytest runs in, which would fold the tables that tests read.
    os.environ.pop('COLUMNS', None)
    # A busy machine gets no lines about work that lasts, which tests of standard error would meet.
    progress.PATIENCE = 1e6
    bootstrap.RESAMPLES = RESAMPLES // 10


@pytest.fixture(scope='module', autouse=True)
def _few_programs():
    """Clears compiled programs that take much memory, or many of the 65,530 memory maps that Linux allows."""
    yield
    process = pathlib.Path('/proc/self')
    if not process.exists():
        jax.clear_caches()
        return
    pages = int((process / 'statm').read_text().split()[1])
    maps = (process / 'maps').read_bytes().count(b'\n')
    if pages * os.sysconf('SC_PAGE_SIZE') > MOST_MEMORY or maps > 20_000:
        jax.clear_caches()
        gc.collect()
        # Commands that tests call make malloc keep what it frees, and the next file would clear again.
        if trim := getattr(ctypes.CDLL(None), 'malloc_trim', None):
            trim(0)


@pytest.fixture(scope='module')
def all_resamples():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, 'RESAMPLES', RESAMPLES)
        yield


@pytest.fixture
def in_the_root(monkeypatch):
    monkeypatch.chdir(pathlib.Path(__file__).parents[1])


@pytest.fixture
def use_devices(monkeypatch):
    def use(count: int) -> None:
        chosen = jax.devices()[:count]
        if len(chosen) < count:
            pytest.skip(f'needs {count} devices')
        monkeypatch.setattr(parallel, 'devices', lambda: chosen)

    return use


@pytest.fixture
def browser():
    playwright = pytest.importorskip('playwright.sync_api', reason="needs pip install '.[test]'")
    with playwright.sync_playwright() as started:
        own = started.chromium.executable_path
        chromium = shutil.which('chromium') or (own if os.path.exists(own) else None)
        if chromium is None:
            pytest.skip('needs chromium, or playwright install chromium')
        launched = started.chromium.launch(executable_path=chromium, args=['--no-sandbox'])
        yield launched
        launched.close()


@pytest.fixture
def opened(browser):
    """Opens files as pages that must load no other file and report no error; keywords are the browser's."""

    def open_file(file, width, height, **options):
        page = browser.new_page(viewport={'width': width, 'height': height}, **options)
        requested, complaints = [], []
        page.on('request', lambda request: requested.append(request.url))
        page.on('console', lambda message: complaints.append(message.text))
        page.on('pageerror', lambda error: complaints.append(str(error)))
        page.goto(file.as_uri())
        assert (requested, complaints) == ([file.as_uri()], [])
        return page

    return open_file
