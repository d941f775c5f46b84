"""Tokenizers lose nothing, and the same text gives the same model."""

import collections
import io
import itertools
import random
import re

import numpy as np
import pytest
import sentencepiece

from transformer.config import ConfigError, Data
from transformer.data import codec, vocabulary, word_vectors
from transformer.data.tokenizers import foreign, kinds, sentence_piece
from transformer.data.tokenizers.base import BLANK
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.data.tokenizers.sentence_piece import SentencePieceTokenizer
from transformer.tokens import EOS, PAD, UNK

SENTENCES = [
    f'{who} {does} {what} {where}.'
    for who in ('The cat', 'A dog', 'My brother', 'Die Kätzin', 'Ein Größenwahn')
    for does in ('sees', 'does not like', 'findet', 'jagt … oft')
    for what in ('the old house', 'a green bird', 'den Bären', '½ Apfel')
    for where in ('in the garden', 'now', 'im Café', '"heute"')
]


@pytest.fixture(scope='module')
def model():
    return vocabulary.train(SENTENCES, 400)


@pytest.fixture(scope='module')
def pieces(model):
    return SentencePieceTokenizer(model)


def test_special_pieces_and_size(pieces):
    assert (PAD, EOS, UNK) == (0, 1, 2)
    names = [pieces._processor.id_to_piece(i) for i in range(4)]
    assert names == ['<pad>', '</s>', '<unk>', '<0x00>']
    assert pieces._processor.bos_id() == -1
    assert pieces.size == 400


@pytest.fixture(scope='module', params=['bpe', 'characters', 'bytes'])
def either(request, pieces):
    if request.param == 'characters':
        return SentencePieceTokenizer(vocabulary.train(SENTENCES, 280, 'characters'))
    return pieces if request.param == 'bpe' else ByteTokenizer()


@pytest.mark.parametrize(
    'text',
    [
        *('', ' ', 'a', ' a', 'a ', '  two  blanks  ', '\t', 'a\tb', '\r', 'a\x85b\u2028c'),
        *('½ and … and ﬁ', 'e\u0301 é Å Å', '😀 👩‍👩‍👧 𝕏', '漢字', '\u00a0\u3000\u200b\ufeff'),
        *('\0', 'a\0b', '\x01\x1b\x7f', '\ufffd \ue000 \U0010ffff', '</s> <pad><unk> <0x41>'),
        *('▁', '▁▁ ▁', 'a▁b', ' ▁ c', 'a ▁\0▁ b', '\0▁', '⁇ ▅'),
        *('\n', 'a\nb\r\n', '\n\n c', ' \n ▁\n'),
    ],
)
def test_decoding_undoes_encoding(either, text):
    ids = either.encode(text)
    assert ids[-1] == EOS
    assert not {PAD, EOS, UNK} & set(ids[:-1])
    assert either.decode(ids) == text
    assert either.encode_document(text).tolist() == ids


def random_texts(longest, count):
    draw = random.Random(0)
    alphabet = [*map(chr, range(1, 600)), *' ▁\0\t\n', *'aeö…½😀漢', 'the', 'Größe', '\n\n', ' \n ']
    return [''.join(draw.choices(alphabet, k=draw.randrange(longest))) for _ in range(count)]


def test_decoding_undoes_encoding_of_random_text(either):
    texts = random_texts(30, 2000)
    assert [either.decode(ids) for ids in either.encode_batch(texts)] == texts


@pytest.mark.parametrize('block', [1, 7, 50])
def test_documents_are_encoded_in_blocks(either, monkeypatch, block):
    """Blocks end after newlines, which no piece holds: the pieces are those of the whole text."""
    monkeypatch.setattr(sentence_piece, '_BLOCK', block)
    for text in random_texts(300, 100):
        ids = either.encode_document(text)
        assert ids.dtype == np.int32
        assert ids.tolist() == either.encode(text)
        assert either.decode(ids) == text


def test_long_documents(either):
    text = '\n'.join(SENTENCES * 600 + ['▁ ', '\0', 'x' * 200_000])
    assert len(text) > 2_000_000
    ids = either.encode_document(text)
    assert either.decode(ids) == text
    assert np.count_nonzero(ids == EOS) == 1


