"""Measures the code's speed and memory on this machine, beside their aims.

    python -m experiments.benchmark COMMAND

On a machine that runs other work too, the numbers are noisy.
"""

import concurrent.futures
import functools
import importlib
import importlib.util
import multiprocessing
import operator
import os
import pathlib
import resource
import sys
import tempfile
import time
from collections.abc import Sequence

import jax
import numpy as np
from etils import epath
from ml_collections import ConfigDict

from experiments.compiled import lower, tpu
from experiments.speed import data as pipeline
from experiments.speed import interleaved, search, training, updates
from experiments.speed.interleaved import check_output, print_comparison, print_number, write_output
from experiments.sweeps import cost as plan
from experiments.tables import rows as tables
from experiments.tables import scales
from transformer import config as configs
from transformer import parallel
from transformer.cli import flags as arguments
from transformer.cli.flags import Call, Command, Flag, Program, parse_changes
from transformer.cli.main import run_program
from transformer.cli.terminal import fold
from transformer.config import Config, ConfigError
from transformer.nn import cost as accounting
from transformer.nn import models
from transformer.runs import restore
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.workdir import Run
from transformer.training import optim

REPLICAS, REPLICA_UPDATES = 3, 20
# The models whose updates are timed: 64 rows of 32 tokens a side.
SIZES = {
    'model.vocab_size': 8000,
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
# The models that are compiled for TPUs: 192 rows of 128 tokens a side.
TPU_SIZES = {
    'data.batching': 'packed',
    'data.row_len': 128,
    'data.max_len': 128,
    'data.batch_tokens': 192 * 128,
    'model.dtype': 'bfloat16',
}
SENTENCES = 32  # in a compiled search, on each device


def _config_of_file(name: str) -> ConfigDict:
    return importlib.import_module(f'configs.{name}').get_config()


# The models of `train`: their config, and the aim for our speed divided by PyTorch's in float32.
TRANSFORMERS = {
    'base': (functools.partial(configs.config_dict, SIZES), 2.3),
    'run': (functools.partial(_config_of_file, 'tiny'), 2.5),
    'grammar': (functools.partial(scales.scale_config, 'grammar'), 2.0),
    'multi30k': (functools.partial(_config_of_file, 'multi30k'), 3.0),
}


def save_checkpoints(folder: pathlib.Path, config: Config, count: int) -> None:
    """Saves checkpoints with random parameters."""
    (folder / 'config.json').write_text(configs.to_json(config))
    checkpoints = Checkpoints(folder / 'checkpoints', count)
    for step in range(1, count + 1):
        draw = np.random.default_rng(step)
        params = jax.tree.map(
            lambda leaf: draw.standard_normal(leaf.shape, np.float32), models.parameter_shapes(config)
        )
        checkpoints.save(step, params, optim.adam(config).init(params), {})
    checkpoints.close()


def benchmark_average() -> None:
    """Averages five checkpoints of the base model, and measures time and memory."""
    config = configs.resolve(configs.config_dict())
    # In GiB: the parameters, and Adam's two moments of each.
    checkpoint = 3 * 4 * accounting.parameters(models.parameter_shapes(config)) / 2**30
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # In a process of its own, so that its memory does not count.
        context = multiprocessing.get_context('spawn')
        with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
            pool.submit(save_checkpoints, folder, config, 5).result()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        restore.average(Run.open(epath.Path(folder)), 5, 1)
        print_number('averaging five checkpoints', time.perf_counter() - start, 's')
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
        print_number('one checkpoint', checkpoint, 'GiB')
        print_number('memory of averaging', peak / checkpoint, 'checkpoints', most=1.5)


def benchmark_replicas() -> None:
    """Times one program that trains several seeds of a row at once, beside one seed after the other."""
    config = scales.config(tables.TABLE_3[0], 'grammar')
    alone = plan.seconds_per_update(config, REPLICA_UPDATES)
    print_number('an update of one training', alone, 's')
    together = plan.seconds_per_update(config, REPLICA_UPDATES, REPLICAS)
    print_number(f'of {REPLICAS} in one program', together, 's', most=REPLICAS * alone)


def benchmark_recurrent(call: Call) -> None:
    """Times updates of an LSTM with attention, ours and PyTorch's in turns."""
    check_output(call.flags.output)
    config = configs.resolve(configs.config_dict(RECURRENT))
    m = config.model
    model = f'{m.N} + {m.N_decoder} layers of {m.d_model} LSTM cells with attention'
    work, (rounds, count) = training.full_rows(config), (call.flags.rounds, call.flags.updates)
    write_output(call.flags.output, training.measure(config, model, work, ['float32'], 1.0, rounds, count))


def transformer_configs(names: str) -> dict[str, Config]:
    """The configs of the models in a comma-separated list, by name.

    Raises:
      ConfigError: a name is unknown.
    """
    for name in names.split(','):
        if name not in TRANSFORMERS:
            raise ConfigError(f'--models={name}: choose from {", ".join(TRANSFORMERS)}')
    return {name: configs.resolve(TRANSFORMERS[name][0]()) for name in names.split(',')}


def benchmark_compile(call: Call) -> None:
    """Times how long programs take to be traced, compiled, and loaded from a cache."""
    check_output(call.flags.output)
    seconds, devices = {}, parallel.devices()
    for name, config in transformer_configs(call.flags.models).items():
        programs = {
            'an update': functools.partial(lower.update, config, devices),
            f'a search of {SENTENCES} sentences': functools.partial(lower.search, config, SENTENCES, devices),
        }
        seconds[name] = {program: lower.compile_seconds(make) for program, make in programs.items()}
        for program, by_way in seconds[name].items():
            print(f'{name}, {program}:')
            for way, value in by_way.items():
                print_number(f'  {way}', value, 's')
            print_number('  compiling / loading', by_way['compiling'] / by_way['loading'], 'times')
    write_output(call.flags.output, seconds)


def works(names: str, data: str | None) -> dict[str, tuple[Config, training.Work]]:
    """The configs and batches of models, by name; a model without its corpus is skipped with a line.

    Args:
      data: the folder of Multi30k.
    """
    found = {}
    for name, config in transformer_configs(names).items():
        if config.data.source != 'text':
            found[name] = config, training.full_rows(config)
        elif data is None:
            print(f'{name}: skipped, because --data does not name its folder')
        else:
            config = configs.replace(config, {'data.dir': data})
            found[name] = config, training.corpus(config)
    return found


def benchmark_train(call: Call) -> None:
    """Times our updates of Transformers, PyTorch's, and the matrix products of ours alone, in turns."""
    flags, report = call.flags, {}
    check_output(flags.output)
    # All corpora are read first, so that an error comes before minutes of timing.
    for name, (config, work) in works(flags.models, flags.data).items():
        least, m = TRANSFORMERS[name][1], config.model
        model = f'{name}: {m.N} + {m.N_decoder} layers of d_model {m.d_model}'
        dtypes = ['float32', 'bfloat16']
        report[name] = training.measure(config, model, work, dtypes, least, flags.rounds, flags.updates)
        if flags.profile is not None:
            folder = pathlib.Path(flags.profile) / name
            training.write_trace(config, work.ours[0], folder, flags.updates)
            print(fold(f"{folder}: a trace of updates, for TensorBoard's profiler or ui.perfetto.dev"))
    write_output(flags.output, report)


def benchmark_decode(call: Call) -> None:
    """Times beam search, ours and other libraries' with the same weights, in turns."""
    flags = call.flags
    check_output(flags.output)
    if parallel.platform() != 'cpu':
        raise ConfigError(f'{parallel.platform()}: the peers run on CPUs; set JAX_PLATFORMS=cpu')
    if (flags.workdir is None) != (flags.input is None):
        raise ConfigError('--workdir and --input: give both or neither')
    if flags.workdir is not None:
        trained, origin = restore.load(Run.open(flags.workdir))
        rows = search.read_rows(trained, flags.input)
        what = f'{flags.workdir}, {origin}, {len(rows)} sentences of {flags.input}'
    else:
        trained = search.untrained(configs.resolve(configs.config_dict({**SIZES, 'decode.extra_len': 0})))
        rows = updates.random_batch(trained.config)['source'].tokens[:SENTENCES].tolist()
        what = f'an untrained model of the size of base, {len(rows)} sentences of {len(rows[0])} pieces'
    config = trained.config
    if config.decode.method != 'beam':
        raise ConfigError(f'decode.method={config.decode.method}: only beam search is timed')
    print(f'beam {config.decode.beam}: {what}; {flags.rounds} rounds, {os.cpu_count()} processors')
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


def benchmark_tpu(call: Call) -> None:
    """Compiles an update and a search for TPUs, and prints their cost on each device."""
    check_output(call.flags.output)
    file, changes = call.flags.config, {**TPU_SIZES, **parse_changes(call.flags.set)}
    if not os.path.isfile(file):
        raise ConfigError(f'--config={file}: no such file')
    config = arguments.config(call._replace(file=file, changes=changes))
    if not importlib.util.find_spec('libtpu'):
        print("TPUs: skipped, their compiler is not installed: pip install '.[tpu]'")
        return
    tpu.prepare()
    m, (rows, length) = config.model, next(iter(updates.full_batch(config).values())).tokens.shape
    what = f'{file}, an update of {rows} x {length} tokens a side, {m.vocab_size:,} pieces, {m.dtype}'
    names = [name.strip() for name in call.flags.topology.split(',')]
    # Every name is checked before the first minutes of compilation.
    topologies = {name: tpu.devices_of(name) for name in names}
    chips = {name: tpu.chip_of(name, devices[0]) for name, devices in topologies.items()}
    report = {}
    for topology, devices in topologies.items():
        chip, formula = chips[topology], accounting.update_flops(config) / len(devices)
        where = f'{len(devices)} x {chip.kind} ({topology}), each:'
        print(fold(f'{what}; {where}'), flush=True)
        update = tpu.cost(tpu.compile_update(config, devices))
        print(*map(fold, tpu.lines(update, chip, formula)), sep='\n')
        print(fold(f'one step of the search of {SENTENCES} sentences; {where}'), flush=True)
        step = tpu.cost(tpu.compile_search(config, SENTENCES, devices), of_step=True)
        print(*map(fold, tpu.lines(step, chip)), sep='\n', flush=True)
        report[topology] = {
            name: {**cost._asdict(), 'roofline': tpu.roofline(cost, chip), 'needed': tpu.needed(cost)}
            for name, cost in (('update', update), ('search step', step))
        }
        report[topology] |= {'chip': chip._asdict(), 'devices': len(devices), 'formula': formula}
    write_output(call.flags.output, {'config': file, 'changes': changes, 'topologies': report})


COMMANDS = {
    'data': Command(
        'From text to batches, at the size of WMT 2014.',
        lambda call: pipeline.measure(call.flags.pairs),
        ('pairs',),
        examples=('{} data --pairs=100000',),
    ),
    'average': Command('Averaging five checkpoints of the base model.', lambda call: benchmark_average(), ()),
    'replicas': Command('Several trainings in one program.', lambda call: benchmark_replicas(), ()),
    'train': Command(
        "Updates of Transformers, beside PyTorch's (if installed) and their matrix products alone.",
        benchmark_train,
        ('models', 'data', 'rounds', 'updates', 'profile', 'output'),
        examples=('{} train --models=run,grammar', '{} train --models=multi30k --data=FOLDER'),
    ),
    'compile': Command(
        'Tracing, compiling, and loading an update and a search.',
        benchmark_compile,
        ('models', 'output'),
        examples=('{} compile --models=run',),
    ),
    'decode': Command(
        "Beam search, beside Hugging Face's and CTranslate2's (if installed).",
        benchmark_decode,
        ('workdir', 'input', 'rounds', 'output'),
        examples=('{} decode', '{} decode --workdir=runs/multi30k --input=FILE'),
    ),
    'recurrent': Command(
        "Updates of an LSTM with attention, beside PyTorch's (if installed) and their products alone.",
        benchmark_recurrent,
        ('rounds', 'updates', 'output'),
        examples=('{} recurrent --output=FILE',),
    ),
    'tpu': Command(
        "An update and a search, compiled by the TPU's own compiler; no TPU is needed.",
        benchmark_tpu,
        ('topology', 'config', 'set', 'output'),
        examples=('{} tpu --topology=v5e:1x1,v5e:2x4', '{} tpu --config=configs/big.py'),
    ),
}
FLAGS = {
    'pairs': Flag(int, pipeline.PAIRS, 'how many pairs of sentences to generate', 'N', least=1),
    'models': Flag(str, ','.join(TRANSFORMERS), 'models, separated by commas', 'NAMES'),
    'data': Flag(str, None, 'folder with the raw text of Multi30k, for its model', 'FOLDER'),
    'rounds': Flag(int, 9, 'how often each side is timed', 'N', least=1),
    'updates': Flag(int, 3, 'updates (Multi30k: passes) in each timing', 'N', least=1),
    'profile': Flag(str, None, "also write a trace for TensorBoard's profiler or Perfetto", 'FOLDER'),
    'workdir': Flag(str, None, 'a trained model (default: an untrained one)', 'FOLDER'),
    'input': Flag(str, None, 'sentences for it, one a line', 'FILE'),
    'topology': Flag(str, 'v5e:1x1', 'TPUs, separated by commas', 'NAMES'),
    'config': Flag(str, 'configs/base.py', 'config file of the model', 'FILE'),
    'set': Flag(str, [], 'changes the config; may be repeated', 'OPTION=VALUE', many=True),
    'output': Flag(str, None, 'JSON file for the numbers', 'FILE'),
}


def main(argv: Sequence[str]) -> int:
    """Runs one benchmark. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.benchmark', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
