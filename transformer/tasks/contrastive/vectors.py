"""Uses a trained pair of towers: vectors of texts and images, retrieval, and zero-shot classification."""

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from etils import epath
from jaxtyping import Array, Float, UInt8

from transformer.config import Config, ConfigError
from transformer.data.rows import stacked
from transformer.data.sources import images as image_files
from transformer.data.sources import text as text_files
from transformer.data.text_input import longest_read
from transformer.inference import batch_shapes
from transformer.inference.generate import OnDone, as_texts, check_best
from transformer.nn import models
from transformer.runs.restore import Trained
from transformer.tasks.contract import Hypothesis, ranked
from transformer.tasks.images.task import image_type
from transformer.tokens import Tokens

Vectors = Float[np.ndarray, 'N D']
SIDES = 'retrieve: give --images=FOLDER, or --texts=FILE and image files'
Pixels = UInt8[np.ndarray, 'N h w c'] | Sequence[UInt8[np.ndarray, 'h w c']]


def check_single(params: object) -> None:
    """Raises ConfigError if there are several models, whose spaces have nothing in common."""
    if isinstance(params, tuple):
        raise ConfigError('checkpoint: an ensemble has no common vectors; choose one checkpoint')


def embed(
    trained: Trained,
    texts: Iterable[str],
    *,
    pool: str | None = None,
    first: int = 0,
    on_done: OnDone = lambda count: None,
) -> Vectors:
    """Returns a vector of length 1 for each text."""
    if pool is not None:
        raise ConfigError(f'pool={pool!r}: the vector of a text is that of its end; leave this out')
    place = lambda i: f'line {first + i + 1}'
    return _embed(trained, as_texts(texts, 'texts'), place, on_done)


def _embed(
    trained: Trained, texts: Sequence[str], place: Callable[[int], str], on_done: OnDone = lambda count: None
) -> Vectors:
    """Returns the vector of each text. A warning names the place of one that is cut."""
    check_single(trained.params)
    rows = trained.codecs['text'].encode_batch(texts)
    longest = longest_read(trained.config)
    for i, row in enumerate(rows):
        if len(row) > longest:
            logging.warning('%s: only %d of its %d pieces are read', place(i), longest, len(row))
            row[longest - 1 :] = row[-1:]
    vectors = batch_shapes.run_pieces(_of_texts, trained, rows, on_done)
    return np.array(vectors, np.float32).reshape(len(rows), trained.config.contrastive.d_e)


def _of_texts(config: Config, params: models.Params, key: None, text: Tokens) -> Float[Array, 'R D']:
    batch = {'text': text, 'weight': jnp.ones((len(text.tokens), 1))}
    return models.build(config).apply({'params': params}, batch, method='texts')[:, 0]


def embed_pixels(trained: Trained, pixels: Pixels, on_done: OnDone = lambda count: None) -> Vectors:
    """Returns a vector of length 1 for each image."""
    check_single(trained.params)
    config = trained.config

    size = (1, *image_type(config).shape)
    build = lambda indexes, shape: stacked([pixels[i][None] for i in indexes], shape[0], size)
    program, lengths = batch_shapes.program(_of_images, config), [config.images.positions] * len(pixels)
    vectors = batch_shapes.run(program, (trained.params, None), lengths, build, on_done)
    return np.array(vectors, np.float32).reshape(len(pixels), config.contrastive.d_e)


def _of_images(
    config: Config, params: models.Params, key: None, pixels: UInt8[Array, 'R 1 h w c']
) -> Float[Array, 'R D']:
    return models.build(config).apply({'params': params}, {'image': pixels}, method='images')[:, 0]


def embed_images(
    trained: Trained,
    paths: Sequence[epath.PathLike],
    *,
    pool: str | None = None,
    first: int = 0,
    on_done: OnDone = lambda count: None,
) -> Vectors:
    """Returns a vector of length 1 for each image file, resized if needed."""
    del first  # errors name the file, not its number
    if pool is not None:
        raise ConfigError(f'pool={pool!r}: chooses the vector of a text, not of an image; leave this out')
    pixels = image_files.read_all(paths, image_type(trained.config))
    return embed_pixels(trained, pixels, on_done)


def retrieve(
    trained: Trained,
    lines: Iterable[str],
    *,
    images: epath.PathLike | Iterable[epath.PathLike] | None = None,
    texts: object = None,
    best: int = 1,
    first: int = 0,
    on_done: OnDone = lambda count: None,
) -> list[list[Hypothesis]]:
    """Returns the `best` image files of `images`, a folder or a list, for each line, with their cosines.

    Images of a folder that cannot be read are left out, and a warning counts them once.
    """
    if images is None or texts is not None:
        raise ConfigError(SIDES)
    if isinstance(images, (str, os.PathLike)):
        names = _images_in(images)
        candidates = lambda: _of_folder(_Same(trained), str(images), tuple(map(_version, names)))
    else:
        paths = [*images]
        names = list(map(str, paths))
        candidates = lambda: (names, embed_images(trained, paths))
    queries = embed(trained, lines, first=first, on_done=on_done)
    return _nearest(queries, names, candidates, best, 'images')


def retrieve_texts(
    trained: Trained,
    paths: Sequence[epath.PathLike],
    *,
    images: object = None,
    texts: epath.PathLike | Iterable[str] | None = None,
    best: int = 1,
    first: int = 0,
    on_done: OnDone = lambda count: None,
) -> list[list[Hypothesis]]:
    """Returns the `best` of `texts`, a file of lines or a list, for each image file, with their cosines."""
    if texts is None or images is not None:
        raise ConfigError(SIDES)
    by_line = _lines_of(texts)
    lines, places = [*by_line], tuple(by_line.values())
    queries = embed_images(trained, paths, first=first, on_done=on_done)
    candidates = lambda: (lines, _of_lines(_Same(trained), tuple(lines), places))
    return _nearest(queries, lines, candidates, best, 'lines')


