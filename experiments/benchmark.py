"""Measures the speed and memory of the code on this machine, beside its aims.

    python -m experiments.benchmark COMMAND

On a machine that also runs other work, the numbers are noisy.
"""

import functools
import importlib.util
import operator
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence

import jax

from experiments.compiled import kernels, lower, peers, tpu
from experiments.speed import data as pipeline
from experiments.speed import gpu, interleaved, search, training, updates
from experiments.speed.interleaved import check_output, print_comparison, write_output
from experiments.tables import scales
from transformer import config as configs
from transformer import parallel
from transformer.cli import flags as arguments
from transformer.cli.flags import Call, Command, Flag, Program, parse_changes, parse_numbers
from transformer.cli.main import run_program
from transformer.cli.terminal import fold
from transformer.config import Config, ConfigError, has
from transformer.config.declare import has_meaning
from transformer.nn import cost, models
from transformer.runs import restore
from transformer.runs.workdir import Run

# Sizes of the models whose updates are timed: 64 rows of 32 tokens per side.
SIZES = {
    'data.pieces': 8000,
    'data.batching': 'packed',
    'data.row_len': 32,
    'data.max_len': 32,
    'data.batch_tokens': 64 * 32,
}
RECURRENT = {
    'model.kind': 'recurrent',
    'model.N': 2,
    'model.d_model': 512,
    'model.alignment': 'general',
    **SIZES,
}
# Sizes of the model on TPUs and GPUs: 192 rows of 128 tokens per side.
ACCELERATOR_SIZES = {
    'data.batching': 'packed',
    'data.row_len': 128,
    'data.max_len': 128,
    'data.batch_tokens': 192 * 128,
    'model.dtype': 'bfloat16',
}
SENTENCES = 32  # in a search without `--input`
TOPOLOGY = 'v5e:1x1'


# The models of `train`: their config, and the aim for our speed over PyTorch's in float32.
MODELS = {
    'base': (functools.partial(configs.config_dict, SIZES), 2.3),
    'run': (functools.partial(scales.scale_config, 'configs/tiny.py'), 2.5),
    'grammar': (functools.partial(scales.scale_config, 'grammar'), 2.0),
    'multi30k': (functools.partial(scales.scale_config, 'configs/multi30k.py'), 3.0),
    'lstm': (functools.partial(configs.config_dict, RECURRENT), 1.0),
}


def works(names: str, data: str | None) -> dict[str, tuple[Config, training.Work]]:
    """Makes the configs and batches of models, by name, and prints a line for a model without its corpus.

    Args:
      names: names separated by commas.
      data: the folder of Multi30k.
    """
    if unknown := [name for name in names.split(',') if name not in MODELS]:
        raise ConfigError(f'--models={unknown[0]}: choose from {", ".join(MODELS)}')
    models = {}
    for name in names.split(','):
        config = configs.resolve(MODELS[name][0]())
        if config.data.source != 'text':
            models[name] = config, training.full_rows(config)
        elif data is None:
            print(f'{name}: skipped, because --data does not name its folder')
        else:
            config = configs.replace(config, {'data.dir': data})
            models[name] = config, training.corpus(config)
    return models


def benchmark_train(call: Call) -> None:
    """Times our updates, PyTorch's updates, and our matrix products alone, in turns."""
    flags, report = call.flags, {}
    check_output(flags.output)
    # All corpora are read first, so that errors come before minutes of timing.
    for name, (config, work) in works(flags.models, flags.data).items():
        report[name] = training.measure(config, name, work, MODELS[name][1], flags.rounds, flags.updates)
        if flags.profile is not None:
            folder = pathlib.Path(flags.profile) / name
            training.write_trace(config, work.ours[0], folder, flags.updates)
            print(fold(f"{folder}: a trace of updates, for TensorBoard's profiler or ui.perfetto.dev"))
    write_output(flags.output, report)


def benchmark_gpu(call: Call) -> None:
    """Times our updates on a GPU, in several ways, and PyTorch's compiled updates, in turns."""
    file, changes, config = _accelerator_config(call)
    gpu.prepare()
    flags, variants = call.flags, call.flags.variants.split(',')
    report = gpu.measure(config, file, variants, flags.rounds, flags.updates)
    write_output(call.flags.output, {'config': file, 'changes': changes, **report})