def test_known_words_are_few_pieces(pieces):
    assert len(pieces.encode('The cat sees the old house now.')) <= 9
    assert pieces.encode('house') == pieces.encode('in house')[-2:]


def test_batch_equals_single(either):
    texts = [*SENTENCES, 'x▁y', '']
    assert either.encode_batch(texts) == [either.encode(text) for text in texts]
    assert either.encode_batch([]) == []


def test_a_lone_surrogate_reads_as_a_question_mark(either):
    assert either.encode('a \ud800 b') == either.encode('a ? b')
    assert either.encode_document('a\n\udfff').tolist() == either.encode('a\n?')


def test_places_of_pieces_around_a_blank_of_sentencepiece(pieces):
    text = '▁ the cat▁▁dog 😀▁'
    names, offsets = pieces.pieces(pieces.encode(text)), pieces.offsets(text)
    assert len(names) == len(offsets) and offsets[-1] == (len(text), len(text))
    blank = [f'<0x{byte:02X}>' for byte in '▁'.encode()]
    found = {place for i, place in enumerate(offsets) if names[i : i + 3] == blank}
    assert found == {(i, i + 1) for i, character in enumerate(text) if character == '▁'}
    for name, (begin, end) in zip(names[:-1], offsets, strict=False):
        # Only the blank that begins a text is a piece's, but not the text's.
        assert (
            name.startswith('<0x')
            or name.replace('▁', ' ').removeprefix(' ' * (not begin)) in (text[begin:end])
        )


def test_a_nul_in_a_text_is_no_gap(either):
    before, after = either.encode_around('a\0b ... c', '...')
    assert either.decode(before) == 'a\ufffdb' and either.decode(after).strip() == 'c'


def test_decode_ends_at_eos_and_skips_padding(either):
    a, b = either.encode('The cat')[:-1], either.encode(' now')
    assert either.decode(np.array([PAD, *a, PAD, EOS, *b, PAD])) == 'The cat'
    assert either.decode(np.array([*a, PAD, EOS])) == 'The cat'


def test_words_decode_with_blanks_between(pieces):
    assert pieces.decode([*pieces.encode('The cat')[:-1], *pieces.encode('now')]) == 'The cat now'


def test_ids_beyond_the_vocabulary_read_as_unknown(pieces):
    assert pieces.decode([UNK]) == pieces.decode([pieces.size]) == pieces.decode([40959]) == ' ⁇ '


def test_a_decoded_line_has_no_newline(either):
    ids = either.encode('a\nb\r\n')
    assert either.decode(ids) == 'a\nb\r\n'
    assert either.decode(ids, one_line=True) == 'a b\r '


def test_bytes():
    bytewise = ByteTokenizer()
    assert bytewise.size == 259
    assert bytewise.encode('aö\n') == [97 + 3, 0xC3 + 3, 0xB6 + 3, 10 + 3, EOS]
    assert bytewise.encode_document('😀').tolist() == [0xF0 + 3, 0x9F + 3, 0x98 + 3, 0x80 + 3, EOS]
    assert bytewise.pieces([PAD, EOS, UNK, 97 + 3, 10 + 3, 32 + 3, 0xC3 + 3]) == [
        *('<pad>', '</s>', '<unk>', 'a', '<0x0A>', '▁', '<0xC3>')
    ]


def test_bytes_that_are_no_text_read_as_replacement_characters():
    bytewise = ByteTokenizer()
    a, first, second = 97 + 3, 0xC3 + 3, 0xB6 + 3
    assert bytewise.decode([a, first, a]) == 'a\ufffda'
    assert bytewise.decode([second, a, first]) == '\ufffda\ufffd'
    # Padding is nothing, even inside a character; UNK and what is no piece is no byte.
    assert bytewise.decode([first, PAD, second]) == 'ö'
    assert bytewise.decode([a, UNK, a, 259, 40959]) == 'a\ufffda\ufffd\ufffd'


