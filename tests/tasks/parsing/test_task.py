"""Constituency parsing: trees and their linear form, EVALB's scores, the task and its commands."""

import io
import json
import math
import os
import pathlib
import random
import sys
import time

import numpy as np
import pytest
from etils import epath

import transformer
from transformer.actions import data as run_data
from transformer.actions import train as action
from transformer.cli import main as run
from transformer.config import ConfigError, config_dict, resolve
from transformer.data import fields, trees, vocabulary
from transformer.data.fields import Example
from transformer.data.generated.grammar import sentences
from transformer.data.trees import Constituent, Repairs
from transformer.runs import restore
from transformer.runs.restore import Trained
from transformer.runs.workdir import Run
from transformer.tasks import task_of
from transformer.tasks.parsing import draw, evalb, parser, resampling, task
from transformer.tasks.translation import task as translation

DATA = os.environ.get('TRANSFORMER_TEST_DATA')
DOG = '(TOP (S (NP (DT The) (NN dog)) (VP (VBZ sleeps)) (. .)))'


def tree(text):
    return trees.one(text)


def random_tree(rng, depth=0):
    """Draws a tree whose words are numbered, so that their order shows."""
    if depth > 5 or (depth > 2 and rng.random() < 0.5):
        return Constituent(rng.choice(['NN', 'VB', ',', '-LRB-']), f'w{rng.randrange(9)}')
    parts = tuple(random_tree(rng, depth + 1) for _ in range(rng.randint(1, 3)))
    return Constituent(rng.choice(['NP', 'VP', 'S', 'X']), parts)


def test_trees_of_many_lines_and_several_on_one():
    text = ['((S', '   (NP (DT The) (NN dog))', '  (VP (VBZ sleeps)) (. .)))  (NP (NN cat))', '', '(X (Y z))']
    found = list(trees.read(text, 'f'))
    assert [line for line, _ in found] == [1, 3, 5]
    assert trees.bracketed(trees.clean(found[0][1])) == DOG
    assert trees.bracketed(found[1][1]) == '(NP (NN cat))'


@pytest.mark.parametrize(
    ('text', 'line'),
    [
        (['(S (NP (NN dog))'], 1),
        (['(X (Y z))', 'dog'], 2),
        (['(X (Y z)))'], 1),
        (['(S (NP the (NN dog)))'], 1),
        (['(S', '(NP))'], 2),
        (['(S (NN two words))'], 1),
    ],
)
def test_what_is_no_tree_is_refused_by_line(text, line):
    with pytest.raises(ConfigError, match=f'bank.txt: line {line}: '):
        list(trees.read(text, 'bank.txt'))


@pytest.mark.parametrize(
    ('text', 'expected'),
    [
        ('( (S (NP-SBJ-1 (NN dog)) (VP=2 (VB ran))) )', '(TOP (S (NP (NN dog)) (VP (VB ran))))'),
        ('(ROOT (S (NP (-NONE- *)) (VP (VB go) (S (-NONE- *T*-1)))))', '(TOP (S (VP (VB go))))'),
        ('(S1 (-LRB- -LRB-) (NP (PRP$ my) (NN cat)))', '(TOP (-LRB- -LRB-) (NP (PRP$ my) (NN cat)))'),
        ('(NP (CC either-or))', '(TOP (NP (CC either-or)))'),
        ('(TOP (-NONE- *))', ''),
        ('(NP (CD 1\u00a0000))', '(TOP (NP (CD 1\u00a0000)))'),
    ],
)
def test_traces_function_tags_and_roots_are_removed(text, expected):
    assert trees.bracketed(tree(text)) == expected


def test_the_linear_form_and_back():
    dog = tree(DOG)
    assert trees.linearize(dog) == '(S (NP XX XX )NP (VP XX )VP XX )S'
    assert trees.linearize(dog, tags=True) == '(S (NP DT NN )NP (VP VBZ )VP . )S'
    rng = random.Random(0)
    for _ in range(500):
        one = trees.clean(random_tree(rng))
        words, tags = trees.words(one), [leaf.label for leaf in trees.leaves(one)]
        assert trees.to_tree(trees.linearize(one), words, tags) == (one, Repairs())
        assert trees.to_tree(trees.linearize(one, tags=True), words) == (one, Repairs())


