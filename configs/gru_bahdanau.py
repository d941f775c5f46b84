"""The first translator with attention, after Bahdanau et al. 2015: Multi30k, English to German.

    python run.py --config=configs/gru_bahdanau.py --config.data.dir=FOLDER

One layer of gated recurrent units on each side, the encoder's in both directions; the decoder compares its
state with the source before each step, and what it finds enters the step. What differs: the next piece is
predicted from tanh(W [context; state]), not by a maxout layer, the decoder begins with the encoder's states
themselves, and the sizes, which give about as many parameters as configs/multi30k.py has (1.7 million). So
do dropout, label smoothing, Adam, and subword pieces. FOLDER is that of configs/multi30k.py.

After 4,000 updates (the row gru-attention of `--table=architectures`): 33.39 sacreBLEU on
test_2016_flickr. Not trained for all of its 12,500 updates.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.kind': 'recurrent',
            'model.cell': 'gru',
            'model.N': 1,
            'model.d_model': 238,
            'model.bidirectional': True,
            'model.alignment': 'additive',
            'model.P_drop': 0.2,
            'model.vocab_size': 3000,
            'data.source': 'text',
            'data.name': None,
            'data.dev': 'val',
            'data.test': 'test_2016_flickr',
            'data.pieces': 3000,
            'data.batching': 'packed',
            'data.row_len': 48,
            'data.max_len': 48,
            'data.batch_tokens': 2048,
            'train.steps': 12500,
            'train.warmup_steps': 1000,
            'train.clip_norm': 1.0,
            'train.log_every': 50,
            'train.eval_every': 1000,
            'train.checkpoint_every': 500,
            'train.average_last': 5,
            'decode.max_source_len': 128,
        }
    )
