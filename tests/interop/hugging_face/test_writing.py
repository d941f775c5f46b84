"""Our models become Hugging Face's, with our numbers and pieces; models without a place there are refused.

That transformers itself reads them is tested where it is installed; here they are read back.
"""

import json
import pathlib
import re

import numpy as np
import programs
import pytest
import random_models
from random_models import SMALL, random_model
from sentencepiece import sentencepiece_model_pb2

import transformer
from transformer.config import OPTIONS, Config, ConfigError, config_dict, declare, files, resolve
from transformer.config.files import read_config_file
from transformer.config.resolve import option_values
from transformer.data import codec, vocabulary
from transformer.data.codec import Labels
from transformer.data.generated.grammar import sentences
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.data.tokenizers.hugging_face import HuggingFaceTokenizer, learn_byte_level, load_library
from transformer.interop import layout
from transformer.interop.hugging_face import engine, reading, sentencepiece_json, writing
from transformer.interop.import_model import import_model
from transformer.runs.restore import Trained
from transformer.tasks import task_of
from transformer.tokens import EOS, PAD

safetensors = pytest.importorskip('safetensors.numpy')

# What images have no use for.
OF_TEXTS = ('model.vocab_size', 'data.pieces', 'data.max_len', 'data.row_len')
PAIR = random_models.PAIR | {'model.norm_epsilon': 1e-5}
LEARNED = {'model.positions': 'learned', 'model.max_len': 310}
PAIRS = {
    'base': {'model.vocab_size': 410, 'model.N': 2},
    'marian': {'model.sinusoid': 'halves', 'model.activation': 'swish', 'model.softmax_bias': True},
    'learned': LEARNED | {'model.start': 'learned', 'model.activation': 'quick_gelu'},
    'separate': {'data.vocabulary': 'separate', 'model.tie_embeddings': 'none'},
    'decoder': {'data.vocabulary': 'separate', 'model.tie_embeddings': 'decoder'},
    'released code': {
        'model.tie_embeddings': 'none',
        'model.sinusoid': 't2t',
        'model.first_position': 1,
        'model.scale_embeddings': False,
    },
}
T5 = random_models.PAIR | {
    'model.N': 2,
    'model.d_k': 6,
    'model.d_v': 6,
    'model.positions': 'buckets',
    'model.norm': 'pre',
    'model.norm_type': 'rmsnorm',
    'model.attention_scale': 'none',
    'model.scale_embeddings': False,
    'model.scale_logits': True,
    'model.start': 'learned',
    'model.biases': 'none',
}
UNTIED = {'model.tie_embeddings': 'inputs', 'model.scale_logits': False, 'model.activation': 'geglu'}
T5S = {
    't5': T5 | {'model.vocab_size': 410},
    't5 1.1': T5 | UNTIED,
    'tied, not scaled': T5 | {'model.scale_logits': False},
}
BERT = LEARNED | {'train.task': 'masked', 'model.norm_embedding': True}
GPT2 = LEARNED | {'train.task': 'language', 'model.norm': 'pre', 'model.activation': 'gelu_tanh'}
SAMPLED = {'decode.method': 'sample', 'decode.temperature': 0.5, 'decode.top_k': 3, 'decode.top_p': 0.9}
OF_SAMPLES = {'do_sample': True, 'temperature': 0.5, 'top_k': 3, 'top_p': 0.9}
VIT = LEARNED | {
    'model.N': 2,
    'train.task': 'images',
    'data.source': 'pictures',
    'model.norm': 'pre',
    'images.size': 8,
    'images.pixels': 'grey',
    'images.classes': 24,
}
TEXTS = {
    'bert': BERT | {'model.N': 2},
    'bert with all': BERT
    | {
        'model.token_types': 2,
        'model.softmax_bias': True,
        'model.tie_embeddings': 'none',
        'model.scale_embeddings': False,
    },
    'bert tied': BERT | {'model.scale_embeddings': False, 'model.activation': 'gelu'},
    'gpt2': GPT2 | {'model.N': 2},
}
ODD = [
    '',
    ' ',
    '  two  blanks ',
    'Ünï 漢字 🙂',
    '\t\n',
    'e\u0301',
    'x' * 200,
    '0.5 %',
    'ab\0c',
    'aaaaaaa',
    '[MASK',
]


