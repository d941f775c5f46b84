"""Measures what the code costs on this machine, and prints each figure beside
its aim.

    python -m experiments.benchmark data
    python -m experiments.benchmark average
    python -m experiments.benchmark replicas
    python -m experiments.benchmark train
    python -m experiments.benchmark recurrent
    python -m experiments.benchmark decode
    python -m experiments.benchmark compile
    python -m experiments.benchmark tpu

On a machine that other work shares, figures are noisy.
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

from experiments.compiled import compile_time, tpu
from experiments.compiled import lower as programs
from experiments.speed import data as pipeline
from experiments.speed import interleaved, profiled, search, training, updates
from experiments.speed.printing import check_report, tell, tell_ratios, write_report
from experiments.sweeps import cost as plan
from experiments.tables import rows as tables
from experiments.tables import scales
from transformer import config as configs
from transformer import parallel
from transformer.cli import flags as arguments
from transformer.cli.flags import Call, Command, Flag, Program, parse_changes
from transformer.cli.main import run_program
from transformer.config import Config, ConfigError
from transformer.nn import cost as accounting
from transformer.nn import models
from transformer.runs import restore
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.workdir import Run
from transformer.training import optim

REPLICAS, REPLICA_UPDATES = 3, 20
# Of the models whose updates are timed: 64 rows of 32 tokens a side.
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
# Of models that are compiled for TPUs: 192 rows of 128 tokens a side.
TPU_SIZES = {
    'data.batching': 'packed',
    'data.row_len': 128,
    'data.max_len': 128,
    'data.batch_tokens': 192 * 128,
    'model.dtype': 'bfloat16',
}
SENTENCES = 32  # that a compiled search has on each device
# Of `train`: what gives the config, and how many times PyTorch's speed ours should be in float32.
TRANSFORMERS = {
    'base': (functools.partial(configs.config_dict, SIZES), 2.3),
    'run': (lambda: importlib.import_module('configs.tiny').get_config(), 2.5),
    'grammar': (functools.partial(scales.scale_config, 'grammar'), 2.0),
    'multi30k': (lambda: importlib.import_module('configs.multi30k').get_config(), 3.0),
}


def save_checkpoints(folder: pathlib.Path, config: Config, count: int) -> None:
    """Saves checkpoints of a model as a training would, with random parameters."""
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
    """Averages five checkpoints of the base model; the aim counts in memory of one checkpoint."""
    config = configs.resolve(configs.config_dict())
    # Parameters, and Adam's two moments of each.
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
        tell('averaging five checkpoints', time.perf_counter() - start, 's')
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
        tell('one checkpoint', checkpoint, 'GiB')
        tell('memory of averaging', peak / checkpoint, 'checkpoints', most=1.5)


def benchmark_replicas() -> None:
    """Times one program that trains several seeds of a row at once, against one seed after the other."""
    config = scales.config(tables.TABLE_3[0], 'grammar')
    alone = plan.seconds_per_update(config, REPLICA_UPDATES)
    tell('an update of one training', alone, 's')
    together = plan.seconds_per_update(config, REPLICA_UPDATES, REPLICAS)
    tell(f'of {REPLICAS} in one program', together, 's', most=REPLICAS * alone)


def benchmark_recurrent(rounds: int, count: int, output: str | None) -> None:
    """Times updates of an LSTM with attention, ours and PyTorch's in turns."""
    check_report(output)
    config = configs.resolve(configs.config_dict(RECURRENT))
    m = config.model
    model = f'{m.N} + {m.N_decoder} layers of {m.d_model} LSTM cells with attention'
    work = training.full_rows(config)
    write_report(output, training.measure(config, model, work, ['float32'], 1.0, rounds, count))


def transformers(names: str) -> dict[str, Config]:
    """The configs of models by their names, which have commas between them.

    Raises:
      ConfigError: there is no such model.
    """
    for name in names.split(','):
        if name not in TRANSFORMERS:
            raise ConfigError(f'--models={name}: choose from {", ".join(TRANSFORMERS)}')
    return {name: configs.resolve(TRANSFORMERS[name][0]()) for name in names.split(',')}


def benchmark_compile(names: str, output: str | None) -> None:
    """Times how long programs are traced, compiled, and loaded where they were compiled before."""
    check_report(output)
    found = {}
    for name, config in transformers(names).items():
        programs_of = {
            'an update': functools.partial(programs.update, config, parallel.devices()),
            f'a search of {SENTENCES} sentences': functools.partial(
                programs.search, config, SENTENCES, parallel.devices()
            ),
        }
        found[name] = {what: compile_time.seconds(lower) for what, lower in programs_of.items()}
        for what, took in found[name].items():
            print(f'{name}, {what}:')
            for way, seconds in took.items():
                tell(f'  {way}', seconds, 's')
            tell('  compiling / loading', took['compiling'] / took['loading'], 'times')
    write_report(output, found)


