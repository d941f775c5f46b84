"""The benchmarks: every command on tiny models, and the sides that it compares."""

import collections
import contextlib
import importlib.util
import itertools
import json
import operator
import os
import platform
import re
import sys
import types

import jax
import numpy as np
import pytest

from experiments import benchmark
from experiments.speed import data as pipeline
from experiments.speed import gpu, interleaved, matrix_products, search, subprocesses, training, updates
from transformer import config as configs
from transformer import parallel
from transformer.nn import cost, models
from transformer.runs import restore
from transformer.tokens import Tokens

PEERS = ['PyTorch, float32', 'PyTorch, bfloat16', 'PyTorch, float32, heap kept']


def test_data(capsys):
    assert benchmark.main(['benchmark', 'data', '--pairs=3000']) == 0
    # Preparation has two aims, the two kinds of batches three and two, and the whole process one.
    aims = re.findall(r'at (?:most|least) .*: [\d.e-]+ of it$', capsys.readouterr().out, re.MULTILINE)
    assert len(aims) == 8


def test_the_text_has_lengths_like_wmt_and_is_the_same_every_time(tmp_path):
    for name in ('first', 'second'):
        pipeline.write_text(tmp_path, name, 3000, 0)
    sides = [(tmp_path / f'first.{language}').read_text().splitlines() for language in ('en', 'de')]
    assert sides == [(tmp_path / f'second.{language}').read_text().splitlines() for language in ('en', 'de')]
    lengths = np.array([[len(line.split()) for line in side] for side in sides])
    assert lengths.shape == (2, 3000)
    assert ((np.median(lengths, axis=1) > 17) & (np.median(lengths, axis=1) < 22)).all()
    assert (lengths.max(axis=1) > 100).all()
    assert np.corrcoef(np.log(lengths))[0, 1] > 0.9


def test_sides_take_turns_and_the_first_round_does_not_count(monkeypatch):
    clock, calls = itertools.count(), []
    monkeypatch.setattr(interleaved.time, 'perf_counter', lambda: float(next(clock)))

    def side(name, seconds):
        def run(updates):
            calls.append((name, updates))
            for _ in range(next(seconds) - 1):
                next(clock)

        return run

    slow, fast = iter([90, 8, 4, 12]), iter([90, 2, 4, 2])
    found = interleaved.measure({'slow': side('slow', slow), 'fast': side('fast', fast)}, 3, 2)
    assert calls == [('slow', 2), ('fast', 2)] * 4
    assert found == {'slow': [4, 2, 6], 'fast': [1, 2, 1]}
    compared = interleaved.compare(found, 100)
    assert compared['tokens_per_second'] == {'slow': 25, 'fast': 100}
    assert compared['ratios'] == {'fast': {'ratio': 0.25, 'spread': [1 / 6, 1]}}
    assert interleaved.compare({'slow': [4.0]}, 100)['ratios'] == {}


SMALL = {
    'model.d_model': 8,
    'model.vocab_size': 300,
    'data.pieces': 300,
    'data.row_len': 4,
    'data.max_len': 4,
}


@pytest.fixture(params=[False, True], ids=['alone', 'beside PyTorch'])
def peer(request, monkeypatch):
    """Returns whether PyTorch is used, and hides it if not."""
    if request.param:
        pytest.importorskip('torch')
    else:
        monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    return request.param


