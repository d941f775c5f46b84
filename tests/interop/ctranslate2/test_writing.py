"""Our models run in CTranslate2 with our numbers, and come back as they were."""

import dataclasses
import io
import json
import pathlib
import re
import types

import jax
import numpy as np
import pytest
import random_models
import sentencepiece
from etils import epath
from random_models import random_model

import transformer
from transformer.cli import main
from transformer.config import ConfigError, config_dict, resolve
from transformer.data import codec
from transformer.data.fields import Example
from transformer.data.generated.grammar import sentences
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.data.tokenizers.foreign import with_symbols_first
from transformer.data.tokenizers.hugging_face import learn_byte_level
from transformer.data.tokenizers.sentence_piece import SentencePieceTokenizer
from transformer.interop import export_model as exporting
from transformer.interop import import_model as importing
from transformer.interop import layout
from transformer.interop.ctranslate2 import binary, engine, reading, writing
from transformer.nn import models
from transformer.runs import workdir
from transformer.tasks import task_of
from transformer.tokens import EOS, UNK

ctranslate2 = pytest.importorskip('ctranslate2')
safetensors = pytest.importorskip('safetensors.numpy')

SMALL = random_models.SMALL | random_models.PAIR
LANGUAGE = random_models.SMALL | {
    'train.task': 'language',
    'data.source': 'text',
    'data.name': None,
    'data.row_len': 80,
    'decode.extra_len': 12,
}
SEPARATE = {'data.vocabulary': 'separate', 'model.tie_embeddings': 'none'}
VARIANTS = {
    'base': {'model.vocab_size': 410, 'model.N': 2},
    'pre': {'model.norm': 'pre', 'model.sinusoid': 't2t', 'model.first_position': 1},
    'marian': {
        'model.sinusoid': 'halves',
        'model.activation': 'swish',
        'model.softmax_bias': True,
        'model.norm_epsilon': 1e-5,
    },
    'learned': {
        'model.positions': 'learned',
        'model.max_len': 200,
        'model.norm_embedding': True,
        'model.scale_embeddings': False,
        'model.activation': 'gelu',
        'model.start': 'learned',
    },
    'separate': SEPARATE | {'model.norm': 'pre', 'model.norm_final': False, 'model.activation': 'quick_gelu'},
    'decoder': {'data.vocabulary': 'separate', 'model.tie_embeddings': 'decoder'},
    'joint': {'model.tie_embeddings': 'none'},
    'rotary': {'model.positions': 'rotary', 'model.norm': 'pre', 'model.activation': 'swiglu'},
}
TEXT_VARIANTS = {
    'base': {'model.vocab_size': 410, 'model.N': 2, 'model.norm_embedding': True},
    'gpt2': {
        'model.norm': 'pre',
        'model.positions': 'learned',
        'model.max_len': 300,
        'model.activation': 'gelu_tanh',
        'model.scale_embeddings': False,
    },
    'rotary': {'model.positions': 'rotary', 'model.activation': 'swish', 'model.tie_embeddings': 'none'},
    'gated': {
        'model.positions': 'rotary',
        'model.rotary_pairs': 'interleaved',
        'model.activation': 'swiglu',
        'model.norm': 'pre',
    },
    'bias': {'model.sinusoid': 'halves', 'model.softmax_bias': True, 'model.norm_epsilon': 1e-5},
}
PAIRS = sentences.sentence_pairs('dev')[:12]


@pytest.mark.parametrize('changes', VARIANTS.values(), ids=VARIANTS)
def test_a_model_leaves_and_comes_back(tmp_path, changes):
    config = resolve(config_dict(SMALL | changes))
    trained = random_model(config)
    writing.write(config, trained.params, trained.codecs, tmp_path)
    # There: the same log p.
    ours = [found.logp for found in task_of(config).verbs['likelihoods'](trained, PAIRS)]
    theirs = engine.model(trained, tmp_path).log_probabilities(PAIRS)
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-5 * np.abs(own).max())
    _check_return(trained, tmp_path)


