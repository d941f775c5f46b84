"""CLIP ViT-B/32 (Radford et al. 2021), 151,277,313 parameters. Counted, not trained.

    python run.py --config=configs/clip_vit_b32.py --config.data.dir=FOLDER

FOLDER holds tables of image files and texts: train.tsv, dev.tsv and test.tsv. The parameters are 87,849,216
of the encoder of images, 63,428,096 of the encoder of texts, and the scale. The options are those of Tables
18 and 20.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 12,
            'model.d_model': 512,
            'model.d_ff': 2048,
            'model.h': 8,
            'model.P_drop': 0.0,
            'model.norm': 'pre',
            'model.norm_epsilon': 1e-5,
            'model.positions': 'learned',
            'model.max_len': 77,
            'model.activation': 'quick_gelu',
            'model.scale_embeddings': False,
            'model.init': 'clip',
            'contrastive.negatives': 'batch',
            'image_model.d_model': 768,
            'image_model.d_ff': 3072,
            'image_model.h': 12,
            'image_model.norm_embedding': True,
            'image_model.init': 'torch',
            'train.task': 'contrastive',
            'images.size': 224,
            'images.patch': 32,
            'images.patch_bias': False,
            'images.begin': 'scaled',
            'data.source': 'table',
            'data.name': None,
            'data.train': 'train.tsv',
            'data.dev': 'dev.tsv',
            'data.test': 'test.tsv',
            'data.tokenizer': 'byte_bpe',
            'data.pieces': 49_408,
            'data.batching': 'padded',
            'data.max_len': 77,
            'data.row_len': 77,
            'data.batch_tokens': 32_768 * 77,
            'train.steps': 390_625,
            'train.schedule': 'cosine',
            'train.peak_lr': 5e-4,
            'train.warmup_steps': 2000,
            'train.adam_eps': 1e-6,
            'train.weight_decay': 0.2,
        }
    )
