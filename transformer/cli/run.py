"""Implements the commands of run.py: each runs an action and prints its results."""

import contextlib
import functools
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Mapping

from etils import epath, epy

from transformer import config as configs
from transformer import files
from transformer.cli import flags, terminal
from transformer.cli.flags import Call
from transformer.cli.terminal import escape, fold
from transformer.config import Config, ConfigError, declare
from transformer.config.extras import needing
from transformer.config.files import lock_beside
from transformer.tasks import refusal, task_of, verb_of
from transformer.tasks.commands import TaskCommand, Tool

# These modules import jax, which takes seconds; help and `config` do not need it.
with epy.lazy_imports():
    from transformer import parallel
    from transformer.actions import compare as comparison
    from transformer.actions import data as run_data
    from transformer.actions import diagnose as diagnosis
    from transformer.actions import evaluate as evaluation
    from transformer.actions import on_track
    from transformer.actions import train as training
    from transformer.cli import score_pairs as pairs
    from transformer.cli import streams, wandb_metrics
    from transformer.interop import engines
    from transformer.interop import export_model as exporting
    from transformer.interop import import_model as importing
    from transformer.runs import owner, process, restore, workdir
    from transformer.tasks import contract
    from transformer.training import loop


def join(call: Call) -> epath.Path:
    """Sets up this process for the work directory of a call, and returns the directory."""
    return process.start(flags.work_directory(call), distributed=call.flags.distributed)


def open_run(call: Call):
    """Sets up this process for the work directory of a call, and opens the directory."""
    folder = join(call)
    if call.flags.workdir is None and not (folder / 'config.json').exists():
        raise ConfigError(f'--workdir: missing; the default, {folder}, holds no training yet')
    return workdir.Run.open(folder)


def train(call: Call) -> int:
    """Trains or resumes a model, evaluates it, prints scores and examples, and returns the exit status."""
    config, folder = run_data.with_absolute_paths(flags.config(call)), join(call)
    score = not call.flags['no-evaluation'].value
    try:
        with wandb_metrics.send_to(call.flags.wandb, config, folder) as on_metrics:
            result, trained, dataset = training.run_training(
                config, folder, lock_beside(call.file), on_metrics, call.flags.init_from, score
            )
    except loop.NonFiniteError as error:
        if parallel.is_primary():
            print(f'error: {error}', file=sys.stderr)
        return 3
    except loop.Stopped as stopped:
        if parallel.is_primary():
            print(stopped, file=sys.stderr)
        return 128 + stopped.signal_number
    except (MemoryError, RuntimeError) as error:
        message = terminal.lack_of_memory(error)
        if not message:
            raise
        raise ConfigError(f'{message}. Try {less_memory(config)}') from error
    print_scores(config, result['scores'])
    # JAX ends the first process five minutes after another one has left.
    with parallel.together():
        if parallel.is_primary() and not score:
            hint = '' if result['scores'] else '; run.py evaluate computes the scores'
            print(f'{folder} holds config, checkpoints and metrics{hint}')
        elif parallel.is_primary():
            if show := task_of(config).show:
                shown = show(trained, dataset)
                print(*map(escape, shown.lines), sep='\n', end='\n' if shown.lines else '')
                for name, draw in shown.figures.items():
                    draw_after_training(folder / 'figures' / f'{name}.png', draw)
            print(f'{folder} holds config, checkpoints, metrics, translations and result.json')
    return 0


def less_memory(config: Config) -> str:
    """Names options with which an update needs less memory."""
    devices = parallel.device_count()
    now = configs.with_accumulation(config, parallel.platform(), devices).train.accumulate
    most = 1 if configs.couples_batch(config) else config.train.microbatches // devices
    options = {
        'a smaller data.batch_tokens': True,
        f'a larger train.accumulate ({now} now, at most {most})': now < most,
        'model.remat=True': config.model.kind == 'transformer' and not config.model.remat,
    }
    return ' or '.join(option for option, is_possible in options.items() if is_possible)


def print_scores(config: Config, scores: Mapping[str, Mapping]) -> None:
    """Prints the name of each split or file, and its scores below."""
    if parallel.is_primary():
        for name, entry in scores.items():
            print(f'{name} (checkpoint {entry["checkpoint"]})')
            for line in contract.describe(task_of(config).measures, entry):
                print(f'  {line}')