def test_an_lstm(monkeypatch, tmp_path, capsys, peer):
    small = {**benchmark.RECURRENT, **SMALL, 'model.N': 1, 'data.batch_tokens': 64}
    monkeypatch.setattr(benchmark, 'MODELS', {'lstm': (lambda: configs.config_dict(small), 1.0)})
    file = tmp_path / 'lstm.json'
    call = ['benchmark', 'train', '--models=lstm', '--rounds=3', '--updates=2', f'--output={file}']
    assert benchmark.main(call) == 0
    report = json.loads(file.read_text())
    found = report['lstm']
    assert '1 + 1 layers of d_model 8, 16 x 4 tokens a side' in found['what']
    assert ("pip install '.[bench]'" in capsys.readouterr().out) != peer
    assert list(found['tokens_per_second']) == ['ours', *(PEERS[::2] if peer else []), 'products alone']
    assert all(len(seconds) == 3 for seconds in found['seconds'].values())
    median = np.median(found['seconds']['ours'])
    assert found['tokens_per_second']['ours'] == pytest.approx(64 / median)
    assert ('torch' in report['versions']) == ('PyTorch, float32' in found['ratios']) == peer


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
    """Writes a small corpus, and returns its folder."""
    folder = tmp_path_factory.mktemp('texts')
    for split, pairs in ('train', 300), ('val', 20), ('test_2016_flickr', 20):
        pipeline.write_text(folder, split, pairs, len(split))
    return folder


@pytest.fixture
def corpus(texts, monkeypatch):
    """Puts a small corpus and config in the place of Multi30k's, and returns the folder."""
    small = {**SMALL, 'model.N': 1, 'model.h': 2, 'model.d_ff': 8, 'data.row_len': 192, 'data.max_len': 192}
    text = {'data.source': 'text', 'data.name': None, 'data.dev': 'val', 'data.test': 'test_2016_flickr'}
    changes = {**small, **text, 'data.batching': 'packed', 'data.batch_tokens': 1536}
    config = lambda: configs.config_dict(changes)
    monkeypatch.setattr(benchmark, 'MODELS', {'multi30k': (config, 3.0)})
    monkeypatch.setattr(training, 'PAIRS', 100)
    return texts


def test_train(corpus, tmp_path, capsys, peer):
    """22 s, for the programs of an update and its products, alone and in a trace."""
    file = tmp_path / 'train.json'
    call = ['benchmark', 'train', '--models=multi30k', '--rounds=2', '--updates=1', f'--data={corpus}']
    assert benchmark.main([*call, f'--output={file}', f'--profile={tmp_path}/traces']) == 0
    shown, found = capsys.readouterr().out, json.loads(file.read_text())
    assert list(found) == ['multi30k', 'load', 'versions', 'hardware']
    found = found['multi30k']
    [batches] = re.findall(r'1 \+ 1 layers of d_model 8, the first 100 pairs in (\d+) batches', found['what'])
    assert int(batches) > 1 and list(found['ratios']) == [*PEERS[: 3 * peer], 'products alone']
    assert bool(re.search(r'^ours / PyTorch, float32 .* 3 times: ', shown, re.MULTILINE)) == peer
    assert list((tmp_path / 'traces' / 'multi30k').rglob('*.trace.json.gz'))


def test_both_sides_train_on_the_same_pairs_of_a_corpus(corpus):
    config = configs.replace(configs.resolve(benchmark.MODELS['multi30k'][0]()), {'data.dir': str(corpus)})
    work = training.corpus(config)
    pairs = collections.Counter()
    for sign, batches in (1, work.ours), (-1, work.theirs):
        for batch in batches:
            for row, segments in enumerate(batch['target'].segments):
                for number in range(1, segments.max() + 1):
                    sides = [side.tokens[row][side.segments[row] == number] for side in batch.values()]
                    pairs[tuple(map(bytes, sides))] += sign
    assert len(pairs) > 90 and not any(pairs.values())
    real = [int((batch['target'].segments > 0).sum()) for batch in work.theirs]
    assert work.tokens() == sum(real)
    for batch in work.theirs:
        rows, width = max((side.tokens.shape for side in batch.values()), key=lambda shape: shape[1])
        # Full, but for the last.
        assert rows * width <= 1536 < (rows + 1) * width or batch is work.theirs[-1]


def transformer_config():
    small = {**benchmark.SIZES, **SMALL, 'model.N': 1, 'model.h': 2, 'model.d_ff': 8}
    return configs.resolve(configs.config_dict({**small, 'data.batch_tokens': 32, 'model.P_drop': 0.0}))


