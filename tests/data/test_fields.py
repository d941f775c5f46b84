"""Fields: their encodings of a row, aligned with the pieces of other fields, and their refusals."""

import json

import numpy as np
import pytest

from transformer.config import ConfigError, Data
from transformer.data import cache, codec, vocabulary
from transformer.data.codec import Labels
from transformer.data.fields import (
    Columns,
    Example,
    Image,
    Label,
    Number,
    Reading,
    Span,
    Tags,
    Text,
    Tree,
    Words,
)  # fmt: skip
from transformer.data.spellings import Spellings
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.data.tokenizers.sentence_piece import SentencePieceTokenizer

TEXTS = ['the old dog sleeps', 'a cat sees the dog', 'häuser and dogs', 'the end .'] * 5


@pytest.fixture(scope='module')
def bpe():
    return SentencePieceTokenizer(vocabulary.train(TEXTS, 300))


def row(**values):
    return Example(values, dict.fromkeys(values, 'a file'), 7)


def test_several_texts_are_joined_each_with_its_end(bpe):
    stored = Columns().encode('text', {'text': bpe}, [row(text='the dog\ta cat'), row(text='the end')])
    assert stored[0].tolist() == bpe.encode('the dog') + bpe.encode('a cat')
    assert stored[1].tolist() == bpe.encode('the end')
    assert [*Columns().learned('the dog\ta cat')] == ['the dog', 'a cat']


@pytest.mark.parametrize('words', [['the', 'dog'], ['häuser', 'XYZ', 'é', 'dogs', '.'], ['a']])
@pytest.mark.parametrize('kind', ['bpe', 'bytes'])
def test_a_word_begins_at_the_first_piece_that_covers_its_first_character(bpe, words, kind):
    tokenizer = bpe if kind == 'bpe' else ByteTokenizer()
    places, length = tokenizer.word_places(words)
    pieces = tokenizer.encode(' '.join(words))
    assert length == len(pieces) and places == sorted(set(places)) and len(places) == len(words)
    # The pieces from one place to the next spell a word, with the blank before it or after it.
    for word, begin, end in zip(words, places, [*places[1:], length - 1], strict=True):
        assert tokenizer.decode(pieces[begin:end]).strip() == word


def test_tags_are_at_the_first_pieces_of_words(bpe):
    fields, labels = {'text': Words(), 'tags': Tags(of='text')}, Labels(('A', 'N', 'V'))
    rows = [row(text=['the', 'XYZdog'], tags=['A', 'V']), row(text=['cat'], tags=['N'])]
    codecs = {'text': bpe, 'tags': labels}
    text, tags = (fields[name].encode(name, codecs, rows) for name in fields)
    assert text.offsets.tolist() == tags.offsets.tolist()
    places, _ = bpe.word_places(['the', 'XYZdog'])
    expected = np.zeros(len(text[0]), int)
    expected[places] = [1, 3]
    assert tags[0].tolist() == expected.tolist() and tags[1].tolist() == [2, *[0] * (len(text[1]) - 1)]
    with pytest.raises(ConfigError, match='a file: line 7'):
        fields['tags'].encode('tags', codecs, [row(text=['a', 'b'], tags=['N'])])
    with pytest.raises(ConfigError, match="'X' is not among"):
        fields['tags'].encode('tags', codecs, [row(text=['a'], tags=['X'])])


def test_many_tags_have_numbers_of_their_own(bpe):
    names = tuple(f'{n:05}' for n in range(70_000))
    for tag in (65_534, 65_535, 65_540):
        given = [row(text=['cat'], tags=[names[tag]])]
        found = Tags(of='text').encode('tags', {'text': bpe, 'tags': Labels(names)}, given)
        assert found[0][0] == 1 + tag