@pytest.mark.parametrize('changes', TEXT_VARIANTS.values(), ids=TEXT_VARIANTS)
def test_a_language_model_leaves_and_comes_back(tmp_path, changes):
    config = resolve(config_dict(LANGUAGE | changes))
    trained, verbs = random_model(config), task_of(config).verbs
    writing.write(config, trained.params, trained.codecs, tmp_path)
    other, texts = engine.model(trained, tmp_path), [source for source, _ in PAIRS]
    ours = [found.logp for found in verbs['likelihoods'](trained, [(text,) for text in texts])]
    for own, their in zip(ours, other.log_probabilities([(text,) for text in texts]), strict=True):
        np.testing.assert_allclose(own, their, atol=1e-5 * np.abs(own).max())
    prompts = ['', *texts]
    greedy = [best[0].text for best in verbs['hypotheses'](trained, prompts, method='greedy')]
    assert other.likeliest(prompts) == greedy
    _check_return(trained, tmp_path)


def test_a_pair_of_byte_level_bpe(tmp_path):
    words = learn_byte_level([side for pair in PAIRS for side in pair], 300)
    # In long outputs of a random model, rounding decides between hypotheses of nearly equal scores.
    short = {'decode.extra_len': 12}
    sizes = {'data.tokenizer': 'byte_bpe', 'data.pieces': words.size, 'model.vocab_size': words.size}
    trained = random_model(resolve(config_dict(SMALL | sizes | short)))
    trained = trained._replace(codecs=dict.fromkeys(trained.codecs, words))
    writing.write(trained.config, trained.params, trained.codecs, tmp_path)
    there, texts = engine.model(trained, tmp_path), [source for source, _ in PAIRS]
    ours = task_of(trained.config).verbs['hypotheses'](trained, texts)
    for [own], [other] in zip(ours, there.hypotheses(texts), strict=True):
        assert own.text == other.text and own.score == pytest.approx(other.score, abs=1e-4)
    _check_return(trained, tmp_path)


def test_sides_of_byte_level_bpe_have_files_of_their_own(tmp_path):
    words = {
        field: learn_byte_level(texts, 290)
        for field, texts in zip(('source', 'target'), zip(*PAIRS, strict=True), strict=True)
    }
    sizes = {'data.tokenizer': 'byte_bpe', 'data.pieces': 290, 'model.vocab_size': 300}
    trained = random_model(resolve(config_dict(SMALL | SEPARATE | sizes)))._replace(codecs=words)
    writing.write(trained.config, trained.params, trained.codecs, tmp_path)
    _check_return(trained, tmp_path)
    (tmp_path / 'target_tokenizer.json').unlink()
    with pytest.raises(ConfigError, match='target_tokenizer.json: missing'):
        reading.read(tmp_path)
    (tmp_path / 'source_tokenizer.json').rename(tmp_path / 'tokenizer.json')
    with pytest.raises(ConfigError, match='tokenizer.json: has other pieces'):
        reading.read(tmp_path)


@pytest.mark.parametrize('options', [SMALL, LANGUAGE], ids=['pair', 'text'])
def test_bytes_come_back_as_bytes(tmp_path, options):
    own = ByteTokenizer()
    sizes = {'data.tokenizer': 'bytes', 'data.pieces': own.size, 'model.vocab_size': own.size}
    trained = random_model(resolve(config_dict(options | sizes)))
    trained = trained._replace(codecs={field: own for field in models.fields(trained.config)})
    writing.write(trained.config, trained.params, trained.codecs, tmp_path)
    _check_return(trained, tmp_path)
    assert reading.read(tmp_path).changes['data.tokenizer'] == 'bytes'


def test_positions_are_enough_for_the_longest_output(tmp_path):
    long = {'decode.max_source_len': 2100, 'decode.extra_len': 60}
    trained = random_model(resolve(config_dict(SMALL | long)))
    writing.write(trained.config, trained.params, trained.codecs, tmp_path)
    _, arrays = binary.read_arrays((tmp_path / 'model.bin').read_bytes())
    assert [len(arrays[f'{side}/position_encodings/encodings']) for side in ('encoder', 'decoder')] == [
        2160
    ] * 2


@pytest.mark.parametrize('setting', ['add_source_bos', 'add_source_eos'])
def test_other_ends_of_sources_are_refused_with_sentencepiece(tmp_path, setting):
    trained = random_model(resolve(config_dict(SMALL)))
    writing.write(trained.config, trained.params, trained.codecs, tmp_path)
    file = tmp_path / 'config.json'
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {setting: not settings[setting]}))
    with pytest.raises(ConfigError, match=setting):
        importing.import_model(tmp_path, tmp_path / 'out', {})