def rows_of(tokens):
    tokens = np.array(tokens, np.int32)
    return Tokens(tokens, (tokens > 0).astype(np.int32), np.indices(tokens.shape, np.int32)[1])


def test_the_peer_does_not_see_padding():
    torch = pytest.importorskip('torch')
    from experiments.speed import torch_models

    config = transformer_config()
    torch.manual_seed(0)
    model = torch_models.Transformer(config).train()
    short = {'source': rows_of([[5, 6]]), 'target': rows_of([[7, 8]])}
    long = {'source': rows_of([[9, 4, 5, 6]]), 'target': rows_of([[5, 8, 9, 7]])}
    both = {'source': rows_of([[5, 6, 0, 0], [9, 4, 5, 6]]), 'target': rows_of([[7, 8, 0, 0], [5, 8, 9, 7]])}
    # What stands for the start is a row's last place, which is another one in a longer row.
    starts = [torch_models.place(batch, False) for batch in (short, long, both)]
    for _, before, *_ in starts:
        before[:, 0] = 3
    alone, other, found = (torch_models.loss(model, placed, 'float32', 0.1).item() for placed in starts)
    assert found == pytest.approx((2 * alone + 4 * other) / 6, rel=1e-5)
    rounded = torch_models.loss(model, starts[2], 'bfloat16', 0.1).item()
    assert rounded != found and rounded == pytest.approx(found, rel=0.05)


@pytest.mark.parametrize('time_major', [False, True])
def test_the_peer_reads_the_tokens_before(time_major):
    pytest.importorskip('torch')
    from experiments.speed import torch_models

    batch = updates.random_batch(transformer_config())
    source, before, target = torch_models.place(batch, time_major)
    if time_major:
        source, before, target = source.T, before.T, target.T
    assert (source.numpy() == batch['source'].tokens).all()
    assert (target.numpy() == batch['target'].tokens).all()
    assert (before[:, 1:] == target[:, :-1]).all()


def test_sizes_on_tpus_that_mean_nothing_to_a_task():
    of_images = benchmark._accelerator_sizes('configs/vit_pictures.py', {})
    assert of_images == {'data.batch_tokens': 192 * 128, 'model.dtype': 'bfloat16'}
    assert benchmark._accelerator_sizes('configs/bert_grammar.py', {}) == benchmark.ACCELERATOR_SIZES


def test_an_updates_size():
    small = {'data.row_len': 8, 'data.max_len': 8, 'data.batch_tokens': 128}
    pairs = configs.resolve(configs.config_dict({**SMALL, **small, 'data.batching': 'packed'}))
    assert benchmark._size(pairs) == '16 x 8 tokens a side, 300 pieces'
    images = configs.resolve(benchmark.scales.scale_config('configs/vit_pictures.py'))
    small_images = configs.replace(images, {'images.size': 8})
    assert benchmark._size(small_images) == '832 x 5 positions of an image'
    captions = configs.resolve(benchmark.scales.scale_config('configs/captions_pictures.py'))
    assert ' x 65 positions of an image and 36 tokens, ' in benchmark._size(captions)
    t5 = configs.resolve(benchmark.scales.scale_config('configs/t5_grammar.py'))
    assert ' x 64 + 14 tokens, ' in benchmark._size(t5)


def test_a_pass_is_an_update_with_each_batch(monkeypatch):
    config, seen = transformer_config(), []
    batches = [updates.random_batch(configs.replace(config, {'train.seed': seed})) for seed in (1, 2)]
    fake = lambda state, batch: (state, seen.append(np.asarray(batch['target'].tokens).ravel().tolist()))
    asked = []
    monkeypatch.setattr(updates.parallel, 'map_update', lambda step, remat: asked.append(remat) or fake)
    updates.make_passes(config, batches)(3)
    updates.make_passes(configs.replace(config, {'model.remat': True}), batches)
    assert asked == [False, True]
    assert seen == [batch['target'].tokens.ravel().tolist() for batch in batches] * 3