@pytest.mark.parametrize(
    ('text', 'expected', 'repairs'),
    [
        # The rest is closed at the end of the output.
        ('(S (NP XX XX )NP (VP XX', '(S (NP (XX a) (XX b)) (VP (XX c)))', {'missing_closings': 2}),
        # A bracket closes what is open inside.
        ('(S (NP XX (PP XX )NP XX )S', '(S (NP (XX a) (PP (XX b))) (XX c))', {'missing_closings': 1}),
        ('(S XX XX )VP XX )S', '(S (XX a) (XX b) (XX c))', {'stray_closings': 1}),
        ('(S XX XX XX XX XX )S', '(S (XX a) (XX b) (XX c))', {'too_many_words': 2}),
        ('(S (NP XX )NP )S', '(S (NP (XX a)) (XX b) (XX c))', {'too_few_words': 2}),
        ('(S (NP )NP XX XX XX )S', '(S (XX a) (XX b) (XX c))', {'empty_constituents': 1}),
        ('', '(XX a) (XX b) (XX c)', {'too_few_words': 3}),
        ('(S ( XX ) XX XX )S', '(S (XX a) (XX b) (XX c))', {'stray_closings': 2}),
        # A label is text, which can hold a bracket.
        ('(S (NP( XX X(X )NP( XX )S', '(S (NP (XX a) (XX b)) (XX c))', {'brackets_in_labels': 3}),
    ],
)
def test_malformed_output_is_repaired_by_rule(text, expected, repairs):
    found = trees.to_tree(text, ['a', 'b', 'c'])
    assert trees.bracketed(found[0]) == f'(TOP {expected})'
    assert found[1] == Repairs(**repairs)


def test_every_output_gives_a_tree_over_the_words():
    rng = random.Random(1)
    tokens = ['(S', '(NP', ')S', ')NP', ')VP', 'XX', 'NN', '(', ')', '(N(P)', ')NP(', '((', 'N)']
    for _ in range(3000):
        words = [f'w{i}' for i in range(rng.randint(1, 5))]
        found, repairs = trees.to_tree(' '.join(rng.choices(tokens, k=rng.randint(0, 12))), words)
        assert trees.words(found) == words
        assert tree(trees.bracketed(found)) == found
        # Without a repair, the text is the tree's own.
        again, _ = trees.to_tree(trees.linearize(found, tags=True), words)
        assert again == found and (any(repairs) or repairs == Repairs())


def test_a_very_deep_output():
    found, repairs = trees.to_tree('(NP ' * 2000 + 'XX XX', ['a', 'b'])
    assert repairs == Repairs(missing_closings=2000)
    assert trees.linearize(found).count(')NP') == 2000
    assert trees.bracketed(found).endswith('(XX a) (XX b)' + ')' * 2001)
    assert trees.words(found) == ['a', 'b']
    assert evalb.compare('(NP (XX a) (XX b))', trees.bracketed(found))[3:5] == (1, 2000)


def test_a_treebank_can_be_a_thousand_brackets_deep():
    deep = tree('(S ' * 1000 + '(NN a) (NN b)' + ')' * 1000)
    assert trees.words(deep) == ['a', 'b'] and trees.bracketed(deep).count('(S') == 1000
    again, repairs = trees.to_tree(trees.linearize(deep), ['a', 'b'], ['NN', 'NN'])
    assert (trees.bracketed(again), repairs) == (trees.bracketed(deep), Repairs())
    nodes = draw.layout(deep)
    assert [node.level for node in nodes if node.is_word] == [1002, 1002]
    assert {node.level for node in nodes if node.text == 'S'} == {*range(1, 1001)}


def test_evalb_of_a_tree_of_many_brackets_takes_no_time_of_their_square():
    """By pairs of brackets, 20,000 of each side would be 400 million."""
    wide = '(S ' + '(NP (NN a)) ' * 20_000 + ')'
    before = time.process_time()
    found = evalb.compare(wide, wide)
    assert time.process_time() - before < 20
    assert (found.matched, found.gold, found.crossing) == (20_001, 20_001, 0)


def test_brackets_cross_by_definition():
    rng = random.Random(2)
    crosses = lambda a, b: a[1] < b[1] < a[2] < b[2] or b[1] < a[1] < b[2] < a[2]
    for _ in range(300):
        # An end of -1 is that of a bracket that is never closed.
        ends = lambda start: rng.choice([-1, *range(start + 1, 8)])
        sides = [[('X', s, ends(s)) for s in (rng.randrange(7) for _ in range(5))] for _ in range(2)]
        golds, tests = sides
        expected = sum(any(crosses(gold, test) for gold in golds) for test in tests)
        assert evalb.crossing_brackets(golds, tests) == expected


def test_punctuation_has_the_tags_of_the_penn_treebank():
    words = ['"', 'Yes', '"', ',', 'he', '-LRB-', 'said', ')', ';', '``', '?']
    expected = ['``', 'XX', "''", ',', 'XX', '-LRB-', 'XX', '-RRB-', ':', '``', '.']
    assert parser.punctuation_tags(words) == expected