def test_a_text_that_the_tokenizer_normalises_to_nothing(tmp_path):
    model, invisible = io.BytesIO(), '\u200b'
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([source for source, _ in PAIRS] * 9), model_writer=model, vocab_size=60,
        model_type='bpe', minloglevel=2,
    )  # fmt: skip
    normalising = SentencePieceTokenizer(with_symbols_first(model.getvalue()))
    assert normalising.encode(invisible) == [EOS]
    sizes = {'data.pieces': normalising.size, 'model.vocab_size': normalising.size}
    trained = random_model(resolve(config_dict(SMALL | sizes)))
    trained = trained._replace(codecs=dict.fromkeys(trained.codecs, normalising))
    writing.write(trained.config, trained.params, trained.codecs, tmp_path)
    texts, nothing = ['The dog sleeps.', invisible, ''], [('', 0.0)] * 3
    ours = task_of(trained.config).verbs['hypotheses'](trained, texts, best=3)
    theirs = engine.model(trained, tmp_path).hypotheses(texts, best=3)
    assert ours[1:] == theirs[1:] == [nothing] * 2 and len(ours[0]) == len(theirs[0]) == 3


def test_a_language_model_there_never_writes_what_ours_never_writes(tmp_path):
    config = resolve(config_dict(LANGUAGE | TEXT_VARIANTS['bias']))
    trained = random_model(config)
    bias = trained.params['softmax_bias'].copy()
    bias[UNK] = 50.0  # the likeliest piece by far
    trained = trained._replace(params={**trained.params, 'softmax_bias': bias})
    writing.write(config, trained.params, trained.codecs, tmp_path)
    prompts = [source for source, _ in PAIRS]
    greedy = task_of(config).verbs['hypotheses'](trained, prompts, method='greedy')
    found = engine.model(trained, tmp_path).likeliest(prompts)
    assert found == [best[0].text for best in greedy]


def _check_return(trained, folder):
    """Checks that the imported model is the same, and its export the same file."""
    # The same parameters and, if there was none, a bias of zeros.
    foreign = reading.read(folder)
    expected = layout.named(trained.params)
    for path, array in foreign.params.items():
        if path == 'softmax_bias' and path not in expected:
            assert not array.any()
        else:
            np.testing.assert_array_equal(array, expected[path])
    assert codec.contents(foreign.codecs) == codec.contents(trained.codecs)
    again = folder / 'again'
    again.mkdir()
    returned = resolve(config_dict(layout.TEXT | foreign.changes))
    writing.write(returned, layout.tree(returned, foreign.params), foreign.codecs, again)
    assert (again / 'model.bin').read_bytes() == (folder / 'model.bin').read_bytes()


@pytest.mark.parametrize('quantization', writing.QUANTIZATIONS)
def test_kernels_of_few_bits(tmp_path, quantization):
    config = resolve(config_dict(SMALL))
    trained = random_model(config)
    writing.write(config, trained.params, trained.codecs, tmp_path, quantization)
    found, expected = reading.read(tmp_path).params, layout.named(trained.params)
    for path, array in expected.items():
        if path.endswith('kernel'):
            difference = np.abs(found[path] - array).max() / np.abs(array).max()
            assert 0 < difference < (0.01 if quantization == 'int8' else 0.001), path


@pytest.mark.parametrize('tags', [False, True])
def test_a_parser_comes_back_with_the_codec_of_trees(tmp_path, tags):
    parsing = {'train.task': 'parsing', 'data.tags': tags}
    config = resolve(config_dict(SMALL | parsing))
    trained = random_model(config)
    (tmp_path / 'there').mkdir()
    writing.write(config, trained.params, trained.codecs, tmp_path / 'there')
    run = importing.import_model(tmp_path / 'there', tmp_path / 'back', parsing)
    assert codec.contents(run.codecs) == codec.contents(trained.codecs)
    tree = Example({'target': '(TOP (NP (DT the) (NN dog)))'}, {'target': 'a file'}, 1)
    written = '(NP DT NN )NP' if tags else '(NP XX XX )NP'
    field = task_of(config).reading(run.config).fields['target']
    pieces = field.encode('target', run.codecs, [tree]).tokens.tolist()
    assert pieces == trained.codecs['target'].encode(written)


