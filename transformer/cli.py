"""The command line: flags, and which command does what."""

import importlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Sequence

from absl import flags
from absl import logging as absl_logging
from ml_collections import config_flags

from transformer import config as configs
from transformer import console, options
from transformer.config import Config
from transformer.options import ConfigError

USAGE = """\
Trains, evaluates and uses the Transformer of "Attention Is All You Need", and models of its parts.

    python run.py [COMMAND] [--config=FILE] [--config.GROUP.OPTION=VALUE ...] [--workdir=FOLDER]

Commands:
    train       train, or resume, then evaluate (the default command; configs/tiny.py by default)
    prepare     make the corpus that train reads; download its TFDS dataset first
    evaluate    loss, perplexity and the other scores of a trained model: --split, --checkpoint
    average     average the last checkpoints: --last, --every; then --checkpoint=average
    translate   standard input to standard output, line by line: --nbest, --scores, --checkpoint
    generate    continue a text, or each line of standard input: --prompt, --samples, --seed
    config      print the resolved config; with --diff only what differs from the paper's base
    score       scores of two files: --hypotheses, --references, --languages, --tokenized, --json
    diagnose    why a BLEU is low or cannot be compared: --split
    figure      draw the attention of a sentence: --sentence, --word, --target_word

Flags:
{flags}

Every option of a config can be set, as --config.model.h=4 or --config.train.steps=1000;
`python run.py config` shows them all with their sections of the paper.

Examples:
    python run.py                                            # the grammar: a few minutes on a CPU
    python run.py --config.model.positions=none              # the same, ablated
    python run.py --config=configs/multi30k.py --config.data.dir=FOLDER
    python run.py evaluate --workdir=runs/multi30k --config.decode.beam=8
    echo "A dog runs." | python run.py translate --workdir=runs/multi30k
    python run.py --config=configs/gpt_grammar.py            # a language model of German
    python run.py generate --workdir=runs/gpt_grammar --prompt="Der Hund" --samples=5 --seed=7

Exit status: 0 done, 2 a mistake in the call or its data, 3 the loss is not finite,
130 and 143 stopped by Ctrl-C and SIGTERM (what was trained is saved; the same command resumes).
"""
DEFAULT_CONFIG = 'configs/tiny.py'
COMMANDS = (
    'train', 'prepare', 'evaluate', 'average', 'translate', 'generate', 'config', 'score', 'diagnose',
    'figure',
)  # fmt: skip


def define_flags(argv: Sequence[str]) -> flags.FlagValues:
    """The flags of one call."""
    values = flags.FlagValues()
    own = {'flag_values': values}
    config_flags.DEFINE_config_file(
        'config', DEFAULT_CONFIG, 'file of the config', sys_argv=list(argv), **own
    )
    flags.DEFINE_string('workdir', None, 'work directory; runs/<config and overrides> if none', **own)
    flags.DEFINE_string('checkpoint', 'best', 'best (by dev loss), latest, average or a step', **own)
    flags.DEFINE_string('split', 'test', 'evaluate: splits, comma-separated, as dev,test', **own)
    flags.DEFINE_integer('last', None, 'average: how many; the config says if none', lower_bound=1, **own)
    flags.DEFINE_integer('every', None, 'average: updates between two of them', lower_bound=1, **own)
    flags.DEFINE_integer('nbest', 1, 'translate, generate: hypotheses of each line', lower_bound=1, **own)
    flags.DEFINE_boolean('scores', False, 'translate, generate: append a tab and the score', **own)
    flags.DEFINE_string('prompt', None, 'generate: the text to continue; standard input if none', **own)
    flags.DEFINE_integer(
        'samples', 1, 'generate: texts for each prompt', lower_bound=1, upper_bound=10_000, **own
    )
    flags.DEFINE_integer(
        'seed',
        None,
        'generate: of the sampling; train.seed if none',
        lower_bound=0,
        upper_bound=2**31 - 1,
        **own,
    )
    flags.DEFINE_boolean('diff', False, "config: only what differs from the paper's base", **own)
    flags.DEFINE_boolean('markdown', False, 'config: all options as the table of configs/README.md', **own)
    flags.DEFINE_string('hypotheses', None, 'score: file of translations, one a line', **own)
    flags.DEFINE_string('references', None, 'score: file of references, one a line', **own)
    flags.DEFINE_string('languages', 'en-de', 'score: translated from and into', **own)
    flags.DEFINE_boolean('tokenized', False, 'score: both files are tokenized already', **own)
    flags.DEFINE_boolean('json', False, 'score, translate, generate: print JSON', **own)
    flags.DEFINE_string('sentence', None, "figure: the paper's own, or a sample, if none", **own)
    flags.DEFINE_string(
        'word', None, 'figure: the word that attends; if none, "it", or the last of a language model', **own
    )
    flags.DEFINE_string('target_word', None, 'figure: the target word; a pronoun if none', **own)
    flags.DEFINE_boolean('distributed', False, 'one of several processes, as on SLURM or a pod', **own)
    flags.DEFINE_boolean('help', False, 'this text', short_name='h', **own)
    return values


