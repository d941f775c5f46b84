"""LSTMs with attention, after Luong et al. 2015: Multi30k, English to German.

    python run.py --config=configs/lstm_attention.py --config.data.dir=FOLDER

As in the paper: the reversed source, global attention with the score "general", and input feeding.
Differences: two layers on each side instead of four, with about as many parameters as configs/multi30k.py
(1.7 million); label smoothing, Adam and subword pieces. FOLDER and all data options are as in
configs/multi30k.py. `--config.model.cell=rnn_tanh` makes it a plain recurrent network with attention.

Reached after 4,000 updates (row `lstm-attention` of `--table=architectures`): 31.65 sacreBLEU on
test_2016_flickr. Not trained for all of its 12,500 updates.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'multi30k.py',
        {
            'model.kind': 'recurrent',
            'model.N': 2,
            'model.d_model': 174,
            'model.reverse_source': True,
            'model.alignment': 'general',
            'model.input_feeding': True,
            'model.P_drop': 0.2,
            'train.clip_norm': 1.0,
        },
    )