def works(names: str, data: str | None) -> dict[str, tuple[Config, training.Work]]:
    """Configs of models and what they are trained on, by name; a model without its corpus is skipped.

    Args:
      data: the folder of Multi30k.
    """
    found = {}
    for name, config in transformers(names).items():
        if config.data.source != 'text':
            found[name] = config, training.full_rows(config)
        elif data is None:
            print(f'{name}: skipped, --data does not say where it is')
        else:
            config = configs.replace(config, {'data.dir': data})
            found[name] = config, training.corpus(config)
    return found


def benchmark_train(call: Call) -> None:
    """Times, in turns, our updates of Transformers, PyTorch's, and the matrix products of ours alone."""
    check_report(call.flags.output)
    found, flags = {}, call.flags
    # What cannot be read is told before the first minutes of timing.
    for name, (config, work) in works(flags.models, flags.data).items():
        least, m = TRANSFORMERS[name][1], config.model
        model = f'{name}: {m.N} + {m.N_decoder} layers of d_model {m.d_model}'
        kinds = ['float32', 'bfloat16']
        found[name] = training.measure(config, model, work, kinds, least, flags.rounds, flags.updates)
        if flags.profile is not None:
            folder = pathlib.Path(flags.profile) / name
            found[name]['profile'] = profiled.trace(config, work.ours[0], folder, flags.updates)
            print(f'of an update, in the trace {folder}:')
            print(*map(folded, profiled.lines(found[name]['profile'])), sep='\n')
    write_report(flags.output, found)


def benchmark_decode(call: Call) -> None:
    """Times beam search, ours and other libraries' in turns, with the same weights."""
    check_report(call.flags.output)
    if parallel.platform() != 'cpu':
        raise ConfigError(f'{parallel.platform()}: the peers run on CPUs; set JAX_PLATFORMS=cpu')
    flags = call.flags
    if (flags.workdir is None) != (flags.input is None):
        raise ConfigError('--workdir and --input: give both, or none')
    if flags.workdir is not None:
        trained, origin = restore.load(Run.open(flags.workdir))
        rows = search.read(trained, flags.input)
        what = f'{flags.workdir}, {origin}, {len(rows)} sentences of {flags.input}'
    else:
        trained = search.untrained(configs.resolve(configs.config_dict({**SIZES, 'decode.extra_len': 0})))
        rows = updates.random_batch(trained.config)['source'].tokens[:SENTENCES].tolist()
        what = f'an untrained model of the size of base, {len(rows)} sentences of {len(rows[0])} pieces'
    config = trained.config
    if config.decode.method != 'beam':
        raise ConfigError(f'decode.method={config.decode.method} in {flags.workdir}: beam search is measured')
    print(f'beam {config.decode.beam}: {what}; {flags.rounds} rounds, {os.cpu_count()} processors')
    outputs = {}
    with search.others(trained) as theirs:
        translators = {'ours': search.ours(trained), **theirs}

        def side(name: str, times: int) -> None:
            for _ in range(times):
                outputs[name] = translators[name](rows)

        sides = {name: functools.partial(side, name) for name in translators}
        found = interleaved.compare(interleaved.measure(sides, flags.rounds, 1), len(rows), 'sentences')
    leasts = {'CTranslate2, float32': 1.0} | ({} if flags.workdir else {'Hugging Face': 2.0})
    tell_ratios(found, 'sentences', leasts)
    mine = outputs.pop('ours')
    same = {name: sum(map(operator.eq, mine, other)) for name, other in outputs.items()}
    for name, count in same.items():
        print(f'outputs of {name} that are ours: {count} of {len(rows)}')
    write_report(flags.output, {'what': what, **found, 'same': same, 'sentences': len(rows)})