def benchmark_decode(call: Call) -> None:
    """Times our beam search and other libraries' searches, with the same weights, in turns."""
    flags = call.flags
    check_output(flags.output)
    if parallel.platform() == 'tpu':
        raise ConfigError('tpu: the peers run on CPUs and GPUs; set JAX_PLATFORMS=cpu')
    if (flags.workdir is None) != (flags.input is None):
        raise ConfigError('--workdir and --input: give both or neither')
    if flags.workdir is not None:
        trained, origin = restore.load(Run.open(flags.workdir))
        if not has(trained.config, 'pair'):
            raise ConfigError(f'--workdir={flags.workdir}: only models of pairs of texts are compared')
        rows = search.read_rows(trained, flags.input)
        what = f'{flags.workdir}, {origin}, {len(rows)} sentences of {flags.input}'
    else:
        trained = search.untrained(configs.resolve_values({**SIZES, 'decode.extra_len': 0}))
        rows = updates.random_batch(trained.config)['source'].tokens[:SENTENCES].tolist()
        what = f'an untrained model of the size of base, {len(rows)} sentences of {len(rows[0])} pieces'
    config = trained.config
    if config.decode.method != 'beam':
        raise ConfigError(f'decode.method={config.decode.method}: only beam search is timed')
    cores, device = f'{os.cpu_count()} processors', parallel.devices()[0]
    where = cores if device.platform == 'cpu' else device.device_kind
    print(f'beam {config.decode.beam}: {what}; {flags.rounds} rounds, {where}')
    outputs = {}
    with search.others(trained) as theirs:
        translators = {'ours': search.ours(trained), **theirs}

        def translate(name: str, times: int) -> None:
            for _ in range(times):
                outputs[name] = translators[name](rows)

        sides = {name: functools.partial(translate, name) for name in translators}
        comparison = interleaved.compare(interleaved.measure(sides, flags.rounds, 1), len(rows), 'sentences')
    aims = {'CTranslate2, float32': 1.0} | ({} if flags.workdir else {'Hugging Face': 2.0})
    print_comparison(comparison, 'sentences', aims)
    ours = outputs.pop('ours')
    same = {name: sum(map(operator.eq, ours, other)) for name, other in outputs.items()}
    for name, count in same.items():
        print(f'outputs of {name} that equal ours: {count} of {len(rows)}')
    write_output(flags.output, {'what': what, **comparison, 'same': same, 'sentences': len(rows)})


def _accelerator_sizes(file: str, changes: Mapping[str, object]) -> dict[str, object]:
    """Returns the `ACCELERATOR_SIZES` that have a meaning in a file's config with these changes."""
    values = configs.option_values(arguments.read_config_file(file)) | ACCELERATOR_SIZES | changes
    return {key: size for key, size in ACCELERATOR_SIZES.items() if has_meaning(configs.OPTIONS, values, key)}


def _size(config: Config) -> str:
    """Describes an update's batch."""
    batch = updates.full_batch(config)
    rows, parts = len(jax.tree.leaves(batch)[0]), []
    if has(config, 'image'):
        parts = [f'{config.images.positions} positions of an image']
    if texts := [batch[field].tokens.shape[1] for field in models.fields(config) if field in batch]:
        sides = ' a side' if len(texts) == 2 and texts[0] == texts[1] else ''
        lengths = ' + '.join(map(str, dict.fromkeys(texts)))
        parts.append(f'{lengths} tokens{sides}, {config.model.vocab_size:,} pieces')
    return f'{rows} x {" and ".join(parts)}'


def _accelerator_config(call: Call) -> tuple[str, Mapping[str, object], Config]:
    """Returns the file of the config to compile, its changes, and the config."""
    check_output(call.flags.output)
    file, changes = call.flags.config, parse_changes(call.flags.set)
    if not os.path.isfile(file):
        raise ConfigError(f'--config={file}: no such file')
    changes = _accelerator_sizes(file, changes) | changes
    return file, changes, arguments.config(call._replace(file=file, changes=changes))


def _has_compiler() -> bool:
    if importlib.util.find_spec('libtpu'):
        return True
    print("TPUs: skipped, their compiler is not installed: pip install '.[tpu]'")
    return False


