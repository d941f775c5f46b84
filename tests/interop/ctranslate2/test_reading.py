"""Models of other programs: a public one runs here with the numbers that its own program gives.

aren_transliteration/ holds a model of the package arabic-name-romanizer (MIT) in CTranslate2's format, and
ctranslate2.json what CTranslate2 4.8.5 computes with it in float32: log p of given spellings, and three
hypotheses of beam 4 with length_penalty 1e-9, min_decoding_length 0 and patience 4.
"""

import json
import pathlib
import struct

import numpy as np
import pytest
import random_models

import transformer
from transformer.cli import main
from transformer.config import ConfigError, config_dict, resolve
from transformer.data import codec
from transformer.data.tokenizers.listed import PiecesTokenizer
from transformer.files import new_folder
from transformer.interop import foreign, layout
from transformer.interop import import_model as importing
from transformer.interop.ctranslate2 import binary, names, reading, writing
from transformer.interop.foreign import NEVER, list_tokenizer
from transformer.tokens import EOS, UNK

FOLDER = pathlib.Path(__file__).parent / 'aren_transliteration'
OPTIONS = {
    'train.task': 'transliteration',
    'data.source_language': 'ar',
    'data.target_language': 'latin',
    'decode.alpha': 0.0,
    'decode.extra_len': 32,
}
EXPECTED = json.loads((FOLDER / 'ctranslate2.json').read_text())