def test_the_words_of_a_raw_sentence():
    text = "He didn't say \"the dogs' (old) cat's 1,000 mice...\"; she cannot."
    expected = "He did n't say `` the dogs ' -LRB- old -RRB- cat 's 1,000 mice ... '' ; she can not ."
    assert parser.split_words(text) == expected.split()
    # As tokenizer.sed of the Penn Treebank has them.
    quoted = 'He said "I\'m gonna stop (now)."'
    expected = "He said `` I 'm gon na stop -LRB- now -RRB- . ''"
    assert parser.split_words(quoted) == expected.split()


GOLD = '(TOP (S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (NN cats))) (. .)))'


@pytest.mark.parametrize(
    ('test', 'expected'),
    [
        (GOLD, (5, 0, 4, 4, 4, 0, 4, 4)),
        # TOP and punctuation do not count; the bracket over "sees" crosses no other.
        ('(S (NP (DT the) (NN dog)) (VP (VBZ sees)) (NP (NN cats)) (. .))', (5, 0, 3, 4, 4, 0, 4, 4)),
        ('(S (NP (DT the)) (VP (NN dog) (VBZ sees)) (NP (NN cats)))', (5, 0, 2, 4, 4, 1, 4, 4)),
        ('(S (NP-SBJ (DT the) (NNS dog)) (VP (VBZ sees) (NP=1 (NN cats))))', (5, 0, 4, 4, 4, 0, 4, 3)),
        ('(S (NP (NP (DT the) (NN dog))) (VP (VBZ sees) (NP (NN cats))))', (5, 0, 4, 4, 5, 0, 4, 4)),
        ('(S (NP (DT the) (NN dog)) (VP (VBZ saw) (NP (NN cats))))', (5, 1, 0, 0, 0, 0, 0, 0)),
        ('(S (NP (DT the) (NN dog)) (VP (VBZ sees)))', (5, 1, 0, 0, 0, 0, 0, 0)),
        ('', (5, 2, 0, 0, 0, 0, 0, 0)),
        ('(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (NN cats)))', (5, 1, 3, 4, 4, 0, 4, 4)),
    ],
)
def test_evalb_counts_by_collins_rules(test, expected):
    assert evalb.compare(GOLD, test)[:8] == expected


def test_evalb_takes_labels_words_and_quotes_as_equal_by_its_parameters():
    parameters = ['# comment', 'DELETE_LABEL TOP', "DELETE_LABEL ''", 'QUOTE_LABEL POS', "QUOTE_LABEL ''"]
    parameters += ['EQ_LABEL T TT', 'EQ_WORD This this', 'CUTOFF_LEN 3', 'LABELED 0', 'MAX_ERROR 7 ']
    rules = evalb.read_rules(parameters, 'file')
    assert rules == evalb.Rules(
        ('TOP', "''"), (), (('T', 'TT'),), (('This', 'this'),), ('POS', "''"), False, 3, 7
    )
    assert evalb.compare('(S (T This))', '(X (TT this))', rules)[:8] == (1, 0, 1, 1, 1, 0, 1, 1)
    # The quote that the first side deletes is put back, because the second one keeps it as a possessive.
    found = evalb.compare("(S (T a) (X ('' ') (T b)))", "(S (T a) (X (POS ') (T b)))", rules)
    assert found[:8] == (3, 0, 2, 2, 2, 0, 3, 2)
    # ADVP and PRT are one label for COLLINS.prm, and otherwise two.
    pair = '(S (PRT (RP up)))', '(S (ADVP (RP up)))'
    assert evalb.compare(*pair).matched == 2
    assert evalb.compare(*pair, evalb.COLLINS._replace(equal_labels=())).matched == 1


@pytest.mark.parametrize('line', ['NO_SUCH 1', 'EQ_LABEL A', 'CUTOFF_LEN many', 'DELETE_LABEL'])
def test_bad_parameters_of_evalb_are_refused(line):
    with pytest.raises(ConfigError, match='file: line 2: '):
        evalb.read_rules(['# first', line], 'file')


