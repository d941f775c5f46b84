"""Tables, CoNLL columns and SQuAD's JSON: their values, and refusals that name the file and line."""

import gzip
import json

import pytest

from transformer.config import ConfigError, Data
from transformer.data import fields
from transformer.data.fields import Columns, Label, Reading, Span, Tags, Text, Words
from transformer.data.sources import reader, table

CLASSES = Reading({'text': Columns(), 'label': Label()}, ())
TAGS = Reading({'text': Words(), 'tags': Tags(of='text')}, ())


def read(folder, name, content, reading=CLASSES, source='table', **options):
    """Reads the rows of a file, as values and lines."""
    content = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(content)
    data = Data(source=source, dir=str(folder), dev=options.pop('entry', name), **options)
    reader.check(data, reading)
    rows = list(reader.rows(data, reading, 'dev', reader.Report()))
    [origin] = reader.READERS[source].origins(data, reading, 'dev')
    assert origin.lines == len(rows)
    return [(row.values, row.line) for row in rows]


@pytest.mark.parametrize(
    ('name', 'content', 'columns'),
    [
        ('a.tsv', 'stars\tsentence\n5\tvery "good\n1\tbad', 'text=sentence,label=stars'),
        ('a.tsv', '5\tvery "good\n1\tbad\n', 'text=2,label=1'),
        ('a.txt', '5 very "good\n1 bad\n', 'text=2,label=1'),
        ('a.csv', 'text,label\n"very ""good",5\nbad,1\n', None),
        ('a.csv', '5\tvery "good\n1\tbad\n', 'text=2,label=1'),
        ('a.jsonl', '{"label": 5, "text": "very \\"good"}\n{"label": 1, "text": "bad"}\n', None),
        ('a.tsv.gz', gzip.compress(b'text\tlabel\nvery "good\t5\nbad\t1\n', mtime=0), None),
    ],
)
def test_forms_of_tables(tmp_path, name, content, columns):
    rows = read(tmp_path, name, content, columns=columns)
    assert [values for values, _ in rows] == [
        {'text': 'very "good', 'label': '5'}, {'text': 'bad', 'label': '1'},
    ]  # fmt: skip
    second = 3 if columns is None and not name.startswith('a.jsonl') or 'sentence' in (columns or '') else 2
    assert rows[1][1] == second


def test_many_columns(tmp_path):
    line = '\t'.join(['a', *['x'] * 9_999, 'b']) + '\n'
    [(values, _)] = read(tmp_path, 'a.tsv', line, columns='text=1,label=10001')
    assert values == {'text': 'a', 'label': 'b'}


def test_texts_of_several_columns_and_a_slice(tmp_path):
    content = 'a\tb\tlabel\n' + ''.join(f'x{n}\ty {n}\tk\n' for n in range(4))
    rows = read(tmp_path, 'a.tsv', content, columns='text=a+b,label=label', entry='a.tsv[50%:]')
    assert [values['text'] for values, _ in rows] == ['x2\ty 2', 'x3\ty 3']


@pytest.mark.parametrize(
    ('name', 'content'),
    [
        ('a.tsv', 'text\tlabel\nx\t1\n\n\t\ny\t2\n'),
        ('a.csv', 'text,label\n"x",1\n\n,\n"y",2\n'),
        ('a.jsonl', '{"text": "x", "label": 1}\n\n \n{"text": "y", "label": 2}\n'),
    ],
)
def test_blank_rows_are_left_out_and_counted(tmp_path, caplog, name, content):
    rows = read(tmp_path, name, content)
    assert [values['text'] for values, _ in rows] == ['x', 'y'] and not caplog.records
    data = Data(source='table', dir=str(tmp_path), dev=f'{name}[50%:],{name}')
    table.warn(data, Reading({'text': Text(), 'label': Label()}, ()), 'dev')
    assert [record.args for record in caplog.records] == [(tmp_path / name, 2)]


def test_lists_of_texts_in_json(tmp_path):
    """They are several texts of a field that has them; tabs in a text are blanks."""
    reading = Reading({'text': Columns(), 'label': Label(), 'more': Words()}, ())
    row = {'text': ['a\tb', 'c'], 'label': 1, 'more': ['d', 'e\nf'], 'unused': {'x': [1]}}
    [(values, _)] = read(tmp_path, 'a.jsonl', json.dumps(row) + '\n', reading)
    assert values == {'text': 'a b\tc', 'label': '1', 'more': ['d', 'e', 'f']}
    joined = read(tmp_path, 'a.jsonl', json.dumps(row) + '\n', columns='text=more+text,label=label')
    assert joined[0][0]['text'] == 'd\te f\ta b\tc'
    # A cell of a CSV can have tabs and newlines of its own.
    [(values, _)] = read(tmp_path, 'a.csv', 'text,label\n"a\tb\nc",5\n')
    assert values['text'] == 'a b c'
    # Other blanks stay.
    [(values, _)] = read(tmp_path, 'a.csv', 'text,label\n"a\u00a0b\t\nc  d\u2003e",5\n')
    assert values['text'] == 'a\u00a0b c  d\u2003e'