def check_overrides(argv: Sequence[str]) -> None:
    """Raises ConfigError where an override names no option or no value of it."""
    for here, following in zip(argv, [*argv[1:], ''], strict=True):
        if match := re.fullmatch(r'--?config\.([^=]+)(?:=(.*))?', here, re.DOTALL):
            key, value = match.groups()
            options.parse_value(configs.OPTIONS, key, following if value is None else value)


def parse(argv: Sequence[str]) -> tuple[str, flags.FlagValues]:
    """The command and the flags.

    Raises:
      ConfigError: the call is wrong.
    """
    check_overrides(argv)
    following = zip(argv, [*argv[1:], ''], strict=True)
    pairs = [(here, after) for here, after in following if re.match(r'--?config(=|$)', here)]
    named = [here.partition('=')[2] if '=' in here else after for here, after in pairs]
    file = named[-1] if named else DEFAULT_CONFIG
    if not os.path.isfile(file):
        raise ConfigError(f'--config={file}: no such file')
    values = define_flags(argv)
    try:
        words = values(list(argv))[1:]
    except flags.Error as error:
        told = str(error).strip().splitlines()
        if 'parsing config file' in told[0]:
            # The traceback follows; its last line says what.
            raise ConfigError(f'{file}: {told[-1].removeprefix(f"{ConfigError.__module__}.")}') from None
        raise ConfigError(told[0]) from None
    except Exception as error:
        # A config file is a program: whatever it raises is told as its own mistake.
        raise ConfigError(f'{file}: {type(error).__name__}: {error}') from error
    command = words[0] if words else 'train'
    if command not in COMMANDS or len(words) > 1:
        wrong = command if command not in COMMANDS else words[1]
        raise ConfigError(f'{wrong!r}: no such command; choose one of {", ".join(COMMANDS)}')
    return command, values


def overrides(values: flags.FlagValues) -> dict[str, object]:
    """What the command line changes in the config file."""
    return config_flags.get_override_values(values['config'])


def work_directory(values: flags.FlagValues) -> str:
    """The work directory named, or one made of the names of config file and overrides."""
    if values.workdir is not None:
        return values.workdir
    path = config_flags.get_config_filename(values['config'])
    name = os.path.splitext(os.path.basename(path))[0]
    for key, value in sorted(overrides(values).items()):
        if not configs.OPTIONS[key].metadata['free']:
            name += '-' + re.sub(r'[^\w.=+-]', '_', f'{key.split(".")[1]}={value}')
    return os.path.join('runs', name)


def lock_file(values: flags.FlagValues) -> str:
    """Where a lock file beside the config file would say what its data must be."""
    return os.path.splitext(config_flags.get_config_filename(values['config']))[0] + '.lock.json'


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


def run_command(command: str, values: flags.FlagValues) -> int:
    """Does what the command says and returns the exit status."""
    if command == 'config':
        if values.markdown:
            print(options.markdown(configs.OPTIONS), end='')
        else:
            print_config(configs.resolve(values.config), diff=values.diff)
        return 0
    if command == 'score':
        return score(values)
    # Here, so that the help and mistakes in a call do not wait for jax.
    from transformer import commands
    from transformer.runs import process, restore, workdir

    if command in ('train', 'prepare'):
        # The other commands have the config of their work directory.
        config = configs.resolve(values.config)
        if command == 'prepare':
            for line in commands.run_preparation(config, lock_file(values)):
                print(line)
            return 0
        folder = process.start(work_directory(values), distributed=values.distributed)
        return train(config, folder, lock_file(values))
    if command in ('average', 'figure') and (changed := overrides(values)):
        raise ConfigError(f'--config.{next(iter(changed))}: {command} has the config of its work directory')
    folder = process.start(work_directory(values), distributed=values.distributed)
    if command == 'evaluate':
        splits = values.split.split(',')
        result = commands.run_evaluation(folder, splits, values.checkpoint, overrides(values))
        print_scores(workdir.read_config(folder), result, splits)
    elif command == 'average':
        steps = restore.average(folder, values.last, values.every)
        print(f'{folder}: average of the checkpoints {", ".join(map(str, steps))}')
    elif command == 'diagnose':
        diagnose(folder, values)
    elif command == 'translate':
        translate(folder, values)
    elif command == 'generate':
        generate(folder, values)
    else:
        trained, _ = restore.load(folder, values.checkpoint)
        draw(folder, trained, [values.sentence], values.word, values.target_word)
    return 0


def score(values: flags.FlagValues) -> int:
    """Prints the scores of two files."""
    from transformer.tasks.translation import bleu, commands

    files = (values.hypotheses, values.references, values.languages)
    scores = commands.run_scoring(*files, tokenized=values.tokenized)
    print(json.dumps(scores, indent=2) if values.json else '\n'.join(bleu.describe(scores)))
    return 0


