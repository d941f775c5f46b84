"""Files of word vectors: every layout there and back, and files that are damaged."""

import gzip
import struct

import numpy as np
import pytest

from transformer.config import ConfigError
from transformer.data import word_vectors
from transformer.data.tokenizers.listed import PiecesTokenizer
from transformer.data.word_vectors import WordRows

WORDS = ['the', 'café', 'x']
VECTORS = np.array([[1.0, -2.5], [0.1, 3e-7], [123456.7, 0.0]], np.float32)


@pytest.mark.parametrize('layout', ['word2vec', 'binary', 'glove'])
def test_there_and_back(tmp_path, layout):
    path = str(tmp_path / 'v')
    word_vectors.write(path, WordRows(WORDS, VECTORS), layout)
    found = word_vectors.read(path)
    assert found.words == WORDS
    np.testing.assert_array_equal(found.vectors, VECTORS)
    (tmp_path / 'v.gz').write_bytes(gzip.compress((tmp_path / 'v').read_bytes()))
    np.testing.assert_array_equal(word_vectors.read(f'{path}.gz').vectors, VECTORS)


@pytest.mark.parametrize(('layout', 'words'), [('binary', ['a', 'new york']), ('glove', ['new york', 'a'])])
def test_words_with_blanks_that_a_file_cannot_hold(tmp_path, layout, words):
    path = str(tmp_path / 'v')
    with pytest.raises(ConfigError, match=f'--layout={layout} .*new york'):
        word_vectors.write(path, WordRows(words, VECTORS[:2]), layout)
    assert not (tmp_path / 'v').exists()
    word_vectors.write(path, WordRows(words, VECTORS[:2]), 'word2vec')
    assert word_vectors.read(path).words == words


def test_files_of_other_programs(tmp_path):
    packed = b'3 2\n' + b''.join(
        word.encode() + b' ' + struct.pack('<2f', *v) for word, v in zip(WORDS, VECTORS, strict=True)
    )
    contents = {
        'text': 'the 1 -2.5 \ncafé 0.1 3e-7 \nx 123456.7 0 \n'.encode(),
        'binary': packed,  # no newline after a row
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        found = word_vectors.read(str(tmp_path / name))
        assert found.words == WORDS
        np.testing.assert_array_equal(found.vectors, VECTORS)
    # A first word of blanks and stops, with as many numbers as the first line says.
    (tmp_path / 'v').write_text('2 2\n. 7 1 2\na 3 4\n')
    found = word_vectors.read(str(tmp_path / 'v'))
    assert found.words == ['. 7', 'a'] and found.vectors.tolist() == [[1, 2], [3, 4]]
    # GloVe's largest file has words with blanks. Of equal words the first counts.
    (tmp_path / 'v').write_text('a 1 2\n. . . 3 4\na 5 6\n')
    found = word_vectors.read(str(tmp_path / 'v'))
    assert found.words == ['a', '. . .'] and found.vectors.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ('content', 'named'),
    [
        (b'', 'empty'),
        (b'a 1 2\nb 1\n', 'line 2'),
        (b'a 1 2\nb 1 nan\n', 'line 2'),
        (b'a\n', 'line 1'),
        (b'3 2\na 1 2\nb 1 2\n', '2 words'),
        (b'1 2\na 1 x\n', 'line 2'),
        (b'2 3\nthe 1 2\na 1 2 3\n', 'line 2'),
        (b'2 1\na \x00\x00\x80\x3fb \x00\x00', 'word 2'),
        (b'1 1\na \x00\x00\x80\x3f\nb \x00\x00\x80\x3f\n', 'more than 1'),
        (b'2 0\n', 'line 1'),
        (b'a 1 1e39\n', 'line 1'),  # infinite in float32
        (b'a 1 1_0\n', 'line 1'),
    ],
)
def test_damaged_files(tmp_path, content, named):
    (tmp_path / 'v').write_bytes(content)
    with pytest.raises(ConfigError, match=named):
        word_vectors.read(str(tmp_path / 'v'))


def test_damaged_gzip_files(tmp_path):
    whole = gzip.compress(''.join(f'w{n} {n} {n * n}\n' for n in range(999)).encode(), mtime=0)
    for place in range(12, len(whole), len(whole) // 60):
        content = whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :]
        (tmp_path / 'v.gz').write_bytes(content)
        with pytest.raises(ConfigError, match='v.gz'):
            word_vectors.read(str(tmp_path / 'v.gz'))


def test_words_of_a_tokenizer():
    of = lambda *pieces: word_vectors.words_of(
        PiecesTokenizer.from_pieces(['<pad>', '</s>', '<unk>', *pieces], ' ', end=True)
    )
    assert of('dog', 'cat') == {'dog': 3, 'cat': 4}
    # Pieces that continue a word are none.
    assert of('▁dog', 'dog', 's', '▁') == {'dog': 3}