def byte_level() -> tuple[HuggingFaceTokenizer, dict[str, object]]:
    """Returns a tokenizer without padding, and the options of models that have it."""
    words = learn_byte_level(['the dog sleeps the cat'] * 9, 262)
    return words, {'data.tokenizer': 'byte_bpe', 'data.pieces': words.size, 'model.vocab_size': words.size}


def config_of(changes: dict[str, object]) -> Config:
    values = {key: value for key, value in (SMALL | changes).items() if value is not None}
    return resolve(config_dict(layout.TEXT | values))


def there_and_back(trained: Trained, folder, changes: dict[str, object]) -> Trained:
    writing.write(trained.config, trained.params, trained.codecs, folder)
    foreign = reading.read(folder)
    config = resolve(config_dict(layout.TEXT | foreign.changes | changes))
    return Trained(config, layout.tree(config, foreign.params), foreign.codecs)


def equal(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 * np.abs(other).max())


def test_the_error_of_the_packaged_bert_says_how_to_train_one_that_can_be_exported():
    values = option_values(read_config_file('configs/bert_grammar.py'))
    with pytest.raises(ConfigError) as error:
        writing.check(resolve(config_dict(values)))
    flags = re.findall(r'--config\.(\S+)=(\S+)', str(error.value))
    assert flags == [('model.norm_embedding', 'True')]
    changes = {key: declare.parse_value(OPTIONS, key, value) for key, value in flags}
    writing.check(resolve(config_dict(values | changes)))


@pytest.mark.parametrize('changes', PAIRS.values(), ids=PAIRS)
def test_encoder_decoders(tmp_path, changes):
    trained = random_model(config_of(PAIR | changes))
    back = there_and_back(trained, tmp_path, {})
    texts = sentences.sentence_pairs('dev')[:8]
    logp = [
        [one.logp for one in task_of(each.config).verbs['likelihoods'](each, texts)]
        for each in (trained, back)
    ]
    equal(logp[1], logp[0])
    assert codec.contents(back.codecs) == codec.contents(trained.codecs)
    assert back.config.model.tie_embeddings == trained.config.model.tie_embeddings
    settings = json.loads((tmp_path / 'config.json').read_text())
    search = json.loads((tmp_path / 'generation_config.json').read_text())
    assert settings['decoder_start_token_id'] == search['decoder_start_token_id'] == 0
    assert settings['forced_eos_token_id'] == search['eos_token_id'] == 1
    # A tied row of the start, which is trained as a piece, is no input.
    arrays = safetensors.load_file(tmp_path / 'model.safetensors')
    if trained.config.model.start == 'zeros':
        assert not arrays['model.decoder.embed_tokens.weight'][0].any() and arrays['lm_head.weight'][0].any()


@pytest.mark.parametrize(
    ('changes', 'expected'),
    [
        (PAIR, {'num_beams': 4, 'length_penalty': 0.6, 'bad_words_ids': [[0], [2]], 'max_length': 200}),
        (PAIR | SAMPLED, OF_SAMPLES | {'bad_words_ids': [[0], [2]], 'max_length': 200}),
        (
            PAIR | {'decode.method': 'greedy'},
            {'num_beams': 1, 'bad_words_ids': [[0], [2]], 'max_length': 200},
        ),
        (GPT2 | {'decode.method': 'beam'}, {'num_beams': 4, 'length_penalty': 0.6, 'max_new_tokens': 50}),
        (GPT2 | SAMPLED, OF_SAMPLES | {'max_new_tokens': 50}),
    ],
)
def test_the_search_is_the_configs(tmp_path, changes, expected):
    trained = random_model(config_of(changes))
    writing.write(trained.config, trained.params, trained.codecs, tmp_path)
    found = json.loads((tmp_path / 'generation_config.json').read_text())
    tokens = {name: value for name, value in found.items() if name.endswith('token_id')}
    by_default = {'do_sample': False, 'bad_words_ids': [[0], [2]]}
    assert found == by_default | tokens | expected
    assert tokens['eos_token_id'] == EOS
    assert tokens['pad_token_id'] == (PAD if 'max_length' in expected else EOS)