def test_summaries_add_up_sentences():
    pairs = [(GOLD, GOLD), (GOLD, '(S (NP (DT the)) (VP (NN dog) (VBZ sees)) (NP (NN cats)))'), (GOLD, '')]
    results = [evalb.compare(*pair) for pair in pairs]
    total = evalb.summary(results)
    assert (total.sentences, total.errors, total.skipped, total.valid) == (3, 0, 1, 2)
    assert (total.matched, total.gold, total.test) == (6, 8, 8)
    scores = total.scores()
    assert scores['Bracketing FMeasure'] == scores['Bracketing Recall'] == 75
    assert (scores['Complete match'], scores['Average crossing'], scores['No crossing']) == (50, 0.5, 50)
    lines = list(evalb.summary_lines(results, evalb.COLLINS))
    assert lines[1].split() == ['75.00', '75.00', '6', '8', '8', '1', '8', '8', '100.00']
    assert (
        lines[4] == 'Number of sentence        =      3' and lines[-1] == 'Tagging accuracy          = 100.00'
    )
    # Two of three brackets are right, and one crosses; of sentences of one bracket, the second is too long.
    flat = '(S (DT the) (VP (NN dog) (VBZ sees)) (NP (NN cats)))'
    long = [f'(S {"(NN a) " * count})' for count in (40, 41)]
    found = task.scores_of([GOLD, GOLD, *long], [GOLD, flat, *(line.replace('S', 'X') for line in long)])
    names = 'f1', 'f1_short', 'recall', 'precision', 'complete', 'crossing'
    expected = 1200 / 19, 1200 / 17, 60, 200 / 3, 25, 0.25
    assert [found[name]['score'] for name in names] == pytest.approx(expected)


def test_resampling_of_f1():
    rng = np.random.default_rng(0)
    gold = rng.integers(5, 15, 400)
    first = np.stack([rng.binomial(gold, 0.8), gold, gold], axis=1)
    low, high = resampling.resampled_f1(first)
    f1 = 100 * first[:, 0].sum() / gold.sum()
    # A binomial share of some 4,000 brackets has a standard error of 0.6.
    assert low < f1 < high and 1.8 < high - low < 3.2
    better = first + np.array([1, 0, 0]) * (rng.random(400) < 0.3)[:, None]
    difference, p = resampling.paired_test(first, better)
    assert difference == pytest.approx(100 * (better - first)[:, 0].sum() / gold.sum())
    assert p < 0.01
    assert resampling.paired_test(first, first) == (0, 1)
    equally_good = np.stack([rng.binomial(gold, 0.8), gold, gold], axis=1)
    assert resampling.paired_test(first, equally_good)[1] > 0.01


@pytest.mark.skipif(DATA is None, reason='TRANSFORMER_TEST_DATA names no folder')
@pytest.mark.parametrize(
    ('name', 'parameters', 'expected'),
    [
        ('sample', 'sample/sample.prm', 'sample/sample.rsl.evalb-2020build'),
        ('bug', 'new.prm', 'bug/bug.rsl-new'),
    ],
)
def test_evalbs_own_files(name, parameters, expected, capsys):
    folder = pathlib.Path(DATA) / 'treebank' / 'evalb_check'
    files = [str(folder / name / f'{name}.{kind}') for kind in ('gld', 'tst')]
    assert run.main(['run.py', 'evalb', *files, f'--params={folder / parameters}']) == 0
    # The printed table of `bug` has other widths and no sum of crossing brackets.
    numbers = lambda text: [line.split() for line in text.splitlines()[3:]]
    found, right = numbers(capsys.readouterr().out), numbers((folder / expected).read_text())
    if name == 'bug':
        place = right.index(['62.83', '57.72', '71', '113', '123', '0', '161', '129', '80.12'])
        right[place][5] = str(5 + 2 + 4 + 8 + 17)
    assert found == right


@pytest.mark.usefixtures('all_resamples')
def test_the_command_evalb(tmp_path, capsys):
    gold, test, other = (tmp_path / name for name in ('gold', 'test', 'other'))
    gold.write_text(f'{GOLD}\n' * 30)
    test.write_text(f'{GOLD.replace("VP", "X")}\n' * 30)
    other.write_text(f'{GOLD}\n' * 30)
    assert run.main(['run.py', 'evalb', str(gold), str(test), '--interval', f'--other={other}']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == '   1    5    0   75.00  75.00     3      4    4      0      4     4   100.00'
    assert lines[34].split() == ['75.00', '75.00', '90', '120', '120', '0', '120', '120', '100.00']
    assert '75.00 to 75.00' in lines[-3] and 'F1 +25.00, p = 0.001' in lines[-1]
    test.write_text('(S (NN cat))\n' * 30)
    assert run.main(['run.py', 'evalb', str(gold), str(test)]) == 2
    assert 'line 12: more than 11 errors' in capsys.readouterr().err
    assert run.main(['run.py', 'evalb', str(gold), str(test), '--max_errors=99']) == 0
    test.write_text(f'{GOLD}\n' * 29)
    assert run.main(['run.py', 'evalb', str(gold), str(test)]) == 2
    assert '30 : Number of lines unmatch (too many lines in gold file)' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('line', 'errors'),
    [
        (f'{GOLD})', ['Bracketing is unbalanced (too many open bracket)']),
        (
            f'{GOLD}))',
            [
                'Bracketing unbalance (too many close bracket)',
                'Bracketing is unbalanced (too many open bracket)',
            ],
        ),
        (f') (S {GOLD}', []),
        ('(S', ['More than two elements in a bracket', 'Bracketing is unbalanced (too many open bracket)']),
    ],
)
def test_errors_of_evalb_as_the_original_reports_them(line, errors):
    """The C program, compiled, printed these."""
    assert evalb.read(line).errors == errors