def test_model_files_tell_the_kind(model, pieces):
    for made in (pieces, ByteTokenizer()):
        again = kinds.read(made.content)
        assert type(again) is type(made)
        assert (again.content, again.sha256, again.size) == (made.content, made.sha256, made.size)
        assert again.decode(again.encode('ein Bär')) == 'ein Bär'
        for damaged in (made.content[:-3], b'x', made.content[1:], b''):
            with pytest.raises(RuntimeError):
                kinds.read(damaged)


def test_training_is_reproducible(model):
    again = vocabulary.train(iter(SENTENCES), 400)
    assert again == model
    learned = SentencePieceTokenizer(model)
    assert SentencePieceTokenizer(again).sha256 == learned.sha256
    assert SentencePieceTokenizer(vocabulary.train(SENTENCES, 401)).sha256 != learned.sha256


def test_a_rare_character_of_a_long_sentence_is_a_piece():
    # 3 special pieces, 256 bytes, a, b, the blank and a flake, one in 8,000 characters.
    made = SentencePieceTokenizer(vocabulary.train(['a b ' * 2000 + '☃'], 263))
    assert '☃' in made.pieces(made.encode('☃'))


@pytest.mark.parametrize(
    'sentences, size, expected',
    [
        (['a b c'] * 9, 300, 'data.pieces=300: the training text allows 266 at most'),
        # 3 special pieces, 256 bytes, a, b, c and the blank.
        (['a b c'] * 9, 262, 'data.pieces=262: the characters of the training text need 263'),
        ([], 300, 'data.train: its text is empty'),
        ([''], 300, 'data.train: its text is empty'),
    ],
)
def test_impossible_sizes(sentences, size, expected, capfd):
    with pytest.raises(ConfigError) as error:
        vocabulary.train(sentences, size)
    assert str(error.value).startswith(expected)
    assert capfd.readouterr().err == ''


@pytest.mark.parametrize('kind', ['bpe', 'byte_bpe', 'characters', 'words'])
@pytest.mark.parametrize('failure', [ConfigError('a.txt: line 2 is damaged'), KeyboardInterrupt()])
def test_failures_of_the_sentences_arrive_as_they_are(kind, failure):
    def sentences():
        yield 'a b c'
        raise failure

    with pytest.raises(type(failure)) as error:
        vocabulary.train(sentences(), 300, kind)
    assert error.value is failure


def test_characters():
    # 3 special pieces, 256 bytes, and by frequency c, the blank, b, a.
    text = ['a bb ccc', 'cc b']
    made = SentencePieceTokenizer(vocabulary.train(text, 263, 'characters'))
    assert made.pieces(range(259, 263)) == ['c', '▁', 'b', 'a']
    assert made.pieces(made.encode('ab c')) == ['▁', 'a', 'b', '▁', 'c', '</s>']
    fewer = SentencePieceTokenizer(vocabulary.train(text, 261, 'characters'))
    assert fewer.pieces(fewer.encode('bc a')) == ['▁', '<0x62>', 'c', '▁', '<0x61>', '</s>']
    assert fewer.decode(fewer.encode('bc a')) == 'bc a'
    cases = {264: 'the training text allows 263 at most', 260: 'too few', 258: 'too few', 4: 'too few'}
    for size, told in cases.items():
        with pytest.raises(ConfigError, match=f'data.pieces={size}: {told}'):
            vocabulary.train(text, size, 'characters')


# What subword-nmt 0.3.8 learns from SENTENCES with `learn-bpe --symbols=20`.
CODES = """\
#version: 0.2
e n</w>
t h
i n</w>
th e</w>
n o
e s</w>
d e
d o
é .</w>
ä r
är en</w>
w .</w>
u t
ut e
ute "
ute" .</w>
u s
us e</w>
s e
se es</w>
"""


@pytest.fixture
def codes(tmp_path):
    pytest.importorskip('tokenizers')
    (tmp_path / 'codes').write_text(CODES)
    return foreign.read_foreign(tmp_path / 'codes')


