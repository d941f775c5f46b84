"""Tags of words: the loss and the scores in numpy, the usual tag, the command."""

import dataclasses
import io
import json
import re
import shutil

import numpy as np
import pytest
import sentencepiece
import toys

import transformer
from transformer.cli import main as run
from transformer.config import ConfigError
from transformer.data.arrays import ragged
from transformer.data.codec import Labels
from transformer.data.dataset import Split
from transformer.data.fields import Example, Tags
from transformer.data.text_input import cut_rows
from transformer.data.tokenizers import kinds
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.runs import restore
from transformer.tasks.labelling import conlleval
from transformer.tasks.labelling import task as labelling
from transformer.tasks.labelling.task import most_frequent_tags
from transformer.tokens import EOS

TAGS = {'the': 'O', 'old': 'O', 'dog': 'B-animal', 'house': 'I-animal', 'Berlin': 'B-place', 'sleeps': 'O'}


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp('texts'), np.random.default_rng(0)
    for split, count in (('train', 90), ('dev', 12), ('test', 15)):
        lines = []
        for _ in range(count):
            lines += [f'{word} x {TAGS[word]}' for word in rng.choice([*TAGS], rng.integers(1, 8))] + ['']
        (folder / f'{split}.conll').write_text('\n'.join(lines) + '\n')
    return folder


@pytest.mark.parametrize(
    ('name', 'content', 'told'),
    [
        ('x.conllu', '1\tThe\tthe\tDET\n', 'data.columns: missing'),
        ('x.conll', '# sent_id = 1\n1\tThe\tthe\tDET\n', 'x.conll: line 1: a comment of CoNLL-U'),
    ],
)
def test_conllu_is_read_as_such(texts, tmp_path, name, content, told):
    for split in ('train', 'dev', 'test'):
        shutil.copy(texts / f'{split}.conll', tmp_path)
    (tmp_path / name).write_text(content)
    config = toys.config_of(
        tmp_path, train__task='labelling', data__source='conll', data__train=name,
        data__dev='dev.conll', data__test='test.conll',
    )  # fmt: skip
    with pytest.raises(ConfigError, match=told):
        toys.trained(config, tmp_path / 'run')
    assert not (tmp_path / 'run').exists()


@pytest.fixture(scope='module')
def trained(texts, tmp_path_factory):
    config = toys.config_of(
        texts, train__task='labelling', data__source='conll', data__train='train.conll',
        data__dev='dev.conll', data__test='test.conll',
    )  # fmt: skip
    return toys.trained(config, tmp_path_factory.mktemp('runs') / 'run')


def sentences_of(texts):
    blocks = (texts / 'test.conll').read_text().strip().split('\n\n')
    return [[tuple(line.split()[::2]) for line in block.split('\n')] for block in blocks]


def test_scores_are_those_of_the_tags(trained, texts):
    gold = [[tag for _, tag in sentence] for sentence in sentences_of(texts)]
    scores = trained.result()['scores']['test']
    lines = (trained.folder / 'translations' / 'test.latest.txt').read_text().splitlines()
    found = [line.split(' ') for line in lines]
    right = [a == b for one, other in zip(found, gold, strict=True) for a, b in zip(one, other, strict=True)]
    assert scores['accuracy']['score'] == pytest.approx(np.mean(right))
    assert scores['f1']['score'] == pytest.approx(conlleval.score(gold, found).f1()['score'])
    # Each word has one tag in training, too.
    assert scores['baseline'] == 1.0 and 'perplexity' not in scores


def test_words_of_a_list_have_no_places(trained):
    data = dataclasses.replace(trained.config.data, tokenizer='words')
    with pytest.raises(ConfigError, match='^data.tokenizer=words: '):
        labelling.reading(dataclasses.replace(trained.config, data=data))


def test_the_command_writes_a_line_for_each_word(trained, texts, monkeypatch, capfd):
    sentences = [[word for word, _ in sentence] for sentence in sentences_of(texts)][:3]
    given = '\n'.join([*map(' '.join, sentences), '']) + '\n'
    monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO(given.encode())))
    assert run.main(['run.py', 'label', f'--workdir={trained.folder}']) == 0
    blocks = capfd.readouterr().out.split('\n\n')
    lines = (trained.folder / 'translations' / 'test.latest.txt').read_text().splitlines()
    for block, words, tags in zip(blocks, sentences, lines, strict=False):
        assert block.strip().split('\n') == [f'{w}\t{t}' for w, t in zip(words, tags.split(' '), strict=True)]
    model = transformer.load(trained.folder)
    assert model.label([''])[0][0] == ('', 0.0)
    [[answer]] = model.label([' '.join(sentences[0])])
    [tags] = labelling._labels(model.trained, sentences[:1], lambda texts: None)
    assert answer.score == pytest.approx(sum(logp for _, logp in tags)) and answer.score < 0
    # A score has no place beside a line's words.
    assert run.main(['run.py', 'label', f'--workdir={trained.folder}', '--scores']) == 2