def test_rows_without_a_piece_are_never_written_there(tmp_path):
    trained = random_model(config_of(PAIR | {'model.vocab_size': 403}))
    writing.write(trained.config, trained.params, trained.codecs, tmp_path)
    found = json.loads((tmp_path / 'generation_config.json').read_text())['bad_words_ids']
    size = trained.codecs['target'].size
    assert found == [[0], [2], *([row] for row in range(size, 403))] and size < 403


def test_only_bert_reads_types_of_tokens(tmp_path):
    names = {}
    for kind, changes in {'bert': BERT, 't5': T5, 'gpt2': GPT2}.items():
        trained = random_model(config_of(changes))
        (tmp_path / kind).mkdir()
        writing.write(trained.config, trained.params, trained.codecs, tmp_path / kind)
        settings = json.loads((tmp_path / kind / 'tokenizer_config.json').read_text())
        names[kind] = settings.get('model_input_names')
    assert names == {'bert': None} | dict.fromkeys(('t5', 'gpt2'), ['input_ids', 'attention_mask'])


@pytest.mark.parametrize(
    ('kind', 'expected'),
    [
        ('bert', {'cls_token': '[CLS]', 'unk_token': '[UNK]', 'sep_token': '[SEP]', 'mask_token': '[MASK]'}),
        ('clip', {'bos_token': '<|startoftext|>', 'unk_token': '<|endoftext|>'}),
    ],
)
def test_special_tokens_that_no_model_here_has_stay(tmp_path, kind, expected):
    (tmp_path / 'there').mkdir()
    run = import_model(pathlib.Path(__file__).parent / kind, tmp_path / 'run', {})
    trained = transformer.load(run.folder).trained
    writing.write(trained.config, trained.params, trained.codecs, tmp_path / 'there')
    settings = json.loads((tmp_path / 'there' / 'tokenizer_config.json').read_text())
    assert {name: settings.get(name) for name in expected} == expected


def test_pieces_that_only_the_model_has_are_not_forbidden(tmp_path):
    words, changes = byte_level()
    trained = random_model(config_of(GPT2 | changes))
    writing.write(trained.config, trained.params, {'text': words}, tmp_path)
    assert 'bad_words_ids' not in json.loads((tmp_path / 'generation_config.json').read_text())


def test_a_text_of_bytes_begins_as_the_models_texts_do(tmp_path):
    words, changes = byte_level()
    trained, order = random_model(config_of(GPT2 | changes)), np.array(words.order)
    writing.write(trained.config, trained.params, {'text': words}, tmp_path)
    theirs = load_library().Tokenizer.from_file(str(tmp_path / 'tokenizer.json'))
    for text in ('the dog', 'Ünï 🙂', ''):
        assert theirs.encode(text).ids == order[[EOS, *words.encode(text)[:-1]]].tolist()
    settings = json.loads((tmp_path / 'tokenizer_config.json').read_text())
    assert settings['bos_token'] == settings['eos_token'] == settings['pad_token'] == words.name(EOS)


@pytest.mark.parametrize('changes', T5S.values(), ids=T5S)
def test_t5(tmp_path, changes):
    trained = random_model(config_of(changes))
    back = there_and_back(trained, tmp_path, {})
    texts = sentences.sentence_pairs('dev')[:8]
    verbs = task_of(trained.config).verbs
    logp = [[one.logp for one in verbs['likelihoods'](each, texts)] for each in (trained, back)]
    equal(logp[1], logp[0])
    settings = json.loads((tmp_path / 'config.json').read_text())
    assert settings['model_type'] == 't5' and settings['tie_word_embeddings'] is changes['model.scale_logits']
    own, odd = trained.codecs['source'], [*ODD, *(text for text, _ in texts)]
    assert back.codecs['source'].encode_batch(odd) == own.encode_batch(odd)
    # The files of the first versions have a SentencePiece model.
    (tmp_path / 'tokenizer.json').unlink()
    (tmp_path / 'spiece.model').write_bytes(own.content)
    assert reading.read(tmp_path).codecs['target'].sha256 == own.sha256