@pytest.mark.parametrize(
    ('text', 'cut'),  # by `subword-nmt apply-bpe`
    [
        ('the the', 'the the'),
        ('the old house now.', 'the o@@ l@@ d h@@ o@@ use no@@ w.'),
        ('Eine Bären ☃ .', 'E@@ i@@ n@@ e B@@ ären ☃ .'),
    ],
)
def test_codes_cut_as_subword_nmt_does(codes, text, cut):
    ids = codes.encode(text)
    assert ids[-1] == EOS and not {PAD, EOS, UNK} & set(ids[:-1])
    assert codes.decode(ids) == text
    # Each piece but bytes, with the mark of subword-nmt, and each character that the codes do not have.
    names = ' '.join(codes.pieces(ids[:-1])).replace(' ▁', '▁').lstrip('▁').split('▁')
    words = [word.split(' ') for word in names]
    for ours, theirs in zip(words, cut.replace('@@ ', '@@').split(' '), strict=True):
        if not any(piece.startswith('<0x') for piece in ours):
            assert ours == theirs.split('@@')


def test_the_first_of_equal_codes_counts(tmp_path):
    pytest.importorskip('tokenizers')
    (tmp_path / 'codes').write_text('#version: 0.2\na b\nb c\nb c</w>\na b\nc d\n')
    codes = foreign.read_foreign(tmp_path / 'codes')
    # By `subword-nmt apply-bpe`: ab@@ c@@ x.
    assert codes.pieces(codes.encode('abcx')[:2]) == ['▁ab', 'c']


@pytest.mark.parametrize(
    'text', ['the [MASK] the', '☃ [MASK]', '[MASK] a[MASK]e', '[MASK]', 'the\0 [MASK]', 'a [MASK] [MASK]']
)
def test_gaps_in_codes(codes, text):
    parts = codes.encode_around(text, '[MASK]')
    given = [part.replace('\0', '\ufffd') for part in text.split('[MASK]')]
    # The blank at a gap's side is a part of it, or of its word's end.
    assert [codes.decode(part).strip() for part in parts] == [part.strip() for part in given]
    assert parts[-1][-1] == EOS and not any(EOS in part for part in parts[:-1])
    assert sum(parts, []).count(3) == 0


def test_codes_do_not_mark_beginnings(codes):
    for use in (codes.begins_words, lambda: word_vectors.words_of(codes)):
        with pytest.raises(ConfigError, match='data.tokenizer_model'):
            use()


def test_codes(codes):
    # The special pieces, bytes, the end of a word, 17 characters twice, and what 20 codes make.
    characters = set(CODES.partition('\n')[2].replace('</w>', '')) - set(' \n')
    assert codes.size == 3 + 256 + 1 + 2 * len(characters) + 20
    assert codes.pieces(codes.encode('a☃ the')) == [
        *('▁<0x61>', '<0xE2>', '<0x98>', '<0x83>', '', '▁the', '</s>')
    ]
    assert codes.decode([*codes.encode('the')[:-1], UNK, 4000]) == 'the \ufffd\ufffd'
    assert codes.decode(codes.encode('a\nb'), one_line=True) == 'a b'
    assert codes.decode(codes.encode('x</w>y the')) == 'x</w>y the'
    assert codes.encode_document('the\nB').tolist() == codes.encode('the\nB')
    again = kinds.read(codes.content)
    assert again.sha256 == codes.sha256 and again.encode('the old') == codes.encode('the old')
    both = codec.files_of({'source': codes, 'target': ByteTokenizer()})
    assert both == {'source': 'tokenizer.model', 'target': 'target.tokenizer.model'}


@pytest.mark.parametrize('names', ['', 'a,'])
def test_empty_names_are_refused(names):
    vocabulary = 'separate' if names else 'joint'
    with pytest.raises(ConfigError, match=f'data.tokenizer_model={names}: an empty name'):
        foreign.read_given(Data(tokenizer_model=names, vocabulary=vocabulary), ('source', 'target'))


def test_damaged_codes_are_refused(tmp_path):
    for content, told in (
        ('#version: 0.1\na b\n', 'codes .* not with "#version: 0.1"'),
        ('#version: 0.2\na b\nab\n', 'line 3'),
        ('#version: 0.2\na b</w>\nb c\nbc d</w>\nbcd e\n', 'line 5: no line makes "bcd"'),
    ):
        (tmp_path / 'codes').write_text(content)
        with pytest.raises(ConfigError, match=f'data.tokenizer_model={tmp_path}/codes: {told}'):
            foreign.read_foreign(tmp_path / 'codes')