def test_rows_are_cut_to_the_table_of_positions_with_a_warning(trained, caplog):
    config, rows = trained.config, [[5, 6, 7, EOS], [5, 6, 7, 8, EOS], [5] * 9]
    model = dataclasses.replace(config.model, positions='learned', max_len=4)
    learned = dataclasses.replace(config, model=model)
    assert cut_rows(config, rows, 0) == rows
    # Attention over longer rows might not fit into memory.
    assert cut_rows(config, [[5] * 3000]) == [[5] * 1024]
    assert cut_rows(learned, rows) == [row[:4] for row in rows] and not caplog.messages
    assert cut_rows(learned, rows, 7) == [row[:4] for row in rows]
    assert [re.findall(r'\d+', message) for message in caplog.messages] == [['9', '4', '5'], ['10', '4', '9']]


@pytest.mark.parametrize('number', [0, 7])
def test_the_number_of_a_cut_line(trained, monkeypatch, number):
    """The words behind the cut get the tag of the last piece that is read."""
    seen = []

    def cut(config, rows, first):
        seen.append(first)
        return [row[:1] for row in rows]

    monkeypatch.setattr(labelling, 'cut_rows', cut)
    [answer] = labelling.label(restore.load(trained)[0], ['a b c'], first=number)[0]
    assert seen == [number] and len({line.split('\t')[1] for line in answer.text.splitlines()}) == 1


def test_the_usual_tag():
    """Word 5 is mostly tagged 2 and word 6 always 1; word 7, unknown, gets 2, the most frequent of all."""
    train = Split(
        {'text': ragged([[5, 5, 6, 1], [5, 1]], '<u2'), 'tags': ragged([[2, 1, 1, 0], [2, 0]], '<u2')}
    )
    more = Split({'text': ragged([[5, 1]] * 2, '<u2'), 'tags': ragged([[2, 0]] * 2, '<u2')})
    both = Split({
        name: ragged([*map(np.asarray, train.fields[name]), *map(np.asarray, more.fields[name])], '<u2')
        for name in train.fields
    })  # fmt: skip
    test = Split({'text': ragged([[5, 6, 7, 8, 1]], '<u2'), 'tags': ragged([[2, 1, 2, 0, 0]], '<u2')})
    usual = lambda test: most_frequent_tags(both, test, ByteTokenizer())
    assert usual(test) == 1.0
    wrong = Split({'text': ragged([[5, 6, 7, 1]], '<u2'), 'tags': ragged([[1, 2, 2, 0]], '<u2')})
    assert usual(wrong) == pytest.approx(1 / 3)
    # A blank is a piece of its own, and belongs to no word; a sentence can be empty.
    blank = ByteTokenizer().encode(' ')[0]
    apart = Split({
        'text': ragged([[6, blank, 5, blank, 6, 1], [1]], '<u2'),
        'tags': ragged([[1, 0, 2, 0, 1, 0], [0]], '<u2'),
    })  # fmt: skip
    assert usual(apart) == 1.0


def test_sentences_without_words_are_scored(tmp_path):
    for split in ('train', 'dev', 'test'):
        rows = [{'text': 'the dog', 'tags': 'O B-animal'}, {'text': '', 'tags': ''}] * 6
        (tmp_path / f'{split}.jsonl').write_text(''.join(f'{json.dumps(row)}\n' for row in rows))
    config = toys.config_of(
        tmp_path, train__task='labelling', data__source='table', data__train='train.jsonl',
        data__dev='dev.jsonl', data__test='test.jsonl', data__pieces=270,
    )  # fmt: skip
    run = toys.trained(config, tmp_path / 'run')
    lines = (run.folder / 'translations' / 'test.latest.txt').read_text().split('\n')[:-1]
    assert [len(line.split()) for line in lines] == [2, 0] * 6
    assert run.result()['scores']['test']['baseline'] == 1.0


def test_words_without_a_piece_of_their_own():
    """A tokenizer that normalises can leave out a character that is a word."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(['the dog sleeps', 'the house'] * 20), model_writer=model, vocab_size=30,
        model_type='bpe', pad_id=0, eos_id=1, unk_id=2, bos_id=-1, hard_vocab_limit=False, minloglevel=2,
        normalization_rule_name='nmt_nfkc',
    )  # fmt: skip
    codecs = {'text': kinds.read(model.getvalue()), 'tags': Labels(('O',))}
    row = lambda words: Example({'text': words, 'tags': ['O'] * len(words)}, {'text': 'f', 'tags': 'f'}, 3)
    encode = lambda words: Tags(of='text').encode('tags', codecs, [row(words)]).tokens
    assert sum(encode(['the', 'dog'])) == 2 and sum(encode([])) == 0
    for words in (['the', '\u200b', 'dog'], ['the', '\u200b']):
        with pytest.raises(ConfigError, match='line 3.*200b'):
            encode(words)
