"""Tables of pictures and texts, pictures in zip archives, and pictures that cannot be read."""

import dataclasses
import io
import logging
import os
import struct
import zipfile

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
from etils import epath

from transformer.config import ConfigError, Data, config_dict, resolve
from transformer.data import cache, text_input
from transformer.data.fields import Image, Label, Reading, Text
from transformer.data.sources import images, reader, table

READING = Reading({'image': Image(4, 4, 3), 'text': Text(None, '')}, ('source',))
COLOURS = {'a.png': (250, 0, 0), 'b.png': (0, 250, 0), 'c.png': (0, 0, 250)}


def content(colour: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    PIL.Image.new('RGB', (8, 6), colour).save(file, 'PNG')
    return file.getvalue()


FILES = {name: content(colour) for name, colour in COLOURS.items()}


def write(folder, table: str, pictures: dict[str, bytes], archive: str | None = None) -> None:
    """Writes a table, and pictures beside it or in an archive."""
    folder.mkdir(exist_ok=True)
    (folder / 'all.tsv').write_text(table)
    if archive:
        with zipfile.ZipFile(folder / archive, 'w') as file:
            for name, picture in pictures.items():
                file.writestr(name, picture)
        return
    for name, picture in pictures.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(picture)


def rows(data: Data, split: str = 'dev', report: reader.Report | None = None) -> list:
    reader.check(data, READING)
    return list(reader.rows(data, READING, split, report or reader.Report()))


TABLE = 'image\ttext\tpart\na.png\tone\ttrain\na.png\ttwo\ttrain\nb.png\tthree\tdev\nc.png\tfour\tdev\n'


@pytest.mark.parametrize('place', ['beside', 'folder', 'archive'])
def test_pictures_of_a_table(tmp_path, place):
    """Captions of one picture have its pixels, wherever it is."""
    options = {'beside': {}, 'folder': {'pictures': 'in'}, 'archive': {'pictures': 'p.zip'}}[place]
    table = TABLE
    files = {f'in/{name}': picture for name, picture in FILES.items()} if place == 'folder' else FILES
    write(tmp_path, table, files, 'p.zip' if place == 'archive' else None)
    data = Data(source='table', dir=str(tmp_path), dev='all.tsv', **options)
    found = rows(data)
    names = ['a.png', 'a.png', 'b.png', 'c.png']
    assert [row.values['text'] for row in found] == ['one', 'two', 'three', 'four']
    for row, name in zip(found, names, strict=True):
        np.testing.assert_array_equal(row.values['image'], np.full((4, 4, 3), COLOURS[name]))
        assert row.files == {'image': name, 'text': 'all.tsv'}
    assert [row.line for row in found] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ('dev', 'expected'),
    [
        ('all.tsv[part=dev]', ['three', 'four']),
        ('all.tsv[part=train][1:]', ['two']),
        ('all.tsv[part=train][:50%],all.tsv[part=dev][:1]', ['one', 'three']),
        ('all.tsv[part=no]', []),
    ],
)
def test_rows_by_the_value_of_a_column(tmp_path, dev, expected):
    write(tmp_path, TABLE, FILES)
    data = Data(source='table', dir=str(tmp_path), dev=dev)
    assert [row.values['text'] for row in rows(data)] == expected
    origins = reader.READERS['table'].origins(data, READING, 'dev')
    assert sum(one.lines for one in origins) == len(expected)
    assert ','.join(one.name for one in origins) == dev


def test_conditions_are_of_tables_and_their_columns(tmp_path):
    write(tmp_path, TABLE, FILES)
    for source, dev, told in (
        ('table', 'all.tsv[kind=dev]', "'kind'"),
        ('text', 'all.tsv[part=dev]', 'data.dev'),
        ('table', 'all.tsv[part=dev][3]', 'data.dev'),
    ):
        data = Data(source=source, dir=str(tmp_path), dev=dev)
        with pytest.raises(ConfigError, match=told):
            list(reader.rows(data, READING._replace(fields={'text': Text()}), 'dev', reader.Report()))


def png_of(width: int, height: int) -> bytes:
    file = io.BytesIO()
    PIL.Image.new('1', (width, height)).save(file, 'PNG')
    return file.getvalue()


