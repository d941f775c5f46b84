"""Rows of text from files, the grammar and TFDS, and the errors of bad data."""

import gzip
import hashlib
import io
import json
import types

import pytest

from transformer.config import ConfigError, Data
from transformer.data.fields import Reading, Text
from transformer.data.sources import reader
from transformer.data.sources import text as text_files
from transformer.data.sources import tfds as tfds_source

GERMAN_TO_ENGLISH = {'source_language': 'de', 'target_language': 'en'}


def text(folder, **changes):
    return Data(**{'source': 'text', 'dir': str(folder), **changes})


def write(folder, **contents):
    """Files by name, with `_` for the dot before the language: train_en -> train.en."""
    for name, content in contents.items():
        (folder / name.replace('_', '.')).write_bytes(content)


def both(data):
    """Returns a translation's reading."""
    sides = (('source', data.source_language), ('target', data.target_language))
    return Reading({side: Text(language, f'data.{side}_language') for side, language in sides}, ())


def one(data):
    """Returns a language model's reading."""
    return Reading({'text': Text(data.language, 'data.language')}, ())


def origins_of(data, reading, split):
    return reader.READERS[data.source].origins(data, reading, split)


def count(data, reading, split):
    return reader.count(data, reading, split, [origin.lines for origin in origins_of(data, reading, split)])


def texts_of(row):
    return tuple(row.values.values())


def pairs(data, split='train', report=None):
    return [texts_of(row) for row in reader.rows(data, both(data), split, report or reader.Report())]


def texts(data, split='train'):
    rows = list(reader.rows(data, one(data), split, reader.Report()))
    assert count(data, one(data), split) == len(rows)
    return [row.values['text'] for row in rows]


def origins(data, split='train'):
    return origins_of(data, both(data), split)


def message(error):
    assert '\n' not in str(error.value)
    return str(error.value)


def test_text_in_both_directions(tmp_path):
    write(tmp_path, train_en=b'a\nb\n', train_de=b'x\ny\n')
    assert pairs(text(tmp_path)) == [('a', 'x'), ('b', 'y')]
    assert pairs(text(tmp_path, **GERMAN_TO_ENGLISH)) == [('x', 'a'), ('y', 'b')]


def test_text_of_several_stems_tells_where_a_pair_stands(tmp_path):
    (tmp_path / 'more').mkdir()
    write(tmp_path, train_en=b'a\n', train_de=b'x\n')
    write(tmp_path / 'more', train_en=b'b\nc\n', train_de=b'y\nz\n')
    data = text(tmp_path, train='train, more/train')
    found = list(reader.rows(data, both(data), 'train', reader.Report()))
    assert [texts_of(row) for row in found] == [('a', 'x'), ('b', 'y'), ('c', 'z')]
    assert found[2].files == {'source': 'more/train.en', 'target': 'more/train.de'}
    assert [row.line for row in found] == [1, 1, 2]
    assert count(data, both(data), 'train') == 3


@pytest.mark.parametrize('block', [1 << 20, 3])
def test_lines_end_at_newlines_only(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text_files, '_BLOCK', block)
    english = '\ufeffone\x85two\u2028\x0b\r\n\ufeffthré\re\n  last '.encode()
    write(tmp_path, dev_en=english, dev_de=b'1\n2\n3\n')
    assert pairs(text(tmp_path, dev='dev'), 'dev') == [
        ('one\x85two\u2028\x0b', '1'),
        ('\ufeffthré\re', '2'),
        ('  last ', '3'),
    ]


def test_gzip_of_either_side(tmp_path):
    write(tmp_path, train_de=b'x\ny')
    (tmp_path / 'train.en.gz').write_bytes(gzip.compress(b'a\nb\n'))
    assert pairs(text(tmp_path)) == [('a', 'x'), ('b', 'y')]
    english, german = origins(text(tmp_path))
    assert english == ('train.en.gz', 2, hashlib.sha256(b'a\nb\n').hexdigest())
    assert german == ('train.de', 2, hashlib.sha256(b'x\ny').hexdigest())
    # The plain one of two.
    (tmp_path / 'train.de.gz').write_bytes(gzip.compress(b'other\ntext\n'))
    assert origins(text(tmp_path)) == [english, german]


