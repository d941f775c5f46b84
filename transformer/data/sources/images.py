"""Reads images from files: folders of image files by class, and MNIST's idx files."""

import functools
import io
import itertools
import logging
import math
import os
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import PIL.ExifTags
import PIL.Image
from etils import epath
from jaxtyping import UInt8

from transformer import files
from transformer.config import ConfigError, Data
from transformer.data.fields import Example, Image, Reading
from transformer.data.sources import entries, text
from transformer.data.sources.entries import Entry
from transformer.data.sources.text import SourceFile

log = logging.getLogger(__name__)
FORMATS = ('PNG', 'JPEG', 'GIF', 'WEBP', 'BMP')  # by the names that Pillow gives them
MOST_BYTES = 256 << 20  # of a picture in an archive
SUFFIXES = ('.png', '.jpg', '.jpeg', '.gif', '.webp', '.bmp')

# How a picture is turned that has one of these orientations in its EXIF data. Pillow's own `exif_transpose`
# also writes these data anew, and fails if another of their fields is wrong.
_TURNED = {
    2: PIL.Image.Transpose.FLIP_LEFT_RIGHT,
    3: PIL.Image.Transpose.ROTATE_180,
    4: PIL.Image.Transpose.FLIP_TOP_BOTTOM,
    5: PIL.Image.Transpose.TRANSPOSE,
    6: PIL.Image.Transpose.ROTATE_270,
    7: PIL.Image.Transpose.TRANSVERSE,
    8: PIL.Image.Transpose.ROTATE_90,
}
_HIDDEN = ('.', '__MACOSX')  # how names begin that programs add to folders
_IDX_BYTES = 8  # idx's code of unsigned bytes


class PictureError(ConfigError):
    """A picture is missing or cannot be read."""


class UnreadableFile(PictureError):
    """One of several image files cannot be read. `number` is its place among them, from 0."""

    def __init__(self, problem: object, number: int):
        super().__init__(str(problem))
        self.number = number


def is_hidden(path: str) -> bool:
    """Returns whether a file, or a folder that it is in, is one that programs add."""
    return any(part.startswith(_HIDDEN) for part in path.split('/'))


def read(path: epath.Path, size: Image) -> UInt8[np.ndarray, 'h w c']:
    """Reads an image (a GIF's first) in grey or RGB, resized to `size`, with white for transparent parts.

    Raises:
      PictureError: it is missing, empty, damaged, or too large.
    """
    return decode(content_of(path), str(path), size)


def read_all(paths: Iterable[object], size: Image) -> list[UInt8[np.ndarray, 'h w c']]:
    """Reads image files as `read` does.

    Raises:
      UnreadableFile: a file is missing or cannot be read.
      ConfigError: it is one file, or holds something other than names of files.
    """
    if isinstance(paths, (str, os.PathLike)) or not isinstance(paths, Iterable):
        raise ConfigError(f'images={str(paths)!r}: a list of image files is expected, not one')
    paths = list(paths)
    for i, path in enumerate(paths):
        if not isinstance(path, (str, os.PathLike)):
            raise ConfigError(f'images[{i}]: expected the name of a file, got {type(path).__name__}')
    pixels = []
    for i, path in enumerate(paths):
        try:
            pixels.append(read(epath.Path(path), size))
        except PictureError as error:
            raise UnreadableFile(error, i) from None
    return pixels


def content_of(path: epath.Path) -> bytes:
    """Returns the bytes of a file, or raises PictureError."""
    if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe would wait for its writer
        raise PictureError(f'{path}: not a regular file')
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # a name that no file can have
        raise PictureError(f'{path}: {getattr(error, "strerror", None) or error}') from None