@pytest.mark.parametrize('changes', T5S.values(), ids=T5S)
def test_transformers_computes_the_same_with_t5(tmp_path, changes):
    pytest.importorskip('torch')
    pytest.importorskip('transformers')
    trained = random_model(config_of(changes))
    writing.write(trained.config, trained.params, trained.codecs, tmp_path)
    texts = sentences.sentence_pairs('dev')[:8]
    ours = [one.logp for one in task_of(trained.config).verbs['likelihoods'](trained, texts)]
    equal(engine.TransformersModel(trained, tmp_path).log_probabilities(texts), ours)


def test_both_layers_of_pairs_are_written_and_not_read(tmp_path):
    pairs = {'masked.next_sentence': 1.0, 'data.batching': 'padded'}
    trained = random_model(config_of(TEXTS['bert with all'] | pairs))
    back = there_and_back(trained, tmp_path, {})
    arrays = safetensors.load_file(tmp_path / 'model.safetensors')
    for theirs, ours in {'bert.pooler.dense': 'pooler', 'cls.seq_relationship': 'next_sentence'}.items():
        np.testing.assert_array_equal(arrays[f'{theirs}.weight'].T, trained.params[ours]['kernel'])
        np.testing.assert_array_equal(arrays[f'{theirs}.bias'], trained.params[ours]['bias'])
    assert trained.params.keys() - back.params.keys() == {'pooler', 'next_sentence'}
    assert back.config.masked.next_sentence == 0.0


def test_hidden_spans_have_pieces_of_their_own_in_t5(tmp_path):
    trained = random_model(
        config_of(T5 | {'train.task': 'denoise', 'denoise.sentinels': 3, 'model.vocab_size': 404})
    )
    foreign = there_and_back(trained, tmp_path, {})
    codec = foreign.codecs['source']
    assert codec.size == 403 and codec.name(402) == '<extra_id_0>' and codec.name(400) == '<extra_id_2>'
    found = codec.encode('The dog<extra_id_0>')
    assert found == [*trained.codecs['text'].encode('The dog')[:-1], 402, EOS]
    table = np.asarray(trained.params['embedding']['table'])
    np.testing.assert_array_equal(foreign.params['embedding']['table'], table)


def test_t5_of_bytes(tmp_path):
    config = config_of(T5 | {'data.tokenizer': 'bytes', 'data.pieces': 259, 'model.vocab_size': 260})
    trained = random_model(config)._replace(codecs=dict.fromkeys(('source', 'target'), ByteTokenizer()))
    back = there_and_back(trained, tmp_path, {})
    assert back.config.data.tokenizer == 'bytes' and back.codecs['source'].encode('a') == [100, 1]
    assert json.loads((tmp_path / 'tokenizer_config.json').read_text())['tokenizer_class'] == 'ByT5Tokenizer'


@pytest.mark.parametrize('changes', TEXTS.values(), ids=TEXTS)
def test_models_of_single_texts(tmp_path, changes):
    trained = random_model(config_of(changes))
    rows = {key: SMALL[key] for key in ('data.max_len', 'data.row_len')}
    back = there_and_back(trained, tmp_path, rows)
    texts = [text for text, _ in sentences.sentence_pairs('dev')[:20]] + ODD
    tokenizer = back.codecs['text']
    assert tokenizer.encode_batch(texts) == trained.codecs['text'].encode_batch(texts)
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts
    logits = []
    for each in (trained, back):
        verbs = task_of(each.config).verbs
        if 'likelihoods' in verbs:
            logits.append([one.logp for one in verbs['likelihoods'](each, [(text,) for text in texts[:8]])])
        else:
            gap = 'The [MASK] sees the man.'
            logits.append([*verbs['embed'](each, texts[:8])])
            words = [[(one.text, round(one.score, 5)) for one in verbs['fill'](each, [gap], best=5)[0]]]
            logits[-1].append(np.array([score for _, score in words[0]]))
    equal(logits[1], logits[0])


def test_vision_transformers(tmp_path):
    trained = random_model(config_of(dict.fromkeys(OF_TEXTS) | VIT | {'images.classes': 24}))
    labels = Labels(tuple(f'class {n}' for n in range(24)))
    back = there_and_back(trained._replace(codecs={'image': None, 'label': labels}), tmp_path, {})
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 1), dtype=np.uint8)
    logits = [
        np.asarray(programs.apply(each.config, each.params, {'image': images})) for each in (trained, back)
    ]
    equal([logits[1]], [logits[0]])
    assert back.codecs['label'].names == labels.names
    with pytest.raises(ConfigError, match='images.patch_bias'):
        writing.check(config_of(dict.fromkeys(OF_TEXTS) | VIT | {'images.patch_bias': False}))
    assert json.loads((tmp_path / 'preprocessor_config.json').read_text())['image_mean'] == [0.5]


