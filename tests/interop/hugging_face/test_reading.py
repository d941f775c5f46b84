"""Models of Hugging Face transformers run here with its numbers, and leave and come back with the same bytes.

bert/, gpt2/, marian/, t5/, t5_1_1/ and vit/ hold small random models as transformers 5.24 saves them, and
expected.json what it computes with them: BERT's logits and last hidden states, GPT-2's log p of each piece
after <|endoftext|>, Marian's and T5's logits of targets, ViT's logits of random images. early_tokenizers.json
has the ids that its BertTokenizer and GPT2Tokenizer read from vocab.txt, and from vocab.json and merges.txt.
"""

import json
import os
import pathlib
import shutil
import sys

import jax
import numpy as np
import programs
import pytest
from etils import epath
from random_models import tokens_of

import transformer
from transformer.cli import main
from transformer.config import ConfigError
from transformer.data import codec as codecs
from transformer.data.tokenizers.hugging_face import HuggingFaceTokenizer
from transformer.interop import arrays
from transformer.interop import export_model as exporting
from transformer.interop import import_model as importing
from transformer.interop.foreign import NEVER
from transformer.interop.hugging_face import early_tokenizers
from transformer.interop.hugging_face.kind import patches_to_matrices
from transformer.runs.hashes import fingerprint
from transformer.runs.workdir import Run
from transformer.tasks.masked import predict
from transformer.tasks.masked.masking import MASK
from transformer.tokens import EOS, PAD, UNK

safetensors = pytest.importorskip('safetensors.numpy')

FOLDER = pathlib.Path(__file__).parent
EXPECTED = json.loads((FOLDER / 'expected.json').read_text())
KINDS = ('bert', 'gpt2', 'marian', 't5', 't5_1_1', 'vit')
WORDS = 'bert.embeddings.word_embeddings.weight'
PLACES, VIT_PLACES = 'model.encoder.embed_positions.weight', 'vit.embeddings.position_embeddings'
SETTINGS, GENERATION, MODEL = 'tokenizer_config.json', 'generation_config.json', 'model.safetensors'
# What a tokenizer puts around texts, with a number that no piece has.
AROUND_NOTHING = json.loads((FOLDER / 'bert' / 'tokenizer.json').read_text())
AROUND_NOTHING['post_processor']['special_tokens']['[CLS]']['ids'] = [9999]
UNTIED = {'settings': {'tie_word_embeddings': False}}


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


def test_logits_and_hidden_states_of_bert(bert):
    trained = bert.trained
    rows = trained.codecs['text'].encode_batch([one['text'] for one in EXPECTED['bert']])
    order, batch = np.array(trained.codecs['text'].order), {'text': tokens_of(rows)}
    logits = np.asarray(programs.apply(trained.config, trained.params, batch))
    hidden = np.asarray(programs.apply(trained.config, trained.params, batch, 'outputs'))
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
    codec = bert.trained.codecs['text']
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
    codec = gpt2.trained.codecs['text']
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
    pieces = trained.codecs['target'].pieces(range(trained.codecs['target'].size))
    assert pieces[:3] == ['<pad>', '</s>', '<unk>'] and sorted(pieces) == sorted(vocabulary)
    order = [vocabulary[piece] for piece in pieces] + [len(vocabulary), len(vocabulary) + 1]
    for one in EXPECTED['marian']:
        ids = {field: trained.codecs[field].encode(one[field]) for field in ('source', 'target')}
        for field, row in ids.items():
            assert [order[token] for token in row] == one[f'{field}_ids']
        batch = {field: tokens_of([row]) for field, row in ids.items()}
        logits = np.asarray(programs.apply(trained.config, trained.params, batch))[0]
        expected = np.array(one['logits'])
        found = logits[: len(expected)]
        np.testing.assert_allclose(found, expected[:, order], atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize('version', ['t5', 't5_1_1'])
def test_logits_of_t5(workdirs, version):
    """With a tied and scaled softmax, and with a matrix of its own and gated layers."""
    trained = transformer.load(workdirs[version]).trained
    for one in EXPECTED[version]:
        ids = {field: trained.codecs[field].encode(one[field]) for field in ('source', 'target')}
        assert ids == {field: one[f'{field}_ids'] for field in ids}
        batch = {field: tokens_of([row]) for field, row in ids.items()}
        expected = np.array(one['logits'])
        found = np.asarray(programs.apply(trained.config, trained.params, batch))[0, : len(expected)]
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    m = trained.config.model
    assert (m.tie_embeddings, m.scale_logits) == {'t5': ('all', True), 't5_1_1': ('inputs', False)}[version]


def test_t5_of_early_versions(tmp_path, workdirs):
    """Without the settings of later ones, with an unused table, and with each table of words twice."""
    arrays = safetensors.load_file(FOLDER / 't5' / 'model.safetensors')
    table = arrays['shared.weight']
    more = {f'{side}.embed_tokens.weight': table for side in ('encoder', 'decoder')}
    buckets = 'decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight'
    folder = broken(
        tmp_path / 'in', 't5', arrays={**more, 'lm_head.weight': table, buckets: np.ones((32, 3), 'f')}
    )
    file = folder / 'config.json'
    settings = json.loads(file.read_text())
    for name in ('scale_decoder_outputs', 'dense_act_fn', 'is_gated_act', 'feed_forward_proj'):
        del settings[name]
    file.write_text(json.dumps(settings))
    run = importing.import_model(folder, tmp_path / 'out', {})
    assert run.manifest['imported']['ignored'] == [buckets]
    assert run.config == Run.open(workdirs['t5']).config
    both = [transformer.load(path).trained.params for path in (workdirs['t5'], tmp_path / 'out')]
    jax.tree.map(np.testing.assert_array_equal, *both)


def test_a_decoder_that_starts_with_the_end(tmp_path):
    """Its start is no piece of its own, so that the end has its probability once."""
    folder = broken(tmp_path / 'in', 'marian', settings={'decoder_start_token_id': 0})
    trained = transformer.load(importing.import_model(folder, tmp_path / 'out', {}).folder).trained
    bias = np.asarray(trained.params['softmax_bias'])
    assert bias[0] <= NEVER + 10 and (bias[1:] > -100).all() and len(bias) == 45
    table = np.asarray(trained.params['embedding']['table'])
    np.testing.assert_array_equal(table[0], table[EOS])


def test_pieces_of_one_number_are_refused(tmp_path):
    folder = broken(tmp_path / 'in', 'marian')
    vocabulary = json.loads((folder / 'vocab.json').read_text())
    (folder / 'vocab.json').write_text(json.dumps(vocabulary | {'more': 3}))
    with pytest.raises(ConfigError, match='vocab.json: has two pieces'):
        importing.import_model(folder, tmp_path / 'out', {})


def test_texts_of_marian(workdirs):
    codecs = transformer.load(workdirs['marian']).trained.codecs
    source, target = codecs['source'], codecs['target']
    # The SentencePiece models lack this piece.
    language, *rest = source.encode('>>de<<the dog')
    assert source.pieces([language]) == ['>>de<<'] and rest == source.encode('the dog')
    assert target.decode(target.encode('der hund')) == 'der hund'
    assert target.decode([*target.encode('der hund')[:-1], target.size + 1]) == 'der hund \u2047 '
    assert UNK in target.encode('Ü') and source.encode('\ud800x')[-1] == EOS


def test_patches_of_a_model_without_any():
    found = {'projection': np.zeros((0, 3, 4, 4))}
    patches_to_matrices('projection', found)
    assert found['projection'].shape == (0, 48)


def test_logits_of_vit(workdirs):
    trained = transformer.load(workdirs['vit']).trained
    expected = np.array(EXPECTED['vit']['logits'])
    images = np.random.default_rng(EXPECTED['vit']['seed']).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)
    logits = programs.apply(trained.config, trained.params, {'image': images})
    np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())
    assert trained.codecs['label'].names == ('cat', 'dog', 'a tree', 'fox', 'house')


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
    if kind in ('gpt2', 'bert'):
        # As in the tokenizer there, whose order is not ours.
        files = ('config.json', 'generation_config.json') if kind == 'gpt2' else ('config.json',)
        for settings in (json.loads((tmp_path / 'out' / name).read_text()) for name in files):
            assert settings['pad_token_id'] == 0 and settings.get('eos_token_id', 0) == 0
    back = importing.import_model(tmp_path / 'out', tmp_path / 'back', {})
    assert back.config == run.config and codecs.contents(back.codecs) == codecs.contents(run.codecs)
    sums = [transformer.load(folder).trained.params for folder in (run.folder, back.folder)]
    assert fingerprint(sums[0]) == fingerprint(sums[1])