def decode(content: bytes, name: str, size: Image) -> UInt8[np.ndarray, 'h w c']:
    """Decodes the content of an image file as `read` does. Errors begin with its name."""
    if not content:
        raise PictureError(f'{name}: the file is empty')
    try:
        with (
            warnings.catch_warnings(action='error', category=PIL.Image.DecompressionBombWarning),
            PIL.Image.open(io.BytesIO(content), formats=FORMATS) as opened,
        ):
            turned = _TURNED.get(opened.getexif().get(PIL.ExifTags.Base.Orientation))
            image = opened if turned is None else opened.transpose(turned)
            if image.mode.startswith('I'):  # 16 bits of grey, which Pillow would cut off at 255
                grey, clear = np.asarray(image), image.info.get('transparency', -1)
                grey = np.where(grey == clear, 255, (grey / 257).round().clip(0, 255))
                image = PIL.Image.fromarray(grey.astype(np.uint8))
            if image.has_transparency_data:
                image = image.convert('RGBA')
                white = PIL.Image.new('RGBA', image.size, 'white')
                image = PIL.Image.alpha_composite(white, image)
            return _resize(image, size)
    except (PIL.Image.DecompressionBombWarning, PIL.Image.DecompressionBombError):
        raise PictureError(f'{name}: more than {PIL.Image.MAX_IMAGE_PIXELS:,} pixels') from None
    except (OSError, SyntaxError, ValueError, EOFError, struct.error):
        raise PictureError(f'{name}: damaged, or none of {", ".join(FORMATS)}') from None


def read_or_none(
    data: Data, load: Callable[[], UInt8[np.ndarray, 'h w c']], place: str = ''
) -> UInt8[np.ndarray, 'h w c'] | None:
    """Returns what `load` reads, or None if it cannot and `data.unreadable` leaves such pictures out.

    Raises:
      ConfigError: `data.unreadable` refuses such pictures. Its message begins with `place`.
    """
    try:
        return load()
    except PictureError as error:
        if data.unreadable == 'leave_out':
            return None
        raise ConfigError(f'{place}{error}; data.unreadable=leave_out leaves out such pictures') from None


def _resize(image: PIL.Image.Image, size: Image) -> UInt8[np.ndarray, 'h w c']:
    converted = image.convert('L' if size.channels == 1 else 'RGB')
    if converted.size != (size.width, size.height):
        converted = converted.resize((size.width, size.height), PIL.Image.Resampling.BILINEAR)
    return np.asarray(converted, np.uint8).reshape(size.shape)


def row(
    reading: Reading,
    image: UInt8[np.ndarray, 'H W C'] | None,
    label: str,
    names: Mapping[str, str],
    number: int,
) -> Example:
    """Makes the row of an image, in the size of the image field, and its class. None stays None."""
    values = dict.fromkeys(reading.fields, label)
    for name, field in reading.images().items():
        values[name] = image
        if image is not None and image.shape != field.shape:
            pixels = image[..., 0] if image.shape[-1] == 1 else image
            values[name] = _resize(PIL.Image.fromarray(pixels), field)
    return Example(values, dict(names), number, 'image')


def folder_rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the images of `<data.dir>/<entry>/<class>/`, taking the classes in turns."""
    [size] = [field for field in reading.fields.values() if isinstance(field, Image)]
    for entry in entries.parse(data, split):
        by_class, _ = _images_of(data, entry, split)
        # In turns, so that the first rows include all classes.
        turns = itertools.chain.from_iterable(itertools.zip_longest(*by_class.values()))
        for number, path in enumerate(filter(None, turns), 1):
            names = dict.fromkeys(reading.fields, str(path.relative_to(data.dir)))
            image = read_or_none(data, functools.partial(read, path, size))
            yield row(reading, image, path.parent.name, names, number)._replace(unit='')


def folder_origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the folder of each class: the number of its images, and a hash of names and contents."""
    del reading
    origins = []
    for entry in entries.parse(data, split):
        by_class, _ = _images_of(data, entry, split)
        for name, paths in by_class.items():
            digest = files.json_sha256([[path.name, _sha256(path)] for path in paths])
            origins.append(SourceFile(f'{entry.name}/{name}{entry.suffix}', len(paths), digest))
    return origins


def _sha256(path: epath.Path) -> str | None:
    """Returns the hash of a file, or None if it cannot be read."""
    try:
        return files.sha256(path)
    except OSError:
        return None


def folder_warn(data: Data, reading: Reading, split: str) -> None:
    """Counts the files that are no images of a class in a warning."""
    del reading
    for entry in entries.parse(data, split):
        _, skipped = _images_of(data, entry, split)
        if skipped:
            first = skipped[0].relative_to(entries.root(data))
            log.warning(
                'data.%s: left out %d files and folders, hidden or no images of a class; the first is %s',
                split, len(skipped), first,
            )  # fmt: skip