@pytest.fixture(scope='module')
def workdir(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('imported') / 'aren'
    importing.import_model(FOLDER, folder, OPTIONS)
    return folder


@pytest.fixture(scope='module')
def model(workdir):
    return transformer.load(workdir)


def test_log_probabilities_are_ctranslate2s(model):
    pairs = [(one['source'], one['target']) for one in EXPECTED]
    for one, found in zip(EXPECTED, model.likelihoods(pairs), strict=True):
        np.testing.assert_allclose(found.logp, one['logp'], atol=1e-5)


@pytest.fixture(scope='module')
def search(model):
    """Returns a function that finds three hypotheses a text, in batches that have one program."""

    def hypotheses(texts: list[str]) -> list:
        parts = (texts[start : start + 16] for start in range(0, len(texts), 16))
        return [found for part in parts for found in model.hypotheses(part, best=3)]

    return hypotheses


def test_hypotheses_are_ctranslate2s(search):
    found = search([one['source'] for one in EXPECTED])
    equal = 0
    for one, ours in zip(EXPECTED, found, strict=True):
        theirs = dict(zip(one['hypotheses'], one['scores'], strict=True))
        assert ours[0].text == one['hypotheses'][0]
        for hypothesis in ours:
            if hypothesis.text in theirs:
                assert hypothesis.score == pytest.approx(theirs[hypothesis.text], abs=2e-5)
        # Their search accepts an end only among the four best continuations, ours among the eight best.
        for hypothesis, score in zip(ours, one['scores'], strict=True):
            assert hypothesis.score > score - 2e-5
        equal += [hypothesis.text for hypothesis in ours] == one['hypotheses']
    assert equal > 0.95 * len(EXPECTED)


def test_names_of_the_notes(search):
    # The last is a source without pieces, which has no end here.
    *names, nothing = search(['آتزمون', 'برلین', 'لندن', ''])
    assert [best[0].text for best in names] == ['atzmon', 'berlin', 'lenden'] and nothing


def test_pieces_that_one_side_lacks_get_no_share_of_the_smoothing(model):
    config, bias = model.trained.config, np.asarray(model.trained.params['softmax_bias'])
    assert config.train.eps_ls == 0
    # 51 pieces of the source, 43 of the target.
    assert (bias <= NEVER).tolist() == [False] * 43 + [True] * 8
    # A bias of its own on top, as of an end that is also the start, makes no difference.
    assert foreign.smoothing(bias + 0.5) == {'train.eps_ls': 0.0} and foreign.smoothing(bias[:43]) == {}


def test_the_command_and_an_evaluation(tmp_path, capsys):
    options = [f'--config.{key}={value}' for key, value in OPTIONS.items()]
    output = tmp_path / 'runs' / 'aren'
    output.parent.mkdir()
    call = ['run.py', 'import', str(FOLDER), f'--output={output}', '--format=ctranslate2', *options]
    assert main.main(call) == 0
    lines = capsys.readouterr().out.splitlines()
    assert '  model.first_position = 1' in lines
    # The files do not say which of the tasks with such models it is for.
    [line] = [line for line in lines if 'train.task' in line]
    assert line.startswith('  train.task = transliteration') and '--config.train.task' in line
    assert 'translation' in line.split('--config.train.task')[1]
    (tmp_path / 'a.ar').write_text('برلین\nلندن\n')
    (tmp_path / 'a.tsv').write_text('برلین\tburlin\tberlin\nلندن\tlondon\tlindon\n')
    files = [f'--source={tmp_path / "a.ar"}', f'--reference={tmp_path / "a.tsv"}']
    assert main.main(['run.py', 'evaluate', f'--workdir={output}', *files]) == 0
    [entry] = json.loads((output / 'result.json').read_text())['evaluations'].values()
    # berlin is right; lenden is one letter from londen, two from lindon and london.
    assert entry['exact'] == 0.5 and entry['character_errors'] == pytest.approx((0 + 2 / 6) / 2)
    assert main.main(['run.py', 'evaluate', f'--workdir={output}']) == 2
    assert '--source' in capsys.readouterr().err
    assert main.main(call) == 2
    assert 'exists already' in capsys.readouterr().err
    for wrong, part in (
        ([str(FOLDER)], '--output'),
        ([str(tmp_path), f'--output={tmp_path / "x"}'], 'model.bin'),
        ([str(FOLDER), f'--output={tmp_path / "x"}', '--format=x'], '--format=x'),
        ([str(FOLDER), f'--output={tmp_path / "x"}', '--config.model.h=4'], 'model.h: the model has 8'),
        (
            [str(FOLDER), f'--output={tmp_path / "x"}', '--config.data.tokenizer=words'],
            'data.tokenizer: the model has its own',
        ),
        (
            [str(FOLDER), f'--output={tmp_path / "x"}', '--config.data.pieces=9'],
            'data.pieces: the model has 51',
        ),
        ([str(FOLDER), f'--output={tmp_path / "x"}', '--config.train.task=language'], 'train.task=language'),
        ([str(tmp_path / 'no'), f'--output={tmp_path / "x"}'], 'no: no folder'),
    ):
        assert main.main(['run.py', 'import', *wrong]) == 2
        assert part in capsys.readouterr().err
    assert not (tmp_path / 'x').exists() and {p.name for p in tmp_path.iterdir()} == {'runs', 'a.ar', 'a.tsv'}


def packed(kind: str, version: int, arrays: dict[str, np.ndarray], aliases=()) -> bytes:
    """Packs a model.bin of any version."""
    string = lambda text: struct.pack('<H', len(text.encode()) + 1) + text.encode() + b'\0'
    types = ['float32', 'int8', 'int16', 'int32', 'float16']
    parts = [struct.pack('<I', version), string(kind), struct.pack('<II', 2, len(arrays))]
    for name, array in arrays.items():
        content = array.tobytes()
        head = [types.index(array.dtype.name), len(content)] if version >= 4 else [array.itemsize, array.size]
        parts += [string(name), struct.pack(f'<B{array.ndim}I', array.ndim, *array.shape)]
        parts += [struct.pack('<BI', *head), content]
    if version >= 3:
        parts += [struct.pack('<I', len(aliases)), *(string(name) for pair in aliases for name in pair)]
    return b''.join(parts)


@pytest.fixture(scope='module')
def arrays() -> dict[str, np.ndarray]:
    kind, found = binary.read_arrays((FOLDER / 'model.bin').read_bytes())
    assert kind == 'TransformerBase' and len(found) == 200
    return found


def write(folder: pathlib.Path, content: bytes) -> pathlib.Path:
    folder.mkdir()
    for side in ('source', 'target'):
        name = f'{side}_vocabulary.txt'
        (folder / name).write_bytes((FOLDER / name).read_bytes())
    (folder / 'model.bin').write_bytes(content)
    return folder


@pytest.mark.parametrize('version', binary.VERSIONS)
def test_every_version_of_the_file(arrays, tmp_path, version):
    expected = reading.read(FOLDER)
    flags = {'encoder/num_heads': np.int16(8), 'decoder/num_heads': np.int16(8)} if version >= 4 else {}
    flags = {name: np.asarray(flag) for name, flag in flags.items()}
    kind = 'TransformerSpec' if flags else 'TransformerBase'
    renamed = arrays
    if version == 6:
        # As since revision 5: several embeddings are possible.
        new = lambda name: name.replace('encoder/embeddings/', 'encoder/embeddings_0/')
        renamed = {new(name): array for name, array in arrays.items()}
    found = reading.read(write(tmp_path / 'model', packed(kind, version, renamed | flags)))
    assert found.changes == expected.changes
    assert codec.contents(found.codecs) == codec.contents(expected.codecs)
    for name, array in expected.params.items():
        np.testing.assert_array_equal(found.params[name], array)


@pytest.mark.parametrize('dtype', ['int8', 'int16', 'float16'])
def test_numbers_of_few_bits(arrays, tmp_path, dtype):
    expected, coarse = reading.read(FOLDER), {}
    for name, array in arrays.items():
        coarse[name] = array
        if array.ndim == 2 and dtype == 'float16':
            coarse[name] = array.astype(dtype)
        elif array.ndim == 2:
            # A scale for each row, or one for the file's default of int16.
            scale = 127 / np.abs(array).max(axis=1, keepdims=True) if dtype == 'int8' else np.float32(1000)
            coarse[name] = np.rint(array * scale).astype(dtype)
            if dtype == 'int8':
                coarse[f'{name}_scale'] = scale[:, 0].astype(np.float32)
    found = reading.read(
        write(
            tmp_path / 'model',
            packed('TransformerBase', 3, coarse)
            if dtype != 'float16'
            else packed('TransformerBase', 4, coarse),
        )
    )
    assert found.changes == expected.changes
    for name, array in expected.params.items():
        if 'bias' not in name:
            most = {'int8': np.abs(array).max() / 254, 'int16': 0.0005, 'float16': np.abs(array).max() / 2000}
            np.testing.assert_allclose(found.params[name], array, atol=1.001 * most[dtype])
            assert array.ndim == 1 or not np.array_equal(found.params[name], array)


def test_an_alias_is_the_same_array(arrays):
    without = {name: a for name, a in arrays.items() if name != 'decoder/projection/weight'}
    aliases = [('decoder/projection/weight', 'decoder/embeddings/weight')]
    _, found = binary.read_arrays(packed('TransformerBase', 3, without, aliases))
    np.testing.assert_array_equal(found['decoder/projection/weight'], arrays['decoder/embeddings/weight'])


def test_broken_files(arrays, tmp_path):
    content = (FOLDER / 'model.bin').read_bytes()
    broken = {
        'cut': content[:-1],
        'cut early': content[:30],
        'empty': b'',
        'version': struct.pack('<I', 9) + content[4:],
        'kind': packed('WhisperSpec', 3, arrays),
        'name': packed('TransformerBase', 3, {**arrays, 'encoder/extra/weight': np.zeros((2, 2), 'f')}),
        'shape': packed('TransformerBase', 3, {**arrays, 'encoder/layer_norm/gamma': np.zeros(31, 'f')}),
        'missing': packed(
            'TransformerBase',
            3,
            {n: a for n, a in arrays.items() if n != 'decoder/layer_2/ffn/linear_0/bias'},
        ),
        'rows': packed('TransformerBase', 3, {**arrays, 'encoder/embeddings/weight': np.zeros((9, 32), 'f')}),
        'more': content + b'1',
        'nan': packed('TransformerBase', 3, {**arrays, 'encoder/layer_norm/gamma': np.full(32, np.nan, 'f')}),
        'alibi': packed('TransformerBase', 3, {**arrays, 'decoder/alibi': np.ones((), np.int8)}),
    }
    for i, (name, damaged) in enumerate(broken.items()):
        folder = write(tmp_path / str(i), damaged)
        with pytest.raises(ConfigError, match=f'^{folder}: '):
            importing.import_model(folder, tmp_path / 'out', OPTIONS)
        assert not (tmp_path / 'out').exists(), name
    beside = {
        'config.json': [
            b'[1]',
            b'{',
            b'{"eos_token": 5}',
            b'{"eos_token": "x"}',
            b'{"decoder_start_token": "Q"}',
        ],
        'source_vocabulary.txt': [b'\xff\xfe', b'', b'<s>\n</s>\na\na'],
        'target_vocabulary.json': [b'{}', b'[1, 2]'],
        'sentencepiece.model': [b'', b'\xff' * 9],
    }
    for file, contents in beside.items():
        for i, damaged in enumerate(contents):
            folder = write(tmp_path / f'{file}{i}', content)
            (folder / file).write_bytes(damaged)
            with pytest.raises(ConfigError, match=f'^{folder}: '):
                importing.import_model(folder, tmp_path / 'out', OPTIONS)
            assert not (tmp_path / 'out').exists(), (file, damaged)
    (tmp_path / '0' / 'target_vocabulary.txt').unlink()
    (tmp_path / '0' / 'model.bin').write_bytes(content)
    with pytest.raises(ConfigError, match='target_vocabulary.json'):
        importing.import_model(tmp_path / '0', tmp_path / 'out', OPTIONS)


def test_other_rotary_positions_and_gates_are_refused(tmp_path):
    pytest.importorskip('ctranslate2')
    rotary = {'model.positions': 'rotary', 'model.activation': 'swiglu', 'train.task': 'language'}
    config = resolve(config_dict(layout.TEXT | random_models.SMALL | rotary | {'model.N': 2}))
    trained = random_models.random_model(config)
    writing.write(config, trained.params, trained.codecs, tmp_path)
    kind, arrays = binary.read_arrays((tmp_path / 'model.bin').read_bytes())
    number = 'decoder/layer_{}/self_attention/rotary_{}'.format
    for changes, part in (
        ({}, None),
        # The whole of a head.
        ({number(i, 'dim'): np.array(8, np.int32) for i in range(2)}, None),
        ({number(1, 'dim'): np.array(4, np.int32)}, 'layer_1/self_attention/rotary_dim=4'),
        ({number(0, 'interleave'): np.array(1, np.int8)}, 'rotary_interleave=[01]'),
        ({number(i, 'interleave'): np.array(2, np.int8) for i in range(2)}, 'rotary_interleave=2'),
        ({number(i, 'interleave'): None for i in range(2)}, 'rotary_interleave: missing'),
        ({number(0, 'base'): np.array(500, np.float32)}, 'rotary_base=500'),
        ({number(0, 'scaling_type'): np.array(0, np.int8)}, 'rotary_scaling_type=0'),
        ({'decoder/activation': np.array(0, np.int8)}, 'gate with relu'),
        ({'decoder/start_from_zero_embedding': np.array(1, np.int8)}, 'start_from_zero_embedding=1'),
        ({'decoder/embeddings/weight': None}, 'decoder/embeddings/weight: missing'),
        ({'decoder/layer_0/self_attention/layer_norm/gamma': None}, 'layer_norm/gamma: missing'),
    ):
        changed = {name: array for name, array in (arrays | changes).items() if array is not None}
        (tmp_path / 'model.bin').write_bytes(packed(kind, 6, changed))
        if part is None:
            assert reading.read(tmp_path).changes['model.activation'] == 'swiglu'
        else:
            with pytest.raises(ConfigError, match=part):
                reading.read(tmp_path)


def test_a_table_of_names_serves_both_directions(arrays):
    foreign = reading.read(FOLDER)
    back = layout.to_theirs(names.table(foreign.changes, 'pair'), foreign.params)
    assert len(back) == 200 - 4
    for name, array in back.items():
        np.testing.assert_array_equal(array, arrays[name])


def test_a_list_of_pieces():
    pieces = PiecesTokenizer.from_pieces(['<pad>', '</s>', '<unk>', 'a', 'b'], '', end=False)
    assert pieces.encode('abca') == [3, 4, UNK, 3] and pieces.decode([3, UNK, 4, EOS, 3]) == 'a\ufffdb'
    words = PiecesTokenizer.from_pieces(['<pad>', '</s>', '<unk>', 'ab', 'c'], ' ', end=True)
    assert words.encode('c  ab <unk> </s>') == [4, 3, UNK, UNK, EOS]
    assert words.decode([4, 3, EOS]) == 'c ab' and words.pieces([3, 1]) == ['ab', '</s>']
    assert PiecesTokenizer(words.content).encode('ab') == [3, EOS]
    with pytest.raises(RuntimeError):
        PiecesTokenizer(words.content[:-4])


def test_only_pieces_of_texts_decide_how_a_list_cuts():
    for special in (['<pad>', '</s>', '<unk>'], ['BEGIN', 'END', 'UNKNOWN']):
        characters = list_tokenizer([*special, 'a', 'b'], range(5))
        words = list_tokenizer([*special, 'a', 'bc'], range(5))
        assert characters.encode('ba') == [4, 3, EOS] and words.encode('bc a') == [4, 3, EOS]


def test_what_fails_half_way_leaves_no_folder(tmp_path):
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / 'a' / 'out') as unfinished:
        (unfinished / 'file').write_text('half')
        raise ZeroDivisionError
    assert not list((tmp_path / 'a').iterdir())
