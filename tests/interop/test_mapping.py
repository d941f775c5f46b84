"""Plain PyTorch encoder-decoders run here with PyTorch's numbers, by a mapping file.

mapping/nn_transformer.* is a random `torch.nn.Transformer` between embeddings, with sinusoids and a tied
softmax; expected.json has the logits that torch 2.13 computes with it, and with `norm_first=True`.
mapping/annalog.json maps the public model of the package annalog 1.0.6 (MIT), whose weights are not here.
"""

import copy
import json
import pathlib

import numpy as np
import programs
import pytest
import sentencepiece
from etils import epath
from random_models import tokens_of

import transformer
from transformer.cli import main
from transformer.config import ConfigError
from transformer.data import codec
from transformer.data.tokenizers.listed import PiecesTokenizer
from transformer.data.tokenizers.sentence_piece import SentencePieceTokenizer
from transformer.interop import arrays, layout, mapping
from transformer.interop import export_model as exporting
from transformer.interop import import_model as importing
from transformer.interop.foreign import NEVER, learned_positions
from transformer.tokens import EOS, START, UNK

safetensors = pytest.importorskip('safetensors.numpy')

FOLDER = pathlib.Path(__file__).parent / 'mapping'
FILE = FOLDER / 'nn_transformer.safetensors'
PLAN = json.loads((FOLDER / 'nn_transformer.json').read_text())
EXPECTED = json.loads((FOLDER / 'expected.json').read_text())
PRE = {'model.norm': 'pre'}
# Our order of their <pad>, <bos>, <eos>, <unk>, v, w, x, y, z.
TARGET = [1, 2, 3, 0, 4, 5, 6, 7, 8]


def changed(**parts) -> dict:
    """Returns the mapping with other values in its parts; 'no' removes a key."""
    plan = copy.deepcopy(PLAN)
    for name, values in parts.items():
        if isinstance(values, dict) and isinstance(plan.get(name), dict):
            plan[name] = {k: v for k, v in (plan[name] | values).items() if v != 'no'}
        else:
            plan[name] = values
    return plan