@pytest.mark.parametrize(
    ('sentence', 'parts'),
    [
        ('', ['']),
        ('a cat', ['a cat']),
        ('a \u2585 cat', ['a ', ' cat']),
        ('ab ' * 400_000, None),
        ('ä' * 600_000, None),
        # Below the limit, in bytes.
        ('a' * 500_000, ['a' * 500_000]),
    ],
    ids=['empty', 'short', 'reserved', 'long', 'one word', 'not long'],
)
def test_sentences_that_sentencepiece_leaves_out_are_divided(sentence, parts):
    found = list(vocabulary._readable([sentence]))
    assert parts is None or found == parts
    assert max(len(part.encode()) for part in found) <= 2**20
    kept = sentence.replace('\u2585', '')
    assert ''.join(found).replace(' ', '') == kept.replace(' ', '')
    if ' ' in sentence:
        assert {word for part in found for word in part.split()} <= set(sentence.split())


@pytest.mark.parametrize('answer', ['old dog', 'sleeps', 'the', 'g sl'])
def test_a_span_is_the_pieces_that_its_characters_touch(bpe, answer):
    context = 'the old dog sleeps'
    start = context.index(answer)
    codecs = {'context': bpe}
    values = {'context': context, 'answer': ((start, answer),)}
    [[first, last]] = Span().encode('answer', codecs, [row(**values)]).values.tolist()
    offsets = bpe.offsets(context)
    assert offsets[first][0] <= start < offsets[first][1]
    assert offsets[last][0] < start + len(answer) <= offsets[last][1]
    assert json.loads(Span().raw(values['answer'])) == [[start, answer]]


def test_answers_that_are_missing_or_elsewhere(bpe, monkeypatch):
    codecs = {'context': bpe}
    none = Span(optional=True).encode('answer', codecs, [row(context='the dog', answer=())])
    assert none.values.tolist() == [[-1, -1]]
    # Of dev and test, whose questions are not left out.
    with pytest.raises(ConfigError, match='a file: line 7: no answer.*answers.no_answer=True'):
        Span().encode('answer', codecs, [row(context='the dog', answer=())])
    assert Span().blank(()) and not Span(optional=True).blank(())
    with pytest.raises(ConfigError, match='a file: line 7'):
        Span().encode('answer', codecs, [row(context='the dog', answer=((3, 'dog'),))])
    # Some tokenizers have no pieces for blanks.
    monkeypatch.setattr(bpe, 'offsets', lambda text: [(0, 3), (4, 7), (7, 7)])
    with pytest.raises(ConfigError, match="a file: line 7: the answer ' '"):
        Span().encode('answer', codecs, [row(context='the dog', answer=((3, ' '),))])


@pytest.mark.parametrize(
    ('lines', 'bad'),
    [
        (['ali,aly', 'salim,salem'], 1),  # commas for tabs
        (['علي\tali\taly', 'سالم'], 2),  # the source alone
        (['علي\tali', 'سالم\t\t '], 2),  # empty columns
        (['علي\t\u200e', 'سالم\tsalim'], 1),  # a mark of direction alone
        (['سالم\tsalim', 'علي\tali'], 1),  # another order
    ],
)
def test_files_of_spellings_are_checked(lines, bad):
    sources = 'علي', 'سالم'
    codecs = dict.fromkeys(('source', 'target'), ByteTokenizer())
    rows = [
        Example(
            {'source': source, 'target': line}, {'source': 'dev.ar', 'target': 'dev.references.tsv'}, number
        )
        for number, (source, line) in enumerate(zip(sources, lines, strict=True), 1)
    ]
    with pytest.raises(ConfigError, match=f'dev.references.tsv: line {bad}: '):
        Spellings().encode('target', codecs, rows)


def test_spellings_in_files_of_other_forms():
    codecs = dict.fromkeys(('source', 'target'), ByteTokenizer())

    def first(line, files):
        row = Example({'source': 'José', 'target': line}, files, 1)
        return codecs['target'].decode(Spellings().encode('target', codecs, [row]).tokens)

    apart = {'source': 'dev.ar', 'target': 'dev.references.tsv'}
    # The source in another form of Unicode is the same source; an empty column is no spelling.
    assert first('Jose\u0301\u200e\t\tjose\tjoseh\t', apart) == 'jose'
    assert first('jose', {'source': 'dev.ar', 'target': 'dev.latin'}) == 'jose'
    assert first('jose', dict.fromkeys(apart, 'table.tsv')) == 'jose'
    with pytest.raises(ConfigError, match='José'):
        first('joseph\tjose', {'source': 'dev.ar', 'target': 'dev.latin'})


