"""Convolutions with attention in every layer, after Gehring et al. 2017: Multi30k, English to German.

    python run.py --config=configs/conv_seq2seq.py --config.data.dir=FOLDER

Windows of three positions and learned positions, as theirs. What differs: four layers on each side, of a
size that gives about as many parameters as configs/multi30k.py has (1.7 million), one embedding for all
ends, label smoothing, Adam instead of weight normalisation and Nesterov's momentum. FOLDER is that of
configs/multi30k.py.

After 4,000 updates (the row convolutional of `--table=architectures`): 33.39 sacreBLEU on
test_2016_flickr. Not trained for all of its 12,500 updates.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.kind': 'convolutional',
            'model.N': 4,
            'model.d_model': 148,
            'model.kernel_width': 3,
            'model.positions': 'learned',
            'model.max_len': 178,
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