def test_what_is_around_a_text_stays_when_it_is_cut(bert):
    """[CLS] and [SEP], and the pieces around [MASK]."""
    trained = bert.trained
    codec, longest = trained.codecs['text'], trained.config.model.max_len
    row = codec.encode(' '.join(['the'] * longest + ['[MASK]', 'dog']))
    first, end, [mask] = row[0], row[-1], [i for i, piece in enumerate(row) if piece == MASK]
    assert codec.encode('') == [first, end] and end == EOS
    found = predict._shorten(trained, row, 0)
    assert len(found) == longest and (found[0], found[-1]) == (first, end)
    assert found[-3:-1] == row[mask : mask + 2] and found[1:-1] == row[len(row) - longest + 1 : -1]


def test_gpt2_continues_texts(gpt2):
    [text] = gpt2.generate(['The dog'], method='greedy')
    assert text.startswith('The dog') and '<' not in text


def test_the_codec_is_read_back(workdirs, bert):
    content = (workdirs['bert'] / 'tokenizer.model').read_bytes()
    again = HuggingFaceTokenizer(content)
    assert again.sha256 == bert.trained.codecs['text'].sha256
    odd = ['', ' ', '\0\n', '[MASK][SEP] [PAD]', 'ÀÉÎ' * 50, '\ud800x']
    assert again.encode_batch(odd) == bert.trained.codecs['text'].encode_batch(odd)
    assert all(row[-1] == EOS for row in again.encode_batch(odd))
    # The pieces of a line do not depend on the lines beside it.
    columns = ['The dog', 'The dog\tsleeps', 'The\tdog\tsleeps', '']
    assert again.encode_columns(columns) == [again.encode_columns([one])[0] for one in columns]
    ends = [row.count(EOS) for row in again.encode_columns(columns)]
    assert ends == [1, 2, 3, 1]
    with pytest.raises(RuntimeError):
        HuggingFaceTokenizer(content[:-5])


@pytest.mark.parametrize(
    ('kind', 'changes', 'named'),
    [
        ('vit', {'images.stem': 'convolutions'}, '^images.stem: the model has'),
        ('vit', {'images.pool': 'mean'}, '^images.pool: the model has'),
        ('marian', {'model.attention': 'local'}, '^model.attention=local: '),
        ('marian', {'model.scale_logits': True}, '^model.scale_logits=True: '),
        (
            'bert',
            {'masked.next_sentence': 1.0, 'data.batching': 'padded', 'data.max_len': 8},
            r'^(next_sentence|pooler)/',
        ),
    ],
)
def test_options_of_another_model(tmp_path, kind, changes, named):
    with pytest.raises(ConfigError, match=named):
        importing.import_model(FOLDER / kind, tmp_path / 'out', changes)
    assert not (tmp_path / 'out').exists()


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


