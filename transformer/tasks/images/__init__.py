"""Image classification by a Vision Transformer (Dosovitskiy et al. 2021) or a residual network."""

from transformer.tasks.commands import CLASSIFY, TaskCommand

COMMANDS = {
    'classify': TaskCommand(
        'With a model of images, write the likeliest class of each image file (PNG, JPEG, GIF, WebP or BMP).',
        flags=CLASSIFY,
        examples=(
            '{} classify --workdir=FOLDER photo.png',
            '{} classify --workdir=FOLDER --nbest=3 --scores *.png',
        ),
        reads='files',
    )
}
