"""A translator without attention, after Sutskever et al. 2014: Multi30k, English to German.

    python run.py --config=configs/rnn_seq2seq.py --config.data.dir=FOLDER

As in the paper: four LSTM layers on each side; the encoder reads the source backwards, and the decoder sees
only its last state. Differences: a width that gives about as many parameters as configs/multi30k.py
(1.7 million), dropout, label smoothing, Adam and subword pieces. FOLDER and all data options are as in
configs/multi30k.py.

Reached after 4,000 updates (row `lstm` of `--table=architectures`): 14.19 sacreBLEU on test_2016_flickr. Not
trained for all of its 12,500 updates.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'multi30k.py',
        {
            'model.kind': 'recurrent',
            'model.d_model': 142,
            'model.reverse_source': True,
            'model.P_drop': 0.2,
            'train.clip_norm': 1.0,
        },
    )