def test_timed_and_planned_updates_have_the_configs_precision(monkeypatch):
    config = configs.replace(transformer_config(), {'train.matmul_precision': 'highest'})
    seen, memory = [], types.SimpleNamespace(argument_size_in_bytes=2**30, temp_size_in_bytes=2**29)
    precision = lambda: seen.append(jax.config.jax_default_matmul_precision)

    class Update:
        def __call__(self, state, batch):
            return state, precision()

        def compile(self, *_):
            precision()
            return types.SimpleNamespace(memory_analysis=lambda: memory)

    monkeypatch.setattr(updates.parallel, 'map_update', lambda step, remat: Update())
    updates.make_passes(config, [updates.random_batch(config)])(1)
    assert updates.peak_memory(config) == 1.5 and seen == ['highest', 'highest']


def test_a_pass_of_the_peer_is_an_update_with_each_batch(monkeypatch):
    pytest.importorskip('torch')
    from experiments.speed import torch_models

    config, seen, loss = transformer_config(), [], torch_models.loss
    batches = [updates.random_batch(configs.replace(config, {'train.seed': seed})) for seed in (1, 2)]

    def counted(model, batch, kind, eps_ls):
        seen.append((batch[-1].flatten().tolist(), kind, eps_ls))
        return loss(model, batch, kind, eps_ls)

    monkeypatch.setattr(torch_models, 'loss', counted)
    torch_models.make_passes(config, batches, 'bfloat16')(3)
    targets = [batch['target'].tokens.ravel().tolist() for batch in batches] * 3
    assert seen == [(target, 'bfloat16', config.train.eps_ls) for target in targets]


def test_peers_are_timed_as_they_come_and_keeping_memory(monkeypatch):
    config, started = transformer_config(), []

    def start(stack, make, config, batches, kind, *, keeps_memory):
        started.append((kind, keeps_memory))
        return lambda passes: None

    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: name)
    monkeypatch.setattr(training.subprocesses, 'start', start)
    for ours in (updates, matrix_products):
        monkeypatch.setattr(ours, 'make_passes', lambda config, batches: lambda passes: None)
    training.measure(config, 'a model', training.full_rows(config), 1.0, 1, 1)
    assert started == [('float32', False), ('bfloat16', False), ('float32', True)]


def test_products_alone_are_made_as_often_as_in_the_passes_of_updates(monkeypatch):
    made = []
    monkeypatch.setattr(matrix_products.Product, 'prepare', lambda product: lambda: made.append(product))
    config = transformer_config()
    batch = updates.random_batch(config)
    matrix_products.make_passes(config, [batch] * 3)(2)
    once = matrix_products.products_of_update(config, batch)
    assert collections.Counter(made) == {product: 6 * times for product, times in once.items()}


def test_a_product_alone_has_the_shape_of_the_programs():
    dimensions = (((2,), (0,)), ((), ()))
    product = matrix_products.Product(((2, 3, 4), 'bfloat16'), ((4, 5), 'bfloat16'), dimensions, 'float32')
    found = product.prepare()()
    assert [x.dtype for x in product.prepare().args] == ['bfloat16'] * 2
    assert found.shape == (2, 3, 5) and found.dtype == 'float32'


def test_train_reads_its_corpora_before_it_times_anything(corpus, monkeypatch, capsys):
    both = {'base': (lambda: configs.config_dict({**benchmark.SIZES, **SMALL}), 2.3), **benchmark.MODELS}
    monkeypatch.setattr(benchmark, 'MODELS', both)
    call = ['benchmark', 'train', '--models=base,multi30k', f'--data={corpus}/nosuch']
    assert benchmark.main(call) == 2
    shown = capsys.readouterr()
    assert shown.out == '' and f'{corpus}/nosuch' in shown.err


def test_train_skips_a_model_without_its_corpus(corpus, capsys):
    assert benchmark.main(['benchmark', 'train', '--models=multi30k']) == 0
    assert re.fullmatch('multi30k: skipped.*--data.*\n', capsys.readouterr().out)


