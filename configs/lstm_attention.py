"""LSTMs with attention, after Luong et al. 2015: Multi30k, English to German.

    python run.py --config=configs/lstm_attention.py --config.data.dir=FOLDER

Theirs are the reversed source, the global attention with the score "general", and input feeding. What
differs: two layers on each side, not four, of a size that gives about as many parameters as
configs/multi30k.py has (1.7 million), label smoothing, Adam, and subword pieces. FOLDER is that of
configs/multi30k.py. With `--config.model.cell=rnn_tanh` it is a vanilla recurrent network with attention.

After 4,000 updates (the row lstm-attention of `--table=architectures`): 31.65 sacreBLEU on
test_2016_flickr. Not trained for all of its 12,500 updates.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.kind': 'recurrent',
            'model.cell': 'lstm',
            'model.N': 2,
            'model.d_model': 174,
            'model.reverse_source': True,
            'model.alignment': 'general',
            'model.input_feeding': True,
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
