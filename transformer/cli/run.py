"""What the commands of cli.py do with a call: they run it and print what comes of it."""

import json
import sys
from collections.abc import Sequence

from transformer import config as configs
from transformer.cli import flags
from transformer.cli.flags import Call
from transformer.cli.terminal import folded
from transformer.config import Config, ConfigError, declare


def opened(call: Call):
    """The work directory of a call, in a process that is set up to use it."""
    from transformer.runs import process

    return process.start(flags.work_directory(call), distributed=call.flags.distributed)


def run_train(call: Call) -> int:
    """Trains, or resumes, then evaluates."""
    from transformer.actions.load import local

    config = local(flags.config(call))
    return train(config, opened(call), flags.lock_file(call), call.flags.init_from)


def train(config: Config, folder, lock: str, init_from: str | None = None) -> int:
    """Trains, shows what came of it, and returns the exit status."""
    from transformer import parallel
    from transformer.actions.train import run_training
    from transformer.tasks.task import task_of
    from transformer.training.loop import NonFiniteError, Stopped

    try:
        result, trained, dataset = run_training(config, folder, lock, init_from=init_from)
    except NonFiniteError as error:
        print(f'error: {error}', file=sys.stderr)
        return 3
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return 128 + stopped.signal_number
    print_scores(config, result['scores'])
    if parallel.is_primary():
        for line in task_of(config).examples(trained, dataset):
            print(line)
        if sentences := task_of(config).pictured(dataset):
            draw_pictured(folder, trained, sentences)
        print(f'{folder} holds config, checkpoints, metrics, translations and result.json')
    return 0


def print_scores(config: Config, scores: dict[str, dict]) -> None:
    """Scores by split or file, in lines that begin with it."""
    from transformer import parallel
    from transformer.tasks.task import task_of

    if parallel.is_primary():
        for name, found in scores.items():
            for line in task_of(config).describe(found):
                print(f'{name}: {line}')


def run_prepare(call: Call) -> None:
    """Makes the corpus that training reads, and says what it is."""
    from transformer.actions.load import local
    from transformer.actions.train import run_preparation

    config = local(flags.config(call))
    for line in run_preparation(config, flags.lock_file(call)):
        print(line)


def run_evaluate(call: Call) -> None:
    """Evaluates a checkpoint and prints its scores."""
    from transformer import parallel
    from transformer.actions.evaluate import run_evaluation, run_file_evaluation
    from transformer.runs import workdir

    folder, choice, paths = opened(call), call.flags.checkpoint, given_files(call)
    if paths:
        found = [run_file_evaluation(folder, paths, choice, call.changes)]
    else:
        splits = list(dict.fromkeys(call.flags.split.split(',')))
        found = run_evaluation(folder, splits, choice, call.changes)
    of = next(iter(paths.values()), None)
    print_scores(workdir.read_config(folder), {of or one.entry['split']: one.entry for one in found})
    if parallel.is_primary():
        for one in found:
            print(f'saved in {folder} as {one.name}')


def given_files(call: Call) -> dict[str, str]:
    """The files that a call names instead of a split, by field; empty if none.

    Raises:
      ConfigError: there is a split as well, or a source without its reference.
    """
    named = {'source': call.flags.source, 'target': call.flags.reference, 'text': call.flags.text}
    paths = {field: path for field, path in named.items() if path is not None}
    if ('source' in paths) != ('target' in paths):
        missing, there = ('reference', 'source') if 'source' in paths else ('source', 'reference')
        raise ConfigError(f'--{missing}: missing; --{there} needs it')
    if paths and call.flags['split'].present:
        raise ConfigError(f'--split={call.flags.split}: not together with files')
    return paths


def run_compare(call: Call) -> None:
    """Compares two models."""
    from transformer.actions.compare import Side, run_comparison
    from transformer.runs import process, restore

    sides = []
    for word in call.words:
        folder, choice = restore.parsed(word)
        sides.append(Side(process.start(folder, distributed=False), choice or 'scored'))
    what = given_files(call) or call.flags.split
    report, lines = run_comparison(tuple(sides), what, call.changes, call.flags.show)
    if call.flags.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        print('\n'.join(map(folded, lines)))


def run_average(call: Call) -> None:
    """Averages the last checkpoints."""
    from transformer.runs import owner, restore, workdir

    folder = opened(call)
    # A mistake in the name of the folder makes none.
    workdir.read_config(folder)
    with owner.owned(folder):
        steps = restore.average(folder, call.flags.last, call.flags.every)
    print(f'{folder}: average of the checkpoints {", ".join(map(str, steps))}')


def run_translate(call: Call) -> None:
    """Translates the lines of standard input."""
    write_texts(call, 'translation')


def run_generate(call: Call) -> None:
    """Continues the prompt, or each line of standard input; writes prompts with what follows."""
    write_texts(call, 'language', call.flags.prompt)


