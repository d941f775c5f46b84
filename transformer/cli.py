"""The command line: the flags, the commands, and what each prints."""

import json
import logging
import os
import sys
from collections.abc import Sequence

from absl import flags
from absl import logging as absl_logging

from transformer import arguments, console, options
from transformer import config as configs
from transformer.arguments import Call, Command, Flag
from transformer.config import Config
from transformer.options import ConfigError
from transformer.terminal import folded

USAGE = """\
Trains, evaluates and uses the Transformer of "Attention Is All You Need", and
models of its parts.

    {program} [COMMAND] [--config=FILE] [--config.GROUP.OPTION=VALUE ...]
        [--workdir=FOLDER] [--FLAG=VALUE ...]

Commands (the default is train; `{program} COMMAND --help` tells more):
{commands}

--config names a config file (default: {default}). Every option
of it can be changed, for example with --config.model.h=4; `{program}
config` shows them all with their sections of the paper.

Examples:
    {program}
    {program} --config.model.positions=none
    {program} --config=configs/multi30k.py --config.data.dir=FOLDER
    {program} evaluate --workdir=runs/multi30k
    echo "A dog runs." | {program} translate --workdir=runs/multi30k

Exit status: 0 done, 2 a mistake in the call or its data or a system error,
3 a loss or gradient is not finite, 130 and 143 stopped by Ctrl-C and SIGTERM
(what was trained is saved; the same command resumes).
"""

FLAGS = {
    'config': Flag(str, None, 'config file, or the config.json of a work directory', 'FILE'),
    'workdir': Flag(str, None, 'work directory (default: runs/<config and changes>)', 'FOLDER'),
    'init_from': Flag(
        str,
        None,
        'another work directory, whose parameters and tokenizer the training starts from',
        'FOLDER[:CHECKPOINT]',
    ),
    'checkpoint': Flag(
        str,
        'scored',
        'scored (what the training scored at its end: the average if it makes one, else the best), best '
        '(on dev), latest, average, or a step',
        'NAME',
    ),
    'split': Flag(str, 'test', 'split of the data; evaluate takes several, separated by commas', 'NAME'),
    'source': Flag(str, None, 'instead of a split: sentences to translate, one a line', 'FILE'),
    'reference': Flag(str, None, 'with --source: their translations, one a line', 'FILE'),
    'text': Flag(str, None, 'for a language model, instead of a split: documents, one a line', 'FILE'),
    'show': Flag(int, 5, 'how many of the sentences that differ most to print', 'N', least=0),
    'last': Flag(int, None, 'how many checkpoints (default: train.average_last)', 'N', least=1),
    'every': Flag(int, None, 'updates between two of them (default: train.average_every)', 'N', least=1),
    'nbest': Flag(int, 1, 'how many hypotheses to write for each line', 'N', least=1),
    'scores': Flag(bool, False, 'append a tab and the score'),
    'prompt': Flag(str, None, 'the text to continue (default: each line of standard input)', 'TEXT'),
    'samples': Flag(
        int, 1, 'with --config.decode.method=sample: texts for each line', 'N', least=1, most=10_000
    ),
    'seed': Flag(int, None, 'seed of the sampling (default: train.seed)', 'N', least=0, most=2**31 - 1),
    'diff': Flag(bool, False, "only what differs from the paper's base"),
    'markdown': Flag(bool, False, 'the table of all options in configs/README.md'),
    'hypotheses': Flag(str, None, 'translations, one a line', 'FILE'),
    'references': Flag(str, None, 'references, one a line', 'FILE'),
    'languages': Flag(str, 'en-de', 'translated from and into', 'A-B'),
    'tokenized': Flag(bool, False, 'both files are tokenized already'),
    'contrast': Flag(
        bool,
        False,
        'wrong texts follow the right one; tell how often it is likelier than all of them. A first line may '
        'name the columns: source, target (or text), contrast, kind',
    ),
    'kinds': Flag(bool, False, 'with --contrast and no such first line: the first column is the kind'),
    'pieces': Flag(bool, False, 'append log p of every piece'),
    'json': Flag(bool, False, 'print JSON'),
    'sentence': Flag(
        str, None, "the sentence (default: the paper's example; a sample of a language model)", 'TEXT'
    ),
    'word': Flag(
        str,
        None,
        'the word that attends (default: "it", or all words if the sentence has no "it"; the last word for '
        'a language model)',
        'WORD',
    ),
    'target_word': Flag(
        str, None, 'the word of the translation (default: a pronoun, else the last word)', 'WORD'
    ),
    'distributed': Flag(bool, False, 'this process is one of several, as on SLURM or a TPU pod'),
}


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
        choices = ' '.join(options.choices(field))
        shown = f'{key} = {value}'
        print(f'{shown:<40} # {section}{field.metadata["doc"]}{f" ({choices})" if choices else ""}')