def test_hugging_face_reads_what_we_write(monkeypatch, tmp_path):
    """With stand-ins for PyTorch and Transformers, which not every environment has."""
    seen, model = [], types.SimpleNamespace(modules=list, eval=lambda: model, to=lambda *_: model)
    layers = types.SimpleNamespace(LayerNorm=int)
    torch = types.SimpleNamespace(set_num_threads=int, float32=None, nn=layers)
    read = types.SimpleNamespace(from_pretrained=lambda folder: seen.extend(os.listdir(folder)) or model)
    library = types.SimpleNamespace(GenerationConfig=dict, MarianMTModel=read)
    monkeypatch.setitem(sys.modules, 'torch', torch)
    monkeypatch.setitem(sys.modules, 'transformers', library)
    name = 'experiments.speed.hugging_face_search'
    monkeypatch.delitem(sys.modules, name, raising=False)
    small = {**benchmark.SIZES, **SMALL, 'model.N': 1, 'model.h': 2, 'model.d_ff': 8}
    trained = search.untrained(configs.resolve_values(small))
    importlib.import_module(name).of_library(trained.config, jax.device_get(trained.params), tmp_path / 'm')
    del sys.modules[name]
    assert {'config.json', 'model.safetensors', 'tokenizer_config.json'} <= set(seen)


def test_gpu(monkeypatch, tmp_path, capsys):
    """On a processor in the place of a GPU, which has no `flash`."""
    here = jax.devices('cpu')[:1]
    monkeypatch.setattr(parallel, 'devices', lambda: here)
    assert benchmark.main(['benchmark', 'gpu']) == 2
    assert 'needs one GPU, found 1 x cpu' in capsys.readouterr().err
    monkeypatch.setattr(parallel, 'platform', lambda: 'gpu')
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    assert benchmark.main(['benchmark', 'gpu', '--variants=full,fast']) == 2
    assert '--variants=fast: choose from full, flash,' in capsys.readouterr().err
    monkeypatch.setattr(gpu, 'PEAKS', {here[0].device_kind: 1e12})
    small = {**SMALL, 'data.batch_tokens': 32, 'model.N': 1, 'model.h': 2, 'model.d_ff': 16}
    file, changes = tmp_path / 'gpu.json', [f'--set={key}={value}' for key, value in small.items()]
    call = ['benchmark', 'gpu', '--variants=threefry', '--rounds=2', '--updates=1', *changes]
    assert benchmark.main([*call, f'--output={file}']) == 0
    found, shown = json.loads(file.read_text()), capsys.readouterr().out
    assert '8 x 4 tokens' in found['what'] and shown.count('of the peak') == 1
    assert list(found['tokens_per_second']) == list(found['memory']) == ['threefry']
    config = configs.resolve_values({**benchmark.ACCELERATOR_SIZES, **small})
    assert found['formula'] == cost.update_flops(config)
    # Parameters, and Adam's two means of each gradient.
    assert min(found['memory'].values()) > 3 * 4 * cost.model_parameters(config) / 2**30


@pytest.mark.parametrize(
    ('kind', 'peak'),
    [('NVIDIA H200', 989e12), ('NVIDIA A100-SXM4-40GB', 312e12), ('Tesla T4', 65e12), ('NVIDIA L40S', None)]
    + [('NVIDIA H100 PCIe', 756e12), ('NVIDIA H100 NVL', 835e12), ('NVIDIA H100 80GB HBM3', 989e12)],
)
def test_peaks_of_gpus(kind, peak):
    assert gpu.peak_of(kind) == peak