REFUSED = [
    (PAIR, 'model.norm', 'pre'),
    (PAIR, 'model.positions', 'rotary'),
    (PAIR, 'model.positions', 'buckets'),
    (PAIR, 'model.activation', 'swiglu'),
    (PAIR, 'model.activation', 'geglu'),
    (PAIR, 'model.attention_scale', 'none'),
    (PAIR, 'model.scale_logits', True),
    (PAIR, 'model.norm_type', 'rmsnorm'),
    (PAIR, 'model.norm_embedding', True),
    (PAIR, 'model.biases', 'ffn'),
    (PAIR, 'model.d_k', 6),
    (PAIR, 'model.attention', 'local'),
    (T5, 'model.norm_type', 'layernorm'),
    (T5, 'model.d_v', 7),
    (T5, 'model.activation', 'swiglu'),
    (T5 | UNTIED, 'model.scale_logits', True),
    (BERT, 'model.norm_embedding', False),
    (BERT, 'model.norm', 'pre'),
    (GPT2, 'model.positions', 'rotary'),
    (GPT2, 'model.positions', 'alibi'),
    (GPT2, 'model.norm', 'post'),
    (GPT2, 'model.norm_final', False),
]


@pytest.mark.parametrize(('base', 'option', 'value'), REFUSED)
def test_what_has_no_place_is_refused_by_name(base, option, value):
    more = {'model.max_len': None} if option == 'model.positions' else {}
    with pytest.raises(ConfigError, match=f'^{option}={value}[:,] '):
        writing.check(config_of(base | more | {option: value}))


def test_the_options_of_a_model_that_can_be_exported_are_named():
    packaged = files.read_config_file('configs/bert_grammar.py')
    with packaged.unlocked():
        packaged.model.h, packaged.model.d_k = 4, 16
    with pytest.raises(ConfigError, match='^model.norm_embedding=False, model.d_k=16: ') as error:
        writing.check(resolve(packaged))
    flags = dict(re.findall(r'--config\.(\S+)=(\S+)', str(error.value)))
    values = {key: declare.parse_value(OPTIONS, key, text) for key, text in flags.items()}
    assert values == {'model.norm_embedding': True, 'model.d_k': 32}
    writing.check(resolve(config_dict(option_values(packaged) | values)))


def test_a_softmax_bias_of_gpt2_is_refused(tmp_path):
    trained = random_model(config_of(GPT2 | {'model.softmax_bias': True}))
    with pytest.raises(ConfigError, match=r'^model\.softmax_bias=True: .*model\.softmax_bias=False'):
        writing.write(trained.config, trained.params, trained.codecs, tmp_path)


@pytest.mark.parametrize('changes', [T5, BERT], ids=['t5', 'bert'])
def test_tokenizers_that_lack_pieces_which_the_model_needs_are_refused(tmp_path, changes):
    """A byte-level BPE has no padding, as T5 has it, and no hidden piece."""
    words, sizes = byte_level()
    trained = random_model(config_of(changes | sizes))
    codecs = dict.fromkeys(trained.codecs, words)
    with pytest.raises(ConfigError, match=r'^data\.tokenizer: '):
        writing.write(trained.config, trained.params, codecs, tmp_path)


def test_tokenizers_without_a_file_are_refused(tmp_path):
    trained = random_model(config_of(GPT2))
    with pytest.raises(ConfigError, match=r'^data\.tokenizer='):
        writing.write(trained.config, trained.params, {'text': ByteTokenizer()}, tmp_path)
    with_words = vocabulary.train(['the dog sees'] * 9, 270, words=['(NP'])
    proto = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.train(['the dog sees'] * 9, 270))
    # Words end with their blank.
    proto.trainer_spec.treat_whitespace_as_suffix = True
    for model in (with_words, proto.SerializeToString()):
        with pytest.raises(ConfigError, match=r'^data\.tokenizer_model: '):
            sentencepiece_json.convert(model, ['<pad>', '</s>', '<unk>'], begins=True)