BAD = {
    'missing.png': None,
    'empty.png': b'',
    'damaged.png': FILES['a.png'][:40],
    'wrong.png': b'one two three',
    'warned.png': png_of(11, 10),
    'huge.png': png_of(30, 10),
    '/absolute.png': None,
    '': None,
}


@pytest.mark.parametrize('archive', [None, 'p.zip'])
@pytest.mark.parametrize('name', BAD)
def test_pictures_that_cannot_be_read(tmp_path, monkeypatch, name, archive):
    monkeypatch.setattr(PIL.Image, 'MAX_IMAGE_PIXELS', 100)
    table = f'image\ttext\na.png\tone\n{name}\ttwo\nb.png\tthree\n'
    files = FILES | ({name: BAD[name]} if BAD[name] is not None else {})
    write(tmp_path, table, files, archive)
    data = Data(source='table', dir=str(tmp_path), dev='all.tsv', pictures=archive)
    with pytest.raises(ConfigError) as error:
        rows(data)
    told = str(error.value)
    assert 'all.tsv: line 3' in told and name in told and 'data.unreadable' in told and '\n' not in told
    report = reader.Report()
    left = Data(source='table', dir=str(tmp_path), dev='all.tsv', pictures=archive, unreadable='leave_out')
    assert [row.values['text'] for row in rows(left, 'dev', report)] == ['one', 'three']
    assert report.counts == {'unreadable': 1}
    assert report.first == {'unreadable': [f'{name or "all.tsv"}:3']}


def exif_of(*fields: tuple[int, int, int, int]) -> bytes:
    """Returns EXIF data with fields: tag, type, count, and the value or its place."""
    head = b'Exif\0\0II*\0' + struct.pack('<IH', 8, len(fields))
    return head + b''.join(struct.pack('<HHII', *field) for field in fields) + bytes(4)


@pytest.mark.parametrize('orientation', range(10))
def test_pictures_are_turned(orientation):
    """As Pillow turns them, also if another field has a wrong type: a resolution that is a text."""
    noise = np.random.default_rng(orientation).integers(0, 256, (6, 9, 3), np.uint8)
    turned = (0x112, 3, 1, orientation)

    def content(*fields) -> bytes:
        file = io.BytesIO()
        PIL.Image.fromarray(noise).save(file, 'PNG', exif=exif_of(*fields))
        return file.getvalue()

    expected = np.asarray(PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(content(turned)))))
    height, width, _ = expected.shape
    assert (height, width) == ((9, 6) if orientation in (5, 6, 7, 8) else (6, 9))
    for fields in ((turned,), (turned, (0x11A, 2, 3, int.from_bytes(b'72\0', 'little')))):
        found = images.decode(content(*fields), 'turned.png', Image(height, width, 3))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(('kind', 'factor'), [(np.uint8, 1), (np.uint16, 257)])
def test_transparent_grey_is_white(kind, factor):
    file, grey = io.BytesIO(), np.array([[0, 100], [200, 0]], kind) * kind(factor)
    PIL.Image.fromarray(grey).save(file, 'PNG', transparency=0)
    found = images.decode(file.getvalue(), 'grey.png', Image(2, 2, 1))
    assert found[..., 0].tolist() == [[255, 100], [200, 255]]


def test_damaged_exif():
    """The width is a fraction, and the data end there: the picture is turned all the same."""
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[:4] = 255
    file = io.BytesIO()
    PIL.Image.fromarray(picture).save(file, 'JPEG', exif=exif_of((0x112, 3, 1, 6), (0x100, 5, 1, 8)))
    found = images.decode(file.getvalue(), 'turned.jpg', Image(8, 8, 3))
    assert found[:, 4:].min() > 200 and found[:, :4].max() < 50


def test_labels_of_no_digits(tmp_path):
    for kind, sizes in (('images-idx3', (0, 4, 4)), ('labels-idx1', (0,))):
        head = bytes([0, 0, 8, len(sizes)]) + np.array(sizes, '>u4').tobytes()
        (tmp_path / f'none-{kind}-ubyte').write_bytes(head)
    options = {'train.task': 'images', 'data.source': 'idx', 'data.dir': str(tmp_path), 'data.train': 'none'}
    config = resolve(config_dict(options | {'images.size': 4, 'images.patch': 2, 'images.pixels': 'grey'}))
    with pytest.raises(ConfigError, match='labels'):
        images.idx_classes(config.data)