def test_tabs_and_blanks_in_cells(tmp_path):
    """Quotes and the names of files say what separates the cells of a first line."""
    rows = read(tmp_path, 'a.csv', '5,"very\tgood"\n1,"a\tb\nc"\n', columns='label=1,text=2')
    assert [values['text'] for values, _ in rows] == ['very good', 'a b c']
    rows = read(tmp_path, 'a.tsv', 'one column\nof words\n', Reading({'text': Text()}, ()), columns='text=1')
    assert [values['text'] for values, _ in rows] == ['one column', 'of words']


@pytest.mark.parametrize('value', [['x', 'y'], [1, 'x'], {'x': 'y'}])
def test_json_values_that_are_no_text(tmp_path, value):
    reading = Reading({'text': Text(None)}, ())
    content = ''.join(json.dumps({'text': one}) + '\n' for one in ('x', value))
    with pytest.raises(ConfigError, match="a.jsonl: line 2: 'text'"):
        read(tmp_path, 'a.jsonl', content, reading)


def test_null_and_no_texts_in_json_are_empty(tmp_path):
    """As empty texts are, they are left out of training with a count, and kept elsewhere."""
    reading = Reading({'text': Text(None)}, ())
    content = '{"text": null}\n{"text": "x"}\n{"text": []}\n'
    values = [values['text'] for values, _ in read(tmp_path, 'a.jsonl', content, reading)]
    assert values == ['', 'x', '']
    data, report = Data(source='table', dir=str(tmp_path), train='a.jsonl'), reader.Report()
    assert [row.values['text'] for row in reader.rows(data, reading, 'train', report)] == ['x']
    assert report.first == {'empty': ['a.jsonl:1', 'a.jsonl:3']}


@pytest.mark.parametrize(
    ('name', 'content', 'columns', 'told'),
    [
        ('a.tsv', 'text\tkind\nx\ty\n', None, "a.tsv: line 1 has no column 'label', only text, kind"),
        ('a.tsv', 'text\tlabel\nx\ty\nz\n', None, "a.tsv: line 3 has no column 'label'"),
        ('a.tsv', 'x\ty\nz\n', 'text=1,label=2', 'a.tsv: line 2'),
        ('a.tsv', 'text\tlabel\nx\ty\tz\n', None, 'a.tsv: line 2'),
        ('a.tsv', 'label\ttext\tlabel\nx\ty\tz\n', None, "a.tsv: line 1 has several columns 'label'"),
        ('a.csv', 'label,text\n1,"x\n2,y\n', None, 'a.csv: line 2: a cell that begins with a quote'),
        ('a.csv', 'label,text\n1,"x\n2,"y"\n', None, 'a.csv: line 2: a cell that begins with a quote'),
        ('a.csv', 'label,text\n1,"a\nb"\n2,"He said "x""\n', None, 'a.csv: line 4: a cell that begins'),
        ('a.csv', 'label,text\n1,"' + 'x\n' * 200_000, None, 'a.csv: line 2: a cell of over 131,072'),
        ('a.csv', 'label,text\r1,x\r2,y\r', None, 'a.csv: line 1: a carriage return'),
        ('a.jsonl', '{"text": "x", "label": "y"}\n[1]\n', None, 'a.jsonl: line 2'),
        ('a.jsonl', '{"text": "x", "label": "y"}\n' + '[' * 10_000 + '\n', None, 'a.jsonl: line 2'),
        ('a.tsv', 'x\ty\n', 'text=1', 'data.columns=text=1: names no column for label'),
        ('a.tsv', 'x\ty\n', 'text=1,labels=2', 'data.columns'),
        ('a.tsv', 'x\ty\n', 'text=1,label=1+2', 'label has one column'),
        ('a.tsv', 'x\ty\n', 'text=1,text=2,label=1', 'data.columns=text=1,text=2,label=1: '),
        (
            'a.jsonl',
            '{"text": "x", "label": "y"}\n{"text": "\\ud83d", "label": "y"}\n',
            None,
            'a.jsonl: line 2',
        ),
        ('a.tsv', 'x\ty\n', 'text=1,label=3', "a.tsv: line 1 has no column '3', only 1, 2"),
    ],
)
def test_slips_in_tables(tmp_path, name, content, columns, told):
    with pytest.raises(ConfigError) as error:
        read(tmp_path, name, content, columns=columns)
    assert told in str(error.value)


