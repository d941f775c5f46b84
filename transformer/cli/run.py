"""The commands of run.py: each runs an action and prints its results."""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping

from transformer import config as configs
from transformer.cli import flags
from transformer.cli.flags import Call
from transformer.cli.terminal import fold
from transformer.config import Config, ConfigError, declare
from transformer.tasks.commands import Command


def join(call: Call):
    """The work directory of a call, in a process that is set up to use it."""
    from transformer.runs import process

    return process.start(flags.work_directory(call), distributed=call.flags.distributed)


def open_run(call: Call):
    """The work directory of a call, opened, in a process that is set up to use it."""
    from transformer.runs.workdir import Run

    return Run.open(join(call))


def train(call: Call) -> int:
    """Trains, or resumes, then evaluates; prints scores and examples, and returns the exit status."""
    from transformer import parallel
    from transformer.actions.data import with_absolute_folder
    from transformer.actions.train import run_training
    from transformer.tasks import task_of
    from transformer.training.loop import NonFiniteError, Stopped

    config = with_absolute_folder(flags.config(call))
    folder, lock_file = join(call), flags.lock_file(call)
    try:
        result, trained, dataset = run_training(config, folder, lock_file, init_from=call.flags.init_from)
    except NonFiniteError as error:
        print(f'error: {error}', file=sys.stderr)
        return 3
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return 128 + stopped.signal_number
    print_scores(config, result['scores'])
    if parallel.is_primary():
        if show := task_of(config).show:
            shown = show(trained, dataset)
            print('\n'.join(shown.lines))
            for name, draw in shown.figures.items():
                draw_after_training(folder / 'figures' / f'{name}.png', draw)
        print(f'{folder} holds config, checkpoints, metrics, translations and result.json')
    return 0


def print_scores(config: Config, scores: Mapping[str, Mapping]) -> None:
    """Prints the scores of each split or file below its name."""
    from transformer import parallel
    from transformer.tasks import task_of
    from transformer.tasks.contract import describe

    if parallel.is_primary():
        for name, entry in scores.items():
            print(f'{name} (checkpoint {entry["checkpoint"]})')
            for line in describe(task_of(config).measures, entry):
                print(f'  {line}')


def prepare(call: Call) -> None:
    """Makes the data that training reads, and prints what it is."""
    from transformer.actions import data

    config = data.with_absolute_folder(flags.config(call))
    print('\n'.join(data.prepare(config, flags.lock_file(call))))


def evaluate(call: Call) -> None:
    """Evaluates a checkpoint and prints its scores."""
    from transformer import parallel
    from transformer.actions import evaluate as action

    paths = named_files(call)
    run, choice = open_run(call), call.flags.checkpoint
    if paths:
        evaluations = [action.evaluate_files(run, paths, choice, call.changes)]
    else:
        splits = list(dict.fromkeys(call.flags.split.split(',')))
        evaluations = action.evaluate(run, splits, choice, call.changes)
    file = next(iter(paths.values()), None)
    print_scores(run.config, {file or one.entry['split']: one.entry for one in evaluations})
    if parallel.is_primary():
        for one in evaluations:
            print(f'saved in {run.folder} as {one.name}')


def named_files(call: Call) -> dict[str, str]:
    """The files that a call names instead of a split, by field; empty if none."""
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
    from transformer.actions import compare as action
    from transformer.runs import process, restore
    from transformer.runs.workdir import Run

    sides, what = [], named_files(call) or call.flags.split
    for word in call.words:
        folder, choice = restore.parse_checkpoint(word)
        run = Run.open(process.start(folder, distributed=False))
        sides.append(action.Side(run, choice or 'scored'))
    report, lines = action.compare(tuple(sides), what, call.changes, call.flags.show)
    if call.flags.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        print('\n'.join(map(fold, lines)))


def average(call: Call) -> None:
    """Averages the last checkpoints."""
    from transformer.runs import owner, restore

    run = open_run(call)
    with owner.hold(run.folder):
        steps = restore.average(run, call.flags.last, call.flags.every)
    print(f'{run.folder}: average of the checkpoints {", ".join(map(str, steps))}')


def write_answers(name: str, declared: Command) -> Callable[[Call], None]:
    """A command that writes what a verb answers to each line of standard input, or to each file named."""

    def command(call: Call) -> None:
        from transformer.cli import lines as texts
        from transformer.runs import restore
        from transformer.runs.restore import Trained
        from transformer.tasks import verb_of

        values, run = call.flags, open_run(call)
        verb_of(run.config, name)
        verb = verb_of(run.config, declared.verb or name)
        options = {
            flag.argument or key: values[key].value
            for key, flag in declared.flags.items()
            if key != declared.text
        }
        # What can be refused is refused before the model is loaded.
        verb(Trained(restore.changed(run.config, call.changes), None, run.codec), [], **options)
        only = values[declared.text].value if declared.text else None
        given = list(call.words) if declared.reads == 'files' else [only] if only is not None else None
        lines = texts.standard_input() if given is None else None
        output = texts.standard_output()
        trained, _ = restore.load_and_report(run, values.checkpoint, call.changes)
        total = lines.total if lines else len(given)
        texts.write(
            lambda chunk, **more: verb(trained, chunk, **options, **more),
            lines or [given],
            output,
            scores=declared.writes == 'hypotheses' and values.scores,
            as_json=declared.writes == 'vectors' or values.json,
            names=given if declared.reads == 'files' else None,
            numbered=lines is not None,
            separator='---' if run.config.data.documents == 'files' else None,
            progress=texts.Progress(total, quiet=bool(lines) and sys.stdin.isatty()),
            arrives=lines.wait if lines else lambda seconds: True,
        )

    return command


