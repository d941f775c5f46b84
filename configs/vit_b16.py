"""ViT-B/16 (Dosovitskiy et al. 2021) for ImageNet, 86,567,656 parameters. Counted, not trained.

    python run.py --config=configs/vit_b16.py --config.data.dir=FOLDER

FOLDER holds a folder of images for each of the 1,000 classes, in train, validation and test. The options are
for training on ImageNet alone (Table 3).
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 12,
            'model.d_model': 768,
            'model.d_ff': 3072,
            'model.h': 12,
            'model.norm': 'pre',
            'model.positions': 'learned',
            'model.max_len': 197,
            'model.activation': 'gelu',
            'model.init': 'xavier',
            'model.init_std_positions': 0.02,
            'model.P_drop_relu': 0.1,
            'train.task': 'images',
            'images.size': 224,
            'images.patch': 16,
            'images.classes': 1000,
            'images.begin': 'zeros',
            'images.flip': True,
            'data.source': 'folders',
            'data.name': None,
            'data.batch_tokens': 4096 * 197,
            'train.steps': 93_600,
            'train.eps_ls': 0.0,
            'train.schedule': 'cosine',
            'train.peak_lr': 3e-3,
            'train.warmup_steps': 10_000,
            'train.beta2': 0.999,
            'train.adam_eps': 1e-8,
            'train.weight_decay': 0.3,
            'train.clip_norm': 1.0,
        }
    )