def run_train(call: Call) -> int:
    """Trains, or resumes, then evaluates."""
    from transformer import commands
    from transformer.runs import process

    config = commands.local(arguments.config(call))
    folder = process.start(arguments.work_directory(call), distributed=call.flags.distributed)
    return train(config, folder, arguments.lock_file(call), call.flags.init_from)


def run_prepare(call: Call) -> None:
    """Makes the corpus that training reads, and says what it is."""
    from transformer import commands

    config = commands.local(arguments.config(call))
    for line in commands.run_preparation(config, arguments.lock_file(call)):
        print(line)


def run_config(call: Call) -> None:
    """Prints the resolved config, or the table of all options."""
    if call.flags.markdown:
        if call.flags.diff or call.flags.config is not None or call.changes:
            raise ConfigError('--markdown: lists every option with its default; give it alone')
        print(options.markdown(configs.OPTIONS), end='')
    else:
        print_config(arguments.config(call), diff=call.flags.diff)


def run_score(call: Call) -> None:
    """Prints the scores of two files."""
    from transformer.tasks.translation import bleu, commands

    values = call.flags
    files = (values.hypotheses, values.references, values.languages)
    scores = commands.run_scoring(*files, tokenized=values.tokenized)
    print(json.dumps(scores, indent=2) if values.json else '\n'.join(bleu.describe(scores)))


def run_evaluate(call: Call) -> None:
    """Evaluates a checkpoint and prints its scores."""
    from transformer import parallel, scoring
    from transformer.runs import workdir

    folder, choice, paths = opened(call), call.flags.checkpoint, given_files(call)
    if paths:
        found = [scoring.run_file_evaluation(folder, paths, choice, call.changes)]
    else:
        splits = list(dict.fromkeys(call.flags.split.split(',')))
        found = scoring.run_evaluation(folder, splits, choice, call.changes)
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
    from transformer import scoring
    from transformer.runs import process, restore

    sides = []
    for word in call.words:
        folder, choice = restore.parsed(word)
        sides.append(scoring.Side(process.start(folder, distributed=False), choice or 'scored'))
    what = given_files(call) or call.flags.split
    report, lines = scoring.run_comparison(tuple(sides), what, call.changes, call.flags.show)
    if call.flags.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        print('\n'.join(map(folded, lines)))


def run_average(call: Call) -> None:
    """Averages the last checkpoints."""
    from transformer.runs import ownership, restore, workdir

    folder = opened(call)
    # A mistake in the name of the folder makes none.
    workdir.read_config(folder)
    with ownership.owned(folder):
        steps = restore.average(folder, call.flags.last, call.flags.every)
    print(f'{folder}: average of the checkpoints {", ".join(map(str, steps))}')


def run_figure(call: Call) -> None:
    """Draws the attention of a sentence."""
    from transformer.runs import restore

    folder = opened(call)
    if ',' in call.flags.checkpoint:
        raise ConfigError(f'--checkpoint={call.flags.checkpoint}: figure shows one checkpoint, no ensemble')
    trained, _ = restore.load_and_tell(folder, call.flags.checkpoint)
    draw(folder, trained, [call.flags.sentence], call.flags.word, call.flags.target_word)


def opened(call: Call):
    """The work directory of a call, in a process that is set up to use it."""
    from transformer.runs import process

    distributed = 'distributed' in COMMANDS[call.command].flags and call.flags.distributed
    return process.start(arguments.work_directory(call), distributed=distributed)


def train(config: Config, folder, lock: str, init_from: str | None = None) -> int:
    """Trains, shows what came of it, and returns the exit status."""
    from transformer import commands, parallel
    from transformer.tasks.task import task_of
    from transformer.training import NonFiniteError, Stopped

    try:
        result, trained, prepared = commands.run_training(config, folder, lock, init_from=init_from)
    except NonFiniteError as error:
        print(f'error: {error}', file=sys.stderr)
        return 3
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return 128 + stopped.signal_number
    print_scores(config, result['scores'])
    if parallel.is_primary():
        for line in task_of(config).examples(trained, prepared):
            print(line)
        if sentences := task_of(config).pictured(prepared):
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