REFUSED = [
    {'model.positions': 'relative'},
    {'model.norm_type': 'rmsnorm'},
    {'model.attention': 'local'},
    {'model.biases': 'ffn'},
    {'model.d_k': 6},
    {'model.d_v': 6},
    {'model.norm_final': True},
    {'model.kind': 'convolutional'},
]


@pytest.mark.parametrize('changes', REFUSED, ids=str)
def test_what_the_format_lacks_is_refused_by_name(changes):
    kind = changes.get('model.kind')
    small = {k: v for k, v in SMALL.items() if kind is None or k not in ('model.d_ff', 'model.h')}
    [name] = changes
    with pytest.raises(ConfigError, match=f'^{name}='):
        writing.check(resolve(config_dict(small | changes)))


def test_a_model_that_writes_no_text_is_refused():
    config = resolve(config_dict(layout.TEXT | random_models.SMALL | {'train.task': 'masked'}))
    with pytest.raises(ConfigError, match='^train.task=masked'):
        writing.check(config)


def test_a_language_model_with_the_tokenizer_of_a_library(tmp_path, capsys):
    """Its pieces keep their order and names there; the tokenizer goes with them, and comes back."""
    pytest.importorskip('tokenizers')
    model = pathlib.Path(__file__).parents[1] / 'hugging_face/gpt2'
    run = importing.import_model(model, tmp_path / 'run', {})
    (tmp_path / 'texts').write_text('the dog sees a cat\nan old man\n')
    out, call = tmp_path / 'out', ['run.py', 'export', f'--workdir={run.folder}', '--format=ctranslate2']
    assert main.main([*call, f'--output={out}', f'--check={tmp_path / "texts"}']) == 0
    assert ': 2 of 2' in capsys.readouterr().out
    # A text and what is written after it, 24 pieces here, fit into a row of 48.
    (tmp_path / 'texts').write_text(f'\nan old man\n{"a dog " * 30}\n')
    check = exporting.read_check(run, 'ctranslate2', str(tmp_path / 'texts'), None)
    assert (check.texts, check.lines, check.decode.extra_len) == (['an old man'], [2], 24)
    assert '1 empty' in check.left_out and '1 of more than 24 pieces' in check.left_out
    decode = dataclasses.replace(run.config.decode, extra_len=500)
    longer = dataclasses.replace(run, config=dataclasses.replace(run.config, decode=decode))
    assert exporting.read_check(longer, 'ctranslate2', str(tmp_path / 'texts'), None).decode.extra_len == 24
    (tmp_path / 'texts').write_text('a dog ' * 30)
    with pytest.raises(ConfigError, match='--check=.* 24 pieces'):
        exporting.read_check(run, 'ctranslate2', str(tmp_path / 'texts'), None)
    vocabulary = json.loads((model / 'tokenizer.json').read_text())['model']['vocab']
    tokens = json.loads((out / 'vocabulary.json').read_text())
    assert {token: tokens[number] for token, number in vocabulary.items()} == {t: t for t in vocabulary}
    back = importing.import_model(out, tmp_path / 'back', {})
    assert codec.contents(back.codecs) == codec.contents(run.codecs)
    expected, found = (layout.named(transformer.load(one.folder).trained.params) for one in (run, back))
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array)
    _check_refusals(out, tmp_path / 'x')


def test_pieces_that_a_list_numbers_leave_and_come_back(tmp_path):
    """Marian's two SentencePiece models, of which the vocabulary lacks some pieces."""
    model = pathlib.Path(__file__).parents[1] / 'hugging_face/marian'
    run = importing.import_model(model, tmp_path / 'run', {})
    exporting.export_model(run, 'scored', tmp_path / 'out', 'ctranslate2')
    back = importing.import_model(tmp_path / 'out', tmp_path / 'back', {})
    assert codec.contents(back.codecs) == codec.contents(run.codecs)
    assert back.config.data.pieces == codec.size(run.codecs)
    (tmp_path / 'out/target.spm').unlink()
    with pytest.raises(ConfigError, match='target.spm: missing'):
        importing.import_model(tmp_path / 'out', tmp_path / 'x', {})