class _Same:
    """A value that equals itself alone, as a key of a cache."""

    def __init__(self, value: object):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _version(name: str) -> tuple[str, float | int, int]:
    """Returns a file's name, time of change and size."""
    stat = epath.Path(name).stat()
    return name, stat.mtime, stat.length


# A command asks for each part of its input, with the same candidates.
@functools.lru_cache(maxsize=1)
def _of_lines(trained: _Same, lines: tuple[str, ...], places: tuple[str, ...]) -> Vectors:
    return _embed(trained.value, lines, places.__getitem__)


@functools.lru_cache(maxsize=1)
def _of_folder(
    trained: _Same, folder: str, images: tuple[tuple[str, float | int, int], ...]
) -> tuple[list[str], Vectors]:
    """Returns the names and vectors of images, but for those that cannot be read, which a warning counts."""
    found, unread = {}, []
    for name, *_ in images:
        try:
            found[name] = image_files.read(epath.Path(name), image_type(trained.value.config))
        except image_files.PictureError as error:
            unread.append(error)
    if unread:
        message = 'images=%s: left out %d that cannot be read, the first: %s'
        logging.warning(message, folder, len(unread), unread[0])
    if not found:
        raise ConfigError(f'images={folder}: no image can be read')
    return [*found], embed_pixels(trained.value, [*found.values()])


def _lines_of(texts: epath.PathLike | Iterable[str]) -> Mapping[str, str]:
    """Returns the place of each distinct text, but for empty ones, in a file of lines or in a list."""
    if isinstance(texts, (str, os.PathLike)):
        name, numbered = str(texts), enumerate(text_files.lines(epath.Path(texts)), 1)
        places = {line: f'{name}: line {number}' for number, line in numbered if line.strip()}
    else:
        name, given = 'texts', as_texts(texts, 'texts')
        places = {text: f'texts[{i}]' for i, text in enumerate(given) if text.strip()}
    if not places:
        raise ConfigError(f'{name}: no lines')
    return places


def _images_in(folder: epath.PathLike) -> list[str]:
    """Lists the images in a folder, but for hidden ones, sorted by name."""
    path = epath.Path(folder)
    there = sorted(path.iterdir()) if path.is_dir() else []
    images = (one for one in there if one.suffix.lower() in image_files.SUFFIXES)
    if not (names := [str(one) for one in images if not image_files.is_hidden(one.name)]):
        raise ConfigError(f'images={folder}: no folder with {", ".join(image_files.FORMATS)}')
    return names


def _nearest(
    queries: Vectors,
    names: Sequence[str],
    candidates: Callable[[], tuple[Sequence[str], Vectors]],
    best: int,
    kind: str,
) -> list[list[Hypothesis]]:
    """Returns the names of the nearest candidates of each query, with their cosines.

    Without queries, the candidates are not computed, and `names` are taken for theirs.
    """
    check_best(best, len(names), f'{kind} to choose from')
    names, of_names = candidates() if len(queries) else (names, None)
    # Some could not be read.
    check_best(best, len(names), f'{kind} to choose from')
    return [ranked(names, of_names @ query, best) for query in queries]


def class_vectors(trained: Trained, names: Sequence[str], templates: Sequence[str]) -> Vectors:
    """Returns each class's vector: its texts' mean, divided by its length (Radford et al. 2021, §3.1.4)."""
    texts = [template.replace('{}', name) for name in names for template in templates]
    place = lambda i: f'class {names[i // len(templates)]!r}'
    means = _embed(trained, texts, place).reshape(len(names), len(templates), -1).mean(axis=1)
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def zero_shot(
    trained: Trained, pixels: Pixels, names: Sequence[str], on_done: OnDone = lambda count: None
) -> Float[np.ndarray, 'N K']:
    """Computes the probability of each class for each image, from names alone (Radford et al. 2021, §3.1).

    A class is an ensemble of the texts that `contrastive.templates` makes of its name.
    """
    classes = class_vectors(trained, names, trained.config.contrastive.templates.split('|'))
    scale = float(np.exp(trained.params['log_scale']))
    logits = scale * embed_pixels(trained, pixels, on_done) @ classes.T
    return np.asarray(jax.nn.softmax(logits, axis=-1))


def classify(
    trained: Trained,
    paths: Sequence[epath.PathLike],
    *,
    best: int = 1,
    classes: str | Iterable[str] | None = None,
    first: int = 0,
    on_done: OnDone = lambda count: None,
) -> list[list[Hypothesis]]:
    """Returns the likeliest of `classes` of image files, with their probabilities.

    Args:
      classes: names, in a list or separated by commas.
    """
    del first  # errors name the file, not its number
    names = _class_names(classes)
    check_best(best, len(names), 'classes')
    pixels = image_files.read_all(paths, image_type(trained.config))
    probabilities = zero_shot(trained, pixels, names, on_done) if pixels else []
    return [ranked(names, row, best) for row in probabilities]


def _class_names(classes: str | Iterable[str] | None) -> list[str]:
    if classes is None:
        raise ConfigError('classes: missing; name at least two, as in --classes=cat,dog')
    given = classes.split(',') if isinstance(classes, str) else as_texts(classes, 'classes')
    names = [name.strip() for name in given]
    setting = f'classes={",".join(names)}'
    if '' in names:
        raise ConfigError(f'{setting}: name {names.index("") + 1} is empty')
    if double := next((name for i, name in enumerate(names) if name in names[:i]), None):
        raise ConfigError(f'{setting}: {double!r} is named twice')
    if len(names) < 2:
        raise ConfigError(f'{setting}: expected at least two names')
    return names