@pytest.mark.parametrize(
    'installed', [(), ('ctranslate2',), ('ctranslate2', 'torch', 'transformers')], ids=len
)
def test_decode(monkeypatch, tmp_path, capsys, installed):
    """With and without other libraries."""
    for library in installed:
        pytest.importorskip(library)
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: name in installed or None)
    small = {**SMALL, 'model.N': 1, 'model.h': 2, 'model.d_ff': 16, 'data.row_len': 20, 'data.max_len': 20}
    monkeypatch.setattr(benchmark, 'SIZES', {**benchmark.SIZES, **small, 'data.batch_tokens': 640})
    real, started = subprocesses.start, []

    def start(stack, make, name, *arguments):
        """Starts one process alone, since each imports for seconds."""
        started.append(name)
        return real(stack, make, name, *arguments) if len(started) == 1 else make(name, *arguments)

    monkeypatch.setattr(subprocesses, 'start', start)
    file = tmp_path / 'decode.json'
    assert benchmark.main(['benchmark', 'decode', '--rounds=2', f'--output={file}']) == 0
    shown, found = capsys.readouterr().out, json.loads(file.read_text())
    assert '32 sentences of 20 pieces' in found['what']
    assert ("pip install '.[bench]'" in shown) == (len(installed) < 3)
    of_ctranslate2 = ['CTranslate2, float32', 'CTranslate2, int8', 'translate --engine=ctranslate2']
    others = [*(of_ctranslate2 if installed else ()), *(['Hugging Face'] if 'torch' in installed else ())]
    assert list(found['sentences_per_second']) == ['ours', *others]
    assert list(found['ratios']) == list(found['same']) == others == started
    # The same weights give the same outputs; int8 rounds them.
    assert all(found['same'][name] == 32 for name in others if 'int8' not in name)


def test_searches_of_pairs_alone_are_compared(monkeypatch, tmp_path, capsys):
    config = configs.resolve(benchmark.scales.scale_config('configs/gpt_grammar.py'))
    monkeypatch.setattr(benchmark.Run, 'open', lambda folder: folder)
    monkeypatch.setattr(benchmark.restore, 'load', lambda run: (restore.Trained(config, {}, {}), None))
    (tmp_path / 'lines').write_text('a\n')
    call = ['benchmark', 'decode', '--workdir=runs/gpt', f'--input={tmp_path / "lines"}']
    assert benchmark.main(call) == 2
    assert '--workdir=runs/gpt: only models of pairs' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('changes', 'named'),
    [({}, ''), ({'model.norm': 'pre'}, 'model.norm=pre'), ({'model.d_k': 8}, 'model.d_k=8')],
)
def test_pytorch_is_timed_where_it_has_the_model(changes, named):
    assert gpu._unlike_pytorch(configs.resolve(configs.config_dict(changes))) == named


def test_a_ratio_is_of_the_first_side(capsys):
    seconds = {'flash': [1.0, 1.0], 'full': [2.0, 2.0]}
    interleaved.print_comparison(interleaved.compare(seconds, 10), 'tokens', {'full': 4.0})
    *_, ratio, spread = capsys.readouterr().out.splitlines()
    assert ' '.join(ratio.split()) == 'flash / full 2 times at least 4 times: 0.5 of it'
    assert spread.strip() == 'of single rounds: 2 to 2 times'


def test_a_function_in_a_process_of_its_own():
    with contextlib.ExitStack() as stack:
        second = subprocesses.start(stack, operator.itemgetter, 1)
        assert second([[5], [6]]) == [6] and second([[7], [8]]) == [8]
        with pytest.raises(ValueError, match='invalid literal'):
            subprocesses.start(stack, int, 'none')
    with pytest.raises(RuntimeError, match='after shutdown'):
        second([[5], [6]])


@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='only glibc has mallopt')
@pytest.mark.parametrize('keeps', [True, False])
def test_such_a_process_keeps_freed_memory_or_not(keeps):
    used = "lambda: (__import__('numpy').ones(2**25), __import__('resource').getrusage(0).ru_minflt)[1]"
    with contextlib.ExitStack() as stack:
        faults = subprocesses.start(stack, eval, used, keeps_memory=keeps)
        before = faults()
        # 256 MiB are 65,536 pages, and fewer where pages are huge.
        assert (faults() - before < 100) == keeps


def flops_of(product: matrix_products.Product) -> float:
    """Counts two for each multiplication of two numbers."""
    ((contracted, _), (batch, _)) = product.dimensions
    left, right = product.left[0], product.right[0]
    return 2 * np.prod(left) * np.prod(right) / np.prod([left[axis] for axis in (*contracted, *batch)])