def prepare(call: Call) -> None:
    """Prepares the data that training reads, and describes it."""
    config = run_data.with_absolute_paths(flags.config(call))
    print(escape('\n'.join(run_data.prepare(config, lock_beside(call.file)))))


def evaluate(call: Call) -> None:
    """Evaluates a checkpoint and prints its scores."""
    paths = named_files(call)
    run, choice = open_run(call), call.flags.checkpoint
    if paths:
        evaluations = [evaluation.evaluate_files(run, paths, choice, call.changes)]
    elif own := set(evaluation.SPLITS) & set(call.changes):
        if call.flags['split'].present:
            raise ConfigError(f'--split: not with {min(own)}, whose content is scored')
        evaluations = evaluation.evaluate_own(run, choice, call.changes)
    else:
        splits = list(dict.fromkeys(call.flags.split.split(',')))
        evaluations = evaluation.evaluate(run, splits, choice, call.changes)
    file = next(iter(paths.values()), None)
    print_scores(
        run.config, {file or e.entry.get('split') or _list_of(e.entry['files']): e.entry for e in evaluations}
    )
    if parallel.is_primary():
        for e in evaluations:
            print(f'saved in {run.folder} as {e.name}')


def _list_of(names: Collection[str], most: int = 3) -> str:
    """Lists the first names, such as the folders of classes, and counts the others."""
    more = f' and {len(names) - most} more' if len(names) > most else ''
    return ', '.join([*names][:most]) + more


def named_files(call: Call) -> dict[str, str]:
    """Returns the files that a call names instead of a split, by field, or {}."""
    named = {'source': call.flags.source, 'target': call.flags.reference, 'text': call.flags.text}
    paths = {field: path for field, path in named.items() if path is not None}
    if ('source' in paths) != ('target' in paths):
        missing, there = ('reference', 'source') if 'source' in paths else ('source', 'reference')
        raise ConfigError(f'--{missing}: missing; --{there} needs it')
    if paths and call.flags['split'].present:
        raise ConfigError(f'--split={call.flags.split}: not together with files')
    return paths


def compare(call: Call) -> None:
    """Compares two models."""
    sides, what = [], named_files(call) or call.flags.split
    for word in call.words:
        folder, choice = restore.parse_checkpoint(word)
        run = workdir.Run.open(process.start(folder, distributed=False))
        sides.append(comparison.Side(run, choice or 'scored'))
    report, lines = comparison.compare(tuple(sides), what, call.changes, call.flags.show)
    if call.flags.json:
        print(files.json_text(report, indent=2))
    else:
        print('\n'.join(map(fold, lines)))


def average(call: Call) -> None:
    """Averages the last checkpoints."""
    run = open_run(call)
    with parallel.together():
        if parallel.is_primary():
            with owner.hold(run.folder):
                steps = restore.average(run, call.flags.last, call.flags.every)
            print(f'{run.folder}: {restore.Origin(restore.AVERAGE, steps, 0)}')


def open_declared(name: str, by_task: Mapping[str, TaskCommand], call: Call):
    """Opens the work directory of a command that tasks declare.

    Returns:
      The run, and its task's command and verb.
    """
    run = open_run(call)
    if run.config.train.task not in by_task:
        raise refusal(run.config, name)
    declared = by_task[run.config.train.task]
    return run, declared, verb_of(run.config, declared.verb or name)