def folder_facts(data: Data, reading: Reading) -> dict[str, object]:
    """Returns the option that leaves out pictures, if it does."""
    del reading
    return {} if data.unreadable == 'refuse' else {'unreadable': data.unreadable}


def folder_classes(data: Data) -> tuple[str, ...]:
    """Returns the names of the training split's class folders, sorted."""
    names = {name for entry in entries.parse(data, 'train') for name in _images_of(data, entry, 'train')[0]}
    return tuple(sorted(names))


def _images_of(data: Data, entry: Entry, split: str) -> tuple[dict[str, list[epath.Path]], list[epath.Path]]:
    """Returns the images of each class that an entry reads, sorted by name, and the other paths."""
    folder = entries.root(data) / entry.name
    entries.check_relative(data, entry.name, split)
    if not folder.is_dir():
        raise ConfigError(f'data.{split}: no folder {folder}')
    by_class, skipped = {}, []
    for path in sorted(folder.iterdir()):
        entries.check_path(path, split)
        if path.name.startswith(_HIDDEN) or not path.is_dir():
            skipped.append(path)
            continue
        images = []
        for file in sorted(path.iterdir()):
            entries.check_path(file, split)
            is_image = file.suffix.lower() in SUFFIXES and not file.name.startswith(_HIDDEN)
            (images if is_image else skipped).append(file)
        by_class[path.name] = images[entry.part(len(images))]
    if not any(by_class.values()):
        raise ConfigError(f'data.{split}: no {", ".join(FORMATS)} in {folder}/<class>/{entry.suffix}')
    return by_class, skipped


def idx_rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the images and labels of idx files."""
    for entry in entries.parse(data, split):
        paths = _idx_paths(data, entry.name, split)
        images, labels = (_read_idx(path, axes) for path, axes in zip(paths, (3, 1), strict=True))
        if len(images) != len(labels):
            raise ConfigError(f'{paths[0]} has {len(images)} images, {paths[1]} has {len(labels)} labels')
        names = dict.fromkeys(reading.fields, str(paths[0].relative_to(data.dir)))
        for number, (image, label) in entry.numbered([*zip(images, labels, strict=True)]):
            yield row(reading, image[..., None], str(label), names, number)


def idx_origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the two files of each entry as one origin."""
    del reading
    origins = []
    for entry in entries.parse(data, split):
        paths = _idx_paths(data, entry.name, split)
        content = b''.join(block for path in paths for block in text.blocks(path))
        part = entry.part(len(_read_idx(paths[1], 1)))
        name = entry.name + entry.suffix
        origins.append(SourceFile(name, part.stop - part.start, files.bytes_sha256(content)))
    return origins


def idx_classes(data: Data) -> tuple[str, ...]:
    """Returns the numbers up to the largest label in the training split's files, slices aside."""
    paths = [_idx_paths(data, entry.name, 'train')[1] for entry in entries.parse(data, 'train')]
    labels = np.concatenate([_read_idx(path, 1) for path in paths])
    if not len(labels):
        raise ConfigError(f'{paths[0]}: no labels')
    return tuple(map(str, range(1 + int(labels.max()))))


def _idx_paths(data: Data, name: str, split: str) -> list[epath.Path]:
    """Returns the files of images and of labels, as MNIST names them."""
    return [entries.find(data, f'{name}-{kind}-ubyte', split) for kind in ('images-idx3', 'labels-idx1')]


def _read_idx(path: epath.Path, axes: int) -> UInt8[np.ndarray, '...']:
    """Reads an array from an idx file: two zeros, the type, the number of axes, their sizes, the content."""
    content = b''.join(text.blocks(path))
    head = 4 + 4 * axes
    shape = np.frombuffer(content[4:head], '>u4').tolist() if len(content) >= head else []
    if content[:4] != bytes([0, 0, _IDX_BYTES, axes]) or len(content) - head != math.prod(shape):
        raise ConfigError(f'{path}: damaged, or not an idx file of bytes with {axes} axes')
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)