def test_evalb_stops_where_the_original_stops(tmp_path, capsys):
    gold, test = tmp_path / 'gold', tmp_path / 'test'
    gold.write_text(f'{GOLD}\n' * 3)
    for broken in ('no tree', '(S (NP (DT the hot) (NN dog)))', f'{GOLD} .'):
        test.write_text(f'{GOLD}\n{broken}\n{GOLD}\n')
        for pair, name in (((gold, test), 'test'), ((test, gold), 'gold')):
            assert run.main(['run.py', 'evalb', *map(str, pair)]) == 2
            output, errors = capsys.readouterr()
            assert '2 : Reading sentence' in errors and f'{test}: line 2: ' in errors, name
            assert len(output.splitlines()) == 4  # the header and the first line
    assert run.main(['run.py', 'evalb', str(gold), str(gold), f'--other={test}']) == 2
    # Scoring stops at error number max_errors + 2.
    test.write_text('(S (NN cat))\n' * 3)
    assert run.main(['run.py', 'evalb', str(gold), str(test), '--max_errors=0']) == 2
    assert capsys.readouterr().err.count('Length unmatch') == 2


def test_evalb_refuses_trees_of_several_lines(tmp_path, capsys):
    gold, test = tmp_path / 'gold', tmp_path / 'test'
    gold.write_text(f'{GOLD}\n' * 2)
    test.write_text(f'{GOLD}\n' + GOLD.replace(' (VP', '\n  (VP'))
    for pair in ((gold, test), (test, gold)):
        assert run.main(['run.py', 'evalb', *map(str, pair)]) == 2
        output, errors = capsys.readouterr()
        assert not output and errors.count('\n') == 1 and f'{test}: line 3 ' in errors


def test_f1_without_a_matching_bracket_is_evalbs():
    lines = list(evalb.summary_lines([evalb.compare(GOLD, '')], evalb.COLLINS))
    assert lines.count('Bracketing FMeasure       =   -nan') == 2


def test_a_picture_has_words_in_order_and_parents_above_their_parts(tmp_path):
    nodes = draw.layout(tree(DOG))
    assert [node.text for node in nodes if node.is_word] == ['The', 'dog', 'sleeps', '.']
    places = [node.x for node in nodes if node.is_word]
    assert places == sorted(places)
    for node in nodes:
        parts = [part for part in nodes if part.parent is not None and nodes[part.parent] is node]
        if parts:
            assert node.x == pytest.approx((parts[0].x + parts[-1].x) / 2)
            assert all(part.level > node.level for part in parts)
    draw.save(tree(DOG), tmp_path / 'folder' / 'tree-1')
    assert sorted(path.name for path in (tmp_path / 'folder').iterdir()) == ['tree-1.png', 'tree-1.svg']
    assert 'sleeps' in (tmp_path / 'folder' / 'tree-1.svg').read_text()


OPTIONS = {
    'train.task': 'parsing',
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'data.source': 'trees',
    'data.train': 'bank',
    'data.dev': 'bank[:40%]',
    'data.test': 'bank[40%:80%]',
    'data.pieces': 340,
    'data.batching': 'packed',
    'data.row_len': 64,
    'data.max_len': 64,
    'data.batch_tokens': 512,
    'train.steps': 4,
    'train.warmup_steps': 4,
    'train.checkpoint_every': 2,
    'train.eval_every': 4,
    'train.watch_every': 4,
    'train.log_every': 1,
    'decode.beam': 2,
    'decode.extra_len': 20,
}
BANK = [
    DOG,
    '( (S (NP-SBJ (DT A) (NN cat)) (VP (VBD saw) (NP (NNS mice)))) )',
    '(ROOT (NP (-LRB- -LRB-) (NN cats) (-RRB- -RRB-)))',
    '(S (NP (PRP He)) (VP (VBD said) (, ,) (SBAR (-NONE- 0) (S (NP (PRP it)) (VP (VBD was))))))',
    '(TOP (NP (NN Fire)) (. !))',
] * 8


