"""Generated pictures and sentences in a vector space, for two CPU cores (CLIP).

The two encoders of Radford et al. 2021, for small pictures, and with words in place of byte pairs.

    python run.py --config=configs/clip_pictures.py
    echo "a red circle" | python run.py retrieve --workdir=runs/clip_pictures --images=FOLDER --nbest=3
    python run.py classify --workdir=runs/clip_pictures --classes="a red circle,a blue square" FILE.png

Reached, of 1,000 pictures of the test set and their sentences: R@1 68.6 % of texts of a picture, 67.8 % of
pictures of a text. All of it, with drawing the pictures, took 285 seconds of processor time.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'model.N': 2,
            'model.d_model': 64,
            'model.d_ff': 128,
            'model.h': 4,
            'model.norm': 'pre',
            'model.positions': 'learned',
            'model.max_len': 40,
            'model.activation': 'quick_gelu',
            'model.P_drop': 0.0,
            'image_model.N': 3,
            'image_model.d_model': 96,
            'image_model.d_ff': 192,
            'image_model.norm_embedding': True,
            'train.task': 'contrastive',
            'images.patch': 8,
            'data.source': 'scenes',
            'data.name': None,
            'data.language': 'en',
            'data.dev': 'dev[:1000]',
            'data.test': 'test[:1000]',
            'data.tokenizer': 'words',
            'data.pieces': 109,
            'data.batching': 'padded',
            'data.max_len': 40,
            'data.row_len': 40,
            'data.batch_tokens': 128 * 40,
            'train.microbatches': 1,
            'train.steps': 1000,
            'train.schedule': 'cosine',
            'train.peak_lr': 2e-3,
            'train.warmup_steps': 100,
            'train.log_every': 20,
            'train.eval_every': 250,
            'train.checkpoint_every': 500,
        }
    )
