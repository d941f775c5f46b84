"""Scores of translations against published scores and against arithmetic by hand."""

import collections
import csv
import importlib.util
import json
import math
import os
import pathlib
import random
import re

import pytest
import sacrebleu

import run
from transformer.tasks.translation import bleu

ROOT = pathlib.Path(__file__).parents[3]
DATA = pathlib.Path(os.environ.get('TRANSFORMER_TEST_DATA', 'none'))
NO_DATA = 'TRANSFORMER_TEST_DATA names no folder with bleu_check/EXPECTED.tsv'


def multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """Computes the geometric mean of the n-gram precisions times the brevity penalty, in percent."""
    right, made = [0] * 4, [0] * 4
    lengths = [0, 0]
    for sides in zip(hypotheses, references, strict=True):
        tokens = [side.split() for side in sides]
        lengths = [total + len(side) for total, side in zip(lengths, tokens, strict=True)]
        for n in range(1, 5):
            grams = [collections.Counter(zip(*(t[i:] for i in range(n)), strict=False)) for t in tokens]
            right[n - 1] += (grams[0] & grams[1]).total()
            made[n - 1] += grams[0].total()
    mean = sum(math.log(r / m) for r, m in zip(right, made, strict=True)) / 4
    return 100 * math.exp(mean + min(0, 1 - lengths[1] / lengths[0]))


@pytest.fixture
def texts() -> tuple[list[str], list[str]]:
    """Draws German hypotheses, and references of which they lack some words."""
    draw = random.Random(0)
    text = 'Der Ost-West-Konflikt , „ sagte er “ ist vorbei . Die Frau sah das Haus z.B. am 3,5-km-Lauf'
    references = [' '.join(draw.choices(text.split(), k=20)) for _ in range(50)]
    drop = lambda line: ' '.join(word for word in line.split() if draw.random() > 0.1)
    return [drop(line) for line in references], references


def test_scores_of_tokenized_text(texts):
    found = bleu.score_all(*texts, ('en', 'de'), tokenized=True)
    assert list(found) == ['tokenized', 'compound_split']
    assert found['tokenized']['score'] == pytest.approx(multi_bleu(*texts), abs=1e-9)
    split = [[bleu.split_compounds(line) for line in side] for side in texts]
    assert split != list(texts)
    assert found['compound_split']['score'] == pytest.approx(multi_bleu(*split), abs=1e-9)
    assert list(bleu.score_all(*texts, ('de', 'en'), tokenized=True)) == ['tokenized']


def test_bleu_by_the_length_of_the_source(texts):
    """Groups by the words of the source, each scored by itself."""
    sources = [' '.join(['word'] * (1 + 2 * i)) for i in range(50)]
    found = bleu.by_length(sources, *texts, 'de')
    sizes = {'1-9': 5, '10-14': 2, '15-19': 3, '20-29': 5, '30-39': 5, '40-59': 10, '60-': 20}
    assert {name: group['count'] for name, group in found.items()} == sizes
    for name, (first, end) in {'1-9': (0, 5), '10-14': (5, 7), '60-': (30, 50)}.items():
        some = [side[first:end] for side in texts]
        assert found[name]['score'] == bleu.sacre_bleu(*some, 'de')
    assert bleu.by_length(['a b'], ['ja'], ['ja'], 'de').keys() == {'1-9'}


def test_scores_of_raw_text_have_names_of_their_own(texts):
    found = bleu.score_all(*texts, ('en', 'de'))
    assert found.keys() == {'sacrebleu', 'chrf', 'moses', 'paper'} <= bleu.NAMES.keys()
    assert len({scores['signature'] for scores in found.values()}) == 4
    assert '|tok:13a|' in found['sacrebleu']['signature']
    assert re.search(r'\|tok:quotes-moses\.de\.[\d.]+-compounds\|', found['paper']['signature'])
    for scores in found.values():
        low, high = scores['interval']
        assert 0 < low < scores['score'] < high < 100
    tokens = [[bleu.moses_tokenizer('de')(line) for line in side] for side in texts]
    assert found['moses']['score'] == pytest.approx(multi_bleu(*tokens), abs=1e-9)
    normal = [[bleu.normalize_quotes(line) for line in side] for side in texts]
    as_paper = bleu.score_all(
        *([bleu.moses_tokenizer('de')(line) for line in side] for side in normal),
        ('en', 'de'),
        tokenized=True,
    )
    assert found['paper']['score'] == pytest.approx(as_paper['compound_split']['score'], abs=1e-9)