def run_diagnose(call: Call) -> None:
    """Prints what may be wrong with the BLEU of a split."""
    from transformer import commands, scoring
    from transformer.tasks.translation.commands import run_diagnosis

    folder, split = opened(call), call.flags.split
    commands.check_task(folder, 'translation')
    scoring.check_split(folder, split)
    prepared = scoring.data_of(folder, call.changes)
    found = run_diagnosis(folder, prepared, split, call.changes)
    for seen, matters, change in found:
        print(f'- {seen}\n  why it matters: {matters}\n  to change: {change}')
    print(f'{folder}: findings on {split}: {len(found)}')


def run_translate(call: Call) -> None:
    """Translates the lines of standard input."""
    write_texts(call, 'translation')


def run_generate(call: Call) -> None:
    """Continues the prompt, or each line of standard input; writes prompts with what follows."""
    write_texts(call, 'language', call.flags.prompt)


def write_texts(call: Call, task: str, text: str | None = None) -> None:
    """Writes what a model makes of a text, or of each line of standard input if it is none."""
    from transformer import commands, texts
    from transformer.runs import restore, workdir
    from transformer.tasks import generation

    values, folder = call.flags, opened(call)
    # Whatever can be refused is refused before the model is loaded.
    commands.check_task(folder, task)
    settings = restore.changed(workdir.read_config(folder), call.changes).decode
    generation.check_counts(settings, values.nbest, values.samples, values.seed)
    lines = texts.standard_input() if text is None else None
    output = texts.standard_output()
    writer = commands.load(folder, values.checkpoint, call.changes)
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
    from transformer import pairs, texts
    from transformer.runs import restore, workdir

    values, folder = call.flags, opened(call)
    # Whatever can be refused is refused before the model is loaded.
    config = restore.changed(workdir.read_config(folder), call.changes)
    pairs.columns(config, contrast=values.contrast, kinds=values.kinds)
    lines, output = texts.standard_input(), texts.standard_output()
    trained, _ = restore.load_and_tell(folder, values.checkpoint, call.changes)
    tally = pairs.write(
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
      name: of the picture; if none, one that no picture has.

    Raises:
      ConfigError: matplotlib is missing, or a sentence lacks the word.
    """
    from transformer.tasks.task import task_of

    try:
        from transformer import figures
    except ModuleNotFoundError as error:
        if error.name != 'matplotlib':
            raise
        raise ConfigError('figures need matplotlib: pip install matplotlib') from None
    views = task_of(trained.config).views
    rows = [views(trained, sentence, word, target_word) for sentence in sentences]
    shown = ', '.join(view.title.partition('\n')[0] for view in rows[0])
    path = figures.draw_attention(folder, rows, name or figures.free_name(folder, rows[0]))
    print(f'{path}: attention of {shown}')


PLACE = ('config', 'workdir')
MODEL = (*PLACE, 'checkpoint', 'distributed')
FILES = ('source', 'reference', 'text')
ENSEMBLE = (
    'Several checkpoints, separated by commas, are an ensemble, which uses the mean of their '
    'probabilities: --checkpoint=500,1000 or --checkpoint=best,FOLDER:best.'
)
COMMANDS = {
    'train': Command(
        'Train, or resume, then evaluate.',
        run_train,
        (*PLACE, 'init_from', 'distributed'),
        ('',),
        (
            '{}                                # the grammar: minutes on a CPU',
            '{} --config.model.positions=none  # the same, ablated',
            '{} --config=configs/multi30k.py --config.data.dir=FOLDER',
            '{} --config=configs/gpt_grammar.py  # a language model',
            '{} --config=FILE --init_from=runs/multi30k  # fine-tuning',
        ),
    ),
    'prepare': Command(
        'Make the corpus that train reads; download its TFDS dataset first.',
        run_prepare,
        ('config',),
        ('',),
        ('{} prepare --config=FILE --config.data.dir=FOLDER',),
    ),
    'evaluate': Command(
        'Loss, perplexity and the other scores of a trained model.',
        run_evaluate,
        (*MODEL, 'split', *FILES),
        ('decode.', 'data.dir', 'data.stride', 'train.accumulate'),
        (
            '{} evaluate --workdir=FOLDER --split=dev,test',
            '{} evaluate --workdir=FOLDER --source=FILE --reference=FILE',
            '{} evaluate --workdir=FOLDER --config.decode.beam=8',
        ),
        note=ENSEMBLE,
    ),
    'compare': Command(
        'Two models on the same texts: scores, their differences, and the sentences that differ most. '
        'A and B are work directories: FOLDER or FOLDER:CHECKPOINT.',
        run_compare,
        ('split', *FILES, 'show', 'json'),
        ('decode.', 'data.stride', 'train.accumulate'),
        (
            '{} compare FOLDER FOLDER --split=test',
            '{} compare FOLDER:best FOLDER:3000 --source=FILE --reference=FILE',
        ),
        ('A', 'B'),
    ),
    'average': Command(
        'Average the last checkpoints; then --checkpoint=average uses the mean.',
        run_average,
        (*PLACE, 'last', 'every', 'distributed'),
        (),
        ('{} average --workdir=FOLDER --last=5 --every=1500',),
    ),
    'translate': Command(
        'Translate standard input to standard output, line by line.',
        run_translate,
        (*MODEL, 'nbest', 'samples', 'seed', 'scores', 'json'),
        ('decode.',),
        (
            'echo "A dog runs." | {} translate --workdir=FOLDER',
            '{} translate --workdir=FOLDER --nbest=3 --scores < FILE',
        ),
        note=ENSEMBLE,
    ),
    'generate': Command(
        'Continue a text, or each line of standard input, with a language model.',
        run_generate,
        (*MODEL, 'prompt', 'samples', 'seed', 'nbest', 'scores', 'json'),
        ('decode.',),
        (
            '{} generate --workdir=FOLDER --prompt="Der Hund" --samples=5',
            '{} generate --workdir=FOLDER --config.decode.method=beam < FILE',
        ),
        note=ENSEMBLE,
    ),
    'score-pairs': Command(
        'Log p of given texts, a line each: source TAB target; with --contrast source TAB right TAB wrong '
        '(TAB wrong ...). For a language model the source is left out.',
        run_score_pairs,
        (*MODEL, 'pieces', 'contrast', 'kinds', 'json'),
        ('decode.max_source_len', 'decode.extra_len', 'data.stride'),
        (
            '{} score-pairs --workdir=FOLDER --pieces < FILE',
            '{} score-pairs --workdir=FOLDER --contrast --kinds < FILE',
        ),
        note=ENSEMBLE,
    ),
    'config': Command(
        "Print the resolved config, or what differs from the paper's base.",
        run_config,
        ('config', 'diff', 'markdown'),
        ('',),
        ('{} config --config=configs/big.py --diff',),
    ),
    'score': Command(
        'Scores of a file of translations against a file of references.',
        run_score,
        ('hypotheses', 'references', 'languages', 'tokenized', 'json'),
        (),
        ('{} score --hypotheses=FILE --references=FILE --languages=en-de',),
    ),
    'diagnose': Command(
        'Why a BLEU is low or cannot be compared.',
        run_diagnose,
        (*PLACE, 'split'),
        ('data.dir',),
        ('{} diagnose --workdir=FOLDER',),
    ),
    'figure': Command(
        'Draw the attention of a sentence.',
        run_figure,
        (*MODEL, 'sentence', 'word', 'target_word'),
        (),
        ('{} figure --workdir=FOLDER --sentence="The cat sees it."',),
    ),
}


def parse(argv: Sequence[str]) -> Call:
    """Reads a call.

    Raises:
      ConfigError: the call is wrong.
    """
    return arguments.parse(argv, COMMANDS, FLAGS)


def help_text(argv: Sequence[str]) -> str:
    """The help of the command that a call names, else of the program."""
    program = 'python run.py' if os.path.basename(argv[0]).endswith('.py') else 'transformer'
    named = [word for word in argv[1:] if word in COMMANDS]
    if named:
        return arguments.help_of(program, named[0], COMMANDS[named[0]], FLAGS)
    listed = arguments.summaries(COMMANDS)
    return USAGE.format(program=program, commands=listed, default=arguments.DEFAULT_CONFIG)


def run_program(argv: Sequence[str]) -> int:
    """Prints the help or runs one command; returns the exit status."""
    # The help does not depend on the rest of the call being right.
    if {'--help', '-h', 'help', '--helpfull', '--helpshort'} & set(argv[1:]):
        print(help_text(argv), end='')
        return 0
    call = parse(argv)
    return COMMANDS[call.command].run(call) or 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status. A user's mistake is one line on standard error.

    Args:
      argv: the program's name and its arguments; those of this process if none.
    """
    argv = sys.argv if argv is None else argv
    # Our flags are parsed apart from absl's own, which would warn that they are not parsed.
    flags.FLAGS.mark_as_parsed()
    flags.FLAGS.logtostderr = True
    absl_logging.use_absl_handler()
    absl_logging.get_absl_handler().setFormatter(logging.Formatter('%(message)s'))
    return console.exit_status(lambda: run_program(argv))
