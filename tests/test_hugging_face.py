"""Models of Hugging Face transformers run here with its numbers, and leave and come back with the same bytes.

hugging_face/ holds small random models as transformers 5.24 saves them, and in expected.json what it computes
with them: BERT's logits and last hidden states, GPT-2's log p of each piece after <|endoftext|>, Marian's
logits of targets, ViT's logits of random images.
"""

import json
import pathlib
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import transformer
from transformer.actions import export_model as exporting
from transformer.actions import import_model as importing
from transformer.cli import main
from transformer.config import ConfigError
from transformer.data.hugging_face_tokenizer import HuggingFaceTokenizer
from transformer.nn import models
from transformer.runs.hashes import fingerprint
from transformer.runs.workdir import Run
from transformer.tokens import EOS, UNK, Tokens

safetensors = pytest.importorskip('safetensors.numpy')

FOLDER = pathlib.Path(__file__).parent / 'hugging_face'
EXPECTED = json.loads((FOLDER / 'expected.json').read_text())
KINDS = ('bert', 'gpt2', 'marian', 'vit')


@pytest.fixture(scope='module')
def workdirs(tmp_path_factory) -> dict[str, pathlib.Path]:
    folder = tmp_path_factory.mktemp('imported')
    for kind in KINDS:
        importing.import_model(FOLDER / kind, folder / kind, {})
    return {kind: folder / kind for kind in KINDS}


@pytest.fixture(scope='module')
def bert(workdirs):
    return transformer.load(workdirs['bert'])


@pytest.fixture(scope='module')
def gpt2(workdirs):
    return transformer.load(workdirs['gpt2'])


def tokens_of(rows: list[list[int]]) -> Tokens:
    width = max(map(len, rows)) + 2
    padded = lambda row, fill: [*row, *[fill] * (width - len(row))]
    tokens = jnp.array([padded(row, 0) for row in rows])
    segments = jnp.array([padded([1] * len(row), 0) for row in rows])
    return Tokens(tokens, segments, jnp.broadcast_to(jnp.arange(width), tokens.shape))


def test_logits_and_hidden_states_of_bert(bert):
    trained = bert.trained
    rows = trained.codec.encode_batch([one['text'] for one in EXPECTED['bert']])
    module, order = models.build(trained.config), np.array(trained.codec.order)
    params, batch = {'params': trained.params}, {'text': tokens_of(rows)}
    logits = np.asarray(module.apply(params, batch, train=False))
    hidden = np.asarray(module.apply(params, batch, method='outputs'))
    for i, (row, one) in enumerate(zip(rows, EXPECTED['bert'], strict=True)):
        assert order[row].tolist() == one['ids'] and row[-1] == EOS
        expected = np.array(one['logits'])
        found = logits[i, : len(row)]
        np.testing.assert_allclose(hidden[i, : len(row)], one['hidden'], atol=1e-5)
        # The model has two rows more than the tokenizer has pieces.
        assert len(order) == expected.shape[1] - 2 and found.shape == expected.shape
        np.testing.assert_allclose(
            found[:, : len(order)], expected[:, order], atol=1e-5 * np.abs(expected).max()
        )
        np.testing.assert_allclose(found[:, -2:], expected[:, -2:], atol=1e-5 * np.abs(expected).max())


def test_vectors_and_gaps_of_bert(bert):
    texts = [one['text'] for one in EXPECTED['bert']]
    means = [np.mean(one['hidden'], axis=0) for one in EXPECTED['bert']]
    np.testing.assert_allclose(bert.embed(texts), means, atol=1e-5)
    gap = EXPECTED['bert'][-1]
    [words] = bert.fill([gap['text']], best=3)
    codec = bert.trained.codec
    [row] = codec.encode_batch([gap['text']])
    place = row.index(UNK)
    logits = np.array(gap['logits'])[place]
    logp = logits - np.log(np.exp(logits).sum())
    pieces = codec.pieces(range(codec.size))
    begins = [n for n, piece in enumerate(pieces) if piece.startswith('▁')]
    best = sorted(begins, key=lambda n: -logp[codec.order[n]])[:3]
    assert [word.text for word in words] == [pieces[n][1:] for n in best]
    found = [word.score for word in words]
    np.testing.assert_allclose(found, np.exp([logp[codec.order[n]] for n in best]), rtol=1e-4)


def test_log_probabilities_of_gpt2(gpt2):
    codec = gpt2.trained.codec
    assert codec.order[:3] == [-1, 0, -1]
    # Two of our pieces are not in the file.
    assert gpt2.trained.config.train.eps_ls == 0 and (gpt2.trained.params['softmax_bias'] < 0).sum() == 2
    texts = [one['text'] for one in EXPECTED['gpt2']]
    for one, row, found in zip(
        EXPECTED['gpt2'], codec.encode_batch(texts), gpt2.likelihoods([(t,) for t in texts]), strict=True
    ):
        assert [codec.order[token] for token in row] == [*one['ids'], 0]
        assert codec.decode(row) == one['text']
        np.testing.assert_allclose(found.logp, one['logp'], atol=2e-5)