def test_blank_sides_are_left_out_of_training_only(tmp_path):
    write(tmp_path, train_en=b'a\n\nc\n \n', train_de=b'x\ny\n\t\nz\n')
    report = reader.Report()
    data = text(tmp_path, dev='train')
    assert pairs(data, report=report) == [('a', 'x')]
    assert report.counts == {'empty': 3}
    assert report.first == {'empty': ['train.en:2', 'train.de:3', 'train.en:4']}
    assert pairs(data, 'dev') == [('a', 'x'), ('', 'y'), ('c', '\t'), (' ', 'z')]


def test_report_keeps_the_first_places_and_logs_all():
    report = reader.Report(io.StringIO())
    for line in range(1, 31):
        report.drop('long', 'train.en', line)
    assert report.counts == {'long': 30}
    assert report.first['long'] == [f'train.en:{line}' for line in range(1, 21)]
    assert report.log.getvalue().splitlines()[29] == 'long\ttrain.en\t30'


def damaged_gzip(how):
    packed = bytearray(gzip.compress(bytes(range(256)) * 40))
    if how == 'truncated':
        return bytes(packed[:-9])
    if how == 'checksum':
        packed[-6] ^= 1
    if how == 'stream':
        packed[12:20] = b'\xff' * 8
    return b'plain text\n' if how == 'plain' else bytes(packed)


@pytest.mark.parametrize('how', ['truncated', 'checksum', 'stream', 'plain'])
def test_damaged_gzip(tmp_path, how):
    write(tmp_path, train_de=b'x\n')
    (tmp_path / 'train.en.gz').write_bytes(damaged_gzip(how))
    for read in (pairs, origins):
        with pytest.raises(ConfigError) as error:
            read(text(tmp_path))
        assert 'train.en.gz: damaged or truncated gzip' in message(error)


def test_bad_text_names_file_and_line(tmp_path):
    write(tmp_path, train_en=b'a\nb\n', train_de='x\nü\n'.encode('latin-1'))
    with pytest.raises(ConfigError) as error:
        pairs(text(tmp_path))
    assert message(error).startswith(f'{tmp_path}/train.de: line 2 is not UTF-8; ')


def test_advice_for_compressed_text(tmp_path):
    write(tmp_path, train_en=b'a\n', train_de=gzip.compress(b'x\n'))
    with pytest.raises(ConfigError, match='train.de: is compressed by gzip'):
        pairs(text(tmp_path))
    (tmp_path / 'train.de').unlink()
    (tmp_path / 'train.de.gz').write_bytes(gzip.compress('ü\n'.encode('latin-1')))
    with pytest.raises(ConfigError, match=r'zcat \S*/train\.de\.gz \| iconv -f latin1 -t utf-8$'):
        pairs(text(tmp_path))


@pytest.mark.parametrize('english, german', [(b'a\nb\nc', b'x\n'), (b'a\n', b'x\ny\nz\n')])
def test_unequal_line_counts(tmp_path, english, german):
    write(tmp_path, train_en=english, train_de=german)
    counts = len(english.split()), len(german.split())
    for read in (pairs, origins):
        with pytest.raises(ConfigError) as error:
            read(text(tmp_path))
        assert message(error) == (
            f'{tmp_path}/train.en has {counts[0]} lines, {tmp_path}/train.de has {counts[1]}'
        )


def test_missing_files(tmp_path):
    write(tmp_path, train_en=b'a\n')
    (tmp_path / 'train.de').mkdir()
    cases = [
        (text(tmp_path, dir=None), 'data.dir: missing'),
        (text(tmp_path / 'no'), 'data.dir='),
        (text(tmp_path), f'data.train: no file {tmp_path}/train.de or train.de.gz'),
        (text(tmp_path, train='train,b'), 'data.train: no file'),
        (
            text(tmp_path, train='train.en'),
            f"data.train: no file {tmp_path}/train.en.en or train.en.en.gz; data.source_language='en'",
        ),
        (text(tmp_path, train=''), 'data.train=: an empty name'),
        (text(tmp_path, train=',train'), 'data.train=,train: an empty name'),
    ]
    for data, expected in cases:
        with pytest.raises(ConfigError) as error:
            pairs(data)
        assert message(error).startswith(expected)