def test_a_language_model_by_way_of_hugging_face(tmp_path):
    """The names of the pieces that are no text stay the same on each way."""
    pytest.importorskip('tokenizers')
    (tmp_path / 'german').write_text('Der Mann sieht den Hund.\n' * 300)
    options = {
        **LANGUAGE, 'data.dir': str(tmp_path), 'data.train': 'german', 'data.dev': 'german',
        'data.test': 'german', 'data.pieces': 300, 'model.vocab_size': 300, 'model.norm': 'pre',
        'model.positions': 'learned', 'model.max_len': 300,
        'train.steps': 1, 'train.warmup_steps': 1,
    }  # fmt: skip
    transformer.train(config_dict(options), tmp_path / 'run', evaluate=False)
    run = workdir.Run.open(tmp_path / 'run')
    for number, kind in enumerate(('huggingface', 'ctranslate2', 'huggingface')):
        exporting.export_model(run, 'scored', tmp_path / f'out{number}', kind)
        run = importing.import_model(tmp_path / f'out{number}', tmp_path / f'run{number}', {})
    first, last = (tmp_path / f'out{number}' for number in (0, 2))
    for name in ('model.safetensors', 'tokenizer.json', 'tokenizer_config.json'):
        assert (first / name).read_bytes() == (last / name).read_bytes(), name


