"""The model card of an exported model says how it was trained, and runs it."""

import ast
import dataclasses
import pathlib
import shlex

import calls
import pytest
import yaml

from transformer import config as configs
from transformer.cli import flags
from transformer.interop import import_model as importing
from transformer.interop.hugging_face import card, writing
from transformer.interop.hugging_face.reading import KINDS
from transformer.runs.restore import Origin
from transformer.runs.workdir import Run

FOLDER = pathlib.Path(__file__).parent
EXAMPLES = ('bert', 'clip', 'gpt2', 'marian', 'vit')


@pytest.fixture(scope='module')
def runs(tmp_path_factory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp('imported')
    return {kind: importing.import_model(FOLDER / kind, folder / kind, {}) for kind in EXAMPLES}


def lines(run: Run, kind: str) -> list[str]:
    return card.text(run, Origin('latest', [0], 0), KINDS[kind], []).splitlines()


def with_options(run: Run, changes: dict[str, object]) -> Run:
    return dataclasses.replace(run, config=configs.replace(run.config, changes))


@pytest.mark.parametrize('kind', EXAMPLES)
def test_the_command_has_the_options(runs, kind):
    run = runs[kind]
    (command,) = (line for line in lines(run, kind) if line.startswith('    run.py'))
    found = flags.config(calls.parse(shlex.split(command)))
    # A dataset of TFDS has a name, which text files have no use for.
    assert configs.differences(found, run.config).keys() <= {'data.dir', 'data.name'}


def test_names_with_blanks_are_one_option(runs):
    run = with_options(
        runs['marian'], {'data.source': 'text', 'data.name': None, 'data.train': "it's mine/a b"}
    )
    (command,) = (line for line in lines(run, 'marian') if line.startswith('    run.py'))
    assert "--config.data.train=it's mine/a b" in shlex.split(command)


def test_names_of_files_neither_end_cells_nor_begin_elements(runs):
    run = dataclasses.replace(runs['marian'])
    entry = {'name': "it's|b\n<img>", 'lines': 1, 'sha256': 'c'}
    run.__dict__['manifest'] = run.manifest | {'files': {'train': [entry]}}
    assert "| train | it's\\|b &lt;img&gt; | 1 | c |" in lines(run, 'marian')


@pytest.mark.parametrize('kind', EXAMPLES)
def test_the_example_is_python(runs, kind):
    text = lines(runs[kind], kind)
    ast.parse('\n'.join(text[text.index('```python') + 1 : text.index('```')]))
    assert '{model}' not in '\n'.join(text)


def test_data_and_scores_of_a_training(runs, monkeypatch):
    manifest = {'files': {'train': [{'name': 'a.de', 'lines': 7, 'sha256': '0f'}]}}
    bleu = {'score': 30.0, 'interval': [28.0, 32.0], 'signature': 'nrefs:1'}
    entry = {'checkpoint': 'average', 'loss': 1.5, 'bleu': {'sacrebleu': bleu}}
    # Whether another test has read it or not.
    monkeypatch.setitem(runs['marian'].__dict__, 'manifest', manifest)
    monkeypatch.setattr(Run, 'result', lambda run: {'scores': {'test': entry}})
    text = lines(runs['marian'], 'marian')
    assert '| train | a.de | 7 | 0f |' in text and 'test, checkpoint average:' in text
    assert any(line.split() == ['sacreBLEU', '30.00', '[28.00,', '32.00]'] for line in text)
    assert '- sacrebleu: `nrefs:1`' in text


def test_norwegian_is_a_language(runs):
    changes = {'data.source_language': 'no', 'data.target_language': 'en'}
    text = lines(with_options(runs['marian'], changes), 'marian')
    (head, _) = yaml.safe_load_all('\n'.join(text[: text.index('---', 1) + 1]))
    assert head['language'] == ['no', 'en']


def test_only_translators_have_two_languages(runs):
    text = lines(with_options(runs['marian'], {'train.task': 'text_to_text'}), 'marian')
    (head, _) = yaml.safe_load_all('\n'.join(text[: text.index('---', 1) + 1]))
    assert 'language' not in head


def test_texts_that_begin_otherwise_there(runs):
    run = runs['gpt2']
    (one, *_) = writing.differences(run.config, run.codecs)
    assert 'begins' in one


def test_labels_are_whole_captions(runs):
    (call,) = (line for line in lines(runs['clip'], 'clip') if 'candidate_labels' in line)
    keywords = {word.arg: word.value for word in ast.walk(ast.parse(call)) if isinstance(word, ast.keyword)}
    assert keywords['hypothesis_template'].value == '{}'


def test_a_grey_picture_is_not_given_three_colours(runs):
    channels = {'grey': "convert('L')", 'rgb': 'pipeline('}
    for pixels, how in channels.items():
        text = '\n'.join(lines(with_options(runs['vit'], {'images.pixels': pixels}), 'vit'))
        assert how in text and all(other not in text for other in {*channels.values()} - {how})