def test_compounds_are_split_in_the_german_of_any_country():
    lines = ['ein Test-Satz und mehr Worte'] * 4
    signatures = {
        bleu.score_all(lines, lines, ('en', language))['paper']['signature']
        for language in ('de', 'de-AT', 'de_DE', 'deu', 'ger')
    }
    assert len(signatures) == 1 and '-compounds' in signatures.pop()
    text = 'Der Test-Satz vom 3. Oktober hat ca. 5 Worte.'
    assert bleu.papers_tokenizer('de-CH')(text) == bleu.papers_tokenizer('de')(text)


def test_french_compounds_stay_whole():
    lines = ['Peut-être que « oui » , dit-il .'] * 2
    assert 'compounds' not in bleu.score_all(lines, lines, ('en', 'fr'))['paper']['signature']


@pytest.mark.parametrize(
    'text, split',
    [
        ('Ost-West', 'Ost ##AT##-##AT## West'),
        ('a - b', 'a - b'),
        ('-5 bis 7-', '-5 bis 7-'),
        # As perl's s///g, that never looks back: the b belongs to the first match.
        ('a-b-c', 'a ##AT##-##AT## b-c'),
        ('Ost-West-Konflikt', 'Ost ##AT##-##AT## West ##AT##-##AT## Konflikt'),
    ],
)
def test_compounds(text, split):
    assert bleu.split_compounds(text) == split


def test_the_papers_tokenization_makes_quotes_plain_and_nothing_else():
    """Moses' normalize-punctuation would also make the dash plain and swap quote and comma."""
    tokenize = bleu.papers_tokenizer('de')
    assert tokenize('„Nein“, sagte er – und ging.') == '" Nein " , sagte er – und ging .'


def test_quotes():
    assert bleu.normalize_quotes('„Ja“, »sagte« er’s ‚so‘ – 5') == '"Ja", "sagte" er\'s \'so\' – 5'


CHINESE = ['我们今天去北京看长城。', '他不喜欢在冬天喝冷水。'], ['我们明天去北京看长城。', '他不喜欢喝冷水。']


@pytest.mark.parametrize('language', ['zh', 'zh-CN', 'zh_Hant', 'cmn'])
def test_chinese_has_the_score_of_sacrebleu_for_chinese(language):
    hypotheses, references = CHINESE
    found = bleu.score_all(hypotheses, references, ('en', language))
    # There are no words that Moses could separate.
    assert list(found) == ['sacrebleu', 'chrf']
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize='zh').score
    assert found['sacrebleu']['score'] == bleu.sacre_bleu(hypotheses, references, language) == expected > 50
    assert '|tok:zh|' in found['sacrebleu']['signature']
    ratio, penalty = bleu.lengths(hypotheses, references, language)
    assert ratio == 22 / 19 and penalty == 1
    ((difference, _),) = bleu.significance(references, [hypotheses], references, language)
    assert difference == pytest.approx(expected - 100)


@pytest.mark.parametrize(
    ('language', 'module', 'tokenizer'), [('ja', 'MeCab', 'ja-mecab'), ('ko', 'mecab_ko', 'ko-mecab')]
)
def test_japanese_and_korean(monkeypatch, caplog, language, module, tokenizer):
    lines = (
        ['私は昨日、京都で古い寺を見た。'] if language == 'ja' else ['나는 어제 교토에서 오래된 절을 보았다.']
    )
    if importlib.util.find_spec(module):
        signature = bleu.score_all(lines, lines, ('en', language))['sacrebleu']['signature']
        assert f'|tok:{tokenizer}-' in signature
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    found = bleu.score_all(lines, lines, ('en', language))
    assert '|tok:char|' in found['sacrebleu']['signature']
    assert f"pip install 'sacrebleu[{language}]'" in caplog.text
    # Korean has words, with blanks between them.
    assert ('moses' in found) == (language == 'ko')


