"""The README files: links, command lines, options and examples agree with the code."""

import dataclasses
import re
import shlex
import urllib.parse
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calls import parse
from test_imports import ONLY, ORDER

from experiments import benchmark, report, sweep
from experiments.claims import CLAIMS
from experiments.claims import __main__ as claims
from experiments.complexity import __main__ as complexity
from experiments.evidence import __main__ as evidence
from experiments.figures import __main__ as figures
from transformer import config as configs
from transformer.cli import flags, main
from transformer.cli.commands import FLAGS
from transformer.config import FORMS, TASKS, config_dict, declare, resolve
from transformer.config.files import read_config_file
from transformer.config.tasks import Form
from transformer.data import fields, spellings, text_pairs
from transformer.data.sources import reader
from transformer.nn import models
from transformer.nn.decoders import LanguageModel
from transformer.tasks import task_of
from transformer.tasks.contract import Task
from transformer.tasks.translation import task as translation
from transformer.tokens import UNK, Tokens
from transformer.training import dropout_keys

ROOT = Path(__file__).parents[2]
FOLDERS = ('.', 'transformer', 'transformer/interop', 'configs', 'experiments', 'experiments/results')
PAGES = [str(Path(folder, 'README.md')) for folder in FOLDERS] + [
    'CONTRIBUTING.md',
    'experiments/results/paper.md',
    'experiments/results/performance.md',
    'experiments/results/scales.md',
]
PROGRAMS = {
    'sweep': sweep,
    'report': report,
    'benchmark': benchmark,
    'complexity': complexity,
    'claims': claims,
    'evidence': evidence,
    'figures': figures,
}
# What stands for a config of the reader's own, and one that is there.
OWN = {'--config=FILE': '--config=configs/base.py', '--config=configs/stars.py': '--config=configs/trec.py'}
ANY_OPTION = '--config.GROUP.OPTION=VALUE'


def text(page: str) -> str:
    return (ROOT / page).read_text()


def without_code(page: str) -> str:
    """Returns a page without its blocks of code, fenced or indented."""
    prose = re.sub(r'^```.*?^```$', '', text(page), flags=re.DOTALL | re.MULTILINE)
    return '\n'.join(line for line in prose.split('\n') if not line.startswith('    '))


def code(page: str) -> list[str]:
    """Lists the lines of all blocks of code, and every piece of code within a line."""
    fenced = re.findall(r'^```\w*\n(.*?)^```$', text(page), re.DOTALL | re.MULTILINE)
    indented = [line for line in text(page).split('\n') if line.startswith('    ')]
    inline = re.findall(r'`([^`\n]+)`', without_code(page))
    return [line.strip() for line in [*''.join(fenced).split('\n'), *indented, *inline]]