def test_logits_of_marian(workdirs):
    trained = transformer.load(workdirs['marian']).trained
    vocabulary = json.loads((FOLDER / 'marian' / 'vocab.json').read_text())
    # Our pieces are theirs in another order, and two rows of the tables have no piece.
    pieces = trained.codec.of('target').pieces(range(trained.codec.size))
    assert pieces[:3] == ['<pad>', '</s>', '<unk>'] and sorted(pieces) == sorted(vocabulary)
    order = [vocabulary[piece] for piece in pieces] + [len(vocabulary), len(vocabulary) + 1]
    module = models.build(trained.config)
    for one in EXPECTED['marian']:
        ids = {field: trained.codec.of(field).encode(one[field]) for field in ('source', 'target')}
        for field, row in ids.items():
            assert [order[token] for token in row] == one[f'{field}_ids']
        batch = {field: tokens_of([row]) for field, row in ids.items()}
        logits = np.asarray(module.apply({'params': trained.params}, batch, train=False))[0]
        expected = np.array(one['logits'])
        found = logits[: len(expected)]
        np.testing.assert_allclose(found, expected[:, order], atol=1e-5 * np.abs(expected).max())


def test_texts_of_marian(workdirs):
    codec = transformer.load(workdirs['marian']).trained.codec
    source, target = codec.of('source'), codec.of('target')
    # The SentencePiece models lack this piece.
    language, *rest = source.encode('>>de<<the dog')
    assert source.pieces([language]) == ['>>de<<'] and rest == source.encode('the dog')
    assert target.decode(target.encode('der hund')) == 'der hund'
    assert target.decode([*target.encode('der hund')[:-1], target.size + 1]) == 'der hund \u2047 '
    assert UNK in target.encode('Ü') and source.encode('\ud800x')[-1] == EOS


def test_logits_of_vit(workdirs):
    trained = transformer.load(workdirs['vit']).trained
    expected = np.array(EXPECTED['vit']['logits'])
    images = np.random.default_rng(EXPECTED['vit']['seed']).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)
    logits = models.build(trained.config).apply(
        {'params': trained.params}, {'image': jnp.array(images)}, train=False
    )
    np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())
    assert trained.codec.names == ('cat', 'dog', 'a tree', 'fox', 'house')


@pytest.mark.parametrize('kind', KINDS)
def test_a_model_leaves_and_comes_back(workdirs, tmp_path, kind):
    run = Run.open(workdirs[kind])
    exporting.export_model(run, 'scored', tmp_path / 'out', 'huggingface')
    if kind != 'marian':  # whose pieces are written in our order
        theirs, again = (
            safetensors.load_file(f / 'model.safetensors') for f in (FOLDER / kind, tmp_path / 'out')
        )
        assert theirs.keys() == again.keys()
        for name, array in theirs.items():
            np.testing.assert_array_equal(again[name], array, err_msg=name)
    back = importing.import_model(tmp_path / 'out', tmp_path / 'back', {})
    assert back.config == run.config and back.codec.content == run.codec.content
    sums = [transformer.load(folder).trained.params for folder in (run.folder, back.folder)]
    assert fingerprint(sums[0]) == fingerprint(sums[1])


def test_gpt2_continues_texts(gpt2):
    [text] = gpt2.generate(['The dog'], method='greedy')
    assert text.startswith('The dog') and '<' not in text


def test_the_codec_is_read_back(workdirs, bert):
    content = (workdirs['bert'] / 'tokenizer.model').read_bytes()
    again = HuggingFaceTokenizer(content)
    assert again.sha256 == bert.trained.codec.sha256
    odd = ['', ' ', '\0\n', '[MASK][SEP] [PAD]', 'ÀÉÎ' * 50, '\ud800x']
    assert again.encode_batch(odd) == bert.trained.codec.encode_batch(odd)
    assert all(row[-1] == EOS for row in again.encode_batch(odd))
    with pytest.raises(RuntimeError):
        HuggingFaceTokenizer(content[:-5])


def test_a_file_without_a_head(tmp_path):
    """As sentence encoders have it: vectors are the model's."""
    shutil.copytree(FOLDER / 'bert', tmp_path / 'bert')
    arrays = safetensors.load_file(tmp_path / 'bert' / 'model.safetensors')
    alone = {n.removeprefix('bert.'): a for n, a in arrays.items() if not n.startswith('cls.')}
    alone |= {'pooler.dense.bias': np.zeros(16, 'f'), 'embeddings.position_ids': np.zeros((1, 40), 'i8')}
    safetensors.save_file(alone, tmp_path / 'bert' / 'model.safetensors')
    importing.import_model(tmp_path / 'bert', tmp_path / 'out', {'data.language': 'en'})
    one = EXPECTED['bert'][0]
    [vector] = transformer.load(tmp_path / 'out').embed([one['text']])
    np.testing.assert_allclose(vector, np.mean(one['hidden'], axis=0), atol=1e-5)


