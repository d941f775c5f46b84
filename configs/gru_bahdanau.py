"""The first translator with attention, after Bahdanau et al. 2015: Multi30k, English to German.

    python run.py --config=configs/gru_bahdanau.py --config.data.dir=FOLDER

One layer of gated recurrent units on each side; the encoder reads in both directions. Before each step the
decoder compares its state with the source, and the context vector is an input of the step. Differences from
the paper: the next piece is predicted from tanh(W [context; state]) instead of a maxout layer; the decoder
starts from the encoder's final states; dropout, label smoothing, Adam and subword pieces; and a width that
gives about as many parameters as configs/multi30k.py (1.7 million). FOLDER and all data options are as in
configs/multi30k.py.

Reached after 4,000 updates (row `gru-attention` of `--table=architectures`): 33.39 sacreBLEU on
test_2016_flickr. Not trained for all of its 12,500 updates.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'multi30k.py',
        {
            'model.kind': 'recurrent',
            'model.cell': 'gru',
            'model.N': 1,
            'model.d_model': 238,
            'model.bidirectional': True,
            'model.alignment': 'additive',
            'model.P_drop': 0.2,
            'train.clip_norm': 1.0,
        },
    )