def test_thai_counts_characters():
    lines = ['ฉันไปตลาดเมื่อวานนี้']
    found = bleu.score_all(lines, lines, ('en', 'th'))
    assert list(found) == ['sacrebleu', 'chrf'] and '|tok:char|' in found['sacrebleu']['signature']


def test_an_identical_text_scores_100():
    lines = ['Das ist ein kleiner Satz.', 'Und das hier ist noch einer.']
    for scores in bleu.score_all(lines, lines, ('en', 'de')).values():
        assert scores['score'] == pytest.approx(100)


def test_scores_of_0_have_no_interval():
    for scores in bleu.score_all(['ja ja'] * 4, ['Nö und so'] * 4, ('en', 'de')).values():
        assert scores['score'] == 0 and scores['interval'] is None
    # Some resamples score 0, others do not.
    mixed = bleu.score_all(['ja ja', 'Nö und so fort', 'a', 'b'], ['Nö und so fort'] * 4, ('en', 'de'))
    assert mixed['chrf']['score'] > 0 and mixed['chrf']['interval'] is None
    assert 'bs:' not in mixed['chrf']['signature'] and 'bs:' in mixed['sacrebleu']['signature']
    assert len(bleu.describe(mixed)) == 4


def test_multi_bleu_does_not_smooth():
    hypotheses, references = ['ein Hund sah'], ['sah ein Hund']
    assert bleu.score_all(hypotheses, references, ('en', 'de'), tokenized=True)['tokenized']['score'] == 0
    raw = bleu.score_all(['ein Hund sah es so'], ['es sah so ein Hund'], ('en', 'de'))
    assert raw['sacrebleu']['score'] > 0 and raw['moses']['score'] == raw['paper']['score'] == 0


def test_text_that_looks_tokenized():
    assert bleu.looks_tokenized(['So ist es .', 'Ja !', 'Nein .'])
    assert not bleu.looks_tokenized(['So ist es.', 'Ja .', 'Nein.'])
    assert not bleu.looks_tokenized([])


