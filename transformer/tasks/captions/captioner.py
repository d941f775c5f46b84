"""Captions images with a trained model."""

from collections.abc import Sequence

import numpy as np
from etils import epath, epy

from transformer import files
from transformer.config import ConfigError
from transformer.data.sources.images import read_all
from transformer.inference import generate
from transformer.runs import workdir
from transformer.runs.restore import Trained
from transformer.tasks.contract import Hypothesis
from transformer.tasks.images.task import image_type

with epy.lazy_imports():
    from transformer.tasks.captions import draw as drawing
    from transformer.tasks.images import looks


def caption(
    trained: Trained,
    images: Sequence[epath.PathLike] | np.ndarray,
    *,
    best: int = 1,
    samples: int = 1,
    first: int = 0,
    seed: int | None = None,
    draw: str | None = None,
    on_done: generate.OnDone = lambda images: None,
    **options,
) -> list[list[Hypothesis]]:
    """Returns the `best` best captions of each image, or `samples` samples.

    Args:
      images: files, which are resized if needed, or pixels [N, h, w, c] in the size of the model's images.
      first: the number of the first image; samples depend on it and on `seed`.
      seed: `train.seed` if None.
      draw: a folder for pictures and a page of where the decoder looks for the words of the best captions.
      on_done: receives the number of further images with captions.
      options: options of `Decode`, such as beam=1.
    """
    settings = generate.settings_of(trained.config, options)
    generate.check_counts(settings, best, samples, seed, first)
    if draw is not None:
        if isinstance(trained.params, tuple):
            raise ConfigError(f'--draw={draw}: shows the attention of one checkpoint, not of an ensemble')
        if trained.config.model.kind == 'recurrent' and trained.config.model.alignment == 'none':
            raise ConfigError(f'--draw={draw}: model.alignment=none: this model has no attention')
        # Before the images are captioned, which can take long.
        workdir.check_place(draw)
    given, size = isinstance(images, np.ndarray), image_type(trained.config)
    if given and (images.dtype != np.uint8 or images.shape[1:] != size.shape):
        raise ConfigError(
            f'images: {images.dtype} of shape {images.shape}; expected uint8 of (N, {str(size.shape)[1:]}'
        )
    pixels = images if given else read_all(images, size)
    rows = generate.search(
        trained,
        generate.SearchOptions(settings, best, extend=True),
        [image for image in pixels for _ in range(samples)],
        [*range(first * samples, (first + len(pixels)) * samples)],
        generate.sampling_key(trained.config, seed),
        lambda rows: on_done(rows / samples),
    )
    decode = trained.codecs['text'].decode
    written = [
        Hypothesis(decode(pieces.tolist(), one_line=True), score)
        for row in rows
        for pieces, score in zip(row.tokens, row.scores.tolist(), strict=True)
    ]
    each = max(best, samples)
    results = [written[i : i + each] for i in range(0, len(written), each)]
    if draw is not None and results:
        folder, pairs = epath.Path(draw), zip(pixels, results, strict=True)
        found = [drawing.look(trained, image, texts[0].text) for image, texts in pairs]
        folder.mkdir(parents=True, exist_ok=True)
        for number, look in enumerate(found):
            stem = '' if given else f'-{epath.Path(images[number]).stem}'
            files.write_figure(folder / f'{first + number + 1}{stem}.png', looks.draw([look]), dpi=120)
        files.write_text(folder / 'captions.html', drawing.page(found))
    return results