def test_grammar_in_both_directions(monkeypatch):
    splits = {'dev': [('a', 'x'), ('b', 'y')], 'pronoun': [('c', 'z')]}
    monkeypatch.setattr(reader.sentences, 'sentence_pairs', splits.get)
    forth, back = Data(source='grammar'), text('', source='grammar', **GERMAN_TO_ENGLISH)
    assert pairs(forth, 'dev') == [('a', 'x'), ('b', 'y')]
    assert pairs(back, 'dev') == [('x', 'a'), ('y', 'b')]
    assert pairs(back, 'pronoun') == [('z', 'c')]
    (origin,) = origins(forth, 'dev')
    assert origin == ('grammar/dev', 2, hashlib.sha256(b'a\nx\nb\ny\n').hexdigest())
    assert origin != origins(forth, 'pronoun')[0]
    assert count(forth, both(forth), 'dev') == 2


def test_grammar_in_one_language(monkeypatch):
    monkeypatch.setattr(reader.sentences, 'sentence_pairs', {'dev': [('a', 'x'), ('b', 'y')]}.get)
    assert texts(Data(source='grammar', language='de'), 'dev') == ['x', 'y']
    assert texts(Data(source='grammar', language='en'), 'dev') == ['a', 'b']
    german = Data(source='grammar', language='de')
    (origin,) = origins_of(german, one(german), 'dev')
    assert origin == ('grammar/dev', 2, hashlib.sha256(b'x\ny\n').hexdigest())
    with pytest.raises(ConfigError) as error:
        texts(Data(source='grammar', language='fr'), 'dev')
    assert message(error) == "data.language='fr': the grammar has en and de"


def test_the_first_training_pairs(tmp_path):
    """So many are read, blank ones among them; other splits are read whole."""
    lines = ['one', '', 'three', 'four']
    for name in ('train', 'dev'):
        for language in ('en', 'de'):
            (tmp_path / f'{name}.{language}').write_text('\n'.join(lines))
    data = text(tmp_path, dev='dev', train_examples=3)
    assert pairs(data) == [('one', 'one'), ('three', 'three')]
    assert len(pairs(data, 'dev')) == 4


def test_grammar_has_two_languages():
    with pytest.raises(ConfigError) as error:
        pairs(Data(source='grammar', target_language='fr'))
    assert message(error).startswith("data.source_language='en', data.target_language='fr'")


def test_splits():
    three, languages = ('train', 'dev', 'test'), {'source': 'en', 'target': 'de'}
    splits = lambda kind, /, **languages: reader.READERS[kind].splits(
        Reading({name: Text(language, '') for name, language in languages.items()}, ())
    )
    assert splits('text', **languages) == splits('tfds', **languages) == three
    assert splits('grammar', **languages) == (*three, 'pronoun')
    assert splits('grammar', text='de') == splits('grammar', source='de', target='en') == three


def test_text_of_one_language_or_of_whole_names(tmp_path):
    write(tmp_path, train_de=b'x\ny\n')
    (tmp_path / 'input.txt').write_bytes(b'a\n\nb\n')
    (tmp_path / 'more.txt.gz').write_bytes(gzip.compress(b'c'))
    assert texts(text(tmp_path, language='de')) == ['x', 'y']
    plain = text(tmp_path, train='input.txt, more.txt', dev='input.txt')
    # The blank line is read, and left out of training.
    report = reader.Report()
    assert [texts_of(row) for row in reader.rows(plain, one(plain), 'train', report)] == [
        ('a',),
        ('b',),
        ('c',),
    ]
    assert report.first == {'empty': ['input.txt:2']}
    assert texts(plain, 'dev') == ['a', '', 'b']
    assert [origin[:2] for origin in origins_of(plain, one(plain), 'train')] == [
        ('input.txt', 3),
        ('more.txt.gz', 1),
    ]