def written(folder, **options):
    """Writes the treebank, with trees over several lines, and returns the config."""
    (folder / 'bank').write_text('\n'.join(BANK).replace('(VP', '\n  (VP'))
    return resolve(config_dict(OPTIONS | {'data.dir': str(folder)} | options))


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Trains a model, and returns its work directory and its training's scores."""
    folder = tmp_path_factory.mktemp('parsing')
    finished = action.run_training(written(folder), epath.Path(folder / 'run'), '')
    return folder / 'run', finished


def test_watching_names_no_line_that_is_cut(trained, caplog):
    run_ = Run.open(str(trained[0]))
    model, _ = restore.load(run_, changes={'decode.max_source_len': 2})
    with caplog.at_level('WARNING', logger='absl'):
        assert set(task_of(run_.config).watch(model, run_data.of_run(run_))) == {'f1'}
    assert not caplog.records


def test_the_pieces_of_trees(trained):
    codecs = Run.open(str(trained[0])).codecs
    target, source = codecs['target'], codecs['source']
    assert target is source

    def pieces_of(tree: str) -> list[int]:
        row = Example({'target': tree}, {'target': 'a file'}, 2)
        return fields.Tree().encode('target', codecs, [row]).tokens.tolist()

    pieces = target.pieces(pieces_of(DOG))
    assert pieces == ['▁(S', '▁(NP', '▁XX', '▁XX', '▁)NP', '▁(VP', '▁XX', '▁)VP', '▁XX', '▁)S', '</s>']
    assert target.decode(pieces_of(DOG)) == '(S (NP XX XX )NP (VP XX )VP XX )S'
    for sentence in ('The dog XXL (S sleeps', 'é ▁ 語'):
        assert source.decode(source.encode(sentence)) == sentence
    # A label that the training trees lack is spelled out.
    assert target.decode(pieces_of('(TOP (FRAG (NN dog)))')) == '(FRAG XX )FRAG'
    with pytest.raises(ConfigError, match='a file: line 2'):
        pieces_of('(S (NP')


def test_a_treebank_is_read_and_scored(trained):
    folder, finished = trained
    dataset = run_data.of_run(Run.open(str(folder)))
    texts = dataset.texts('dev')
    assert len(texts['source']) == 16
    assert texts['source'][1:4] == ['A cat saw mice', '-LRB- cats -RRB-', 'He said , it was']
    assert texts['target'][3] == trees.bracketed(tree(BANK[3]))
    entry = finished.result['scores']['dev']
    lines = (folder / 'translations' / 'dev.latest.txt').read_text().splitlines()
    results = [evalb.compare(*pair) for pair in zip(texts['target'], lines, strict=True)]
    total = evalb.summary(results)
    # The trees have the right tags, so that every sentence is scored.
    assert total.valid == 16 == entry['evalb']['sentences'] and entry['evalb']['errors'] == 0
    assert entry['evalb']['f1']['score'] == pytest.approx(np.nan_to_num(total.f1()))
    exact = sum(a == b for a, b in zip(texts['target'], lines, strict=True))
    assert entry['exact'] == exact / 16
    assert 0 <= entry['repaired']['share'] <= 1 and len(entry['repaired']) > 1
    assert [trees.words(tree(line)) for line in lines] == [words.split() for words in texts['source']]


def test_parse_reads_lines_and_writes_trees(trained, tmp_path, monkeypatch, capfd):
    folder, _ = trained
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b"The dog's cats (mice).\n\n")))
    call = ['run.py', 'parse', f'--workdir={folder}', '--raw', '--json', f'--draw={tmp_path}/trees']
    assert run.main(call) == 0
    output, errors = capfd.readouterr()
    first, second = map(json.loads, output.splitlines())
    assert trees.words(tree(first['text'])) == ['The', 'dog', "'s", 'cats', '-LRB-', 'mice', '-RRB-', '.']
    assert [leaf.label for leaf in trees.leaves(tree(first['text']))][4:] == ['-LRB-', 'XX', '-RRB-', '.']
    assert (second['line'], second['text']) == (1, '')
    # A model of four updates writes no whole tree.
    assert 'line 1: repaired: ' in errors and 'line 2' not in errors
    assert sorted(path.name for path in (tmp_path / 'trees').iterdir()) == ['tree-1.png', 'tree-1.svg']
    model = transformer.load(str(folder))
    assert [best[0].text for best in model.parse(['The dog'], beam=1)] == [
        best[0].text for best in model.parse(iter(['The dog', 'A cat']), beam=1)
    ][:1]


