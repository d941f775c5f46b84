"""Captions of generated pictures, in English or German, for two CPU cores (Xu et al. 2015).

An encoder of patches (ViT) and the paper's decoder, which attends to them.

    python run.py --config=configs/captions_pictures.py
    python run.py caption --workdir=runs/captions_pictures --draw=FOLDER FILE.png

`--config.data.language=de` writes German. `--config.data.test=unseen` in an evaluation takes pictures whose
largest shape has a colour that no picture of the training has on that shape.

Reached: 12.1 % [10.7, 13.5] of the 2,000 captions of the test set have only true facts (CIDEr-D 1.87,
sacreBLEU 29.1), after 352 s of training on two CPU cores that much other work shared. That is too short: the
captions are sentences of the grammar and name the largest shape, but not the shapes and places of the small
ones, and the loss was still falling. German was not trained.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 2,
            'model.d_model': 128,
            'model.d_ff': 256,
            'model.h': 4,
            'model.norm': 'pre',
            'model.P_drop': 0.0,
            'image_model.N': 4,
            'image_model.d_model': 64,
            'image_model.d_ff': 128,
            'image_model.positions': 'learned',
            'image_model.activation': 'gelu',
            'train.task': 'captions',
            'images.size': 32,
            'images.patch': 4,
            'data.source': 'scenes',
            'data.name': None,
            'data.language': 'en',
            'data.pieces': 500,
            'data.batching': 'padded',
            'data.max_len': 36,
            'data.batch_tokens': 64 * 36,
            'train.steps': 1000,
            'train.eps_ls': 0.0,
            'train.schedule': 'linear',
            'train.peak_lr': 2e-3,
            'train.warmup_steps': 100,
            'train.log_every': 50,
            'train.eval_every': 500,
            'train.checkpoint_every': 500,
            'decode.method': 'greedy',
            'decode.extra_len': 50,
        }
    )