def write_answers(name: str, by_task: Mapping[str, TaskCommand], call: Call) -> None:
    """Writes a verb's answer to each line of standard input, or to each file named."""
    values, (run, declared, verb) = call.flags, open_declared(name, by_task, call)
    _check_input(call, name, declared)
    if declared.of_files and call.words:
        verb, declared = verb_of(run.config, declared.of_files), declared._replace(reads='files')
    passed = {key: flag for key, flag in declared.flags.items() if key != declared.text}
    options = {flag.argument or key: values[key].value for key, flag in passed.items()}
    # Checks the options before the model is loaded.
    verb(restore.Trained(restore.changed(run.config, call.changes), None, run.codecs), [], **options)
    engine = values.engine, values.quantization, values.checkpoint, call.changes
    if values.engine != engines.OURS and not declared.engines:
        raise ConfigError(f'--engine={values.engine}: not with train.task={run.config.train.task}')
    engines.check(run, *engine)
    one_text = values[declared.text].value if declared.text else None
    if one_text is not None and values.input is not None:
        raise ConfigError(f'--input={values.input}: not together with --{declared.text}')
    given = list(call.words) if declared.reads == 'files' else None if one_text is None else [one_text]
    unit = 'file' if declared.reads == 'files' else 'line'
    read = streams.read_lines(values.input) if given is None else contextlib.nullcontext()
    with read as lines, streams.open_output(values.output) as output:
        answer = engines.load(verb, run, *engine)
        progress = line_progress(call, lines.total) if lines else streams.LineProgress(len(given), unit)
        answer = functools.partial(answer, **options)
        if declared.writes == 'vectors' and (values.output or '').endswith('.npy'):
            streams.write_array(answer, lines or [given], output, progress)
            return
        parts = lines or [given]
        # The error of a single file says all that there is to say.
        if declared.reads == 'files' and len(given) > 1:
            answer = functools.partial(streams.answer_readable, answer)
            if not declared.together or values[declared.together].value is None:
                size = streams.FILES * parallel.local_device_count()
                parts = [given[start : start + size] for start in range(0, len(given), size)]
        lacking = streams.write(
            answer,
            parts,
            output,
            scores=declared.writes == 'hypotheses' and values.scores,
            as_json=declared.writes == 'vectors' or values.json,
            names=given if declared.reads == 'files' else None,
            numbered=lines is not None,
            separator='---' if run.config.data.documents == 'files' else None,
            progress=progress,
            arrives=lines.wait if lines else lambda seconds: True,
        )
    if lacking:
        raise ConfigError(f'{name}: {lacking} of {len(given)} files cannot be read and have no answer')


def _check_input(call: Call, name: str, declared: TaskCommand) -> None:
    """Raises ConfigError if a call names files for a model that reads lines, or the reverse."""
    if declared.reads == 'files' and not call.words:
        raise ConfigError(f'{name}: no files; name them after the command')
    if declared.reads == 'files' or (declared.of_files and call.words):
        if call.flags.input is not None:
            raise ConfigError(f'--input={call.flags.input}: this model reads the files named after {name}')
    elif call.words and not declared.of_files:
        raise ConfigError(f'{call.words[0]}: this model reads lines: {name} < {call.words[0]}')


def run_tool(declared: Tool, call: Call) -> int | None:
    """Runs a command that a task declares and that needs no model."""
    options = {flag.argument or name: call.flags[name].value for name, flag in declared.flags.items()}
    return pkgutil.resolve_name(declared.run)(call.words, **options)


def line_progress(call: Call, total: int | None) -> streams.LineProgress:
    """Returns the progress of a command over `total` lines. It is hidden if they are typed."""
    return streams.LineProgress(total, quiet=call.flags.input is None and sys.stdin.isatty())


def write_likelihoods(name: str, by_task: Mapping[str, TaskCommand], call: Call) -> None:
    """Writes log p of given texts, and how often the right one is the likeliest."""
    values, (run, _, verb) = call.flags, open_declared(name, by_task, call)
    # Checks the options before the model is loaded.
    restore.changed(run.config, call.changes)
    how = {'contrast': values.contrast, 'pieces': values.pieces, 'as_json': values.json}
    if values.prompt == '':
        raise ConfigError('--prompt=: the name of a file is expected')
    after = values.prompt and verb_of(run.config, 'likelihoods_after', f'{name} --prompt')
    prompt = values.prompt and epath.Path(values.prompt).read_bytes().decode('utf-8', 'replace')
    tally = wrong = None
    with streams.read_lines(values.input) as lines, streams.open_output(values.output) as output:
        trained, _ = restore.load_and_report(run, values.checkpoint, call.changes)
        if after:
            scored = after(trained, prompt)
            verb = lambda trained, *arguments: scored(*arguments)
        try:
            tally = pairs.write(verb, trained, lines, output, line_progress(call, lines.total), **how)
        except ConfigError as error:
            if values.output is not None and output.seekable() and not output.tell():
                raise  # nothing replaces what the file holds
            wrong = error  # the lines before it keep their scores
        if tally and values.json:
            output.write(f'{files.json_text(tally.shares())}\n'.encode())
    if tally and not values.json:
        # Not to the output, which has exactly one line for each line of input.
        print('\n'.join(tally.describe()), file=sys.stderr)
    if wrong:
        raise wrong


