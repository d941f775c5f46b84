"""Declares the commands of run.py, the flags and options that each takes, and their help."""

import functools
from collections.abc import Mapping

from transformer.cli import run
from transformer.cli.flags import Command, Flag
from transformer.config.extras import install
from transformer.tasks import commands, declared_commands, declared_tools

USAGE = """\
Trains, evaluates and uses the Transformer of "Attention Is All You Need", and
related models.

    {program} [COMMAND] [--config=FILE] [--config.GROUP.OPTION=VALUE ...]
        [--workdir=FOLDER] [--FLAG=VALUE ...]

--config names a config file, or one of the package's such as tiny (default:
the work directory's, or tiny). Each of its options can be changed, for
example with --config.model.h=4; `{program} config` lists them with their
sections of the paper. Without a command, it trains.

Examples:
    {program}
    {program} --config.model.positions=none
    {program} --config=configs/multi30k.py --config.data.dir=FOLDER
    {program} evaluate --workdir=runs/multi30k
    echo "A dog runs." | {program} translate --workdir=runs/multi30k

Exit status: 0 done, 2 a mistake in the call or its data or a system error,
3 a loss or gradient is not finite, 129, 130 and 143 stopped by SIGHUP, Ctrl-C
and SIGTERM (progress is saved; the same command resumes), 141 output closed.
"""

# The tasks' commands: verbs of a model, and tools without one.
OF_TASKS, TOOLS = declared_commands(), declared_tools()
DECLARED = [*(one for by_task in OF_TASKS.values() for one in by_task.values()), *TOOLS.values()]
FLAGS = {
    'config': Flag(str, None, "config file, Python or JSON (default: the work directory's, or tiny)", 'FILE'),
    'workdir': Flag(str, None, 'work directory (default: runs/<config and changes>)', 'FOLDER'),
    'init_from': Flag(
        str,
        [],
        'another work directory, whose parameters and tokenizer the training starts from; PLACE is the part '
        'of the model that they become; several can be given',
        '[PLACE=]FOLDER[:CHECKPOINT]',
        many=True,
    ),
    'no-evaluation': Flag(
        bool, False, 'end without the scores of dev and test, which evaluate computes later'
    ),
    'wandb': Flag(str, None, 'send metrics to this project of Weights & Biases', 'PROJECT'),
    'checkpoint': Flag(
        str,
        'scored',
        'scored (what the training scored: its average if it made one, else train.scored), best (on dev), '
        'latest, average, or a step',
        'NAME',
    ),
    'split': Flag(str, 'test', 'split of the data; for evaluate also several, separated by commas', 'NAME'),
    'source': Flag(str, None, 'instead of a split: sentences to translate, one per line', 'FILE'),
    'reference': Flag(str, None, 'translations of the lines of --source or --check, one per line', 'FILE'),
    'text': Flag(str, None, 'for a language model, instead of a split: documents, one per line', 'FILE'),
    'show': Flag(int, 5, 'print the N sentences that differ most', 'N', least=0),
    'last': Flag(int, None, 'number of checkpoints (default: train.average_last)', 'N', least=1),
    'every': Flag(int, None, 'updates between checkpoints (default: train.average_every)', 'N', least=1),
    'input': Flag(str, None, 'read lines from a file, not from standard input', 'FILE'),
    'output': Flag(str, None, 'write to a file, or make a folder, which appears when it is complete', 'PATH'),
    'format': Flag(
        str,
        None,
        'ctranslate2, huggingface, or for export also safetensors (default for import: as the files say)',
        'NAME',
    ),
    'engine': Flag(
        str,
        'jax',
        'which program searches; ctranslate2 is faster on CPUs, with a model that is exported into the work '
        'directory once. It ranks by the same scores, but can miss an output that jax finds',
        'NAME',
        choices=('jax', 'ctranslate2'),
    ),
    'quantization': Flag(
        str,
        None,
        'type of the kernels in CTranslate2: int8, int16 or float16 (default: they stay float32)',
        'TYPE',
    ),
    'mapping': Flag(
        str,
        None,
        'JSON that says which array of a PyTorch encoder-decoder is which parameter; PATH is then a file, '
        'safetensors or a state dict',
        'FILE',
    ),
    'check': Flag(
        str,
        None,
        "compare both programs' outputs (with the config's beam and alpha 0, or greedy continuations) and "
        'log p on the lines of a file',
        'FILE',
    ),
    'scores': Flag(bool, False, 'append a tab and the score'),
    'diff': Flag(bool, False, "only what differs from the paper's base"),
    'markdown': Flag(bool, False, 'the table of all options in configs/README.md'),
    'json': Flag(bool, False, 'print JSON'),
    'distributed': Flag(bool, False, 'this process is one of several, as on SLURM or a TPU pod'),
    **{name: flag for one in DECLARED for name, flag in one.flags.items()},
}
# How the answers of tasks' verbs are written, and with which flags.
WRITERS = {
    'hypotheses': (run.write_answers, ('scores', 'json')),
    'columns': (run.write_answers, ('json',)),
    'vectors': (run.write_answers, ()),
    'likelihoods': (run.write_likelihoods, ('json',)),
    'figure': (run.draw_attention, ()),
}
PLACE = ('config', 'workdir')
MODEL = (*PLACE, 'checkpoint')
FILES = ('source', 'reference', 'text')
# Options that `evaluate` can change.
RESCORED = (
    'decode.', 'data.dir', 'data.stride', 'train.accumulate', 'data.dev', 'data.test', 'data.source',
    'data.columns', 'data.pictures', 'data.unreadable',
)  # fmt: skip


