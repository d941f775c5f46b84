"""Captions: a text for an image (Vinyals et al. 2015; Xu et al. 2015)."""

from transformer.config.flag import Flag
from transformer.tasks.commands import ENSEMBLE, SEARCH, TaskCommand

COMMANDS = {
    'caption': TaskCommand(
        'Write a caption of each image file (PNG, JPEG, GIF, WebP or BMP).',
        flags={
            **SEARCH,
            'draw': Flag(
                str, None, 'also draw where the decoder looks for each word, and a page', 'PICTURES'
            ),
        },
        options=('decode.',),
        examples=(
            '{} caption --workdir=FOLDER photo.png',
            '{} caption --workdir=FOLDER --method=beam --nbest=3 photo.png',
            '{} caption --workdir=FOLDER --draw=PICTURES *.png',
        ),
        reads='files',
        together='draw',
        note=ENSEMBLE,
    )
}