def test_numbers():
    assert Number().encode('x', {}, [row(x='2.5'), row(x='-1')]).values.tolist() == [2.5, -1.0]
    for wrong in ('', 'two', 'nan', 'inf', '1e39', '-1e39', '1_000'):
        with pytest.raises(ConfigError, match='a file: line 7'):
            Number().encode('x', {}, [row(x=wrong)])


def test_identities_differ_where_the_stored_numbers_do():
    fields = [
        Text('de'), Spellings('de'), Columns('de'), Words('de'), Tree(), Tree(tags=True), Label(), Number(),
        Label(('a', 'b')), Tags(), Span(), Span(of='text'), Span(optional=True), Image(4, 4, 1),
        Image(4, 4, 3), Text('de', whole=True),
    ]  # fmt: skip
    names = [json.dumps(field.identity(), sort_keys=True) for field in fields]
    assert len(set(names)) == len(fields)
    # How an error names the option makes no difference.
    assert Text('de', 'data.language').identity() == Text('de').identity()


def test_two_tasks_on_the_same_files_have_folders_of_their_own(tmp_path):
    """A line with a tab is one spelling to translation, and a source with its spelling to transliteration."""
    for side, lines in {'a': ['p'] * 60, 'b': ['p\tq'] * 60}.items():
        for split in ('train', 'dev', 'test'):
            (tmp_path / f'{split}.{side}').write_text('\n'.join(lines) + '\n')
    data = Data(
        source='text', dir=str(tmp_path), dev='dev', source_language='a', target_language='b', pieces=263,
        max_len=50, tokenizer='characters',
    )  # fmt: skip
    options = ('source', 'source_language', 'target_language', 'pieces', 'max_len')
    folders, texts = set(), []
    for target in (Text('b'), Spellings('b')):
        dataset = cache.prepare(
            data, Reading({'source': Text('a'), 'target': target}, options), tmp_path / 'c'
        )
        folders.add(dataset.folder)
        texts.append(dataset.codecs['target'].decode(dataset.splits['dev'].example(0)['target']))
    assert len(folders) == 2 and texts == ['p\tq', 'q']


def test_a_dataset_has_a_codec_for_each_field(tmp_path):
    """A tokenizer, names of classes and numbers that need none, in one manifest."""
    lines = [
        f'{"good" if n % 2 else "bad"}\tthe {"old" if n % 3 else "new"} dog {n % 7}\t{n / 2}'
        for n in range(60)
    ]
    for split in ('train', 'dev', 'test'):
        (tmp_path / f'{split}.tsv').write_text('label\ttext\tx\n' + '\n'.join(lines) + '\n')
    data = Data(
        source='table', dir=str(tmp_path), train='train.tsv', dev='dev.tsv', test='test.tsv', pieces=300,
        max_len=50,
    )  # fmt: skip
    reading = Reading({'text': Text(), 'label': Label(), 'x': Number()}, ('source', 'columns', 'pieces'))
    dataset = cache.prepare(data, reading, tmp_path / 'cache')
    assert dataset.manifest['codecs'] == {'text': 'tokenizer.model', 'label': 'labels.json', 'x': None}
    assert dataset.codecs['label'].names == ('bad', 'good') and dataset.codecs['x'] is None
    example = dataset.splits['train'].example(3)
    assert dataset.codecs['text'].decode(example['text']) == 'the new dog 3'
    assert (dataset.codecs['label'].decode(int(example['label'])), float(example['x'])) == ('good', 1.5)
    assert dataset.texts('dev')['text'][1] == 'the old dog 1' and 'label' not in dataset.texts('dev')
    again = cache.prepare(data, reading, tmp_path / 'cache')
    assert codec.contents(again.codecs) == codec.contents(dataset.codecs)
    # A class that training does not have.
    with (tmp_path / 'test.tsv').open('a') as file:
        file.write('ugly\ta dog\t1\n')
    with pytest.raises(ConfigError, match='test.tsv: line 62'):
        cache.prepare(data, reading, tmp_path / 'cache')