@pytest.mark.parametrize(
    'part, expected',
    [
        # int(7 * 90 / 100) is 6, int(7 * 30 / 100) is 2.
        ('[:90%]', slice(0, 6)),
        ('[90%:]', slice(6, 7)),
        ('[30%:90%]', slice(2, 6)),
        ('[0%:100%]', slice(0, 7)),
        ('[:3]', slice(0, 3)),
        ('[2:5]', slice(2, 5)),
        ('[5:]', slice(5, 7)),
        ('[4:100]', slice(4, 7)),
    ],
)
def test_slices_of_lines(tmp_path, part, expected):
    english, german = [f'e{i}' for i in range(7)], [f'd{i}' for i in range(7)]
    write(tmp_path, a_en='\n'.join(english).encode(), a_de='\n'.join(german).encode(), b_en=b'e', b_de=b'd')
    data = text(tmp_path, train=f'a{part},b')
    assert pairs(data) == [*list(zip(english, german, strict=True))[expected], ('e', 'd')]
    found = origins(data)
    number = expected.stop - expected.start
    digest = hashlib.sha256('\n'.join(german).encode()).hexdigest()
    assert found[1] == (f'a.de{part}', number, digest)
    assert count(data, both(data), 'train') == number + 1
    rows = list(reader.rows(data, both(data), 'train', reader.Report()))
    assert rows[0].line == expected.start + 1
    assert rows[0].files == {'source': 'a.en', 'target': 'a.de'}


def test_slices_share_a_file_without_gap_or_overlap(tmp_path):
    whole = [f'line {i}' for i in range(137)]
    (tmp_path / 'a').write_text('\n'.join(whole))
    data = text(tmp_path, train='a[:37%]', dev='a[37%:90%]', test='a[90%:]')
    found = [texts(data, split) for split in ('train', 'dev', 'test')]
    assert found == [whole[:50], whole[50:123], whole[123:]]


@pytest.mark.parametrize(
    'part',
    [
        '[:]',
        '[90%]',
        '[9]',
        '[:0]',
        '[3:2]',
        '[1:50%]',
        '[5%:9]',
        '[:101%]',
        '[50%:50%]',
        '[60%:50%]',
        '[-5%:]',
    ]
    + ['[x]', '[-5:]'],
)
def test_malformed_slices(tmp_path, part):
    (tmp_path / 'a').write_text('x\n')
    with pytest.raises(ConfigError) as error:
        texts(text(tmp_path, train=f'a{part}'))
    assert message(error).startswith(f'data.train: a{part} ')


def test_unequal_line_counts_of_slices(tmp_path):
    write(tmp_path, train_en=b'a\nb\n', train_de=b'x\n')
    for read in (pairs, origins):
        with pytest.raises(ConfigError) as error:
            read(text(tmp_path, train='train[:50%]'))
        assert message(error) == f'{tmp_path}/train.en has 2 lines, {tmp_path}/train.de has 1'


def test_files_are_documents(tmp_path):
    content = '\ufeffEin\r\n\n  Vögel\u2028chen\n'
    (tmp_path / 'a').write_bytes(content.encode())
    (tmp_path / 'b.gz').write_bytes(gzip.compress(b'x'))
    (tmp_path / 'c').write_bytes(b' \n')
    data = text(tmp_path, documents='files', train='a,b', dev='a[:50%]', test='a[50%:],c,b')
    # Nothing but the byte order mark is missing, and 19 characters are cut at 9.
    assert len(content[1:]) == 19
    assert texts(data) == [content[1:], 'x']
    assert texts(data, 'dev') == [content[1:10]]
    assert texts(data, 'test') == [content[10:], ' \n', 'x']
    digest = hashlib.sha256(content.encode()).hexdigest()
    half, blank, packed = origins_of(data, one(data), 'test')
    assert half == ('a[50%:]', 1, digest)
    assert (blank[:2], packed[:2]) == (('c', 1), ('b.gz', 1))
    assert origins_of(data, one(data), 'train')[0] == ('a', 3, digest)
    (tmp_path / 'a').write_bytes(b'one\ntwo\nth\xffree\n')
    with pytest.raises(ConfigError) as error:
        texts(data)
    assert message(error).startswith(f'{tmp_path}/a: line 3 is not UTF-8; ')


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    """Writes a small dataset as TFDS prepares it, and returns its folder."""
    tfds = pytest.importorskip('tensorflow_datasets')

    class TinyTranslate(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version('1.0.0')
        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name='de-en')]

        def _info(self):
            features = tfds.features.Translation(languages=('de', 'en'))
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {'train': self._generate_examples(5), 'validation': self._generate_examples(2)}

        def _generate_examples(self, count):
            for i in range(count):
                yield i, {'de': f'grün {i}', 'en': f'green\n{i}'}

    folder = tmp_path_factory.mktemp('tfds')
    builder = TinyTranslate(data_dir=folder, config='de-en', file_format='array_record')
    builder.download_and_prepare()
    return folder