def test_damaged_archives(tmp_path):
    write(tmp_path, TABLE, FILES, 'p.zip')
    whole = (tmp_path / 'p.zip').read_bytes()
    data = Data(source='table', dir=str(tmp_path), dev='all.tsv', pictures='p.zip')
    (tmp_path / 'p.zip').write_bytes(whole[:-30])
    with pytest.raises(ConfigError, match='data.pictures=p.zip'):
        rows(data)
    # A byte of the first picture.
    place = whole.index(FILES['a.png']) + 20
    (tmp_path / 'p.zip').write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(ConfigError, match='line 2: .*a.png'):
        rows(data)
    (tmp_path / 'p.zip').unlink()
    with pytest.raises(ConfigError, match='data.pictures=p.zip'):
        rows(data)


@pytest.mark.parametrize('method', [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_archives_damaged_in_other_compressions(tmp_path, method):
    write(tmp_path, TABLE, FILES, 'p.zip')
    with zipfile.ZipFile(tmp_path / 'p.zip', 'w', method) as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
        start = archive.getinfo('a.png').header_offset
    whole = bytearray((tmp_path / 'p.zip').read_bytes())
    # After the header of the first file and its name.
    whole[start + 30 + len('a.png') + 12 : start + 30 + len('a.png') + 24] = bytes(12)
    (tmp_path / 'p.zip').write_bytes(whole)
    with pytest.raises(ConfigError, match='line 2: .*a.png'):
        rows(Data(source='table', dir=str(tmp_path), dev='all.tsv', pictures='p.zip'))


@pytest.mark.parametrize('archive', [None, 'p.zip'])
def test_dataset_of_a_table_of_pictures(tmp_path, archive, caplog):
    """It counts what it leaves out, names pictures without a row, and is made again if a picture changes."""
    more = {'other.png': FILES['a.png'], '.hidden.png': b'', 'notes.txt': b''}
    table = TABLE + 'no.png\tfive\tdev\nb.png\t\ttrain\n'
    write(tmp_path, table, FILES | more, archive)
    data = Data(
        source='table',
        dir=str(tmp_path),
        train='all.tsv[part=train]',
        dev='all.tsv[part=dev]',
        test='all.tsv[part=dev][:1]',
        pictures=archive,
        unreadable='leave_out',
        tokenizer='bytes',
        pieces=259,
    )
    with caplog.at_level(logging.WARNING):
        dataset = cache.prepare(data, READING, tmp_path / 'cache')
    messages = [record.getMessage() for record in caplog.records]
    assert [text for text in messages if 'other.png' in text and ': 1, ' in text]
    assert [text for text in messages if 'data.dev' in text and '1 unreadable' in text]
    splits = dataset.manifest['splits']
    assert {name: entry['pairs'] for name, entry in splits.items()} == {'train': 2, 'dev': 2, 'test': 1}
    assert splits['train']['dropped']['empty']['count'] == 1
    assert splits['dev']['dropped'] == {'unreadable': {'count': 1, 'first': ['no.png:6']}}
    images = dataset.splits['train'].fields['image'].values
    np.testing.assert_array_equal(images[0], images[1])
    caplog.clear()
    given, _ = text_input.of_source(data, READING, dataset.codecs, 'dev')
    assert len(given.splits[text_input.SPLIT]) == 2
    assert [one for one in caplog.records if 'data.dev' in one.getMessage() and 'no.png' in one.getMessage()]
    assert cache.prepare(data, READING, tmp_path / 'cache').folder == dataset.folder
    # The option decides what a dataset has, so it is made again, and refused.
    refusing = dataclasses.replace(data, unreadable='refuse')
    with pytest.raises(ConfigError, match='no.png'):
        cache.prepare(refusing, READING, tmp_path / 'cache')
    write(tmp_path, table, FILES | more | {'b.png': FILES['c.png']}, archive)
    assert cache.prepare(data, READING, tmp_path / 'cache').folder != dataset.folder


def test_names_that_no_file_has(tmp_path):
    (tmp_path / 'all.jsonl').write_text('{"image": "\\ud800.png", "label": "a", "part": "train"}\n')
    data = Data(source='table', dir=str(tmp_path), train='all.jsonl')
    with pytest.raises(ConfigError, match='all.jsonl: line 1: '):
        table.origins(data, READING, 'train')
    with pytest.raises(images.PictureError, match='null'):
        images.content_of(epath.Path('a\0.png'))
    os.mkfifo(tmp_path / 'a.png')
    with pytest.raises(images.PictureError, match='regular'):
        images.content_of(epath.Path(tmp_path / 'a.png'))


def pictures_of(folder, **options) -> Data:
    """Names the table of a folder as every split."""
    return Data(source='table', dir=str(folder), train='all.tsv', dev='all.tsv', test='all.tsv', **options)


@pytest.mark.parametrize('name', ['', ' ', '/absolute.png', 'a\0b.png', 'x' * 300 + '/a.png'])
def test_names_of_no_picture(tmp_path, name, caplog):
    """A whole preparation names the row, or leaves it out; only real files are pictures without a row."""
    write(tmp_path / 'in', f'image\ttext\na.png\tone\n{name}\ttwo\nb.png\tthree\n', FILES)
    bytes_ = {'tokenizer': 'bytes', 'pieces': 259}
    with pytest.raises(ConfigError, match='all.tsv: line 3') as error:
        cache.prepare(pictures_of(tmp_path / 'in', **bytes_), READING, tmp_path / 'cache')
    assert '\n' not in str(error.value)
    left_out = pictures_of(tmp_path / 'in', unreadable='leave_out', **bytes_)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        dataset = cache.prepare(left_out, READING, tmp_path / 'cache')
    assert dataset.manifest['splits']['train']['dropped']['unreadable']['count'] == 1
    others = [one.args for one in caplog.records if 'in no row' in one.getMessage()]
    assert [args[1:] for args in others] == [(1, 'c.png')]


@pytest.mark.parametrize('archive', [None, 'p.zip'])
def test_pictures_of_other_splits_have_a_row(tmp_path, archive, caplog):
    write(tmp_path, 'image\ttext\na.png\tone\n', FILES, archive)
    (tmp_path / 'dev.tsv').write_text('image\ttext\nb.png\ttwo\n')
    train = 'all.tsv[:100],all.tsv'
    data = dataclasses.replace(pictures_of(tmp_path, pictures=archive), train=train, dev='dev.tsv[:100]')
    with caplog.at_level(logging.WARNING):
        reader.READERS['table'].warn(data, READING, 'train')
    assert [record.args[1:] for record in caplog.records] == [(1, 'c.png')]


@pytest.mark.parametrize(
    ('row', 'entry'), [('../in/{}', 'all.tsv'), ('./{}', 'all.tsv'), ('{}', '../in/all.tsv')]
)
def test_pictures_reached_by_the_parent_folder(tmp_path, row, entry, caplog):
    lines = [f'{row.format(name)}\t{name}\n' for name in ('a.png', 'b.png')]
    write(tmp_path / 'in', 'image\ttext\n' + ''.join(lines), FILES)
    data = dataclasses.replace(pictures_of(tmp_path / 'in'), train=entry)
    with caplog.at_level(logging.WARNING):
        reader.READERS['table'].warn(data, READING, 'train')
    [origin] = reader.READERS['table'].origins(data, READING, 'train')
    assert origin.lines == len(rows(data, 'train')) == 2
    assert [record.args[1:] for record in caplog.records] == [(1, 'c.png')]


@pytest.mark.parametrize('split', ['train', 'dev'])
def test_tables_without_a_column_of_pictures(tmp_path, split):
    write(tmp_path, 'file\tcaption\na.png\tone\nb.png\ttwo\n', FILES)
    message = "all.tsv: line 1 has no column 'image', only file, caption"
    with pytest.raises(ConfigError, match=message):
        reader.READERS['table'].origins(pictures_of(tmp_path), READING, split)


def test_pictures_are_checked_while_the_tokenizer_learns(tmp_path):
    """SentencePiece reads the rows; what they raise arrives as it is."""
    write(tmp_path, 'image\ttext\na.png\tone\nno.png\ttwo\n', FILES)
    data = dataclasses.replace(pictures_of(tmp_path, pieces=300), dev='all.tsv[:1]', test='all.tsv[:1]')
    with pytest.raises(ConfigError) as error:
        cache.prepare(data, READING, tmp_path / 'cache')
    assert str(error.value).startswith(f'{tmp_path}/all.tsv: line 3: ') and '\n' not in str(error.value)


def test_pictures_that_are_also_in_train_are_counted(tmp_path, caplog):
    """Pixels are compared: one text can describe several pictures, and one picture can have several texts."""
    train = 'a.png\tone\ttrain\nb.png\ttwo\ttrain\n'
    dev = 'c.png\tone\tdev\nagain.png\tthree\tdev\nagain.png\tfour\tdev\n'
    write(tmp_path, f'image\ttext\tpart\n{train}{dev}', FILES | {'again.png': FILES['b.png']})
    parts = {'train': 'all.tsv[part=train]', 'dev': 'all.tsv[part=dev]', 'test': 'all.tsv[part=dev][:1]'}
    data = dataclasses.replace(pictures_of(tmp_path, tokenizer='bytes', pieces=259), **parts)
    with caplog.at_level(logging.WARNING):
        cache.prepare(data, READING, tmp_path / 'cache')
    assert [record.args for record in caplog.records] == [('dev', 1, 2, 'pictures', 'pictures')]


def test_folders_leave_out_pictures(tmp_path):
    for name, picture in (('1.png', FILES['a.png']), ('2.png', b'')):
        (tmp_path / 'dev' / 'cat').mkdir(exist_ok=True, parents=True)
        (tmp_path / 'dev' / 'cat' / name).write_bytes(picture)
    reading = Reading({'image': Image(4, 4, 3), 'label': Label()}, ())
    data = Data(source='folders', dir=str(tmp_path), dev='dev')
    with pytest.raises(ConfigError, match='2.png.*data.unreadable'):
        list(reader.rows(data, reading, 'dev', reader.Report()))
    report, left = (
        reader.Report(),
        Data(source='folders', dir=str(tmp_path), dev='dev', unreadable='leave_out'),
    )
    assert [row.values['label'] for row in reader.rows(left, reading, 'dev', report)] == ['cat']
    # It decides what a dataset has, so it is a part of the cache's name.
    assert images.folder_facts(left, reading) != images.folder_facts(data, reading)
    assert report.first == {'unreadable': ['dev/cat/2.png:2']}
    # A link to nothing, and a folder.
    (tmp_path / 'dev' / 'cat' / '2.png').unlink()
    (tmp_path / 'dev' / 'cat' / '2.png').symlink_to('nowhere')
    (tmp_path / 'dev' / 'cat' / '3.png').mkdir()
    with pytest.raises(ConfigError, match='2.png.*data.unreadable'):
        list(reader.rows(data, reading, 'dev', reader.Report()))
    report = reader.Report()
    assert len(list(reader.rows(left, reading, 'dev', report))) == 1 and report.counts == {'unreadable': 2}
    assert reader.READERS['folders'].origins(left, reading, 'dev')[0].lines == 3


@pytest.mark.parametrize('name', [b'dev/caf\xe9/1.png', b'dev/cat/caf\xe9.png'])
def test_folders_have_names_in_utf8(tmp_path, name):
    path = os.fsencode(tmp_path) + b'/' + name
    os.makedirs(os.path.dirname(path))
    with open(path, 'wb') as file:
        file.write(FILES['a.png'])
    reading = Reading({'image': Image(4, 4, 3), 'label': Label()}, ())
    with pytest.raises(ConfigError, match=r'data.dev: caf\\xe9'):
        list(
            reader.rows(Data(source='folders', dir=str(tmp_path), dev='dev'), reading, 'dev', reader.Report())
        )


def test_classes_of_pictures_in_a_table(tmp_path):
    write(tmp_path, 'image\tlabel\na.png\tred\nb.png\tgreen\n', FILES)
    reading = Reading({'image': Image(4, 4, 3), 'label': Label()}, ('source',))
    data = Data(source='table', dir=str(tmp_path), train='all.tsv', dev='all.tsv[:1]', test='all.tsv[1:]')
    dataset = cache.prepare(data, reading, tmp_path / 'cache')
    assert dataset.codecs['label'].names == ('green', 'red')
    assert dataset.splits['test'].fields['label'].values.tolist() == [0]
