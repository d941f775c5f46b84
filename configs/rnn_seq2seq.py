"""A translator without attention, after Sutskever et al. 2014: Multi30k, English to German.

    python run.py --config=configs/rnn_seq2seq.py --config.data.dir=FOLDER

Four LSTM layers on each side, as theirs; the source is read backwards, and its last state is all that the
decoder knows of it. What differs: the sizes, which give about as many parameters as configs/multi30k.py has
(1.7 million), dropout, label smoothing, Adam, and subword pieces. FOLDER is that of configs/multi30k.py.

After 4,000 updates (the row lstm of `--table=architectures`): 14.19 sacreBLEU on
test_2016_flickr. Not trained for all of its 12,500 updates.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.kind': 'recurrent',
            'model.cell': 'lstm',
            'model.N': 4,
            'model.d_model': 142,
            'model.reverse_source': True,
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