def score_pairs(call: Call) -> None:
    """Prints log p of given texts, and how often the right one is the likeliest."""
    from transformer.cli import lines as texts
    from transformer.cli import score_pairs
    from transformer.runs import restore
    from transformer.tasks import verb_of

    values, run = call.flags, open_run(call)
    # Whatever can be refused is refused before the model is loaded.
    verb_of(run.config, 'likelihoods')
    restore.changed(run.config, call.changes)
    lines, output = texts.standard_input(), texts.standard_output()
    trained, _ = restore.load_and_report(run, values.checkpoint, call.changes)
    tally = score_pairs.write(
        trained,
        lines,
        output,
        texts.Progress(lines.total, quiet=sys.stdin.isatty()),
        contrast=values.contrast,
        pieces=values.pieces,
        as_json=values.json,
    )
    if tally and values.json:
        print(json.dumps(tally.shares(), ensure_ascii=False))
    elif tally:
        # Beside the output, which has a line for every line of the input.
        print('\n'.join(tally.describe()), file=sys.stderr)


def config(call: Call) -> None:
    """Prints the resolved config, or the table of all options."""
    if call.flags.markdown:
        if call.flags.diff or call.flags.config is not None or call.changes:
            raise ConfigError('--markdown: lists every option with its default; give it alone')
        print(declare.markdown(configs.OPTIONS), end='')
    else:
        print_config(flags.config(call), diff=call.flags.diff)


def print_config(config: Config, *, diff: bool) -> None:
    """Every option, or what differs from the paper's base as "name = ours  # base: its"."""
    base = configs.resolve(configs.config_dict())
    if diff:
        for key, (paper, ours) in configs.differences(base, config).items():
            print(f'{key} = {ours}  # base: {paper}')
        return
    for key, value in configs.flatten(config).items():
        field = configs.OPTIONS[key]
        section = f'{field.metadata["section"]}: ' if field.metadata['section'] else ''
        choices = ' '.join(declare.choices(field))
        option = f'{key} = {value}'
        print(f'{option:<40} # {section}{field.metadata["doc"]}{f" ({choices})" if choices else ""}')


def score(call: Call) -> None:
    """Prints the scores of two files."""
    from transformer.actions.score_files import score_files
    from transformer.tasks.translation import bleu

    values = call.flags
    files = (values.hypotheses, values.references, values.languages)
    scores = score_files(*files, tokenized=values.tokenized)
    print(json.dumps(scores, indent=2) if values.json else '\n'.join(bleu.describe(scores)))


def diagnose(call: Call) -> None:
    """Prints what may be wrong with the scores of a split: the training's own, else the last evaluation's."""
    from transformer.actions import data as run_data
    from transformer.runs import restore, workdir
    from transformer.runs.restore import Trained
    from transformer.tasks import verb_of

    run, split = open_run(call), call.flags.split
    verb = verb_of(run.config, 'diagnose')
    run_data.check_split(run, split)
    result = run.result()
    named = [(n, entry) for n, entry in result.get('evaluations', {}).items() if entry.get('split') == split]
    if own := result.get('scores', {}).get(split):
        named.append((f'{split}.{own["checkpoint"]}', own))
    if not named:
        raise ConfigError(f'--split={split}: {run.folder} has no scores of it; run evaluate first')
    name, entry = named[-1]
    trained = Trained(restore.changed(run.config, call.changes), None, run.codec)
    dataset = run_data.of_run(run, call.changes)
    findings = verb(trained, dataset, split, entry, workdir.read_lines(run.folder, name))
    for seen, matters, change in findings:
        print(f'- {seen}\n  why it matters: {matters}\n  to change: {change}')
    print(f'{run.folder}: findings on {split}: {len(findings)}')


def figure(call: Call) -> None:
    """Draws the attention of a sentence."""
    from transformer.runs import restore
    from transformer.tasks import verb_of

    run, values = open_run(call), call.flags
    if ',' in values.checkpoint:
        raise ConfigError(f'--checkpoint={values.checkpoint}: figure shows one checkpoint, no ensemble')
    attention = verb_of(run.config, 'attention')
    draw_focus = attention_figures().draw_focus
    trained, _ = restore.load_and_report(run, values.checkpoint)
    words = {name: values[name].value for name in ('word', 'target_word') if values[name].present}
    seen = attention(trained, values.sentence, **words)
    # The same sentence and words of the same model give the same file.
    focus = [f'{kind.name}: {kind.word}' for kind in seen.kinds]
    digest = hashlib.sha256(json.dumps([seen.sentence, seen.output, focus]).encode()).hexdigest()[:8]
    slug = re.sub(r'\W+', '-', seen.sentence.lower()).strip('-')[:50]
    write_figure(run.folder / 'figures' / f'{slug}-{digest}.png', draw_focus([seen]))


def attention_figures():
    """The module that draws attention."""
    try:
        from transformer.inference import attention_figures
    except ModuleNotFoundError as error:
        if error.name != 'matplotlib':
            raise
        raise ConfigError('figures need matplotlib: pip install matplotlib') from None
    return attention_figures


def draw_after_training(path, draw: Callable) -> None:
    """Draws what a task shows of its model; where that fails, the training is done all the same."""
    try:
        attention_figures()
        write_figure(path, draw())
    except ConfigError as error:
        print(f'no {path.name}: {error}')


def write_figure(path, figure) -> None:
    """Writes a figure and prints its name."""
    from transformer import files

    path.parent.mkdir(exist_ok=True)
    files.write_figure(path, figure, dpi=120)
    print(path)