def tfds_data(folder, **changes):
    return Data(**{'source': 'tfds', 'dir': str(folder), 'name': 'tiny_translate/de-en', **changes})


def test_tfds_in_both_directions(dataset, monkeypatch):
    monkeypatch.setattr(tfds_source, '_FETCHED', 2)
    forth = pairs(tfds_data(dataset))
    assert sorted(forth) == [(f'green {i}', f'grün {i}') for i in range(5)]
    back = pairs(tfds_data(dataset, **GERMAN_TO_ENGLISH))
    assert back == [(german, english) for english, german in forth]
    assert len(pairs(tfds_data(dataset), 'dev')) == 2
    assert pairs(tfds_data(dataset, train='train[1:3]')) == forth[1:3]


def test_tfds_in_one_language(dataset):
    data = tfds_data(dataset, language='de')
    assert sorted(texts(data)) == [f'grün {i}' for i in range(5)]
    with pytest.raises(ConfigError) as error:
        texts(tfds_data(dataset, language='fr'))
    assert message(error) == "data.language='fr': tiny_translate/de-en has de, en"


def test_tfds_features_that_are_no_text():
    tfds = pytest.importorskip('tensorflow_datasets')
    features = {'label': tfds.features.ClassLabel(num_classes=2), 'sentence': tfds.features.Text()}
    builder = types.SimpleNamespace(info=types.SimpleNamespace(features=features))
    reading = Reading({'text': Text('label', 'data.language')}, ())
    with pytest.raises(ConfigError, match=r"^data\.language='label': glue has sentence$"):
        tfds_source._check_languages(Data(name='glue'), reading, builder)


def test_tfds_origins_are_the_files(dataset):
    (origin,) = origins(tfds_data(dataset))
    file = dataset / 'tiny_translate/de-en/1.0.0/tiny_translate-train.array_record-00000-of-00001'
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert origin == (f'{file.name}[0:5]', 5, digest)
    (part,) = origins(tfds_data(dataset, train='train[1:3]'))
    assert part == (f'{file.name}[1:3]', 2, digest)


def test_tfds_facts_are_name_and_version(dataset):
    data = tfds_data(dataset)
    found = tfds_source.facts(data, both(data))
    assert found == {'dataset': {'name': 'tiny_translate/de-en', 'version': '1.0.0'}}
    # There is nothing to download.
    tfds_source.prepare(data, both(data))


def test_tfds_errors(dataset, tmp_path):
    cases = [
        (tfds_data(tmp_path), "data.name='tiny_translate/de-en': not prepared in data.dir="),
        (tfds_data(dataset, name='no/de-en'), "data.name='no/de-en': not prepared in"),
        (tfds_data(dataset, target_language='fr'), "data.target_language='fr': tiny_translate"),
        (tfds_data(dataset, train='dev'), "data.train='dev': tiny_translate/de-en has train, v"),
    ]
    for data, expected in cases:
        with pytest.raises(ConfigError) as error:
            pairs(data)
        assert message(error).startswith(expected)


def test_tfds_prepared_in_another_format(dataset, tmp_path):
    version = tmp_path / 'tiny_translate/de-en/1.0.0'
    version.mkdir(parents=True)
    for file in (dataset / 'tiny_translate/de-en/1.0.0').iterdir():
        (version / file.name).write_bytes(file.read_bytes())
    info = json.loads((version / 'dataset_info.json').read_text())
    info['fileFormat'] = 'tfrecord'
    (version / 'dataset_info.json').write_text(json.dumps(info))
    with pytest.raises(ConfigError) as error:
        pairs(tfds_data(tmp_path))
    assert 'as tfrecord; needs array_record' in message(error)