def write_texts(call: Call, task: str, text: str | None = None) -> None:
    """Writes what a model makes of a text, or of each line of standard input if it is none."""
    from transformer.actions.load import check_task, load
    from transformer.cli import lines as texts
    from transformer.inference import generate
    from transformer.runs import restore, workdir

    values, folder = call.flags, opened(call)
    # Whatever can be refused is refused before the model is loaded.
    check_task(folder, task)
    settings = restore.changed(workdir.read_config(folder), call.changes).decode
    generate.check_counts(settings, values.nbest, values.samples, values.seed)
    lines = texts.standard_input() if text is None else None
    output = texts.standard_output()
    writer = load(folder, values.checkpoint, call.changes)
    texts.write(
        writer,
        [[text]] if lines is None else lines,
        output,
        scores=values.scores,
        as_json=values.json,
        numbered=lines is not None,
        separator='---' if writer.trained.config.data.documents == 'files' else None,
        progress=texts.Progress(lines.total if lines else 1, quiet=bool(lines) and sys.stdin.isatty()),
        comes=lines.wait if lines else lambda seconds: True,
        best=values.nbest,
        samples=values.samples,
        seed=values.seed,
    )


def run_score_pairs(call: Call) -> None:
    """Prints log p of given texts, and how often the right one is the likeliest."""
    from transformer.cli import lines as texts
    from transformer.cli import score_pairs
    from transformer.runs import restore, workdir

    values, folder = call.flags, opened(call)
    # Whatever can be refused is refused before the model is loaded.
    config = restore.changed(workdir.read_config(folder), call.changes)
    score_pairs.columns(config, contrast=values.contrast, kinds=values.kinds)
    lines, output = texts.standard_input(), texts.standard_output()
    trained, _ = restore.load_and_tell(folder, values.checkpoint, call.changes)
    tally = score_pairs.write(
        trained,
        lines,
        output,
        texts.Progress(lines.total, quiet=sys.stdin.isatty()),
        contrast=values.contrast,
        kinds=values.kinds,
        pieces=values.pieces,
        as_json=values.json,
    )
    if tally and values.json:
        print(json.dumps(tally.shares(), ensure_ascii=False))
    elif tally:
        # Beside the output, which has a line for every line of the input.
        print('\n'.join(tally.describe()), file=sys.stderr)


def run_config(call: Call) -> None:
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
        shown = f'{key} = {value}'
        print(f'{shown:<40} # {section}{field.metadata["doc"]}{f" ({choices})" if choices else ""}')


def run_score(call: Call) -> None:
    """Prints the scores of two files."""
    from transformer.tasks.translation import bleu
    from transformer.tasks.translation.commands import run_scoring

    values = call.flags
    files = (values.hypotheses, values.references, values.languages)
    scores = run_scoring(*files, tokenized=values.tokenized)
    print(json.dumps(scores, indent=2) if values.json else '\n'.join(bleu.describe(scores)))


def run_diagnose(call: Call) -> None:
    """Prints what may be wrong with the BLEU of a split."""
    from transformer.actions import data as corpora
    from transformer.actions.load import check_task
    from transformer.tasks.translation.commands import run_diagnosis

    folder, split = opened(call), call.flags.split
    check_task(folder, 'translation')
    corpora.check_split(folder, split)
    dataset = corpora.of_workdir(folder, call.changes)
    found = run_diagnosis(folder, dataset, split, call.changes)
    for seen, matters, change in found:
        print(f'- {seen}\n  why it matters: {matters}\n  to change: {change}')
    print(f'{folder}: findings on {split}: {len(found)}')


def run_figure(call: Call) -> None:
    """Draws the attention of a sentence."""
    from transformer.runs import restore

    folder = opened(call)
    if ',' in call.flags.checkpoint:
        raise ConfigError(f'--checkpoint={call.flags.checkpoint}: figure shows one checkpoint, no ensemble')
    trained, _ = restore.load_and_tell(folder, call.flags.checkpoint)
    draw(folder, trained, [call.flags.sentence], call.flags.word, call.flags.target_word)


def draw_pictured(folder, trained, sentences: Sequence[str]) -> None:
    """Draws what a task shows of its model after a training, always under the same name."""
    try:
        draw(folder, trained, sentences, name='attention')
    except ConfigError as error:
        # A model that has learned little may leave a word out; its training is done all the same.
        print(f'no picture of its attention: {error}')


def draw(
    folder,
    trained,
    sentences: Sequence[str | None],
    word: str | None = None,
    target_word: str | None = None,
    name: str | None = None,
) -> None:
    """Draws heat maps of the attention in sentences; None is the task's own choice.

    Args:
      name: of the picture; if None, one that no other picture has.

    Raises:
      ConfigError: matplotlib is missing, or a sentence lacks the word.
    """
    from transformer.tasks.task import task_of

    try:
        from transformer.inference import heat_maps
    except ModuleNotFoundError as error:
        if error.name != 'matplotlib':
            raise
        raise ConfigError('figures need matplotlib: pip install matplotlib') from None
    views = task_of(trained.config).views
    rows = [views(trained, sentence, word, target_word) for sentence in sentences]
    shown = ', '.join(view.title.partition('\n')[0] for view in rows[0])
    path = heat_maps.draw_attention(folder, rows, name or heat_maps.free_name(folder, rows[0]))
    print(f'{path}: attention of {shown}')