def plain(kind, **options) -> bytes:
    """Trains a model as `spm_train` does: unknown 0, start 1, end 2, no padding."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=made, model_type=kind, minloglevel=2, **options
    )
    return made.getvalue()


@pytest.mark.parametrize(
    ('kind', 'options', 'size'),
    [
        ('bpe', {'vocab_size': 120}, 120),
        ('unigram', {'vocab_size': 120, 'hard_vocab_limit': False, 'num_threads': 1}, None),
        ('char', {'vocab_size': 60, 'hard_vocab_limit': False}, None),
        ('bpe', {'vocab_size': 400, 'byte_fallback': True, 'pad_id': 3}, 399),
        ('bpe', {'vocab_size': 120, 'bos_id': -1, 'eos_id': -1, 'user_defined_symbols': ['<x>']}, 122),
        ('bpe', {'vocab_size': 120, 'eos_id': -1, 'user_defined_symbols': ['<pad>', '</s>']}, 119),
    ],
)
def test_a_model_made_elsewhere_keeps_its_pieces(tmp_path, kind, options, size):
    model = plain(kind, **options)
    (tmp_path / 'own.model').write_bytes(model)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = foreign.read_foreign(tmp_path / 'own.model')
    assert ours.size == (theirs.get_piece_size() if size is None else size)
    assert ours.pieces(range(3)) == ['<pad>', '</s>', '<unk>']
    texts = [*SENTENCES, 'unbekanntes Größeres <x> 漢', '  two  blanks ', '', 'a ▁ b', 'a\0b']
    for text, ids in zip(texts, ours.encode_batch(texts), strict=True):
        if '▁' in text and 'byte_fallback' in options:
            # Theirs would read it back as a blank.
            text = text.replace('▁', '')
            ids = ours.encode(text)
        assert ours.decode(ids) == theirs.decode(theirs.encode(text))
        assert ids[-1] == EOS and not {PAD, EOS} & set(ids[:-1])
        assert ours.pieces(ids[:-1]) == [
            '<unk>' if theirs.is_unknown(i) else theirs.id_to_piece(i) for i in theirs.encode(text)
        ]
        assert ours.encode_document(text).tolist() == ids
    again = kinds.read(ours.content)
    assert again.sha256 == ours.sha256 and again.encode_batch(texts) == ours.encode_batch(texts)
    # It is in order already, so nothing changes.
    assert foreign.with_symbols_first(ours.content) == ours.content


def test_a_model_of_ours_is_used_as_it_is(model):
    again = SentencePieceTokenizer(foreign.with_symbols_first(model))
    texts = [*SENTENCES, 'x▁y \0 😀']
    assert again.encode_batch(texts) == SentencePieceTokenizer(model).encode_batch(texts)


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / 'text').write_bytes(b'no model at all')
    (tmp_path / 'empty').write_bytes(b'')
    for name, told in (('text', 'neither a S'), ('empty', 'neither a S'), ('no', 'No such file')):
        with pytest.raises(ConfigError, match=f'data.tokenizer_model={tmp_path / name}: {told}'):
            foreign.read_foreign(tmp_path / name)


WORDS = [' the cat sees the <unk> ', 'the dog  sees a\tcat', '', 'a </s>']


def test_words_by_frequency():
    # the 3, sees 2, a 1, a\tcat 1, cat 1, dog 1; of equals, the first in the alphabet.
    made = kinds.read(vocabulary.train(WORDS, 7, 'words'))
    assert made.pieces(range(made.size)) == ['<pad>', '</s>', '<unk>', 'the', 'sees', 'a', 'a\tcat']
    assert made.encode(' the  cat sees </s> a <unk>') == [3, UNK, 4, UNK, 5, UNK, EOS]
    assert made.decode([3, 5, EOS, 4]) == 'the a'
    assert made.marked(made.encode('the cat sees')) == ['▁the', '<unk>', '▁sees', '</s>']
    assert made.begins_words().tolist() == [False] * 3 + [True] * 4
    assert made.counts == [0, 0, 0, 3, 2, 1, 1]
    assert vocabulary.train(WORDS, 7, 'words') == made.content
    for damaged in (made.content.replace(b', 1]', b']'), made.content.replace(b', 1]', b', "1"]')):
        with pytest.raises(RuntimeError):
            kinds.read(damaged)


@pytest.mark.parametrize(('sentences', 'pieces'), [(WORDS, 10), (WORDS, 3), ([' <unk> '], 4)])
def test_words_that_the_text_does_not_have(sentences, pieces):
    with pytest.raises(ConfigError, match=r'^data\.(pieces|train)'):
        vocabulary.train(sentences, pieces, 'words')


def merged(sentences: list[str], merges: int) -> list[str]:
    """Learns byte-level BPE of plain words by its definition: joins the most frequent pair each time."""
    words = collections.Counter()
    for sentence in sentences:
        # Each word but the first begins with its blank, which GPT-2 writes as a letter.
        words.update(tuple(word) for word in sentence.replace(' ', ' Ġ').split(' '))
    made = []
    for _ in range(merges):
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += count
        best = max(pairs.values())
        [pair] = [pair for pair, count in pairs.items() if count == best]
        made.append(''.join(pair))
        words = collections.Counter({_joined(word, pair): count for word, count in words.items()})
    return made


def _joined(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    joined = []
    for symbol in word:
        if joined and (joined[-1], symbol) == pair:
            joined[-1] += symbol
        else:
            joined.append(symbol)
    return tuple(joined)


def test_byte_level_bpe():
    sentences = ['aaab aaab', 'aab ab'] * 3
    # aa 15 times, then ab 9 times, then aa before ab 6 times.
    made = kinds.read(vocabulary.train(sentences, 3 + 256 + 3, 'byte_bpe'))
    assert [made.name(piece) for piece in range(259, 262)] == merged(sentences, 3)
    assert [made.name(piece) for piece in (PAD, EOS, UNK)] == [None, '<|endoftext|>', None]
    for text in ('aaab', ' ab  aab\n', 'Größe ½ \U0001f600 …', '', 'a\tb'):
        ids = made.encode(text)
        assert ids[-1] == EOS and UNK not in ids and made.decode(ids) == text
        assert made.decode([PAD, *ids[:-1], UNK, EOS]) == text and len(made.offsets(text)) == len(ids)
    assert vocabulary.train(sentences, 262, 'byte_bpe') == made.content


def test_byte_level_pieces_are_text_if_they_are_whole_characters():
    made = kinds.read(vocabulary.train(['für für größer', 'вижу дом'] * 9, 280, 'byte_bpe'))
    for text in ('für größer', 'größer für', 'вижу дом', 'a\tb  c\n', '½ \U0001f600'):
        pieces = made.readable(made.encode(text)[:-1])
        shown = ''.join(pieces).replace(BLANK, ' ')
        read = lambda match: bytes([int(match[1], 16)]).decode('latin-1')
        codes = re.sub(
            '<0x(..)>', read, ''.join(c if c < '\x80' else c.encode().decode('latin-1') for c in shown)
        )
        assert codes.encode('latin-1').decode() == text
    assert f'{BLANK}für' in made.readable(range(made.size)) and 'für' in word_vectors.words_of(made)
    assert (
        made.readable(made.encode('\t')[:-1]) == ['<0x09>']
        and made.readable(made.encode('½')[:-1])[0][:3] == '<0x'
    )


@pytest.mark.parametrize('pieces', [258, 1000])
def test_byte_level_bpe_of_too_few_or_many_pieces(pieces):
    with pytest.raises(ConfigError, match=rf'^data\.pieces={pieces}: '):
        vocabulary.train(['aaab aaab'] * 3, pieces, 'byte_bpe')


@pytest.mark.parametrize('kind', ['words', 'byte_bpe'])
def test_trees_need_pieces_of_characters(kind):
    with pytest.raises(ConfigError, match=f'^data.tokenizer={kind}: '):
        vocabulary.train(SENTENCES, 400, kind, ['(S'])