@pytest.mark.parametrize('kind', ['transformer', 'convolutional'])
@pytest.mark.parametrize('accumulate', [1, 2])
def test_the_products_of_an_update_are_all_found(kind, accumulate):
    """By the FLOPs that the formula gives, which counts the same products once."""
    options = {**benchmark.SIZES, **SMALL, 'model.kind': kind, 'model.N': 2, 'data.batch_tokens': 64}
    config = configs.resolve(configs.config_dict({**options, 'train.accumulate': accumulate}))
    found = matrix_products.products_of_update(config, updates.random_batch(config))
    flops = sum(flops_of(product) * count for product, count in found.items())
    again, m = 0, config.model
    if kind == 'transformer':
        # The logits of attention are computed again in the backward pass: of each encoder layer once, of
        # each decoder layer twice.
        logits = config.data.batch_tokens * config.data.row_len * m.h * m.d_k
        again = 2 * logits * (m.N + 2 * m.N_decoder)
    assert flops == cost.update_flops(config) + again


def test_the_peer_has_our_size():
    pytest.importorskip('torch')
    from experiments.speed import torch_models

    config = configs.resolve(configs.config_dict({**benchmark.RECURRENT, **SMALL}))
    theirs = list(torch_models.Seq2Seq(config).parameters())
    matrices = sum(p.numel() for p in theirs if p.ndim == 2)
    biases = sum(p.numel() for p in theirs if p.ndim == 1)
    # Each gate of nn.LSTM has two biases, whose sum is the one of ours.
    assert matrices + biases // 2 == cost.parameters(models.parameter_shapes(config))
    config = configs.resolve(configs.config_dict({**benchmark.SIZES, **SMALL, 'model.biases': 'all'}))
    layer = torch_models.Transformer(config).layers.decoder.layers[0]
    dropped = [each.dropout for each in (layer.self_attn, layer.multihead_attn)] + [layer.dropout.p]
    assert dropped == [0.0] * 3 and layer.dropout1.p == config.model.P_drop == 0.1
    theirs = sum(p.numel() for p in torch_models.Transformer(config).parameters())
    # nn.Transformer has one more LayerNorm at the end of each stack.
    assert theirs == cost.parameters(models.parameter_shapes(config)) + 2 * 2 * config.model.d_model


@pytest.mark.parametrize(
    'words, named',
    [
        ([], 'data, train, gpu, decode, tpu, kernels, peers'),
        (['model'], "'model'"),
        (['data', '--pairs=0'], '--pairs=0'),
        (['tpu', '--pairs=9'], '--pairs'),
        (['data', '--pairs=9'], 'data.pieces=37000'),
        (['train', '--models=none'], '--models=none'),
        (['decode', '--workdir=runs/none'], '--input'),
        (['tpu', '--config=nosuch.py'], '--config=nosuch.py'),
        (['gpu', '--config=configs/vit_pictures.py'], 'pairs of texts'),
        (['gpu', '--config=configs/gpt_grammar.py'], 'pairs of texts'),
        (['kernels', '--config=nosuch.py'], '--config=nosuch.py'),
        (['peers', '--peers=none'], '--peers=none'),
        (['peers', '--chunks=0'], '--chunks=0'),
        (['peers', '--chunks='], '--chunks'),
        (['train', '--output=tests'], '--output=tests'),
        *(([name, '--output=no/file'], '--output=no/file') for name in ('train', 'decode', 'tpu', 'peers')),
    ],
)
def test_mistakes_are_one_line(capsys, words, named):
    assert benchmark.main(['benchmark', *words]) == 2
    error = capsys.readouterr().err
    assert named in error and error.count('\n') == 1


def test_kernels_are_of_transformers(capsys):
    assert benchmark.main(['benchmark', 'kernels', '--config=configs/ptb_lstm.py']) == 2
    assert "model.kind='recurrent'" in capsys.readouterr().err.splitlines()[-1]