def broken(
    folder: pathlib.Path, kind: str, *, settings=None, beside=None, arrays=None, cut=None, lost=None
) -> pathlib.Path:
    """Copies a model, with other settings in config.json and in files `beside` it, by name."""
    shutil.copytree(FOLDER / kind, folder)
    for name, values in {'config.json': settings or {}, **(beside or {})}.items():
        file = folder / name
        file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | values))
    if arrays:
        all_arrays = safetensors.load_file(folder / 'model.safetensors') | arrays
        safetensors.save_file(
            {n: a for n, a in all_arrays.items() if a is not None}, folder / 'model.safetensors'
        )
    if cut:
        content = (folder / cut).read_bytes()
        (folder / cut).write_bytes(content[: len(content) // 2])
    if lost:
        (folder / lost).unlink()
    return folder


@pytest.mark.parametrize(
    ('kind', 'how', 'named'),
    [
        ('bert', {'settings': {'model_type': 'llama'}}, 'model_type=llama'),
        ('bert', {'settings': {'hidden_act': 'mish'}}, "hidden_act='mish'"),
        ('bert', {'settings': {'position_embedding_type': 'relative_key'}}, 'position_embedding_type'),
        ('bert', {'settings': {'hidden_size': 20}}, 'shape'),
        ('bert', {'settings': {'num_hidden_layers': 1}}, 'encoder.layer.1'),
        ('bert', {'settings': {'num_hidden_layers': 1_000_000}}, 'model.N=1000000'),
        ('bert', {'settings': {'intermediate_size': 10**400}}, 'intermediate_size=1'),
        ('bert', {'settings': {'hidden_dropout_prob': 10**400}}, 'hidden_dropout_prob=1'),
        ('bert', {'settings': {'num_attention_heads': True}}, 'num_attention_heads=True'),
        ('bert', {'settings': {'is_decoder': 0}}, 'is_decoder=0'),
        ('gpt2', {'settings': {'tie_word_embeddings': 'false'}}, "tie_word_embeddings='false'"),
        ('gpt2', {'settings': {'n_inner': 'x'}}, "n_inner='x'"),
        ('marian', {'settings': {'scale_embedding': 1}}, 'scale_embedding=1'),
        ('vit', {'settings': {'id2label': {'0': 5}}}, 'id2label.0=5'),
        ('vit', {'settings': {'problem_type': 'multi_label_classification'}}, 'problem_type='),
        ('bert', {'settings': {'pruned_heads': {'0': [1]}}}, 'pruned_heads'),
        ('marian', {'settings': {'forced_bos_token_id': 5}}, 'forced_bos_token_id=5'),
        ('marian', {'settings': {'vocab_size': 43}}, 'vocab_size=43'),
        (
            'gpt2',
            {'arrays': {'lm_head.weight': np.zeros((75, 16), 'f')}},
            'tie_word_embeddings=True: lm_head.weight',
        ),
        (
            'marian',
            {'arrays': {'lm_head.weight': np.zeros((44, 16), 'f')}},
            'tie_word_embeddings=True: lm_head.weight',
        ),
        (
            'marian',
            {'arrays': {'model.decoder.embed_tokens.weight': np.zeros((44, 16), 'f')}},
            'share_encoder_decoder_embeddings=True: model.decoder',
        ),
        (
            'bert',
            {'arrays': {'cls.predictions.decoder.bias': np.ones(124, 'f')}},
            'cls.predictions.decoder.bias: differs',
        ),
        ('t5', {'settings': {'feed_forward_proj': 'gated-silu'}}, "feed_forward_proj='gated-silu'"),
        ('t5', {'settings': {'relative_attention_num_buckets': 16}}, 'relative_attention_num_buckets=16'),
        ('t5', {'settings': {'decoder_start_token_id': 1}}, 'decoder_start_token_id=1'),
        ('t5_1_1', {'arrays': {'lm_head.weight': None}}, 'lm_head.weight: missing'),
        ('t5', {'settings': {'vocab_size': 40}}, 'vocab_size=40'),
        (
            't5',
            {'settings': {'vocab_size': 9}, 'arrays': {'shared.weight': np.zeros((9, 16), 'f')}},
            'shared.weight only 9 rows',
        ),
        ('t5', {'settings': {'num_decoder_layers': 2}}, 'decoder.block.1'),
        ('t5', {'arrays': {'shared.weight': None}}, 'shared.weight: missing'),
        (
            't5',
            {'arrays': {'decoder.embed_tokens.weight': np.ones((37, 16), 'f')}},
            'decoder.embed_tokens.weight: differs',
        ),
        ('t5', {'lost': 'tokenizer.json'}, 'vocab.txt'),
        ('vit', {'settings': {'image_size': 10**9}}, 'model.max_len'),
        ('bert', {'arrays': {'bert.embeddings.LayerNorm.bias': None}}, 'embeddings.LayerNorm.bias: missing'),
        ('bert', {'arrays': {'bert.extra': np.zeros(3, 'f')}}, 'extra: unknown'),
        ('marian', {'settings': {'decoder_attention_heads': 4}}, 'decoder_attention_heads=4'),
        ('marian', {'settings': {'decoder_start_token_id': 999}}, 'vocab.json: has no piece 999'),
        ('marian', {'arrays': {'model.shared.weight': None}}, 'model.encoder.embed_tokens.weight: missing'),
        ('marian', {'settings': {'tie_word_embeddings': False}}, 'lm_head.weight: missing'),
        ('marian', {'cut': 'vocab.json'}, 'vocab.json: damaged'),
        ('marian', {'cut': 'source.spm'}, 'source.spm: damaged'),
        ('bert', {'arrays': {WORDS: np.zeros(124, 'f')}}, f'{WORDS}: has shape (124,)'),
        ('bert', {'arrays': {WORDS: np.zeros((124, 20), 'f')}}, 'embedding/table: has shape (124, 20)'),
        ('bert', {'arrays': {'cls.predictions.bias': np.zeros(125, 'f')}}, 'cls.predictions.bias: has shape'),
        ('bert', {'settings': {'max_position_embeddings': 'x'}}, "max_position_embeddings='x'"),
        (
            'gpt2',
            UNTIED | {'arrays': {'lm_head.weight': np.zeros((5, 16), 'f')}},
            'lm_head.weight: has shape',
        ),
        ('marian', {'settings': {'eos_token_id': [0]}}, 'eos_token_id=[0]'),
        ('marian', {'arrays': {'model.shared.weight': np.zeros(44, 'f')}}, 'has shape (44,)'),
        ('marian', {'arrays': {'final_logits_bias': np.zeros((1, 45), 'f')}}, 'final_logits_bias: has shape'),
        (
            'marian',
            UNTIED | {'arrays': {'lm_head.weight': np.zeros((45, 16), 'f')}},
            'lm_head.weight: has shape',
        ),
        ('marian', {'arrays': {PLACES: np.zeros(64, 'f')}}, f'{PLACES}: has shape (64,)'),
        ('vit', {'arrays': {VIT_PLACES: np.zeros((10, 16), 'f')[None, None]}}, f'{VIT_PLACES}: has shape'),
        ('vit', {'arrays': {VIT_PLACES: np.zeros((2, 10, 16), 'f')}}, f'{VIT_PLACES}: has shape'),
        ('vit', {'arrays': {VIT_PLACES: np.zeros(16, 'f')}}, f'{VIT_PLACES}: has shape'),
        ('vit', {'settings': {'id2label': ['a']}}, 'id2label'),
        ('vit', {'settings': {'id2label': {'0': 'a', '2': 'b'}}}, 'id2label'),
        ('vit', {'settings': {'image_size': [12, 12]}}, 'image_size=[12, 12]'),
        ('vit', {'settings': {'num_channels': 4}}, 'num_channels=4'),
        ('vit', {'settings': {'qkv_bias': False}}, 'qkv_bias=False'),
        ('vit', {'settings': {'patch_size': 5}}, 'patch'),
        ('vit', {'arrays': {'classifier.weight': None}}, 'classifier.weight: missing'),
        ('bert', {'beside': {SETTINGS: {'sep_token': None}}}, 'sep_token: missing'),
        ('bert', {'beside': {SETTINGS: {'mask_token': None}}}, 'mask_token: missing'),
        ('gpt2', {'beside': {SETTINGS: {'eos_token': None}}}, 'eos_token: missing'),
        ('bert', {'beside': {SETTINGS: {'do_lower_case': False}}}, 'do_lower_case=False'),
        ('bert', {'beside': {SETTINGS: {'strip_accents': False}}}, 'strip_accents=False'),
        ('gpt2', {'beside': {SETTINGS: {'add_prefix_space': True}}}, 'add_prefix_space=True'),
        ('t5', {'settings': {'dense_act_fn': 'gelu'}}, 'dense_act_fn=gelu'),
        ('t5_1_1', {'settings': {'dense_act_fn': 'gelu'}}, 'dense_act_fn=gelu'),
        ('t5_1_1', {'settings': {'is_gated_act': False}}, 'is_gated_act=False'),
        ('t5', {'beside': {SETTINGS: {'eos_token': '<unk>', 'unk_token': '</s>'}}}, 'the end are 0 and 2'),
        ('t5', {'beside': {SETTINGS: {'pad_token': None}}}, 'pad_token: missing'),
        ('t5', {'beside': {GENERATION: {'decoder_start_token_id': 7}}}, 'decoder_start_token_id=7'),
        ('marian', {'beside': {GENERATION: {'eos_token_id': [7]}}}, 'eos_token_id=[7]'),
        ('gpt2', {'beside': {GENERATION: {'eos_token_id': 7}}}, 'eos_token_id=7'),
        ('bert', {'settings': {'model_type': None, 'architectures': ['RobertaModel']}}, 'model_type=None'),
        (
            'bert',
            {'beside': {'model.safetensors.index.json': {'weight_map': {'a': '..'}}}, 'lost': MODEL},
            "index.json: '..'",
        ),
        (
            'bert',
            {'beside': {'model.safetensors.index.json': {'weight_map': {'a': 'a\0'}}}, 'lost': MODEL},
            "index.json: 'a\\x00'",
        ),
        (
            'bert',
            {'beside': {'tokenizer.json': AROUND_NOTHING}},
            'tokenizer.json: damaged: has no piece 9999',
        ),
        ('bert', {'cut': 'model.safetensors'}, 'model.safetensors: damaged'),
        ('bert', {'cut': 'config.json'}, 'config.json: damaged'),
        ('bert', {'cut': 'tokenizer.json'}, 'tokenizer.json: damaged'),
        ('bert', {'lost': 'tokenizer.json'}, 'vocab.txt'),
        ('bert', {'lost': 'model.safetensors'}, 'pytorch_model.bin: missing'),
        ('bert', {'settings': {'model_type': None, 'type_vocab_size': 0}}, 'model_type=None'),
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
        importing.import_model(folder, tmp_path / 'out', {}, 'huggingface')
    assert named in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == {'in'}


@pytest.mark.parametrize(
    'part',
    [
        {'normalizer': {'type': 'Precompiled', 'precompiled_charsmap': ''}},
        {
            'post_processor': {
                'type': 'TemplateProcessing',
                'single': [{'SpecialToken': {'id': '[X]', 'type_id': 0}}],
                'pair': [],
                'special_tokens': {},
            }
        },
        {'model': {'type': 'Unigram', 'unk_id': 0, 'vocab': []}},
    ],
    ids=lambda part: next(iter(part)),
)
def test_a_tokenizer_on_which_the_library_panics(tmp_path, capfd, part):
    folder = broken(tmp_path / 'in', 'bert')
    content = json.loads((folder / 'tokenizer.json').read_text()) | part
    (folder / 'tokenizer.json').write_text(json.dumps(content))
    with pytest.raises(ConfigError, match='tokenizer.json: damaged'):
        importing.import_model(folder, tmp_path / 'out', {})
    assert capfd.readouterr().err == ''


def test_half_a_character_and_deep_json(tmp_path):
    for content in ('{"model_type": "\\ud800"}', '[' * 100_000, '{"a": ' * 200 + '1' + '}' * 200):
        folder = broken(tmp_path / 'in', 'bert')
        (folder / 'config.json').write_text(content)
        with pytest.raises(ConfigError, match='config.json: damaged'):
            importing.import_model(folder, tmp_path / 'out', {})
        shutil.rmtree(folder)


def test_a_name_that_is_not_utf8(tmp_path):
    folder = broken(tmp_path / 'in', 'vit')
    with open(os.fsencode(folder) + b'/odd\xff', 'wb'):
        run = importing.import_model(folder, tmp_path / 'out', {})
    assert 'odd\\xff' in Run.open(run.folder).manifest['imported']['files']


EARLY = json.loads((FOLDER / 'early_tokenizers.json').read_text())
SPECIAL = {PAD: '[PAD]', EOS: '[SEP]', UNK: '[MASK]'}


def early(folder: pathlib.Path, kind: str, settings: dict, **files: object) -> epath.Path:
    """Writes a folder with an early tokenizer, and files by the names of their settings."""
    folder.mkdir(exist_ok=True)
    files = {'tokenizer_config': settings} | files
    if kind == 'bert':
        (folder / 'vocab.txt').write_text('\n'.join(EARLY['vocab']) + '\n')
    else:
        model = json.loads((FOLDER / 'gpt2' / 'tokenizer.json').read_text())['model']
        (folder / 'vocab.json').write_text(json.dumps(model['vocab']))
        merges = ['#version: 0.2', *map(' '.join, model['merges'])]
        (folder / 'merges.txt').write_text('\n'.join(merges) + '\n')
    for name, values in files.items():
        (folder / f'{name}.json').write_text(json.dumps(values))
    return epath.Path(folder)


@pytest.mark.parametrize('variant', range(len(EARLY['bert'])))
def test_ids_of_vocab_txt(tmp_path, variant):
    one = EARLY['bert'][variant]
    content = early_tokenizers.read(early(tmp_path, 'bert', one['settings']))
    codec = HuggingFaceTokenizer.from_file(content, SPECIAL)
    for line, row, ids in zip(EARLY['lines'], codec.encode_batch(EARLY['lines']), one['ids'], strict=True):
        assert [codec.order[n] for n in row] == ids, line
    assert codec.decode(codec.encode('the dog')) == 'the dog'
    pair = codec.encode_columns(['the dog\tthe cat'])[0]
    first, second = codec.encode('the dog'), codec.encode('the cat')
    # [CLS] begins the first text alone.
    assert pair == [*first, *second[1:]] and codec.name(pair[0]) == '[CLS]'


@pytest.mark.parametrize('variant', range(len(EARLY['gpt2'])))
def test_ids_of_vocab_json_and_merges_txt(tmp_path, variant):
    one, lines = EARLY['gpt2'][variant], EARLY['gpt2_lines']
    content = early_tokenizers.read(early(tmp_path, 'gpt2', one['settings']))
    codec = HuggingFaceTokenizer.from_file(content, {PAD: None, EOS: '<|endoftext|>', UNK: None})
    for line, row, ids in zip(lines, codec.encode_batch(lines), one['ids'], strict=True):
        assert [codec.order[n] for n in row] == (ids if ids[-1:] == [0] else [*ids, 0]), line


def test_a_folder_of_an_early_version(tmp_path):
    """Without tokenizer.json and model_type, and with a head that classifies."""
    folder = broken(
        tmp_path / 'in',
        'bert',
        settings={'model_type': None},
        arrays={'classifier.weight': np.zeros((3, 16), 'f')},
        lost='tokenizer.json',
    )
    vocabulary = json.loads((FOLDER / 'bert' / 'tokenizer.json').read_text())['model']['vocab']
    (folder / 'vocab.txt').write_text('\n'.join(sorted(vocabulary, key=vocabulary.get)) + '\n')
    run = importing.import_model(folder, tmp_path / 'out', {})
    assert run.manifest['imported']['ignored'] == ['classifier.weight']
    assert any('classifier.weight' in line for line in importing.describe(run))
    one = EXPECTED['bert'][0]
    model = transformer.load(tmp_path / 'out')
    codec = model.trained.codecs['text']
    assert [codec.order[n] for n in codec.encode(one['text'])] == one['ids']
    [vector] = model.embed([one['text']])
    np.testing.assert_allclose(vector, np.mean(one['hidden'], axis=0), atol=1e-5)


@pytest.mark.parametrize(
    ('kind', 'files', 'named'),
    [
        ('bert', {'config': {'tokenizer_class': 'BertJapaneseTokenizer'}}, 'tokenizer_class=BertJapanese'),
        ('bert', {'tokenizer_config': {'do_basic_tokenize': False}}, 'do_basic_tokenize=False'),
        ('bert', {'tokenizer_config': {'never_split': ['x']}}, "never_split=['x']"),
        ('bert', {'tokenizer_config': {'do_lower_case': 'no'}}, 'do_lower_case=no'),
        ('bert', {'special_tokens_map': {'sep_token': '</s>'}}, 'sep_token=</s>'),
        ('bert', {'special_tokens_map': {'mask_token': {'content': '[MASK]', 'lstrip': True}}}, 'lstrip'),
        ('bert', {'special_tokens_map': {'additional_special_tokens': ['<e1>']}}, '<e1>'),
        ('bert', {'tokenizer_config': {'added_tokens_decoder': {'9': {'content': '<e1>'}}}}, '<e1>'),
        ('bert', {'added_tokens': {'<e1>': 9}}, '<e1>'),
        ('bert', {'special_tokens_map': []}, 'special_tokens_map.json: damaged'),
        ('gpt2', {'tokenizer_config': {'add_bos_token': True}}, 'add_bos_token=True'),
        ('gpt2', {'special_tokens_map': {'pad_token': '[PAD]'}}, 'pad_token=[PAD]'),
        ('gpt2', {'vocab': {'a': 0}}, 'vocab.json: has no piece <|endoftext|>'),
        ('gpt2', {'vocab': {'a': 0, '<|endoftext|>': 1}}, 'merges.txt'),
        ('gpt2', {'vocab': {'a': 0, 'a</w>': 1, '<|endoftext|>': 2}}, 'vocab.json: has pieces'),
    ],
)
def test_early_tokenizers_that_are_not_built(tmp_path, kind, files, named):
    folder = early(tmp_path, kind, {}, **files)
    with pytest.raises(ConfigError) as error:
        early_tokenizers.read(folder)
    assert named in str(error.value)


def test_settings_that_change_nothing(tmp_path):
    """As transformers wrote them."""
    token = {'content': '[SEP]', 'lstrip': False, 'normalized': False, 'rstrip': False, 'single_word': False}
    settings = {'do_lower_case': True, 'strip_accents': None, 'never_split': None, 'model_max_length': 512}
    settings |= {'tokenizer_class': 'BertTokenizer', 'added_tokens_decoder': {'4': token | {'special': True}}}
    special = {'sep_token': token, 'additional_special_tokens': []}
    folder = early(tmp_path / 'a', 'bert', settings, special_tokens_map=special, added_tokens={'[MASK]': 5})
    assert early_tokenizers.read(folder) == early_tokenizers.read(early(tmp_path / 'b', 'bert', {}))
    assert special.keys() <= early_tokenizers.SETTINGS
    (tmp_path / 'b' / 'vocab.txt').write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n')
    with pytest.raises(ConfigError, match=r'vocab.txt: has no piece \[MASK\]'):
        early_tokenizers.read(epath.Path(tmp_path / 'b'))


RESIZED = {'do_resize': True, 'resample': 2, 'size': {'height': 12, 'width': 12}, 'do_center_crop': False}
PIXELS = {'do_rescale': True, 'rescale_factor': 0.00392156862745098, 'do_normalize': True}
PIXELS |= {'image_mean': [0.5] * 3, 'image_std': [0.5] * 3}


def test_images_that_are_prepared_as_ours(tmp_path):
    folder = broken(tmp_path / 'in', 'vit')
    settings = RESIZED | PIXELS | {'image_processor_type': 'ViTImageProcessor'}
    (folder / 'preprocessor_config.json').write_text(json.dumps(settings))
    run = importing.import_model(folder, tmp_path / 'out', {})
    # Cropping that does not happen is listed, too: no name goes unmentioned.
    unused = run.manifest['imported']['unused']
    assert unused['preprocessor_config.json'] == ['do_center_crop', 'image_processor_type']


@pytest.mark.parametrize(
    ('setting', 'value'),
    [
        ('image_mean', [0.485, 0.456, 0.406]),
        ('image_std', [0.229, 0.224, 0.225]),
        ('do_normalize', False),
        ('do_rescale', False),
        ('rescale_factor', 1 / 127.5),
        ('image_mean', 'half'),
    ],
)
def test_pixels_that_are_not_from_minus_one_to_one_are_refused(tmp_path, setting, value):
    folder = broken(tmp_path / 'in', 'vit')
    file = folder / 'preprocessor_config.json'
    file.write_text(json.dumps({setting: value}))
    with pytest.raises(ConfigError, match=f'{file.name}: {setting}='):
        importing.import_model(folder, tmp_path / 'out', {})
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize(
    ('setting', 'value'),
    [
        ('do_center_crop', True),
        ('do_pad', True),
        ('do_resize', False),
        ('resample', 3),
        ('size', 24),
        ('size', {'height': 12, 'width': 24}),
        ('size', {'shortest_edge': 12}),
        ('crop_pct', 0.9),
    ],
)
def test_other_ways_to_resize_are_refused(tmp_path, setting, value):
    folder = broken(tmp_path / 'in', 'vit')
    file = folder / 'preprocessor_config.json'
    file.write_text(json.dumps(RESIZED | {setting: value}))
    with pytest.raises(ConfigError, match=f'{file.name}: {setting}'):
        importing.import_model(folder, tmp_path / 'out', {})


POOLING = {'word_embedding_dimension': 16, 'pooling_mode_max_tokens': False}
MEAN, FIRST = POOLING | {'pooling_mode_mean_tokens': True}, POOLING | {'pooling_mode_cls_token': True}


def sentence_encoder(folder: pathlib.Path, pooling: dict, *modules: str) -> pathlib.Path:
    broken(folder, 'bert')
    (folder / '1_Pooling').mkdir()
    (folder / '1_Pooling' / 'config.json').write_text(json.dumps(pooling))
    paths = {'Transformer': '', 'Pooling': '1_Pooling'}
    kinds = ['Transformer', *modules]
    listed = [{'type': f'sentence_transformers.models.{kind}', 'path': paths.get(kind, '')} for kind in kinds]
    (folder / 'modules.json').write_text(json.dumps(listed))
    return folder


@pytest.mark.parametrize('pooling', [MEAN, FIRST, {'pooling_mode': 'cls'}], ids=['mean', 'first', 'new'])
def test_a_sentence_encoder_pools_as_there(tmp_path, capsys, pooling):
    folder = sentence_encoder(tmp_path / 'in', pooling, 'Pooling', 'Normalize')
    assert main.main(['run.py', 'import', str(folder), f'--output={tmp_path / "out"}']) == 0
    assert ('masked.pool = first' in capsys.readouterr().out) == (pooling is not MEAN)
    one, model = EXPECTED['bert'][0], transformer.load(tmp_path / 'out')
    first, mean = np.array(one['hidden'])[0], np.mean(one['hidden'], axis=0)
    [vector] = model.embed([one['text']])
    np.testing.assert_allclose(vector, mean if pooling is MEAN else first, atol=1e-5)
    [vector] = model.embed([one['text']], pool='mean')
    np.testing.assert_allclose(vector, mean, atol=1e-5)


@pytest.mark.parametrize(
    ('pooling', 'modules', 'named'),
    [
        (POOLING | {'pooling_mode_max_tokens': True}, ['Pooling'], 'max_tokens'),
        (MEAN | {'pooling_mode_cls_token': True}, ['Pooling'], 'mean_tokens and cls_token'),
        (POOLING, ['Pooling'], 'pooling_mode'),
        (MEAN, ['Pooling', 'Dense'], 'Dense'),
        ({'pooling_mode': 'lasttoken'}, ['Pooling'], 'lasttoken'),
    ],
)
def test_other_sentence_vectors_are_refused(tmp_path, pooling, modules, named):
    with pytest.raises(ConfigError, match=named):
        importing.import_model(sentence_encoder(tmp_path / 'in', pooling, *modules), tmp_path / 'out', {})


def test_settings_that_are_not_imported_are_listed(tmp_path, workdirs):
    folder = broken(tmp_path / 'in', 'marian', settings={'num_beams': 6})
    (folder / 'generation_config.json').write_text('{"num_beams": 6, "forced_bos_token_id": null}')
    run = importing.import_model(folder, tmp_path / 'out', {})
    unused = run.manifest['imported']['unused']
    assert 'num_beams' in unused['config.json'] and 'd_model' not in unused['config.json']
    assert unused['generation_config.json'] == ['num_beams']
    assert unused[SETTINGS] == ['model_max_length', 'tokenizer_class']
    assert any('generation_config.json' in line and 'num_beams' in line for line in importing.describe(run))
    (folder / 'generation_config.json').write_text('{"forced_bos_token_id": 3}')
    with pytest.raises(ConfigError, match='generation_config.json: forced_bos_token_id=3'):
        importing.import_model(folder, tmp_path / 'no', {})


def test_settings_of_a_sentence_encoder_are_listed(tmp_path):
    folder = sentence_encoder(tmp_path / 'in', MEAN, 'Pooling')
    (folder / 'sentence_bert_config.json').write_text('{"max_seq_length": 9, "do_lower_case": false}')
    unused = importing.import_model(folder, tmp_path / 'out', {}).manifest['imported']['unused']
    assert unused['sentence_bert_config.json'] == ['max_seq_length']
    assert unused['1_Pooling/config.json'] == ['word_embedding_dimension']


@pytest.mark.parametrize('path', ['', '.', '..', 'a/b'])
def test_a_folder_elsewhere_is_no_part_of_a_sentence_encoder(tmp_path, path):
    folder = sentence_encoder(tmp_path / 'in', MEAN, 'Pooling')
    modules = json.loads((folder / 'modules.json').read_text())
    modules[1]['path'] = path
    (folder / 'modules.json').write_text(json.dumps(modules))
    with pytest.raises(ConfigError, match=f"modules.json: path: '{path}'"):
        importing.import_model(folder, tmp_path / 'out', {})


def test_the_languages_of_marian(tmp_path, workdirs):
    languages = lambda config: (config.data.source_language, config.data.target_language)
    assert languages(Run.open(workdirs['marian']).config) == ('en', 'de')
    settings = {SETTINGS: {'source_lang': 'fr', 'target_lang': 'zh'}}
    folder = broken(tmp_path / 'in', 'marian', beside=settings)
    assert languages(importing.import_model(folder, tmp_path / 'a', {}).config) == ('fr', 'zh')
    own = {'data.source_language': 'nl'}
    assert languages(importing.import_model(folder, tmp_path / 'b', own).config) == ('nl', 'zh')


def test_a_source_with_an_end_of_its_own(tmp_path, workdirs):
    """Of two vocabularies, the number of the end in config.json is the target's."""
    vocabulary = json.loads((FOLDER / 'marian' / 'vocab.json').read_text())
    end = json.loads((FOLDER / 'marian' / 'config.json').read_text())['eos_token_id']
    (other,) = (piece for piece, number in vocabulary.items() if number == 7)
    swapped = vocabulary | {'</s>': 7, other: end}
    beside = {SETTINGS: {'separate_vocabs': True}, 'target_vocab.json': vocabulary, 'vocab.json': swapped}
    run = importing.import_model(broken(tmp_path / 'in', 'marian', beside=beside), tmp_path / 'out', {})
    source, target = run.codecs['source'], run.codecs['target']
    assert source.encode('The dog')[-1] == target.encode('The dog')[-1] == EOS
    assert source.pieces([EOS]) == target.pieces([EOS]) == ['</s>']


def test_classes_of_one_name(tmp_path, workdirs, capsys):
    names = json.loads((FOLDER / 'vit' / 'config.json').read_text())['id2label']
    folder = broken(
        tmp_path / 'in', 'vit', settings={'id2label': names | {'0': 'cr\x1bane', '2': 'cr\x1bane'}}
    )
    assert main.main(['run.py', 'import', str(folder), f'--output={tmp_path / "out"}']) == 0
    # Printed so that no terminal acts on it.
    assert r'several classes named cr\x1bane' in capsys.readouterr().out
    found = Run.open(tmp_path / 'out').codecs['label'].names
    assert found[0] == 'cr\x1bane (0)' and found[1] == names['1'] and found[2] == 'cr\x1bane (2)'


def test_a_gap_of_another_name(tmp_path):
    """The normalizer of BERT leaves NUL out, so a gap is encoded as the tokenizer's own mask."""
    text = (FOLDER / 'bert' / 'tokenizer.json').read_text().replace('[MASK]', '<mask>')
    folder = broken(tmp_path / 'in', 'bert', beside={SETTINGS: {'mask_token': '<mask>'}})
    (folder / 'tokenizer.json').write_text(text)
    importing.import_model(folder, tmp_path / 'out', {})
    trained = transformer.load(tmp_path / 'out').trained
    codec = trained.codecs['text']
    # A gap of the tokenizer's own name.
    assert len(codec.encode_around('the dog <mask> the cat', '<mask>')) == 2
    row = predict.gapped(trained, 'the dog [MASK] the cat')
    before, after = codec.encode('the dog')[:-1], codec.encode('the cat')[1:]
    assert row == [*before, MASK, *after] and codec.name(row[0]) == '[CLS]'


def test_a_spiece_model_that_is_damaged(tmp_path):
    folder = broken(tmp_path / 'in', 't5', lost='tokenizer.json')
    (folder / 'spiece.model').write_bytes(b'\xff\xfe garbage')
    with pytest.raises(ConfigError, match='spiece.model: .*neither a SentencePiece model'):
        importing.import_model(folder, tmp_path / 'out', {})


@pytest.mark.parametrize(
    'settings', [{'eos_token_id': 9}, {'bos_token_id': 72}, {'vocab_size': 200}], ids=str
)
def test_a_config_that_contradicts_the_files_beside_it_is_refused(tmp_path, settings):
    [(setting, value)] = settings.items()
    with pytest.raises(ConfigError, match=f'config.json: {setting}={value}'):
        importing.import_model(broken(tmp_path / 'in', 'gpt2', settings=settings), tmp_path / 'out', {})


def test_a_small_model_may_keep_gpt2s_own_end_in_its_config(tmp_path):
    kept = broken(tmp_path / 'in', 'gpt2', settings={'eos_token_id': 50256})
    # The end is the tokenizer's, whose number is another.
    assert importing.import_model(kept, tmp_path / 'out', {}).codecs['text'].order[EOS] == 0


def test_arrays_in_several_files_are_refused(tmp_path):
    folder = broken(tmp_path / 'in', 'bert', lost='model.safetensors')
    (folder / 'pytorch_model.bin.index.json').write_text('{}')
    with pytest.raises(ConfigError, match='pytorch_model.bin.index.json'):
        importing.import_model(folder, tmp_path / 'out', {})
    assert {path.name for path in tmp_path.iterdir()} == {'in'}


def rewritten(folder: pathlib.Path, kind: str, change, **how) -> pathlib.Path:
    """Copies a kind's folder, with arrays changed by `change`."""
    broken(folder, kind, **how)
    file = folder / 'model.safetensors'
    safetensors.save_file(change(safetensors.load_file(file)), file)
    return folder


def as_in(workdir: pathlib.Path, folder: pathlib.Path, out: pathlib.Path) -> None:
    run = importing.import_model(folder, out, {})
    assert run.config == Run.open(workdir).config
    both = [transformer.load(path).trained.params for path in (workdir, out)]
    jax.tree.map(np.testing.assert_array_equal, *both)


TIED = {
    'bert': (WORDS, 'cls.predictions.decoder.weight'),
    'gpt2': ('transformer.wte.weight', 'lm_head.weight'),
    'marian': ('model.shared.weight', 'model.encoder.embed_tokens.weight'),
}


@pytest.mark.parametrize(
    ('kind', 'prefix'),
    [(kind, 'module._orig_mod.model.') for kind in KINDS]
    # Marian's own names begin with model. already.
    + [(kind, prefix) for kind in ('bert', 'marian') for prefix in ('module.', '_orig_mod.', 'model.')],
)
def test_names_with_what_programs_put_before_them(tmp_path, workdirs, kind, prefix):
    change = lambda arrays: {prefix + name: array for name, array in arrays.items()}
    as_in(workdirs[kind], rewritten(tmp_path / 'in', kind, change), tmp_path / 'out')


def test_norms_of_early_versions(tmp_path, workdirs):
    def change(arrays):
        early = lambda name: name.replace('Norm.weight', 'Norm.gamma').replace('Norm.bias', 'Norm.beta')
        return {early(name): array for name, array in arrays.items()}

    assert 'bert.embeddings.LayerNorm.gamma' in change(dict.fromkeys(['bert.embeddings.LayerNorm.weight']))
    as_in(workdirs['bert'], rewritten(tmp_path / 'in', 'bert', change), tmp_path / 'out')
    both = broken(tmp_path / 'both', 'bert', arrays={'bert.embeddings.LayerNorm.gamma': np.ones(16, 'f')})
    with pytest.raises(ConfigError, match='bert.embeddings.LayerNorm'):
        importing.import_model(both, tmp_path / 'no', {})


@pytest.mark.parametrize('kind', TIED)
def test_either_of_two_tables_that_are_one(tmp_path, workdirs, kind):
    usual, other = TIED[kind]
    change = lambda arrays: {other if name == usual else name: array for name, array in arrays.items()}
    as_in(workdirs[kind], rewritten(tmp_path / 'in', kind, change), tmp_path / 'out')


def test_a_vision_transformer_without_a_head(tmp_path, workdirs, capsys):
    def change(arrays):
        return {n.removeprefix('vit.'): a for n, a in arrays.items() if not n.startswith('classifier.')}

    folder = rewritten(tmp_path / 'in', 'vit', change)
    assert main.main(['run.py', 'import', str(folder), f'--output={tmp_path / "out"}']) == 0
    assert 'no head' in capsys.readouterr().out
    params, whole = (transformer.load(path).trained.params for path in (tmp_path / 'out', workdirs['vit']))
    assert params['head']['kernel'].shape == (16, 5) and not np.asarray(params['head']['kernel']).any()
    np.testing.assert_array_equal(params['patch']['kernel'], whole['patch']['kernel'])


@pytest.mark.parametrize('kind', ['bert', 'gpt2'])
def test_arrays_in_several_files(tmp_path, workdirs, kind):
    folder = broken(tmp_path / 'in', kind, lost='model.safetensors')
    arrays = sorted(safetensors.load_file(FOLDER / kind / 'model.safetensors').items())
    names = {}
    for number, part in enumerate((arrays[:9], arrays[9:])):
        file = f'model-{number}.safetensors'
        safetensors.save_file(dict(part), folder / file)
        names |= dict.fromkeys(dict(part), file)
    index = folder / 'model.safetensors.index.json'
    index.write_text(json.dumps({'metadata': {}, 'weight_map': names}))
    as_in(workdirs[kind], folder, tmp_path / 'out')
    for wrong in ('../model-0.safetensors', 'model-7.safetensors', 'model-1.safetensors'):
        index.write_text(json.dumps({'weight_map': names | {arrays[0][0]: wrong}}))
        with pytest.raises(ConfigError, match='model'):
            importing.import_model(folder, tmp_path / 'no', {})


def test_an_added_token_without_a_row(tmp_path, workdirs):
    """Such as a padding, which a small table of GPT-2's size has no row for."""
    folder = broken(tmp_path / 'in', 'gpt2')
    content = json.loads((folder / 'tokenizer.json').read_text())
    token = content['added_tokens'][0] | {'id': 300, 'content': '[PAD]'}
    content['added_tokens'].append(token)
    (folder / 'tokenizer.json').write_text(json.dumps(content))
    (folder / 'tokenizer_config.json').write_text('{"pad_token": "[PAD]"}')
    run = importing.import_model(folder, tmp_path / 'out', {})
    assert any('[PAD]' in line for line in importing.describe(run))
    one = EXPECTED['gpt2'][0]
    [found] = transformer.load(tmp_path / 'out').likelihoods([(one['text'],)])
    np.testing.assert_allclose(found.logp, one['logp'], atol=2e-5)
    params = transformer.load(tmp_path / 'out').trained.params
    assert np.asarray(params['softmax_bias'])[PAD] <= NEVER
    for wrong in ({'id': 301}, {'content': '<|end|>'}):
        content['added_tokens'][-1] = token | wrong
        (folder / 'tokenizer.json').write_text(json.dumps(content))
        settings = {'pad_token': None, 'eos_token': '<|end|>' if 'content' in wrong else '<|endoftext|>'}
        (folder / 'tokenizer_config.json').write_text(json.dumps(settings))
        with pytest.raises(ConfigError, match='tokenizer.json: has a piece|eos_token_id|damaged'):
            importing.import_model(folder, tmp_path / 'no', {})


def in_torch(folder: pathlib.Path, content: object = None) -> pathlib.Path:
    """Copies BERT's folder, with its arrays or other content in a file of torch."""
    torch = pytest.importorskip('torch')
    broken(folder, 'bert', lost='model.safetensors')
    if content is None:
        arrays = safetensors.load_file(FOLDER / 'bert' / 'model.safetensors')
        content = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        content['bert.embeddings.position_ids'] = torch.arange(40)[None]
    torch.save(content, folder / 'pytorch_model.bin')
    return folder


def test_a_file_of_torch(tmp_path, workdirs):
    run = importing.import_model(in_torch(tmp_path / 'in'), tmp_path / 'out', {})
    assert run.manifest['imported']['ignored'] == ['bert.embeddings.position_ids']
    found, expected = (transformer.load(path).trained.params for path in (tmp_path / 'out', workdirs['bert']))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_types_of_torch(tmp_path):
    torch = pytest.importorskip('torch')
    values = torch.tensor([[1.5, -2.0], [0.0078125, 96.0]])
    types = torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64
    content = {str(kind): torch.nn.Parameter(values.T, False).to(kind) for kind in types}
    torch.save(content, tmp_path / 'a.pt')
    for name, array in arrays.read(epath.Path(tmp_path / 'a.pt')).items():
        assert array.dtype == (np.int64 if 'int' in name else np.float32)
        np.testing.assert_array_equal(array, values.T.numpy().astype(array.dtype))


class Code:
    """An object whose reading runs code."""

    def __reduce__(self):
        return print, ('code of a pickle ran',)


@pytest.mark.parametrize('wrong', ['code', 'checkpoint', 'list', 'number', 'sparse', 'cut', 'text'])
def test_files_of_torch_that_are_refused(tmp_path, capsys, wrong):
    torch = pytest.importorskip('torch')
    content = {
        'code': {'a': Code()},
        'checkpoint': {'epoch': 3, 'model': {'a': torch.zeros(2)}},
        'list': [torch.zeros(2)],
        'number': {7: torch.zeros(2)},
        'sparse': {'a': torch.zeros(2, 2).to_sparse()},
    }
    folder = in_torch(tmp_path / 'in', content.get(wrong))
    file = folder / 'pytorch_model.bin'
    if wrong == 'cut':
        file.write_bytes(file.read_bytes()[:-900])
    if wrong == 'text':
        file.write_text('version https://git-lfs.github.com/spec/v1\n')
    with pytest.raises(ConfigError, match=f'^{folder}: pytorch_model.bin: ') as error:
        importing.import_model(folder, tmp_path / 'out', {})
    assert '\n' not in str(error.value) and 'ran' not in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {'in'}


def test_torch_is_named_where_it_is_missing(tmp_path, monkeypatch):
    folder = broken(tmp_path / 'in', 'bert', lost='model.safetensors')
    (folder / 'pytorch_model.bin').write_bytes(b'x')
    monkeypatch.setitem(sys.modules, 'torch', None)
    with pytest.raises(ConfigError, match=r'\.\[torch\]'):
        importing.import_model(folder, tmp_path / 'out', {})
    assert {path.name for path in tmp_path.iterdir()} == {'in'}


def test_training_goes_on(workdirs, tmp_path, capsys):
    """From a work directory with the imported model's options and its tokenizer."""
    (tmp_path / 'a').write_text('The dog sees the cat.\n' * 40)
    data = {name: 'a' for name in ('train', 'dev', 'test')}
    options = data | {'batch_tokens': '320', 'max_len': '40', 'row_len': '40', 'dir': str(tmp_path)}
    call = [f'--config={workdirs["bert"] / "config.json"}', f'--workdir={tmp_path / "run"}']
    call += [f'--config.data.{name}={value}' for name, value in options.items()]
    call += ['--config.train.steps=1', '--config.train.warmup_steps=1', '--config.train.log_every=1']
    call += ['--no-evaluation', f'--init_from={workdirs["bert"]}']
    assert main.main(['run.py', *call]) == 0
    start = json.loads((tmp_path / 'run' / 'init_from.json').read_text())
    assert not start['left'] and start['steps'] == [0]


def test_a_model_that_is_no_work_directory_is_to_be_imported(workdirs, tmp_path, capsys):
    exporting.export_model(Run.open(workdirs['marian']), 'scored', tmp_path / 'there', 'huggingface')
    assert main.main(['run.py', 'translate', f'--workdir={tmp_path / "there"}']) == 2
    assert f'run.py import {tmp_path / "there"}' in capsys.readouterr().err


def test_what_an_imported_model_lacks_is_said_with_its_own_flags(workdirs, capsys):
    for kind, flags in (('marian', ['--source', '--reference']), ('bert', ['--text']), ('vit', [])):
        assert main.main(['run.py', 'evaluate', f'--workdir={workdirs[kind]}']) == 2
        line = capsys.readouterr().err
        assert {flag for flag in ('--source', '--reference', '--text') if flag in line} == set(flags)
    for last in (1, 2):
        assert main.main(['run.py', 'average', f'--workdir={workdirs["marian"]}', f'--last={last}']) == 2
        assert 'one checkpoint, 0' in capsys.readouterr().err


def test_an_imported_model_has_no_moving_average(workdirs, tmp_path):
    exporting.export_model(Run.open(workdirs['marian']), 'scored', tmp_path / 'there', 'huggingface')
    call = ['run.py', 'import', str(tmp_path / 'there'), f'--output={tmp_path / "w"}']
    assert main.main([*call, '--config.train.ema=0.9']) == 2
    assert not (tmp_path / 'w').exists()


def test_a_comparison_without_torch_is_refused_before_any_file_is_written(
    workdirs, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, 'torch', None)
    (tmp_path / 'lines').write_text('a\n')
    call = ['run.py', 'export', f'--workdir={workdirs["gpt2"]}', '--format=huggingface']
    assert main.main([*call, f'--check={tmp_path / "lines"}', f'--output={tmp_path / "out"}']) == 2
    assert "pip install '.[torch]'" in capsys.readouterr().err and not (tmp_path / 'out').exists()
    assert main.main(['run.py', 'import', str(workdirs['gpt2']), f'--output={tmp_path / "out"}']) == 2
    assert '--workdir' in capsys.readouterr().err and not (tmp_path / 'out').exists()