def import_model(call: Call) -> None:
    """Makes a work directory of another program's model."""
    if not call.flags.output:
        raise ConfigError('--output: missing; import needs a folder for the work directory')
    [path], values = call.words, call.flags
    run = importing.import_model(path, values.output, call.changes, values.format, values.mapping)
    print(escape('\n'.join(importing.describe(run))))


def export_model(call: Call) -> None:
    """Writes a model as another program's."""
    values, run = call.flags, open_run(call)
    if not values.output:
        raise ConfigError('--output: missing; export needs a folder for the model')
    check = exporting.read_check(run, values.format, values.check, values.reference)
    trained = exporting.export_model(
        run, values.checkpoint, values.output, values.format, values.quantization
    )
    print(f'{values.output} holds the model of {run.folder} for {values.format}')
    for line in exporting.FORMATS[values.format].differences(run.config, run.codecs):
        print(f'  {line}')
    if check:
        print('\n'.join(exporting.compare(trained, values.format, values.output, check)))


def config(call: Call) -> None:
    """Prints the resolved config, what differs from the paper's base, or the table of all options."""
    if call.flags.markdown:
        others = (call.flags[name].present for name in ('diff', 'config', 'workdir'))
        if any(others) or call.changes:
            raise ConfigError('--markdown: lists every option with its default; give it alone')
        print(declare.markdown(configs.OPTIONS), end='')
        return
    if call.flags.workdir is not None:
        if call.flags.config is not None:
            raise ConfigError('--workdir: not beside --config, whose options are printed')
        open_run(call)  # or say why there is none
    config, base = flags.config(call), configs.resolve_values({})
    if call.flags.diff:
        for key, (paper, ours) in configs.differences(base, config).items():
            print(f'{key} = {ours}  # base: {paper}')
        return
    for key, value in configs.flatten(config).items():
        field = configs.OPTIONS[key]
        section = f'{field.metadata["section"]}: ' if field.metadata['section'] else ''
        choices = ' '.join(declare.choices(field))
        option = f'{key} = {value}'
        print(f'{option:<40} # {section}{field.metadata["doc"]}{f" ({choices})" if choices else ""}')


def diagnose(call: Call) -> None:
    """Prints possible faults of a training and of its scores of a split, or of the last evaluation's."""
    run, split = open_run(call), call.flags.split
    outcome, findings = diagnosis.diagnose(run, split, call.changes)
    for seen, matters, change in findings:
        lines = f'- {seen}', f'  why it matters: {matters}', f'  to change: {change}'
        print('\n'.join(map(fold, lines)))
    print('\n'.join(map(fold, on_track.describe(run))))
    unscored = '' if outcome.entry else f'; {split} has no scores yet, which run.py evaluate makes'
    print(f'{run.folder}: findings on {split}: {len(findings)}{unscored}')


def draw_attention(name: str, by_task: Mapping[str, TaskCommand], call: Call) -> None:
    """Draws the attention of a sentence."""
    values, (run, declared, verb) = call.flags, open_declared(name, by_task, call)
    if ',' in values.checkpoint:
        raise ConfigError(f'--checkpoint={values.checkpoint}: {name} shows one checkpoint, no ensemble')
    draw_focus = attention_figures().draw_focus
    trained, _ = restore.load_and_report(run, values.checkpoint)
    drawn = verb(trained, **{flag: values[flag].value for flag in declared.flags})
    # For one model, the same sentence and words give the same file name.
    focus = [f'{kind.name}: {kind.word}' for kind in drawn.kinds]
    digest = files.bytes_sha256(json.dumps([drawn.sentence, drawn.output, focus]).encode())[:8]
    slug = re.sub(r'\W+', '-', drawn.sentence.lower()).strip('-')[:50]
    write_figure(run.folder / 'figures' / f'{slug}-{digest}.png', draw_focus([drawn]))


def attention_figures():
    """Imports the module that draws attention."""
    with needing('a figure', 'figures'):
        from transformer.inference import attention_figures
    return attention_figures


def draw_after_training(path, draw: Callable) -> None:
    """Draws a figure that a task shows after training, or prints a line if matplotlib is missing."""
    try:
        attention_figures()
        write_figure(path, draw())
    except ConfigError as error:
        print(f'no {path.name}: {error}')


def write_figure(path, figure) -> None:
    """Writes a figure and prints its name."""
    path.parent.mkdir(exist_ok=True)
    files.write_figure(path, figure, dpi=120)
    print(path)
