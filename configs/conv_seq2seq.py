"""Convolutions with attention in every layer, after Gehring et al. 2017: Multi30k, English to German.

    python run.py --config=configs/conv_seq2seq.py --config.data.dir=FOLDER

Convolutions of three positions and learned positions, as in the paper. Differences: four layers on each
side, with about as many parameters as configs/multi30k.py (1.7 million); one embedding for source, target
and softmax; label smoothing; Adam instead of weight normalisation and Nesterov's momentum. FOLDER and
all data options are as in configs/multi30k.py.

Reached after 4,000 updates (row `convolutional` of `--table=architectures`): 33.39 sacreBLEU on
test_2016_flickr. Not trained for all of its 12,500 updates.
"""

from transformer.config import config_beside


def get_config():
    return config_beside(
        __file__,
        'multi30k.py',
        {
            'model.kind': 'convolutional',
            'model.d_model': 148,
            'model.positions': 'learned',
            'model.max_len': 178,
            'model.P_drop': 0.2,
            'train.clip_norm': 1.0,
        },
    )