def broken(folder: pathlib.Path, kind: str, *, settings=None, arrays=None, cut=None) -> pathlib.Path:
    shutil.copytree(FOLDER / kind, folder)
    if settings:
        file = folder / 'config.json'
        file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    if arrays:
        all_arrays = safetensors.load_file(folder / 'model.safetensors') | arrays
        safetensors.save_file(
            {n: a for n, a in all_arrays.items() if a is not None}, folder / 'model.safetensors'
        )
    if cut:
        content = (folder / cut).read_bytes()
        (folder / cut).write_bytes(content[: len(content) // 2])
    return folder


@pytest.mark.parametrize(
    ('kind', 'how', 'named'),
    [
        ('bert', {'settings': {'model_type': 'llama'}}, 'model_type=llama'),
        ('bert', {'settings': {'hidden_act': 'mish'}}, 'hidden_act=mish'),
        ('bert', {'settings': {'position_embedding_type': 'relative_key'}}, 'position_embedding_type'),
        ('bert', {'settings': {'hidden_size': 20}}, 'shape'),
        ('bert', {'settings': {'num_hidden_layers': 1}}, 'encoder.layer.1'),
        ('bert', {'arrays': {'bert.embeddings.LayerNorm.bias': None}}, 'embeddings.LayerNorm.bias: missing'),
        ('bert', {'arrays': {'bert.extra': np.zeros(3, 'f')}}, 'extra: unknown'),
        ('marian', {'settings': {'decoder_attention_heads': 4}}, 'decoder_attention_heads=4'),
        ('marian', {'settings': {'decoder_start_token_id': 999}}, 'vocab.json: has no piece 999'),
        ('marian', {'arrays': {'model.shared.weight': None}}, 'model.encoder.embed_tokens.weight: missing'),
        ('marian', {'settings': {'tie_word_embeddings': False}}, 'lm_head.weight: missing'),
        ('marian', {'cut': 'vocab.json'}, 'vocab.json: damaged'),
        ('marian', {'cut': 'source.spm'}, 'source.spm: damaged'),
        ('vit', {'settings': {'num_channels': 4}}, 'num_channels=4'),
        ('vit', {'settings': {'qkv_bias': False}}, 'qkv_bias=False'),
        ('vit', {'settings': {'patch_size': 5}}, 'patch'),
        ('vit', {'arrays': {'classifier.weight': None}}, 'classifier.weight: missing'),
        ('bert', {'cut': 'model.safetensors'}, 'model.safetensors: damaged'),
        ('bert', {'cut': 'config.json'}, 'config.json: damaged'),
        ('bert', {'cut': 'tokenizer.json'}, 'tokenizer.json: damaged'),
        ('gpt2', {'settings': {'scale_attn_by_inverse_layer_idx': True}}, 'scale_attn_by_inverse_layer_idx'),
        ('gpt2', {'arrays': {'transformer.wte.weight': None}}, 'wte.weight: missing'),
        (
            'gpt2',
            {'arrays': {'transformer.wte.weight': np.zeros((9, 16), 'f')}},
            'tokenizer.json: has a piece',
        ),
    ],
)
def test_what_is_broken_or_unknown_is_named(tmp_path, kind, how, named):
    folder = broken(tmp_path / 'in', kind, **how)
    with pytest.raises(ConfigError, match=f'^{folder}: ') as error:
        importing.import_model(folder, tmp_path / 'out', {})
    assert named in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == {'in'}


def test_training_goes_on(workdirs, tmp_path, capsys):
    """From a work directory with the imported model's options and its tokenizer."""
    (tmp_path / 'a').write_text('The dog sees the cat.\n' * 40)
    data = {name: 'a' for name in ('train', 'dev', 'test')}
    options = data | {'batch_tokens': '320', 'max_len': '40', 'row_len': '40', 'dir': str(tmp_path)}
    call = [f'--config={workdirs["bert"] / "config.json"}', f'--workdir={tmp_path / "run"}']
    call += [f'--config.data.{name}={value}' for name, value in options.items()]
    call += ['--config.train.steps=4', '--config.train.warmup_steps=2', '--config.train.log_every=4']
    assert main.main(['run.py', *call, f'--init_from={workdirs["bert"]}']) == 0
    start = json.loads((tmp_path / 'run' / 'init_from.json').read_text())
    assert not start['left'] and start['steps'] == [0]


def test_what_an_imported_model_lacks_is_said_with_its_own_flags(workdirs, capsys):
    for kind, flags in (('marian', ['--source', '--reference']), ('bert', ['--text']), ('vit', [])):
        assert main.main(['run.py', 'evaluate', f'--workdir={workdirs[kind]}']) == 2
        line = capsys.readouterr().err
        assert {flag for flag in ('--source', '--reference', '--text') if flag in line} == set(flags)
    assert main.main(['run.py', 'average', f'--workdir={workdirs["marian"]}', '--last=2']) == 2
    assert 'one checkpoint, 0' in capsys.readouterr().err
