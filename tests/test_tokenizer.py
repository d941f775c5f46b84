"""The tokenizer loses nothing, and the same text gives the same model."""

import random

import numpy as np
import pytest

from transformer.config import ConfigError
from transformer.data import tokenizer
from transformer.data.tokenizer import EOS, PAD, UNK, Tokenizer

SENTENCES = [
    f'{who} {does} {what} {where}.'
    for who in ('The cat', 'A dog', 'My brother', 'Die Kätzin', 'Ein Größenwahn')
    for does in ('sees', 'does not like', 'findet', 'jagt … oft')
    for what in ('the old house', 'a green bird', 'den Bären', '½ Apfel')
    for where in ('in the garden', 'now', 'im Café', '"heute"')
]


@pytest.fixture(scope='module')
def model():
    return tokenizer.train(SENTENCES, 400)


@pytest.fixture(scope='module')
def pieces(model):
    return Tokenizer(model)


def test_special_pieces_and_size(pieces):
    assert (PAD, EOS, UNK) == (0, 1, 2)
    names = [pieces._processor.id_to_piece(i) for i in range(4)]
    assert names == ['<pad>', '</s>', '<unk>', '<0x00>']
    assert pieces._processor.bos_id() == -1
    assert pieces.size == 400


@pytest.mark.parametrize(
    'text',
    [
        *('', ' ', 'a', ' a', 'a ', '  two  blanks  ', '\t', 'a\tb', '\r', 'a\x85b\u2028c'),
        *('½ and … and ﬁ', 'e\u0301 é Å Å', '😀 👩‍👩‍👧 𝕏', '漢字', '\u00a0\u3000\u200b\ufeff'),
        *('\0', 'a\0b', '\x01\x1b\x7f', '\ufffd \ue000 \U0010ffff', '</s> <pad><unk> <0x41>'),
        *('▁', '▁▁ ▁', 'a▁b', ' ▁ c', 'a ▁\0▁ b', '\0▁', '⁇ ▅'),
    ],
)
def test_decoding_undoes_encoding(pieces, text):
    ids = pieces.encode(text)
    assert ids[-1] == EOS
    assert not {PAD, EOS, UNK} & set(ids[:-1])
    assert pieces.decode(ids) == text


def test_decoding_undoes_encoding_of_random_text(pieces):
    draw = random.Random(0)
    characters = [chr(code) for code in range(1, 600) if code != 10]
    alphabet = [*characters, *' ▁\0\t', *'aeö…½😀漢', 'the', 'Größe']
    texts = [''.join(draw.choices(alphabet, k=draw.randrange(30))) for _ in range(2000)]
    assert [pieces.decode(ids) for ids in pieces.encode_batch(texts, threads=2)] == texts


def test_known_words_are_few_pieces(pieces):
    assert len(pieces.encode('The cat sees the old house now.')) <= 9
    assert pieces.encode('house') == pieces.encode('in house')[-2:]


def test_batch_equals_single(pieces):
    texts = [*SENTENCES, 'x▁y', '']
    assert pieces.encode_batch(texts) == [pieces.encode(text) for text in texts]
    assert pieces.encode_batch([]) == []


def test_decode_ends_at_eos_and_skips_padding(pieces):
    a, b = pieces.encode('The cat')[:-1], pieces.encode('now')
    assert pieces.decode(np.array([PAD, *a, PAD, EOS, *b, PAD])) == 'The cat'
    assert pieces.decode([*a, *b]) == 'The cat now'


def test_ids_beyond_the_vocabulary_read_as_unknown(pieces):
    assert pieces.decode([UNK]) == pieces.decode([pieces.size]) == pieces.decode([40959]) == ' ⁇ '


def test_a_decoded_line_has_no_newline(pieces):
    assert pieces.decode(pieces.encode('a\nb\r\n')) == 'a b\r '


def test_training_is_reproducible(model):
    again = tokenizer.train(iter(SENTENCES), 400)
    assert again == model
    assert Tokenizer(again).sha256 == Tokenizer(model).sha256
    assert Tokenizer(tokenizer.train(SENTENCES, 401)).sha256 != Tokenizer(model).sha256


@pytest.mark.parametrize(
    'sentences, size, expected',
    [
        (['a b c'] * 9, 300, 'data.pieces=300: the training text allows 266 at most'),
        # 3 special pieces, 256 bytes, a, b, c and the blank.
        (['a b c'] * 9, 262, 'data.pieces=262: the characters of the training text need 263'),
        ([], 300, 'data.pieces=300: the training text is empty'),
        ([''], 300, 'data.pieces=300: the training text is empty'),
    ],
)
def test_impossible_sizes(sentences, size, expected, capfd):
    with pytest.raises(ConfigError) as error:
        tokenizer.train(sentences, size)
    assert str(error.value).startswith(expected)
    assert capfd.readouterr().err == ''