def test_well_formed_outputs_need_no_repair(trained):
    folder, _ = trained
    model, sentences = transformer.load(str(folder)).trained, ['The dog', 'A cat saw mice .', 'Fire !']
    words = [sentence.split() for sentence in sentences]
    for options in ({}, {'method': 'greedy'}, {'method': 'sample', 'seed': 3}, {'best': 2}):
        assert any(any(p.repairs) for best in parser.parses(model, words, **options) for p in best)
        for best in parser.parses(model, words, **options, well_formed=True):
            assert not any(any(p.repairs) for p in best)
    # Without room for more, there are fewer trees than were asked for, and no impossible one.
    (few,) = parser.parses(model, words[2:], well_formed=True, beam=8, best=8, extra_len=0)
    assert 1 <= len(few) < 8 and all(math.isfinite(one.score) for one in few)
    # The scores are the model's own.
    found = parser.parses(model, words[:1], well_formed=True, method='greedy')[0][0]
    (whole,) = translation.likelihoods(model, [('The dog', trees.linearize(found.tree))])
    assert found.score == pytest.approx(whole.total, rel=1e-5)


def test_brackets_in_words_are_escaped(trained, monkeypatch, capfd):
    folder, _ = trained
    words = ['-LRB-', 't-LRB-est-RRB-', '-RRB-', '[', 'dog']
    [[best]] = transformer.load(str(folder)).parse(['( t(est) ) [ dog'], beam=1)
    assert trees.words(tree(best.text)) == words
    for flag in ('--nojson', '--json'):
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'( t(est) ) [ dog\n')))
        assert run.main(['run.py', 'parse', f'--workdir={folder}', '--beam=1', flag]) == 0
        line = capfd.readouterr().out
        assert trees.words(tree(json.loads(line)['text'] if flag == '--json' else line)) == words


def test_a_folder_that_cannot_be_drawn_into_is_refused_first(tmp_path, monkeypatch):
    """Before the sentences are parsed: there is no model here to parse them."""
    monkeypatch.setattr(parser, 'parses', lambda *_, **__: 1 / 0)
    (tmp_path / 'file').write_text('')
    parse = lambda draw: parser.parse(Trained(None, None, None), ['a dog .'], draw=draw)
    for folder in (str(tmp_path / 'file'), str(tmp_path / 'file' / 'trees'), ''):
        with pytest.raises(ConfigError, match=f'--draw={folder}: not a folder'):
            parse(folder)
    with pytest.raises(OSError) as caught:
        parse('/proc/trees')
    assert caught.value.filename == '/proc'
    with pytest.raises(ZeroDivisionError):
        parse(str(tmp_path / 'new' / 'trees'))
    assert [path.name for path in tmp_path.iterdir()] == ['file']


def test_a_parser_of_few_updates_is_diagnosed(trained, capsys):
    assert trained[1].result['scores']['test']['repaired']['share'] > 0.9
    assert run.main(['run.py', 'diagnose', f'--workdir={trained[0]}']) == 0
    out = capsys.readouterr().out
    assert '100.0 % of the outputs were repaired' in out and 'updates with a warm-up of' in out


def test_two_parsers_are_compared(trained, capsys):
    folder, _ = trained
    assert run.main(['run.py', 'compare', f'{folder}:2', f'{folder}:4', '--split=dev', '--json']) == 0
    report = json.loads(capsys.readouterr().out)
    assert report['significance'][0]['measure'] == 'f1'
    scores, expected = report['scores'], trained[1].result['scores']['dev']
    assert scores['loss']['b'] == pytest.approx(expected['loss'], rel=1e-6) != scores['loss']['a']
    assert scores['exact']['b'] == expected['exact']


def test_references_as_treebanks_have_them_are_compared_as_they_are_scored(trained):
    """With an empty root, functions of labels and a full stop, which EVALB leaves out."""
    golds = ['( (S (NP-SBJ (NN a)) (VP (VB b)) (. .)) )', '(ROOT (S (NP (NN a)) (VP (VB b))))']
    (f1,) = (one for one in task.TASK.measures if one.name == 'f1')
    cleaned = [trees.bracketed(trees.one(line)) for line in golds]
    assert f1.of_lines({'target': golds}, cleaned) == [100.0, 100.0]
    worse = ['(TOP (S (NP (NN a)) (VB b) (. .)))', '(TOP (NN a) (VB b))']
    config = Run.open(str(trained[0])).config
    (found,), (expected,) = (
        f1.significance(config, {'target': lines}, cleaned, [worse]) for lines in (golds, cleaned)
    )
    assert found == expected