def benchmark_kernels(call: Call) -> None:
    """Counts the cycles of attention's kernels on TPUs, for the rows of one chunk of an update."""
    file, changes, config = _accelerator_config(call)
    if config.model.kind != 'transformer':
        raise ConfigError(f'--config={file}: model.kind={config.model.kind!r} has no such kernels')
    if not _has_compiler():
        return
    with tempfile.TemporaryDirectory() as folder:
        kernels.prepare(pathlib.Path(folder))
        report = {}
        for name in call.flags.topology.split(','):
            devices = tpu.devices_of(name.strip())
            chunks = configs.with_accumulation(config, devices[0].platform, len(devices)).train.accumulate
            length = cost.row_length(config)
            rows = config.data.batch_tokens // length // len(devices) // chunks
            counts = kernels.cycles(config.model, rows, length, devices[0], pathlib.Path(folder))
            where = f'{devices[0].device_kind} ({name.strip()})'
            print(fold(f'{file}, {rows} rows of {length}; {where}: cycles of each kernel, without waits'))
            for kernel, count in counts.items():
                print(f'  {count:>9,}  {kernel}')
            report[name.strip()] = {'rows': rows, 'length': length, 'cycles': counts}
    write_output(call.flags.output, {'config': file, 'changes': changes, 'topologies': report})


def benchmark_tpu(call: Call) -> None:
    """Compiles an update and a search for TPUs, and prints their cost on each device."""
    sentences = parse_numbers('sentences', call.flags.sentences)
    file, changes, config = _accelerator_config(call)
    if not _has_compiler():
        return
    tpu.prepare()
    if not has(config, 'writes') or has(config, 'image'):
        print('no search: the model writes nothing from a text')
        sentences = []
    what = f'{file}, an update of {_size(config)}, {config.model.dtype}'
    names = [name.strip() for name in call.flags.topology.split(',')]
    # All names are checked before minutes of compilation.
    topologies = {name: tpu.devices_of(name) for name in names}
    chips = {name: tpu.chip_of(name, devices[0]) for name, devices in topologies.items()}
    report = {}
    for topology, devices in topologies.items():
        chip, formula = chips[topology], cost.update_flops(config) / len(devices)
        where = f'{len(devices)} x {chip.kind} ({topology}), each:'
        print(fold(f'{what}; {where}'), flush=True)
        update = tpu.cost(tpu.compile_update(config, devices))
        print(*map(fold, tpu.lines(update, chip, formula)), sep='\n')
        costs = {'update': (update, formula)}
        for count in sentences:
            print(fold(f'one step of the search of {count} sentences; {where}'), flush=True)
            step = tpu.cost(tpu.compile_search(config, count, devices), of_step=True)
            least = lower.step_bytes(config, count)
            print(*map(fold, tpu.lines(step, chip, once=least)), sep='\n', flush=True)
            costs[f'search step of {count}'] = step, None
        report[topology] = {
            name: {**cost._asdict(), 'roofline': tpu.roofline(cost, chip, flops), 'needed': tpu.needed(cost)}
            for name, (cost, flops) in costs.items()
        }
        report[topology] |= {'chip': chip._asdict(), 'devices': len(devices), 'formula': formula}
        # After each, because a compilation takes minutes.
        write_output(call.flags.output, {'config': file, 'changes': changes, 'topologies': report})


def benchmark_peers(call: Call) -> None:
    """Compiles an update of other codebases' models for one TPU, and prints its cost."""
    flags, report = call.flags, {}
    check_output(flags.output)
    names, chunks = flags.peers.split(','), parse_numbers('chunks', flags.chunks)
    if unknown := [name for name in names if name not in peers.PEERS]:
        raise ConfigError(f'--peers={unknown[0]}: choose from {", ".join(peers.PEERS)}')
    if not chunks:
        raise ConfigError('--chunks: is empty; give numbers such as 1,4')
    if not _has_compiler():
        return
    tpu.prepare()
    [device] = tpu.devices_of(TOPOLOGY)
    chip = tpu.chip_of(TOPOLOGY, device)
    # All are lowered first, so that errors come before minutes of compilation.
    programs = {(name, count): peers.update(name, count, device) for name in names for count in chunks}
    for (name, count), lowered in programs.items():
        chunked = f' in {count} chunks' if count > 1 else ''
        print(fold(f'{name}, an update{chunked}; {chip.kind}:'), flush=True)
        cost = tpu.cost(lowered.compile())
        print(*map(fold, tpu.lines(cost, chip)), sep='\n', flush=True)
        roofline = tpu.roofline(cost, chip)
        report[f'{name} in {count}'] = {**cost._asdict(), 'roofline': roofline, 'needed': tpu.needed(cost)}
        # After each, because a compilation takes minutes.
        write_output(flags.output, {'topology': TOPOLOGY, 'chip': chip._asdict(), 'peers': report})