def test_the_command(tmp_path, texts, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    files = [tmp_path / name for name in ('h', 'r')]
    for file, lines in zip(files, texts, strict=True):
        file.write_text('\n'.join(lines) + '\n')
    call = ['run.py', 'score', f'--hypotheses={files[0]}', f'--references={files[1]}']
    assert run.main([*call, '--json']) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == bleu.score_all(*texts, ('en', 'de')) and 'en-de' in err
    assert run.main([*call, '--tokenized', '--languages=en-vi']) == 0
    score = bleu.score_all(*texts, ('en', 'vi'), tokenized=True)['tokenized']['score']
    assert capsys.readouterr().out.split('  [')[0].split() == [
        *('tokenized', 'BLEU', '(as', 'given)', f'{score:.2f}')
    ]
    files[0].write_text('one\n')
    assert run.main(call) == 2
    error = capsys.readouterr().err
    assert error.count('\n') == 1 and all(str(file) in error for file in files)
    for file in files:
        file.write_text('')
    assert run.main(call) == 2
    error = capsys.readouterr().err
    assert 'empty' in error and all(str(file) in error for file in files)
    for wrong in ('--languages=en', '--hypotheses=', f'--references={tmp_path}/none'):
        others = [word for word in call if not word.startswith(wrong.partition('=')[0])]
        assert run.main([*others, wrong]) == 2
        error = capsys.readouterr().err
        assert error.count('\n') == 1 and 'twice' not in error


def test_case_edits_and_signatures(tmp_path, capsys):
    """If case does not count, sentences have the BLEU that they have in small letters."""
    hypotheses = ['DER HUND SAH DIE ALTE KATZE .', 'Sie war sehr müde und schlief ein .']
    references = ['Der Hund sah die alte Katze .', 'Er war sehr müde und schlief ein .']
    for name, lines in (('h', hypotheses), ('r', references)):
        (tmp_path / name).write_text(''.join(f'{line}\n' for line in lines))
    call = ['run.py', 'score', f'--hypotheses={tmp_path / "h"}', f'--references={tmp_path / "r"}', '--ter']
    scored = {}
    for how in ([], ['--lowercase']):
        assert run.main([*call, *how, '--json']) == 0
        scored[bool(how)] = json.loads(capsys.readouterr().out)
    low, cased = scored[True], scored[False]
    equal = [line.lower() for line in hypotheses], [line.lower() for line in references]
    for name, expected in bleu.score_all(*equal, ('en', 'de')).items():
        assert low[name]['score'] == pytest.approx(expected['score'])
        assert low[name]['score'] > cased[name]['score']
        assert '|case:lc|' in low[name]['signature'] or name == 'chrf'
    # One word of 15 differs.
    assert low['ter']['score'] == cased['ter']['score'] == pytest.approx(100 / 15)
    assert 'case:lc' in cased['ter']['signature'] and cased['ter']['interval'][1] > 100 / 15
    assert run.main([*call, '--lowercase']) == 0
    plain = capsys.readouterr().out
    assert run.main([*call, '--lowercase', '--verbose']) == 0
    verbose = capsys.readouterr().out
    assert 'nrefs' not in plain and max(map(len, plain.splitlines())) <= 80
    assert verbose.count('nrefs') == len(plain.splitlines()) == 5


@pytest.mark.skipif(not (DATA / 'bleu_check' / 'EXPECTED.tsv').exists(), reason=NO_DATA)
class TestPublishedScores:
    """Outputs of others' systems, with the scores that they published."""

    def read(self, name: str) -> list[str]:
        folder = DATA if name.startswith('wmt_news') else DATA / 'bleu_check'
        return (folder / name).read_text('utf-8').split('\n')[:-1]

    def rows(self) -> list[dict[str, str]]:
        with (DATA / 'bleu_check' / 'EXPECTED.tsv').open(encoding='utf-8') as file:
            rows = list(csv.DictReader(file, delimiter='\t', quoting=csv.QUOTE_NONE))
        # One reference was never published.
        return [row for row in rows if not row['ref'].startswith('(')]

    def test_to_the_last_printed_digit(self):
        assert len(self.rows()) == 5
        for row in self.rows():
            sides = self.read(row['hyp']), self.read(row['ref'])
            if 'mteval' in row['published_with']:
                score = bleu.score_all(*sides, ('en', 'de'))['sacrebleu']['score']
                assert f'{score / 100:.4f}' == row['published']
            elif 'multi-bleu' in row['published_with']:
                score = bleu.score_all(*sides, ('en', 'vi'), tokenized=True)['tokenized']['score']
                assert f'BLEU = {score:.2f},' in row['published']
            else:
                # Its script counts an empty line as one token, which multi-bleu.perl does not.
                sides = [[line or '<empty>' for line in side] for side in sides]
                score = bleu.score_all(*sides, ('de', 'en'), tokenized=True)['tokenized']['score']
                assert abs(score - float(row['published'])) < 1e-10

    def test_split_compounds_add_half_a_point(self):
        sides = [
            [bleu.moses_tokenizer('de')(line) for line in self.read(name)]
            for name in ('wmt_en-de/newstest2014.dynet0.hyp.mydetok.de', 'wmt_news/en-de/newstest2014.de')
        ]
        found = bleu.score_all(*sides, ('en', 'de'), tokenized=True)
        assert 0.4 < found['compound_split']['score'] - found['tokenized']['score'] < 0.6

    def test_quotes_are_plain_in_the_papers_reference(self):
        names = ('bleu_check/wmt_en-de/newstest2014.dynet0.hyp.mydetok.de', 'wmt_news/en-de/newstest2014.de')
        sides = [(DATA / name).read_text('utf-8').split('\n')[:-1] for name in names]
        assert round(bleu.score_all(*sides, ('en', 'de'))['paper']['score'], 2) == 26.56
        # With plain dashes too, as by normalize-punctuation of sacremoses.
        dashes = [[line.replace('–', '-') for line in side] for side in sides]
        assert round(bleu.score_all(*dashes, ('en', 'de'))['paper']['score'], 2) == 26.69