def train(config: Config, folder, lock: str) -> int:
    """Trains, shows what came of it, and returns the exit status."""
    from transformer import commands, parallel
    from transformer.tasks.task import task_of
    from transformer.training import NonFiniteError, Stopped

    try:
        result, trained, prepared = commands.run_training(config, folder, lock)
    except NonFiniteError as error:
        print(f'error: {error}', file=sys.stderr)
        return 3
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return 128 + stopped.signal_number
    print_scores(config, result, result['scores'])
    if parallel.is_primary():
        for line in task_of(config).examples(trained, prepared):
            print(line)
        if 'pronoun' in prepared.splits:
            draw_pronouns(folder, trained)
        print(f'{folder} holds config, checkpoints, metrics, translations and result.json')
    return 0


def print_scores(config: Config, result: dict, splits: Iterable[str]) -> None:
    """The scores of splits, in lines that begin with their split."""
    from transformer import parallel
    from transformer.tasks.task import task_of

    if parallel.is_primary():
        for split in splits:
            for line in task_of(config).describe(result['scores'][split]):
                print(f'{split}: {line}')


def diagnose(folder, values: flags.FlagValues) -> None:
    """Prints what may be wrong with the BLEU of a split."""
    from transformer import commands
    from transformer.runs import restore, workdir
    from transformer.tasks.translation.commands import run_diagnosis

    commands.check_task(folder, 'translation')
    prepared = commands.prepare(restore.changed(workdir.read_config(folder), overrides(values)))
    found = run_diagnosis(folder, prepared, values.split, overrides(values))
    for seen, matters, change in found:
        print(f'- {seen}\n  why it matters: {matters}\n  to change: {change}')
    print(f'{folder}: findings on {values.split}: {len(found)}')


def translate(folder, values: flags.FlagValues) -> None:
    """Translates the lines of standard input."""
    from transformer import commands

    writer = commands.load(folder, values.checkpoint, overrides(values), 'translation')
    shown = {'scores': values.scores, 'as_json': values.json}
    commands.write_texts(
        writer, commands.chunks(sys.stdin.buffer), sys.stdout.buffer, best=values.nbest, **shown
    )


def generate(folder, values: flags.FlagValues) -> None:
    """Continues the prompt, or each line of standard input; writes prompts with what follows."""
    from transformer import commands

    writer = commands.load(folder, values.checkpoint, overrides(values), 'language')
    one = values.prompt is not None
    commands.write_texts(
        writer,
        [[values.prompt]] if one else commands.chunks(sys.stdin.buffer),
        sys.stdout.buffer,
        scores=values.scores,
        as_json=values.json,
        numbered=not one,
        separator='---' if writer.trained.config.data.documents == 'files' else None,
        best=values.nbest,
        samples=values.samples,
        seed=values.seed,
    )


def draw_pronouns(folder, trained) -> None:
    """The attention of the grammar's model where the paper looks at it."""
    from transformer.tasks.translation.task import ANIMAL

    try:
        draw(folder, trained, [ANIMAL.format('tired'), ANIMAL.format('wide')])
    except ConfigError as error:
        # A model that has learned little may leave the word out; its training is done all the same.
        print(f'no picture of its attention: {error}')


def draw(folder, trained, sentences, word: str | None = None, target_word: str | None = None) -> None:
    """Draws heat maps of the attention in sentences; None is the task's own choice.

    Raises:
      ConfigError: matplotlib is missing, or a sentence lacks the word.
    """
    from transformer.tasks.task import task_of

    try:
        figures = importlib.import_module('experiments.figures')
    except ModuleNotFoundError as error:
        if error.name != 'matplotlib':
            raise
        raise ConfigError("figures need matplotlib: pip install '.[figures]'") from None
    views = task_of(trained.config).views
    rows = [views(trained, sentence, word, target_word) for sentence in sentences]
    shown = ', '.join(view.title.partition('\n')[0] for view in rows[0])
    print(f'{figures.draw_attention(folder, rows)}: attention of {shown}')


def flag_help() -> str:
    """The flags except the options of the config, a line each."""
    values = define_flags(['run.py'])
    return '\n'.join(
        f'    --{name:<12} {values[name].help} (default: {values[name].default_as_str or "none"})'
        for name in values
        if not name.startswith('config.')
    )


def run_program(argv: Sequence[str]) -> int:
    """Prints the help or runs one command; returns the exit status."""
    # The help does not depend on the rest of the call being right.
    if {'--help', '-h', 'help', '--helpfull', '--helpshort'} & set(argv[1:]):
        print(USAGE.format(flags=flag_help()), end='')
        return 0
    return run_command(*parse(argv))


def main(argv: Sequence[str]) -> int:
    """Runs one command; returns the exit status. A user's mistake is one line on standard error."""
    # Our flags are parsed apart from absl's own, which would warn that they are not parsed.
    flags.FLAGS.mark_as_parsed()
    flags.FLAGS.logtostderr = True
    absl_logging.use_absl_handler()
    absl_logging.get_absl_handler().setFormatter(logging.Formatter('%(message)s'))
    return console.exit_status(lambda: run_program(argv))
