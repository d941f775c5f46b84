"""T5 small (Raffel et al. 2020), 60,506,624 parameters, as a translator. Counted, not trained.

    python run.py --config=configs/t5_small.py --config.data.dir=FOLDER

FOLDER holds TFDS's prepared `wmt14_translate/de-en`. The model, its first values and Adafactor follow the
released code, without its pre-training and without dropout after the last layer. The learning rate is
1/sqrt(step), which the paper holds at 0.01 for the first 10,000 updates; here it rises to 0.01 in them.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.P_drop_attention': 0.1,
            'model.P_drop_relu': 0.1,
            'model.positions': 'buckets',
            'model.norm': 'pre',
            'model.norm_type': 'rmsnorm',
            'model.attention_scale': 'none',
            'model.scale_embeddings': False,
            'model.scale_logits': True,
            'model.start': 'learned',
            'model.biases': 'none',
            'model.init': 't5',
            'model.vocab_size': 32128,
            'data.pieces': 32000,
            'data.batching': 'packed',
            'data.row_len': 512,
            'data.batch_tokens': 128 * 512,
            'train.steps': 262_144,
            'train.eps_ls': 0.0,
            'train.peak_lr': 0.01,
            'train.warmup_steps': 10_000,
            'train.optimizer': 'adafactor',
        }
    )
