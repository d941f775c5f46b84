"""CLIP ViT-B/16 (Radford et al. 2021), 149,620,737 parameters. Counted, not trained; as clip_vit_b32.py.

python run.py --config=configs/clip_vit_b16.py --config.data.dir=FOLDER
"""

from transformer.config import config_beside


def get_config():
    return config_beside(__file__, 'clip_vit_b32.py', {'images.patch': 16})