def write(folder: pathlib.Path, plan: object, *, array_changes=None) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes a mapping, and its arrays with changes, of which None removes one."""
    folder.mkdir(exist_ok=True)
    (folder / 'mapping.json').write_text(plan if isinstance(plan, str) else json.dumps(plan))
    found = safetensors.load_file(FILE) | (array_changes or {})
    safetensors.save_file({n: a for n, a in found.items() if a is not None}, folder / 'net.safetensors')
    return folder / 'net.safetensors', folder / 'mapping.json'


def logits_of(trained, pairs: list[tuple[str, str]]) -> np.ndarray:
    sides = [
        trained.codecs[field].encode_batch(texts)
        for field, texts in zip(('source', 'target'), zip(*pairs, strict=True), strict=True)
    ]
    batch = dict(zip(('source', 'target'), map(tokens_of, sides), strict=True))
    return np.asarray(programs.apply(trained.config, trained.params, batch))


@pytest.mark.parametrize('norm', ['post', 'pre'])
def test_logits_are_those_of_torch(tmp_path, norm):
    file, plan = write(tmp_path / 'in', changed(options={'model.norm': norm}))
    run = importing.import_model(file, tmp_path / 'out', {}, mapping_file=plan)
    model = transformer.load(tmp_path / 'out')
    logits = logits_of(model.trained, [(one['source'], one['target']) for one in EXPECTED])
    scale = max(np.abs(one[norm]).max() for one in EXPECTED)
    for one, ours in zip(EXPECTED, logits, strict=True):
        expected = np.array(one[norm])
        assert len(expected) == len(one['target']) + 1
        np.testing.assert_allclose(ours[: len(expected), :9], expected[:, TARGET], atol=1e-5 * scale)
        # The source has three pieces more than the target.
        assert (ours[: len(expected), 9:] < NEVER / 2).all()
    assert run.manifest['imported']['ignored'] == ['pe']
    assert set(run.manifest['imported']['files']) == {'net.safetensors', 'mapping.json'}
    assert model.trained.config.train.eps_ls == 0
    [text] = model.translate(['abc'])
    assert set(text) <= set('vwxyz')


def test_a_source_begins_and_ends_as_the_mapping_says(tmp_path):
    for start, end in ((True, True), (False, True), (True, False), (False, False)):
        plan = changed(tokenizer={'source_start': start, 'source_end': end})
        codecs = mapping.read(*map(epath.Path, write(tmp_path, plan))).codecs
        assert codecs['source'].encode('ab?') == [*[START] * start, 3 + 1, 3 + 2, UNK, *[EOS] * end]
        assert codecs['target'].encode('v') == [4, EOS]
        # <pad> is an ordinary piece.
        assert codecs['target'].pieces(range(4)) == ['<bos>', '<eos>', '<unk>', '<pad>']
    # Files of earlier versions have no `begin`.
    old = codecs['target'].content.replace(b'"begin": false, ', b'')
    assert old != codecs['target'].content and PiecesTokenizer(old).encode('v') == [4, EOS]


def test_it_leaves_for_ctranslate2_and_comes_back(tmp_path):
    """A source that begins with the start, and a piece <pad>, whose name our start has there."""
    pytest.importorskip('ctranslate2')
    from transformer.interop.ctranslate2 import engine, reading

    file, plan = write(tmp_path, changed(options=PRE))
    run = importing.import_model(file, tmp_path / 'run', {}, mapping_file=plan)
    trained = exporting.export_model(run, 'latest', tmp_path / 'ct2', 'ctranslate2')
    pairs = [('abc', 'vw'), ('hgfedcba', 'zyxw')]
    ours = transformer.load(tmp_path / 'run').likelihoods(pairs)
    theirs = engine.Translator(trained, tmp_path / 'ct2').log_probabilities(pairs)
    for one, logp in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.logp, logp, atol=1e-5)
    back = reading.read(epath.Path(tmp_path / 'ct2'))
    assert back.codecs['source'].encode('ab') == trained.codecs['source'].encode('ab') == [0, 4, 5, 1]
    for path, array in layout.named(trained.params).items():
        np.testing.assert_array_equal(back.params[path], array)
    settings = json.loads((tmp_path / 'ct2' / 'config.json').read_text())
    for wrong in ({'bos_token': 'a'}, {'bos_token': 'q', 'decoder_start_token': 'q'}):
        (tmp_path / 'ct2' / 'config.json').write_text(json.dumps(settings | wrong))
        with pytest.raises(ConfigError, match=wrong['bos_token']):
            reading.read(epath.Path(tmp_path / 'ct2'))


def test_patterns_take_few_steps():
    name = 'encoder.layers.0.' + 'e' * 100
    assert mapping._ignored([r'encoder\.layers\.\d+\..*e+', '(?:x|y)z'], {name, 'yz', 'y'}) == (name, 'yz')
    assert mapping._ignored([r'[(*)+]x\(?\)'], {'*x()', 'x'}) == ('*x()',)
    for pattern in ('.*' * 9 + 'x', 'e?' * 60 + 'x', '(e|e)' * 40 + 'x'):
        with pytest.raises(ConfigError, match='ignored:'):
            mapping._ignored([pattern], {name})


def test_the_forms_of_pieces(tmp_path):
    source, target = PLAN['tokenizer']['pieces'].values()
    expected = mapping.read(*map(epath.Path, write(tmp_path, PLAN)))
    (tmp_path / 'a.json').write_text(json.dumps(source))
    (tmp_path / 'b.txt').write_text('\n'.join(target) + '\n')
    plan = changed(tokenizer={'pieces': {'source': 'a.json', 'target': 'b.txt'}})
    found = mapping.read(*map(epath.Path, write(tmp_path, plan)))
    assert (
        codec.contents(found.codecs) == codec.contents(expected.codecs) and found.changes == expected.changes
    )
    # A model without an unknown piece, whose decoder starts with the end: it has no <bos> of its own.
    words = ['<eos>', '<pad>', 'v', 'w', 'xx', 'y', 'z', 'u', 't']
    few = {'pieces': {'source': source, 'target': words}, 'start': '<eos>', 'unknown': None}
    found = mapping.read(*map(epath.Path, write(tmp_path, changed(tokenizer=few))))
    table = safetensors.load_file(FILE)['target.weight']
    np.testing.assert_array_equal(
        found.params['target_embedding/table'][:4], table[[0, 0, 0, 1]] * [[1], [1], [0], [1]]
    )
    assert (found.params['softmax_bias'] < NEVER / 2).tolist() == [
        True,
        False,
        True,
        *[False] * 8,
        *[True] * 3,
    ]
    assert found.codecs['target'].encode('xx v') == [6, 4, EOS]


def test_a_sentencepiece_model(tmp_path):
    """Its pieces are in another order, and the row of <s> is no piece of ours but the start."""
    texts = ['a dog runs', 'the dog sees a cat', 'cats run', 'a cat sees the dogs'] * 5
    train = sentencepiece.SentencePieceTrainer.train
    model = tmp_path / 'spm'
    train(sentence_iterator=iter(texts), model_prefix=str(model), vocab_size=20, pad_id=3, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_file=f'{model}.model')
    rng = np.random.default_rng(0)
    tables = {f'{side}.weight': rng.normal(size=(20, 8)).astype('f') for side in ('source', 'target')}
    tables |= {'generator.weight': tables['target.weight'], 'generator.bias': np.arange(20, dtype='f')}
    own = {'pieces': 'spm.model', 'start': '<s>', 'end': '</s>', 'source_start': False}
    file, plan = write(tmp_path, changed(tokenizer=own), array_changes=tables)
    found = mapping.read(epath.Path(file), epath.Path(plan))
    tokenizer = found.codecs['source']
    assert isinstance(tokenizer, SentencePieceTokenizer)
    assert tokenizer.content == found.codecs['target'].content
    assert found.changes['data.vocabulary'] == 'joint'
    # Rows 0 to 2 are <s>, </s>, <unk>; <pad>, which our tokenizer lacks, is the last one.
    assert found.changes['model.vocab_size'] == 20 and found.changes['data.pieces'] == tokenizer.size == 19
    order = found.params['softmax_bias'].astype(int).tolist()
    assert order[:3] == [1, 2, 0] and order[-1] == 3 and sorted(order) == [*range(20)]
    theirs = processor.encode('a dog sees')
    assert [order[n] for n in tokenizer.encode('a dog sees')] == [*theirs, 2]
    np.testing.assert_array_equal(found.params['source_embedding/table'], tables['source.weight'][order])
    wrong = changed(tokenizer=own | {'source_start': True})
    with pytest.raises(ConfigError, match='source_start'):
        mapping.read(epath.Path(file), epath.Path(write(tmp_path, wrong)[1]))


def test_the_mapping_of_annalog_names_every_parameter(tmp_path):
    """With zeros in place of its weights; in tables of pieces, each row has its number."""
    plan = json.loads((FOLDER / 'annalog.json').read_text())
    (tmp_path / 'mapping.json').write_text(json.dumps(plan))
    derived = {'model.vocab_size': 59, 'data.pieces': 59, 'model.softmax_bias': True}
    shapes = layout.parameter_shapes(learned_positions(102) | plan['options'] | derived)
    table = [*mapping._table(plan['arrays'], shapes, transposed=True)]
    assert len(table) == 132 and sum(len(entry.ours) for entry in table) == len(shapes)
    zeros = layout.to_theirs(table, {path: np.zeros(shape, 'f') for path, shape in shapes.items()})
    assert zeros['decoder.layers.2.positionwise_feedforward.fc_2.weight'].shape == (256, 512)
    zeros['decoder.fc_out.bias'] = np.arange(59, dtype='f')
    safetensors.save_file(zeros, tmp_path / 'net.safetensors')
    found = mapping.read(epath.Path(tmp_path / 'net.safetensors'), epath.Path(tmp_path / 'mapping.json'))
    # <sos>, <eos>, <unk>, <pad>, c, C
    assert found.params['softmax_bias'].astype(int).tolist()[:6] == [2, 3, 0, 1, 4, 5]
    assert found.codecs['source'].encode('C [C@H] Cl') == [START, 5, 18, 20, EOS]


NORM = 'transformer.encoder.norm.bias'


@pytest.mark.parametrize(
    ('plan', 'named'),
    [
        ('{"options": ', 'damaged'),
        ('[1]', 'expected an object'),
        (changed(more=1), "'more'"),
        ({k: v for k, v in PLAN.items() if k != 'tokenizer'}, "'tokenizer'"),
        (changed(ignored='pe'), "ignored='pe'"),
        (changed(ignored=['(']), "ignored: '('"),
        (changed(ignored=['(a+)+$']), "ignored: '(a+)+$'"),
        (changed(ignored=['(?:e|e)*x']), "ignored: '(?:e|e)*x'"),
        (changed(ignored=['(e)\\1']), "ignored: '(e)"),
        (changed(ignored=['(e|e)' * 40 + 'x']), 'ignored:'),
        (changed(options={'model.N': 1_000_000}), 'model.N=1000000'),
        (changed(options={'model.d_ff': 10**12}), 'model.d_ff=1000000000000'),
        (changed(options={'model.layers': 3}), 'model.layers: no such option'),
        (changed(options={'model.h': 'two'}), "model.h='two'"),
        (changed(options={'model.h': 'no'}), 'lacks model.h'),
        (changed(options={'model.sinusoid': 'no'}), 'lacks model.sinusoid'),
        (changed(options={'model.vocab_size': 9}), 'model.vocab_size'),
        (changed(options={'train.task': 'language'}), 'train.task=language'),
        (changed(options={'model.tie_embeddings': 'all'}), 'model.tie_embeddings'),
        (changed(tokenizer={'end': '</s>'}), "end='</s>'"),
        (changed(tokenizer={'end': None}), 'end=None'),
        (changed(tokenizer={'source_end': 1}), 'source_end=1'),
        (changed(tokenizer={'source_end': 'no'}), "'source_end'"),
        (changed(tokenizer={'joiner': ' '}), "'joiner'"),
        (changed(tokenizer={'pieces': ['<bos>', '<eos>', '<unk>', 'a', 'a']}), "has 'a' twice"),
        (changed(tokenizer={'pieces': {'source': ['<bos>']}}), "'target'"),
        (changed(tokenizer={'pieces': [1]}), 'pieces.0=1'),
        (changed(tokenizer={'pieces': 'missing.txt'}), 'missing.txt'),
        (changed(tokenizer={'pieces': 'mapping.model'}), 'mapping.model'),
        (
            changed(arrays={NORM: 'encoder/last/norm/layer/bias'}),
            'encoder/last/norm/layer/bias; did you mean',
        ),
        (changed(arrays={NORM: 'encoder/layer_{i}/feed_forward/inner/bias'}), f'{NORM}: has {{i}}'),
        (changed(arrays={NORM: []}), f'{NORM}: expected the path'),
        (changed(arrays={NORM: ['encoder/final/norm/layer/scale'] * 2}), 'another array has'),
    ],
)
def test_what_is_wrong_in_a_mapping_is_named(tmp_path, plan, named):
    file, plan = write(tmp_path / 'in', plan)
    with pytest.raises(ConfigError, match=f'^{plan}: ') as error:
        importing.import_model(file, tmp_path / 'out', {}, mapping_file=plan)
    assert named in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == {'in'}


@pytest.mark.parametrize(
    ('plan', 'arrays', 'named'),
    [
        (changed(ignored=[]), {}, 'pe: unknown'),
        (PLAN, {'extra': np.zeros(2, 'f')}, 'extra: unknown'),
        (PLAN, {NORM: None}, f'{NORM}: missing'),
        (PLAN, {NORM: np.zeros(9, 'f')}, f'{NORM}: has shape (9,), expected (8,)'),
        (PLAN, {NORM: np.full(8, np.nan, 'f')}, f'{NORM}: has values'),
        (PLAN, {'source.weight': np.zeros((11, 8), 'f')}, 'source.weight: has shape (11, 8)'),
        (PLAN, {'source.weight': np.zeros((12, 9), 'f')}, 'source.weight: has shape (12, 9)'),
        (PLAN, {'generator.weight': np.zeros((9, 8), 'f')}, 'generator.weight: differs from target.weight'),
        (changed(arrays={NORM: 'no'}), {}, f'{NORM}: unknown'),
        (changed(arrays={NORM: 'no'}, ignored=['pe', NORM]), {}, 'encoder/final/norm/layer/bias: no array'),
        (
            changed(options={'model.N': 3}),
            {},
            'transformer.encoder.layers.2.self_attn.in_proj_weight: missing',
        ),
        (changed(options={'model.N': 1}), {}, 'transformer.encoder.layers.1.'),
        (changed(transposed=False), {}, 'in_proj_weight: has shape (24, 8), expected (8, 24)'),
    ],
)
def test_what_is_wrong_in_the_arrays_is_named(tmp_path, plan, arrays, named):
    file, plan = write(tmp_path / 'in', plan, array_changes=arrays)
    with pytest.raises(ConfigError, match=f'^{file}: ') as error:
        importing.import_model(file, tmp_path / 'out', {}, mapping_file=plan)
    assert named in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == {'in'}


def test_the_command(tmp_path, capsys):
    file, plan = write(tmp_path / 'in', PLAN)
    call = ['run.py', 'import', str(file), f'--mapping={plan}', f'--output={tmp_path / "out"}']
    for words, named in (
        ([*call, '--format=huggingface'], '--format=huggingface'),
        ([*call, '--config.model.h=4'], 'model.h: the model has 2'),
        ([*call[:2], str(tmp_path), *call[3:]], f'{tmp_path}: no file'),
        ([*call[:3], f'--mapping={tmp_path / "no"}', call[4]], 'no: '),
        ([*call[:3], call[4]], '--mapping'),
    ):
        assert main.main(words) == 2
        assert named in capsys.readouterr().err
    (tmp_path / 'in' / 'net.safetensors').write_bytes(b'damaged')
    assert main.main(call) == 2
    assert 'net.safetensors: damaged' in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {'in'}
    write(tmp_path / 'in', PLAN)
    assert main.main([*call, '--config.train.task=transliteration']) == 0
    assert 'not imported' not in capsys.readouterr().err and (tmp_path / 'out' / 'config.json').exists()


def test_types_of_safetensors(tmp_path):
    """bfloat16 is the upper half of float32."""
    values = np.array([1.5, -2.0, 0.0078125, 96.0], 'f')
    names = {'F32': values, 'F16': values.astype(np.float16), 'I64': values.astype(int), 'BF16': values}
    content, header = b'', {}
    for name, array in names.items():
        part = (array.view(np.uint32) >> 16).astype('<u2').tobytes() if name == 'BF16' else array.tobytes()
        header[name] = {
            'dtype': name,
            'shape': [2, 2],
            'data_offsets': [len(content), len(content) + len(part)],
        }
        content += part

    def file(header: dict, content: bytes) -> epath.Path:
        head = json.dumps(header).encode()
        path = epath.Path(tmp_path / 'a.safetensors')
        path.write_bytes(len(head).to_bytes(8, 'little') + head + content)
        return path

    found = arrays.read(file(header, content))
    for name, array in found.items():
        assert array.dtype == (int if name == 'I64' else np.float32)
        np.testing.assert_array_equal(array, values.reshape(2, 2).astype(array.dtype))
    float8 = {'x': {'dtype': 'F8_E4M3', 'shape': [2], 'data_offsets': [0, 2]}}
    axes = {'x': {'dtype': 'F32', 'shape': [1] * 65, 'data_offsets': [0, 4]}}
    for wrong in ((float8, b'12'), ({'x': 1}, b''), (header, content[:-1]), (axes, b'1234')):
        with pytest.raises(ConfigError, match='a.safetensors: '):
            arrays.read(file(*wrong))