COMMANDS = {
    'data': Command(
        'From text to batches, at the size of WMT 2014.',
        lambda call: pipeline.measure(call.flags.pairs),
        ('pairs',),
        examples=('{} data --pairs=100000',),
    ),
    'train': Command(
        "Updates of models, beside PyTorch's updates (if installed) and our matrix products alone.",
        benchmark_train,
        ('models', 'data', 'rounds', 'updates', 'profile', 'output'),
        examples=('{} train --models=run,grammar', '{} train --models=multi30k --data=FOLDER'),
    ),
    'gpu': Command(
        "Updates on this GPU, in several ways, beside PyTorch's compiled updates (if installed).",
        benchmark_gpu,
        ('config', 'set', 'variants', 'rounds', 'updates', 'output'),
        examples=('{} gpu --variants=full,flash', '{} gpu --config=configs/big.py'),
    ),
    'decode': Command(
        'Beam search, beside the searches of Hugging Face and CTranslate2 (if installed).',
        benchmark_decode,
        ('workdir', 'input', 'rounds', 'output'),
        examples=('{} decode', '{} decode --workdir=runs/multi30k --input=FILE'),
    ),
    'tpu': Command(
        "An update and a search, compiled by the TPU's own compiler; no TPU is needed.",
        benchmark_tpu,
        ('topology', 'config', 'set', 'sentences', 'output'),
        examples=('{} tpu --topology=v5e:1x1,v5e:2x4', '{} tpu --config=configs/big.py --sentences=32'),
    ),
    'kernels': Command(
        "Attention's kernels for TPUs, compiled alone: the cycles of each.",
        benchmark_kernels,
        ('topology', 'config', 'set', 'output'),
        examples=('{} kernels', '{} kernels --config=configs/big.py'),
    ),
    'peers': Command(
        "An update of other codebases' models, compiled by the TPU's own compiler.",
        benchmark_peers,
        ('peers', 'chunks', 'output'),
        examples=('{} peers --peers=marian,bert --chunks=1,4',),
    ),
}
FLAGS = {
    'pairs': Flag(int, pipeline.PAIRS, 'number of sentence pairs to generate', 'N', least=1),
    'models': Flag(str, ','.join(MODELS), 'models, separated by commas', 'NAMES'),
    'data': Flag(str, None, 'folder with the raw text of Multi30k, for the model multi30k', 'FOLDER'),
    'rounds': Flag(int, 9, 'how often each side is timed', 'N', least=1),
    'updates': Flag(int, 3, 'updates (Multi30k: passes) in each timing', 'N', least=1),
    'profile': Flag(str, None, "also write a trace for TensorBoard's profiler or Perfetto", 'FOLDER'),
    'variants': Flag(str, ','.join(gpu.VARIANTS), 'ways of an update, separated by commas', 'NAMES'),
    'workdir': Flag(str, None, 'a trained model (default: an untrained one)', 'FOLDER'),
    'input': Flag(str, None, 'sentences for the trained model, one per line', 'FILE'),
    'topology': Flag(str, TOPOLOGY, 'TPUs, separated by commas', 'NAMES'),
    'config': Flag(str, 'configs/base.py', 'config file of the model', 'FILE'),
    'peers': Flag(str, ','.join(peers.PEERS), 'models, separated by commas', 'NAMES'),
    'chunks': Flag(str, '1', 'chunks whose gradients are added, separated by commas', 'NUMBERS'),
    'sentences': Flag(
        str, '32', "sentences in each TPU's searches, separated by commas; '' for no search", 'NUMBERS'
    ),
    'set': Flag(str, [], 'change of the config; may be repeated', 'OPTION=VALUE', many=True),
    'output': Flag(str, None, 'JSON file for the numbers', 'FILE'),
}


def main(argv: Sequence[str]) -> int:
    """Runs one benchmark and returns the exit status."""
    return run_program(argv, Program('python -m experiments.benchmark', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