def test_conll_columns(tmp_path):
    content = '-DOCSTART- -X- O\n\nThe DT O\n# NN B-X\n\n\ndog NN O'
    rows = read(tmp_path, 'a.conll', content, TAGS, 'conll')
    assert rows == [({'text': ['The', '#'], 'tags': ['O', 'B-X']}, 3), ({'text': ['dog'], 'tags': ['O']}, 7)]
    [(values, _), _] = read(tmp_path, 'a.conll', content, TAGS, 'conll', columns='text=1,tags=2')
    assert values['tags'] == ['DT', 'NN']
    spaces = read(tmp_path, 'c.conll', '10\u00a0000\tNUM\n x  O \n', TAGS, 'conll')
    assert spaces == [({'text': ['10\u00a0000', 'x'], 'tags': ['NUM', 'O']}, 1)]
    commented = '# text = The\n1\tThe\tDT\n\n'
    assert read(tmp_path, 'a.conllu', commented, TAGS, 'conll', columns='text=2,tags=3') == [
        ({'text': ['The'], 'tags': ['DT']}, 2)
    ]
    assert fields.split_at_blanks(' 10\u00a0000  x\ty ') == ['10\u00a0000', 'x', 'y']
    universal = '1-2\tzum\t_\n1\tzu\tADP\n2\tdem\tDET\n2.1\t-\tX\n# note\n3\t10 000\tNUM\n\n4\tda\n'
    (values, line), _ = read(tmp_path, 'b.conllu', universal, TAGS, 'conll', columns='text=2,tags=-1')
    assert values == {'text': ['zu', 'dem', '10_000'], 'tags': ['ADP', 'DET', 'NUM']} and line == 2
    with pytest.raises(ConfigError, match='b.conllu: line 8 has 2 columns'):
        read(tmp_path, 'b.conllu', universal, TAGS, 'conll', columns='text=2,tags=3')
    # A word alone would be its own tag.
    for columns in (None, 'text=1,tags=-1'):
        with pytest.raises(ConfigError, match='d.conll: line 3 has 1 column'):
            read(tmp_path, 'd.conll', 'a X\n\nalone\n', TAGS, 'conll', columns=columns)
    with pytest.raises(ConfigError, match='a.conll: line 4 has 2 columns'):
        read(tmp_path, 'a.conll', content.replace('# NN B-X', '# NN'), TAGS, 'conll', columns='text=1,tags=3')
    with pytest.raises(ConfigError, match='data.columns'):
        read(tmp_path, 'a.conll', content, TAGS, 'conll', columns='text=word,tags=2')


def test_squad(tmp_path):
    reading = Reading({'question': Text(), 'context': Text(), 'answer': Span(of='context')}, ())
    questions = [
        {
            'question': 'Who?',
            'answers': [{'answer_start': 2, 'text': 'dog'}, {'answer_start': 0, 'text': 'A'}],
        },
        {'question': 'Why?', 'is_impossible': True, 'answers': []},
    ]
    content = {'version': '2.0', 'data': [{'paragraphs': [{'context': 'A\ndog', 'qas': questions}]}]}
    rows = read(tmp_path, 'a.json', json.dumps(content), reading, 'squad')
    assert rows == [
        ({'question': 'Who?', 'context': 'A dog', 'answer': ((2, 'dog'), (0, 'A'))}, 1),
        ({'question': 'Why?', 'context': 'A dog', 'answer': ()}, 2),
    ]
    half = json.dumps(content).replace('Why?', '\\ud83d')
    far = json.dumps(content).replace('"answer_start": 2', '"answer_start": 1e999')
    odd = ('{}', '[]', 'null', '{"data": [{"paragraphs": [{"qas": []}]}]}', '{"data": 3}', '{')
    for broken in (*odd, half, far):
        with pytest.raises(ConfigError, match='a.json: not the JSON of SQuAD'):
            read(tmp_path, 'a.json', broken, reading, 'squad')
    questions[1] = {'question': 'Why?'}
    with pytest.raises(ConfigError, match='after question 1'):
        read(tmp_path, 'a.json', json.dumps(content), reading, 'squad')