def _check_refusals(out, folder):
    settings = json.loads((out / 'config.json').read_text())
    for name, content, part in (
        ('config.json', settings | {'bos_token': 'the'}, 'bos_token=the'),
        ('config.json', settings | {'eos_token': 'x y', 'bos_token': 'x y'}, 'eos_token=x y'),
        ('tokenizer.json', {}, 'tokenizer.json: damaged'),
        ('tokenizer.json', b'\xff', 'tokenizer.json: damaged'),
        ('vocabulary.json', ['<|endoftext|>', 'a'], 'tokenizer.json: has a piece'),
        ('config.json', None, 'config.json: missing'),
    ):
        kept = (out / name).read_bytes()
        (out / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        if content is None:
            (out / name).unlink()
        with pytest.raises(ConfigError, match=re.escape(part)):
            importing.import_model(out, folder, {})
        (out / name).write_bytes(kept)
    assert not folder.exists()


def _check_comparison(trained, check, folder):
    """With an engine whose second output and log p differ from ours."""
    verbs = task_of(trained.config).verbs
    texts = [best[0].text for best in verbs['hypotheses'](trained, check.texts, alpha=0.0)]
    logp = [one.logp for one in verbs['likelihoods'](trained, [*zip(check.texts, texts, strict=True)])]
    other = types.SimpleNamespace(
        dtype='int8',
        likeliest=lambda _: [texts[0], 'x'],
        log_probabilities=lambda _: [logp[0], logp[1] - 0.5],
    )
    with pytest.MonkeyPatch.context() as patch:
        stub = exporting.FORMATS['ctranslate2']._replace(engine=lambda *_: other)
        patch.setitem(exporting.FORMATS, 'ctranslate2', stub)
        patch.setattr(exporting.bleu, 'sacre_bleu', lambda lines, *_: 9.0 if lines == texts else 8.0)
        check = check._replace(references=texts)
        dtype, equal, first, bleu, largest = exporting.compare(trained, 'ctranslate2', folder, check)
    assert 'int8' in dtype and equal.endswith(': 1 of 2') and largest.endswith(': 5.00e-01')
    assert f'line 2: here "{texts[1]}", there "x"' in first
    assert 'here 9.00, there 8.00' in bleu


def test_the_command(tmp_path, capsys):
    model = pathlib.Path(__file__).parent / 'aren_transliteration'
    run = importing.import_model(model, tmp_path / 'run', {'train.task': 'transliteration'})
    (tmp_path / 'names').write_text('برلین\nلندن\n')
    call = ['run.py', 'export', f'--workdir={run.folder}', '--format=ctranslate2']
    out, empty = tmp_path / 'out', tmp_path / 'empty'
    empty.write_text('\n\n')
    assert main.main([*call, f'--output={out}', f'--check={tmp_path / "names"}']) == 0
    out_lines = capsys.readouterr().out
    assert ': 2 of 2' in out_lines and 'float32' in out_lines
    check = exporting.read_check(run, 'ctranslate2', str(tmp_path / 'names'), None)
    _check_comparison(transformer.load(run.folder).trained, check, out)
    assert json.loads((out / 'config.json').read_text())['add_source_eos'] is False
    assert 'sentencepiece.model' not in {path.name for path in out.iterdir()}
    # The original, but for its positions, which are not in its file, and the order of its pieces.
    again = reading.read(out)
    for path, array in reading.read(model).params.items():
        np.testing.assert_array_equal(again.params[path], array)
    for wrong, part in (
        ([f'--output={out}'], 'exists'),
        ([f'--output={tmp_path / "x"}', '--quantization=int4'], '--quantization=int4'),
        ([f'--output={tmp_path / "x"}', '--checkpoint=latest,latest'], '--checkpoint'),
        ([f'--output={tmp_path / "x"}', f'--check={empty}'], f'--check={empty}'),
        ([], '--output'),
    ):
        assert main.main([*call, *wrong]) == 2
        assert part in capsys.readouterr().err
    unknown = [word for word in call if not word.startswith('--format=')]
    assert main.main([*unknown, f'--output={tmp_path / "x"}', '--format=x']) == 2
    assert '--format=x; choose' in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {'run', 'names', 'out', 'empty'}
    parser = dataclasses.replace(run.config.train, task='parsing')
    with pytest.raises(ConfigError, match='--check=x: .*task=parsing'):
        exporting.read_check(
            dataclasses.replace(run, config=dataclasses.replace(run.config, train=parser)),
            'ctranslate2',
            'x',
            None,
        )
    for wrong in (
        lambda: exporting.export_model(run, 'scored', tmp_path / 'x', None),
        lambda: exporting.read_check(run, None, str(empty), None),
    ):
        with pytest.raises(ConfigError, match='--format: missing'):
            wrong()


def test_parameters_alone(tmp_path, capsys):
    """As safetensors by our paths: the same model, and one clear line where they are damaged or misused."""
    model = pathlib.Path(__file__).parent / 'aren_transliteration'
    run = importing.import_model(model, tmp_path / 'run', {'train.task': 'transliteration'})
    out = tmp_path / 'out'
    call = ['run.py', 'export', f'--workdir={run.folder}', '--format=safetensors', f'--output={out}']
    assert main.main(call) == 0
    arrays = safetensors.load_file(out / 'parameters.safetensors')
    original = transformer.load(run.folder).trained
    expected = layout.named(original.params)
    assert arrays.keys() == expected.keys() and 'encoder/layer_5/self_attention/query/kernel' in arrays
    for path, array in expected.items():
        np.testing.assert_array_equal(arrays[path], array)
    loaded = transformer.load(out).trained
    assert loaded.config == original.config and codec.contents(loaded.codecs) == codec.contents(run.codecs)
    jax.tree.map(np.testing.assert_array_equal, loaded.params, original.params)
    with pytest.raises(ConfigError, match='7: no such checkpoint'):
        transformer.load(out, '7')
    for wrong, part in (
        ([*call[:-1], f'--output={tmp_path / "x"}', '--quantization=int8'], '--quantization=int8'),
        ([*call[:-1], f'--output={tmp_path / "x"}', '--check=x'], '--check=x'),
        ([*call[:-1], f'--output={tmp_path / "x"}', '--reference=x'], '--reference=x'),
        (['run.py', 'average', f'--workdir={out}', '--last=1'], 'exported'),
    ):
        assert main.main(wrong) == 2
        assert part in capsys.readouterr().err
    with pytest.raises(ConfigError, match='--init_from'):
        workdir.check_claim(epath.Path(out), run.config, run.manifest, None)
    content = (out / 'parameters.safetensors').read_bytes()
    for damaged in (content[:-9], content[:-4] + b'abcd', b'', b'x' * 100):
        (out / 'parameters.safetensors').write_bytes(damaged)
        with pytest.raises(ConfigError, match='parameters.safetensors: damaged'):
            transformer.load(out)
