"""Images and texts with vectors in one space, learned from pairs (CLIP, Radford et al. 2021)."""

from transformer.config.flag import Flag
from transformer.tasks.commands import CLASSIFY, EMBED, NBEST, POOL, TaskCommand

COMMANDS = {
    'embed': TaskCommand(
        EMBED,
        flags=POOL,
        examples=('{} embed --workdir=FOLDER photo.png',),
        of_files='embed_images',
        writes='vectors',
    ),
    'retrieve': TaskCommand(
        'Write the best image of a folder for each line of standard input, or the best line of a file for '
        'each image file.',
        flags={
            **NBEST,
            'images': Flag(str, None, 'the folder of images in which lines are looked for', 'FOLDER'),
            'texts': Flag(str, None, 'the file of lines in which image files are looked for', 'FILE'),
        },
        examples=(
            '{} retrieve --workdir=FOLDER --images=PHOTOS --nbest=3 < FILE',
            '{} retrieve --workdir=FOLDER --texts=FILE photo.png',
        ),
        of_files='retrieve_texts',
    ),
    'classify': TaskCommand(
        'With a model of images and texts, write the likeliest of --classes for each image file.',
        flags=CLASSIFY,
        options=('contrastive.templates',),
        examples=('{} classify --workdir=FOLDER --classes=circle,square photo.png',),
        reads='files',
    ),
}