def benchmark_tpu(call: Call) -> None:
    """Compiles an update and a search for TPUs, and prints what they cost on each device."""
    check_report(call.flags.output)
    file, changes = call.flags.config, {**TPU_SIZES, **parse_changes(call.flags.set)}
    if not os.path.isfile(file):
        raise ConfigError(f'--config={file}: no such file')
    config, found = arguments.config(call._replace(file=file, changes=changes)), {}
    if not importlib.util.find_spec('libtpu'):
        print("TPUs: skipped, their compiler is not installed: pip install '.[tpu]'")
        return
    tpu.prepare()
    m, (rows, length) = config.model, next(iter(updates.full_batch(config).values())).tokens.shape
    what = f'{file}, an update of {rows} x {length} tokens a side, {m.vocab_size:,} pieces, {m.dtype}'
    names = [name.strip() for name in call.flags.topology.split(',')]
    # A wrong one is told before the first minutes of compilation.
    topologies = {name: tpu.devices_of(name) for name in names}
    chips = {name: tpu.chip_of(name, devices[0]) for name, devices in topologies.items()}
    for topology, devices in topologies.items():
        chip = chips[topology]
        on = f'{len(devices)} x {chip.kind} ({topology})'
        say = lambda lines: print(*map(folded, lines), sep='\n', flush=True)
        say([f'{what}; {on}, each:'])
        updated = tpu.cost(tpu.update(config, devices))
        formula = accounting.update_flops(config) / len(devices)
        say(tpu.lines(updated, chip, formula))
        say([f'one step of the search of {SENTENCES} sentences; {on}, each:'])
        searched = tpu.cost(tpu.search(config, SENTENCES, devices), of_step=True)
        say(tpu.lines(searched, chip))
        found[topology] = {
            name: {**cost._asdict(), 'roofline': tpu.roofline(cost, chip), 'needed': tpu.needed(cost)}
            for name, cost in (('update', updated), ('search step', searched))
        }
        found[topology] |= {'chip': chip._asdict(), 'devices': len(devices), 'formula': formula}
    write_report(call.flags.output, {'config': file, 'changes': changes, 'topologies': found})


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
        "Updates of Transformers, beside their products alone and PyTorch's, where that is installed.",
        benchmark_train,
        ('models', 'data', 'rounds', 'updates', 'profile', 'output'),
        examples=('{} train --models=run,grammar', '{} train --models=multi30k --data=FOLDER'),
    ),
    'compile': Command(
        'Tracing and compiling an update and a search, and loading them from a cache.',
        lambda call: benchmark_compile(call.flags.models, call.flags.output),
        ('models', 'output'),
        examples=('{} compile --models=run',),
    ),
    'decode': Command(
        "Beam search beside Hugging Face's and CTranslate2's, where they are installed.",
        benchmark_decode,
        ('workdir', 'input', 'rounds', 'output'),
        examples=('{} decode', '{} decode --workdir=runs/multi30k --input=FILE'),
    ),
    'recurrent': Command(
        "Updates of an LSTM with attention, beside their products and PyTorch's.",
        lambda call: benchmark_recurrent(call.flags.rounds, call.flags.updates, call.flags.output),
        ('rounds', 'updates', 'output'),
        examples=('{} recurrent --output=FILE',),
    ),
    'tpu': Command(
        "An update and a search as the TPU's own compiler makes them; no TPU is needed.",
        benchmark_tpu,
        ('topology', 'config', 'set', 'output'),
        examples=('{} tpu --topology=v5e:1x1,v5e:2x4', '{} tpu --config=configs/big.py'),
    ),
}
FLAGS = {
    'pairs': Flag(int, pipeline.PAIRS, 'how many pairs of sentences to make', 'N', least=1),
    'models': Flag(str, ','.join(TRANSFORMERS), 'which models, separated by commas', 'NAMES'),
    'data': Flag(str, None, 'raw text of Multi30k, on which its model is timed', 'FOLDER'),
    'rounds': Flag(int, 9, 'how often the sides take turns', 'N', least=1),
    'updates': Flag(int, 3, 'how many updates (of Multi30k: passes) are timed in a turn', 'N', least=1),
    'profile': Flag(str, None, 'where a trace goes; what it tells is printed', 'FOLDER'),
    'workdir': Flag(str, None, 'a trained model; without, an untrained one', 'FOLDER'),
    'input': Flag(str, None, 'sentences for it, one a line', 'FILE'),
    'topology': Flag(str, 'v5e:1x1', 'which TPUs, separated by commas', 'NAMES'),
    'config': Flag(str, 'configs/base.py', 'config file of the model', 'FILE'),
    'set': Flag(str, [], 'changes the config; may be given several times', 'OPTION=VALUE', many=True),
    'output': Flag(str, None, 'JSON file that the figures are written to', 'FILE'),
}


def main(argv: Sequence[str]) -> int:
    """Runs one benchmark. Returns the exit status."""
    return run_program(argv, Program('python -m experiments.benchmark', __doc__, COMMANDS, FLAGS))


if __name__ == '__main__':
    sys.exit(main(sys.argv))