def test_a_sentence_of_other_words_than_its_tree_is_named(trained, tmp_path, capsys):
    (tmp_path / 'words').write_text('The dog barks .\nall other words\n')
    (tmp_path / 'trees').write_text(f'{DOG}\n{DOG}\n'.replace('sleeps', 'barks'))
    call = ['run.py', 'evaluate', f'--workdir={trained[0]}', f'--source={tmp_path / "words"}']
    assert run.main([*call, f'--reference={tmp_path / "trees"}']) == 2
    assert 'line 2' in capsys.readouterr().err


def test_a_no_break_space_is_a_part_of_a_word():
    assert parser.escaped_words('10\u00a0km  runs ') == ['10\u00a0km', 'runs']
    assert parser.split_words('10\u00a0km, \u2009he runs.') == ['10', 'km', ',', 'he', 'runs', '.']


def test_trees_are_drawn_from_python(trained, tmp_path):
    transformer.load(str(trained[0])).parse(['a dog', '', 'b'], draw=str(tmp_path / 'new'), beam=1)
    assert {path.stem for path in (tmp_path / 'new').iterdir()} == {'tree-1', 'tree-3'}


def test_a_drawing_needs_matplotlib_before_the_sentences_are_parsed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    monkeypatch.setattr(parser, 'parses', lambda *_, **__: 1 / 0)
    with pytest.raises(ConfigError, match='--draw.*figures'):
        parser.parse(Trained(None, None, None), ['a dog .'], draw=str(tmp_path))


def test_tags_stand_for_words_on_request(tmp_path):
    options = {'data.tags': True, 'decode.well_formed': True}
    finished = action.run_training(written(tmp_path, **options), epath.Path(tmp_path / 'run'), '')
    codecs = Run.open(str(tmp_path / 'run')).codecs
    row = Example({'target': DOG}, {'target': 'a file'}, 1)
    pieces = fields.Tree(tags=True).encode('target', codecs, [row]).tokens
    assert codecs['target'].decode(pieces) == '(S (NP DT NN )NP (VP VBZ )VP . )S'
    # The share of right tags, recomputed from the trees that the command writes.
    golds = list(map(tree, run_data.of_run(Run.open(str(tmp_path / 'run'))).texts('dev')['target']))
    answers = transformer.load(tmp_path / 'run').parse([' '.join(trees.words(one)) for one in golds])
    found = [tree(best[0].text) for best in answers]
    ours, right = ([leaf.label for one in side for leaf in trees.leaves(one)] for side in (found, golds))
    share = np.mean([a == b for a, b in zip(ours, right, strict=True)])
    assert 0 < share < 1 and finished.result['scores']['dev']['tags'] == pytest.approx(share)


def test_a_damaged_treebank_is_refused(tmp_path, monkeypatch):
    config = written(tmp_path)
    with (tmp_path / 'bank').open('a') as file:
        file.write('\n(S (NP (NN dog))')
    with pytest.raises(ConfigError, match='bank: line [0-9]+: '):
        action.run_training(config, epath.Path(tmp_path / 'run'), '')
    assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
    ('options', 'option'),
    [
        ({'data.tokenizer': 'bytes', 'data.pieces': 259}, 'data.tokenizer'),
        ({'data.tokenizer_model': 'plain.model'}, 'data.tokenizer_model'),
        ({'data.source': 'text'}, 'data.source'),
    ],
)
def test_tokenizers_and_sources_of_plain_text_are_refused(options, option, tmp_path):
    model = vocabulary.train(['a b c'] * 9, 265)
    (tmp_path / 'plain.model').write_bytes(model)
    changes = {'data.pieces': 265, 'model.vocab_size': None} | options
    changes = {k: str(tmp_path / v) if v == 'plain.model' else v for k, v in changes.items() if v}
    config = written(tmp_path, **changes)
    with pytest.raises(ConfigError, match=f'^{option}'):
        action.run_training(config, epath.Path(tmp_path / 'run'), '')


def test_the_grammars_trees_have_its_english():
    """Each tree's words, joined, are the sentence; one tree has the brackets of a hand-made example."""
    pairs = sentences.sentence_pairs('dev')
    for (english, _), one in zip(pairs, sentences.sentence_trees('dev'), strict=True):
        text = ' '.join(trees.words(one))
        for mark in (' ,', " 's", " n't", ' .', ' ?'):
            text = text.replace(mark, mark[1:])
        assert text == english
        assert trees.clean(one) == one
    by_text = {english: one for (english, _), one in zip(pairs, sentences.sentence_trees('dev'), strict=True)}
    found = by_text['He had to drink cold coffee, but the boy went to the school.']
    assert trees.linearize(found, tags=True) == (
        '(S (S (NP PRP )NP (VP VB TO VB (NP JJ NN )NP )VP )S , CC '
        '(S (NP DT NN )NP (VP VB IN (NP DT NN )NP )VP )S . )S'
    )