def command_of(name: str, by_task: Mapping[str, commands.TaskCommand]) -> Command:
    """Makes the command of run.py that tasks declare, each for its own models."""
    declared, reads = next(iter(by_task.values())), {one.reads for one in by_task.values()}
    takes_files = 'files' in reads or any(one.of_files for one in by_task.values())
    files = ('input',) * ('lines' in reads) + ('output',) * (reads != {'none'})
    write, output = WRITERS[declared.writes]
    engine = ('engine', 'quantization') if any(one.engines for one in by_task.values()) else ()
    return Command(
        ' '.join(dict.fromkeys(one.summary for one in by_task.values())),
        functools.partial(write, name, by_task),
        (*MODEL, *declared.flags, *engine, *files, *output),
        tuple(dict.fromkeys(option for one in by_task.values() for option in one.options)),
        tuple(dict.fromkeys(example for one in by_task.values() for example in one.examples)),
        (('[FILE...]',) if 'lines' in reads else ('FILE...',)) if takes_files else (),
        ' '.join(dict.fromkeys(one.note for one in by_task.values() if one.note)),
        reads == {'lines'} and not takes_files,
        declared.flags,
    )


def tool_of(declared: commands.Tool) -> Command:
    """Makes the command of run.py that a task declares and that needs no model."""
    run_tool = functools.partial(run.run_tool, declared)
    return Command(
        declared.summary,
        run_tool,
        (*declared.flags,),
        examples=declared.examples,
        words=declared.words,
        own=declared.flags,
    )


COMMANDS = {
    'train': Command(
        'Train, or resume, then evaluate.',
        run.train,
        (*PLACE, 'init_from', 'no-evaluation', 'wandb', 'distributed'),
        ('',),
        (
            '{}                                # the grammar: minutes on a CPU',
            '{} --config.model.positions=none  # the same, ablated',
            '{} --config=configs/multi30k.py --config.data.dir=FOLDER',
            '{} --config=configs/gpt_grammar.py  # a language model',
            '{} --config=FILE --init_from=runs/multi30k  # fine-tuning',
            '{} --config=vit_pictures --no-evaluation  # train only',
        ),
    ),
    'prepare': Command(
        'Prepare the data that train reads; download its TFDS dataset first.',
        run.prepare,
        ('config',),
        ('',),
        ('{} prepare --config=FILE --config.data.dir=FOLDER',),
    ),
    'evaluate': Command(
        'Print the loss, perplexity and the other scores of a trained model.',
        run.evaluate,
        (*MODEL, 'split', *FILES, 'distributed'),
        RESCORED,
        (
            '{} evaluate --workdir=FOLDER --split=dev,test',
            '{} evaluate --workdir=FOLDER --config.data.test=FILE.tsv',
            '{} evaluate --workdir=FOLDER --source=FILE --reference=FILE',
            '{} evaluate --workdir=FOLDER --config.decode.beam=8',
        ),
        note=commands.ENSEMBLE,
    ),
    'compare': Command(
        'Compare two models on the same texts: print their scores, the differences, and the sentences that '
        'differ most. A and B are work directories: FOLDER or FOLDER:CHECKPOINT.',
        run.compare,
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
        run.average,
        (*PLACE, 'last', 'every', 'distributed'),
        (),
        ('{} average --workdir=FOLDER --last=5 --every=1500',),
    ),
    **{name: command_of(name, by_task) for name, by_task in OF_TASKS.items()},
    'import': Command(
        'Make a work directory of a model that another program trained: CTranslate2, or Marian, T5, BERT, '
        f'GPT-2, ViT or CLIP of Hugging Face ({install("export")}), or with --mapping a plain PyTorch '
        'encoder-decoder. PATH is its folder; --output is needed.',
        run.import_model,
        ('output', 'format', 'mapping'),
        ('',),
        (
            '{} import FOLDER --output=runs/imported',
            '{} import FOLDER --output=W --config.train.task=transliteration',
            '{} import model.safetensors --mapping=mapping.json --output=W',
        ),
        ('PATH',),
    ),
    'export': Command(
        "Write a trained model for CTranslate2, for Hugging Face's transformers, or as safetensors "
        f'({install("export")}). --format and --output are needed.',
        run.export_model,
        (*MODEL, 'output', 'format', 'quantization', 'check', 'reference'),
        (),
        (
            '{} export --workdir=FOLDER --format=ctranslate2 --output=FOLDER',
            '{} export --format=huggingface --output=FOLDER --check=FILE',
        ),
    ),
    'config': Command(
        "Print the resolved config, or what differs from the paper's base.",
        run.config,
        (*PLACE, 'diff', 'markdown'),
        ('',),
        ('{} config --config=configs/big.py --diff', '{} config --workdir=FOLDER --diff'),
    ),
    **{name: tool_of(declared) for name, declared in TOOLS.items()},
    'diagnose': Command(
        'Print what may be wrong with a training: too short, too little data, outputs that are empty or '
        'repaired; of translations, why a BLEU is low or not comparable.',
        run.diagnose,
        (*PLACE, 'split'),
        ('data.dir',),
        ('{} diagnose --workdir=FOLDER',),
    ),
}