def anchors(page: str) -> set[str]:
    """Makes the anchors of a page's headings, as GitHub does."""
    headings = re.findall(r'^#+ (.*)$', without_code(page), re.MULTILINE)
    plain = [re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-') for heading in headings]
    return {name if plain[:i].count(name) == 0 else f'{name}-{plain[:i].count(name)}' for i, name in
            enumerate(plain)}  # fmt: skip


@pytest.mark.parametrize('page', PAGES)
def test_code_within_a_line_ends_in_it(page):
    """Else the other tests would take what is between two pieces of code for code."""
    assert [line for line in without_code(page).split('\n') if line.count('`') % 2] == []


@pytest.mark.parametrize('page', PAGES)
def test_links_lead_somewhere(page):
    links = re.findall(r'\]\(([^)\s]+)\)', without_code(page))
    for link in links:
        address = urllib.parse.urlparse(link)
        if address.scheme:
            assert address.scheme == 'https', link
            continue
        target = (ROOT / page).parent / address.path if address.path else ROOT / page
        assert target.exists(), f'{page}: {link}'
        if address.fragment:
            assert target.suffix == '.md', f'{page}: {link}'
            inside = str(target.resolve().relative_to(ROOT.resolve()))
            assert address.fragment in anchors(inside), f'{page}: {link}'


def test_each_statement_of_the_paper_has_code_and_a_check():
    page = 'experiments/results/paper.md'
    rows = [line.split(' | ') for line in text(page).split('\n') if re.match(r'\| (?!statement|---)', line)]
    assert len(rows) >= 60
    for _, code, check, result in rows:
        assert code.startswith('[`') and check.startswith('[') and result.removesuffix(' |')
        name, path = re.fullmatch(r'\[(.*)\]\((.*)\)', check).groups()
        if name.startswith('test_'):
            assert f'def {name}(' in (ROOT / page).parent.joinpath(path).read_text(), name


def test_there_are_no_other_pages():
    folders = [ROOT, *(ROOT / name for name in ('transformer', 'configs', 'experiments', 'tests'))]
    found = {path for folder in folders for path in folder.glob('*.md' if folder == ROOT else '**/*.md')}
    results = ROOT / 'experiments' / 'results'
    tables = {*results.glob('*/table.md'), results / 'claims' / 'claims.md'}
    assert found == {ROOT / page for page in PAGES} | tables


@pytest.mark.parametrize('page', PAGES)
def test_files_that_are_named_exist(page):
    folders = (ROOT, (ROOT / page).parent)
    ours = [
        path
        for name in ('transformer', 'configs', 'experiments', 'tests')
        for path in (ROOT / name).rglob('*')
    ]
    anywhere = {path.name for path in ours} | {path.name for path in ROOT.iterdir()}
    for name in code(page):
        # Examples name files that are to be written.
        written = re.search(r'holes|bigram|stars|^heads\.py$', name)
        if re.fullmatch(r'[\w./-]+\.(py|ipynb|html|toml|png)', name) and not written:
            found = any((folder / name).exists() for folder in folders) if '/' in name else name in anywhere
            assert found, f'{page}: {name}'


def test_one_page_leads_to_the_others():
    for page in PAGES[1:]:
        assert f']({page})' in text('README.md')


def words_of(line: str) -> list[str]:
    """Returns the words of a command line before a pipe, a redirection or a comment."""
    words = shlex.split(line, comments=True)
    ends = [i for i, word in enumerate(words) if word in ('|', '<', '>')]
    return words[: ends[0]] if ends else words


def calls(page: str, program: str) -> list[list[str]]:
    """Lists the arguments of every call of a program, anywhere in a line."""
    pattern = rf'(?:^|\| ?|python (?:-m )?){re.escape(program)}(?= |$)(.*)'
    return [words_of(found[1]) for line in code(page) if (found := re.search(pattern, line))]


def calls_of_run(page: str) -> list[list[str]]:
    made = [words_of(line) for line in code(page) if line.startswith('make run ')]
    given = [shlex.split(word.removeprefix('ARGS=')) for words in made for word in words[2:]]
    jobs = [words_of(line) for line in code(page) if line.startswith('sbatch ')]
    given += [words[words.index('experiments/train.sbatch') + 1 :] for words in jobs]
    return calls(page, 'run.py') + given


@pytest.mark.parametrize('page', PAGES)
def test_calls_of_run_are_understood(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for words in calls_of_run(page):
        named = [OWN.get(word, word) for word in words if word != ANY_OPTION]
        if '--help' not in words:
            parse(['run.py', *named])


@pytest.mark.parametrize('page', PAGES)
def test_calls_of_experiments_are_understood(page):
    for program, module in PROGRAMS.items():
        for words in calls(page, f'experiments.{program}'):
            if words and '--help' not in words:
                flags.parse([program, *words], main.Program(program, '', module.COMMANDS, module.FLAGS))


@pytest.mark.parametrize(
    ('program', 'name', 'command'),
    [(program, *one) for program, module in PROGRAMS.items() for one in module.COMMANDS.items()],
)
def test_examples_in_help_are_understood(program, name, command):
    module = PROGRAMS[program]
    for example in command.examples:
        words = words_of(example.format(program))
        call = flags.parse(words, main.Program(program, '', module.COMMANDS, module.FLAGS))
        assert call.command == name


def flags_of(program: str) -> set[str]:
    return {'--help', *(f'--{name}' for name in PROGRAMS[program].FLAGS)}


def test_the_pages_show_calls():
    """The patterns above find what they look for."""
    assert {'evaluate', 'generate', 'prepare'} <= {
        word for words in calls_of_run('transformer/README.md') for word in words
    }
    assert ['--config.model.positions=none'] in calls_of_run('README.md')
    assert any('run' in words for words in calls('experiments/README.md', 'experiments.sweep'))
    called = {name for name in PROGRAMS for page in PAGES if any(calls(page, f'experiments.{name}'))}
    assert called == {*PROGRAMS}


@pytest.mark.parametrize('page', PAGES)
def test_flags_and_options_exist(page):
    known = set().union(*map(flags_of, PROGRAMS)) | {f'--{name}' for name in FLAGS}
    for piece in code(page):
        # Not file names, as train.en.
        option = re.fullmatch(
            r'(?:model|data|train|decode)\.(?!en$|de$|py$|sbatch$|lock\b|safetensors\b)\w+(?:=\S+)?', piece
        )
        if option or (piece.startswith('--config.') and piece != ANY_OPTION):
            name, _, value = piece.removeprefix('--config.').partition('=')
            declare.check_name(configs.OPTIONS, name)
            if value:
                declare.parse_value(configs.OPTIONS, name, value)
        elif re.match(r'--\w', piece) and piece != ANY_OPTION:
            assert piece.partition('=')[0] in known, f'{page}: {piece}'


def test_the_list_of_options_is_that_of_the_code():
    listed = text('configs/README.md').partition('<!-- options -->\n')[2].partition('<!-- /options -->')[0]
    assert listed == declare.markdown(configs.OPTIONS)


def test_every_config_is_listed():
    for file in (ROOT / 'configs').glob('*.py'):
        assert f'[`{file.name}`]({file.name})' in text('configs/README.md')


def test_the_first_page_is_short():
    assert len(text('README.md').splitlines()) <= 150


def section(page: str, heading: str) -> str:
    """Returns the text below a heading, up to the next one of any level."""
    return text(page).partition(f'\n{heading}\n')[2].partition('\n#')[0]


def table(page: str, heading: str) -> list[list[str]]:
    """Returns the rows of a section's table whose first cell is code, without marks of code."""
    rows = re.findall(r'^\| (`.*) \|$', section(page, heading), re.MULTILINE)
    return [[cell.strip().replace('`', '') for cell in row.split('|')] for row in rows]


def test_the_tree_of_files():
    """It lists the parts of the package in the order of imports, and what it lists exists."""
    tree = section('transformer/README.md', '## Layout').partition('```\n')[2].partition('\n```')[0]
    folders, paths = [], []
    for line in tree.split('\n'):
        indent, name = re.match(r'( *)(\S+)', line).groups()
        folders = [*folders[: len(indent) // 2], name]
        paths.append('/'.join(folders).replace('//', '/'))
        assert len(line) <= 80, line
    assert [path for path in paths if not (ROOT / path).exists()] == []
    parts = [path.split('/')[1] for path in paths if re.fullmatch(r'transformer/\w+(\.py|/)', path)]
    assert [part.removesuffix('.py') for part in parts] == list(ORDER)
    only = {
        part: set(re.findall(r'\w+', imports.replace('none of the others', '')))
        for parts, imports in table('transformer/README.md', '## Layout')
        for part in parts.split(', ')
    }
    assert only == ONLY


def test_the_first_line_of_each_file_says_what_it_does():
    for path in (ROOT / 'transformer').rglob('*.py'):
        assert re.match(r'"""\w.*[^:]$', path.read_text().partition('\n')[0]), path


def test_what_may_differ_in_a_work_directory():
    told = text('transformer/README.md').partition('Options that do not change what is learned')[2]
    told = told.partition('Any other difference')[0]
    names = set(re.findall(r'`(?:\w+\.)?(\w+)`', told)) - {'decode'}
    free = {key for key, field in configs.OPTIONS.items() if field.metadata['free']}
    assert {key for key in configs.OPTIONS if key.startswith('decode.')} <= free
    assert names == {key.partition('.')[2] for key in free if not key.startswith('decode.')}


def test_the_functions_of_a_task_are_listed():
    assert tuple(name for name, *_ in table('transformer/README.md', '### A task')) == Task._fields


def test_the_types_of_fields_are_listed():
    """Each has the sources that give it."""
    sources = {
        kind.__name__: {source for source, its in reader.READERS.items() if kind in its.gives}
        for module in (fields, spellings, text_pairs)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, fields.Field) and kind is not fields.Field
    }
    rows = table('transformer/README.md', '### Fields and codecs')
    assert {name: set(given.split(', ')) for name, *_, given in rows} == sources


def test_the_forms_are_listed():
    rows = table('transformer/README.md', '### Forms')
    assert [form for form, *_ in rows] == list(FORMS)
    for form, has, kinds, tasks in rows:
        assert Form(tuple(kinds.split(', ')), frozenset(has.split(', '))) == FORMS[form]
        assert tasks.split(', ') == [task for task, spec in TASKS.items() if spec.form == form]


def example(page: str, word: str, names: dict[str, object]) -> dict[str, object]:
    """Executes the block of Python that contains a word, and returns its definitions."""
    blocks = re.findall(r'^```python\n(.*?)^```$', text(page), re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if word in block]
    exec(block, names)
    return names


def test_the_config_that_is_shown():
    shown = example('configs/README.md', 'config_dict', {})['get_config']()
    assert configs.differences(resolve(config_dict()), resolve(shown), free=False) == {
        'model.h': (8, 4),
        'model.d_k': (64, 128),
        'model.d_v': (64, 128),
    }


def test_the_first_own_task_that_is_shown(tmp_path):
    """Its config reads the columns and the parts of the table."""
    lines = [f'{number}\tA dinner of {number} courses.\t{1 + number % 5}' for number in range(10)]
    (tmp_path / 'reviews.tsv').write_text('\n'.join(['id\ttext\tstars', *lines, '']))
    shown = example('configs/README.md', 'stars', {'__file__': str(ROOT / 'configs' / 'stars.py')})
    config = resolve(shown['get_config']())
    data = dataclasses.replace(config.data, dir=str(tmp_path))
    reading = task_of(config).reading(config)
    rows = {split: [*reader.rows(data, reading, split, reader.Report())] for split in fields.SPLITS}
    assert [len(of_split) for of_split in rows.values()] == [8, 1, 1]
    assert rows['test'][0].values == {'text': 'A dinner of 9 courses.', 'label': '5'}


def test_the_loop_that_is_shown():
    """Its loss falls below log 16, which equal probabilities of the sixteen pieces give."""
    shown = example('transformer/README.md', 'optax', {})
    params, state = shown['params'], shown['optimizer'].init(shown['params'])
    for step in range(60):
        params, state, loss = shown['update'](params, state, jax.random.key(step))
    assert loss < 2.5 < np.log(16)


@pytest.mark.parametrize('name', ['conv_seq2seq', 'gru_bahdanau', 'lstm_attention', 'rnn_seq2seq'])
def test_a_config_that_starts_from_another(name):
    """It has the other's data, and no option that its own kind of model does not know."""
    started, other = (
        resolve(read_config_file(str(ROOT / 'configs' / f'{each}.py'))) for each in (name, 'multi30k')
    )
    assert started.data == other.data and started.model.kind != other.model.kind
    assert (started.model.h, started.model.d_ff) == (resolve(config_dict()).model.h, 2048)


def test_the_table_that_is_shown(tmp_path, monkeypatch, capsys):
    """Written to a file, it is a table, in all calls that the page shows."""
    blocks = re.findall(r'^```python\n(.*?)^```$', text('experiments/README.md'), re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if 'TABLE = Table(' in block]
    (tmp_path / 'heads.py').write_text(block)
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'configs').symlink_to(ROOT / 'configs')
    named = [
        words for words in calls('experiments/README.md', 'experiments.sweep') if '--table=heads.py' in words
    ]
    (planned,) = [words for words in named if words[0] == 'plan']
    assert sweep.main(['sweep', *planned]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows[2:5]] == ['base', 'one-head', 'deep'] and rows[3][4] == '1'
    assert {words[0] for words in named} == {'plan', 'run', 'status'}


def test_the_task_that_is_shown(monkeypatch):
    """It hides about a tenth of the source in training, and nothing else."""
    seen = []
    monkeypatch.setattr(translation, 'sums', lambda config, params, batch, key: seen.append(batch))
    task = example('transformer/README.md', 'UNK', {})['TASK']
    tokens = jnp.full((2, 20, 50), 7)
    batch = {side: Tokens(tokens, jnp.ones_like(tokens), tokens) for side in ('source', 'target')}
    for key in (dropout_keys.of_microbatches(jax.random.key(0), jnp.arange(2)), None):
        task.sums(None, None, batch, key)
    trained, evaluated = seen
    assert evaluated is batch
    np.testing.assert_array_equal(trained['target'].tokens, tokens)
    hidden = trained['source'].tokens == UNK
    assert (hidden | (trained['source'].tokens == 7)).all()
    assert all(0.05 < np.mean(part) < 0.15 for part in hidden)
    assert (hidden[0] != hidden[1]).any()


def test_the_model_that_is_shown(monkeypatch):
    """Its steps, after a prompt, reproduce its full pass."""
    make_decoder = example('transformer/README.md', 'class Bigram', {'nn': nn})['make_decoder']
    model = lambda config: LanguageModel(config.model, make_decoder)
    monkeypatch.setitem(models.MODELS, ('bigram', 'text'), model)
    sizes = {'model.vocab_size': 300, 'model.d_model': 8, 'data.pieces': 300}
    base = resolve(config_dict({'train.task': 'language', 'data.source': 'text', **sizes}))
    config = dataclasses.replace(base, model=dataclasses.replace(base.model, kind='bigram'))
    params = {'params': models.initialize(config, jax.random.key(0))}
    tokens = jnp.array([[5, 9, 4, 8], [6, 3, 7, 2]])
    whole = Tokens(tokens, jnp.ones_like(tokens), jnp.broadcast_to(jnp.arange(4), (2, 4)))
    built = models.build(config)
    expected = built.apply(params, {'text': whole}, train=False)
    memory = built.apply(params, Tokens(*(part[:, :2] for part in whole)), method='encode')
    constants, state = built.apply(params, memory, 2, method='start')
    first, state = built.apply(params, constants, state, jnp.zeros(2, jnp.int32), method='step')
    second, _ = built.apply(params, constants, state, tokens[:, 2], method='step')
    np.testing.assert_allclose(first, expected[:, 2], rtol=1e-6)
    np.testing.assert_allclose(second, expected[:, 3], rtol=1e-6)


def test_every_claim_is_listed():
    assert [name for name, _ in table('experiments/README.md', '## Claims')] == list(CLAIMS)
