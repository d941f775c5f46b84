"""Captions: a text for an image (Vinyals et al. 2015; Xu et al. 2015)."""

from transformer.config.flag import Flag
from transformer.tasks.commands import ENSEMBLE, SEARCH, TaskCommand

COMMANDS = {
    'caption': TaskCommand(
        'Write a caption of each image file (PNG, JPEG, GIF, WebP or BMP).',
        flags={
            **SEARCH,
            'draw': Flag(str, None, 'also draw where the decoder looks for each word, and a page', 'FOLDER'),
        },
        options=('decode.',),
        examples=(
            '{} caption --workdir=FOLDER photo.png',
            '{} caption --workdir=FOLDER --nbest=3 --scores --draw=FOLDER *.png',
        ),
        reads='files',
        note=ENSEMBLE,
    )
}
