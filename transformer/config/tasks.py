"""The table of tasks: each task's form (the inputs, outputs and kinds of its models) and its own options."""

import dataclasses
import re
from typing import Literal, NamedTuple

import numpy as np

from transformer.config import declare
from transformer.config.declare import Conditions, option
from transformer.errors import ConfigError

# The kinds of models that have layers, and the kind that is a table of vectors alone.
LAYERS = ('transformer', 'recurrent', 'convolutional')
KINDS = (*LAYERS, 'table')


class Form(NamedTuple):
    """The inputs and outputs of models.

    Attributes:
      kinds: the kinds of models that have this form.
      has: their parts: `texts` in pieces; an `image`; a `pair` of texts, source and target; `one_text`;
        output that they write, piece by piece (`writes`), or that continues the text (`continues`); an
        `encoder` alone, whose vectors a head reads; hidden pieces (`pieces`); `classes`; `spans` of a text;
        texts that can be joined and cut anywhere (`running`); `vectors` of pieces, which depend on no other
        piece; two `towers`, encoders of an image and of a text with vectors in one space.
    """

    kinds: tuple[str, ...]
    has: frozenset[str]


def _form(has: str, kinds: tuple[str, ...] = LAYERS) -> Form:
    return Form(kinds, frozenset(has.split()))


FORMS = {
    'pair': _form('texts pair writes'),
    'text': _form('texts one_text writes continues running'),
    'text_pair': _form('texts one_text pair writes running'),
    'pieces': _form('texts one_text encoder pieces'),
    'classes': _form('texts one_text encoder classes'),
    'tags': _form('texts one_text encoder classes'),
    'spans': _form('texts encoder spans'),
    'image_classes': _form('image encoder classes', ('transformer', 'convolutional')),
    'image_writes': _form('texts one_text image writes', ('transformer', 'recurrent')),
    'image_text': _form('texts one_text image towers', ('transformer',)),
    'vectors': _form('texts one_text vectors', ('table',)),
}


class Spec(NamedTuple):
    """A task's form and, if it has them, its own group of options and what its data have.

    Attributes:
      data: texts in two `languages`; `trees`.
    """

    form: str
    group: str | None = None
    data: str | None = None


TASKS = {
    'translation': Spec('pair', data='languages'),
    'parsing': Spec('pair', data='trees'),
    'transliteration': Spec('pair', data='languages'),
    'text_to_text': Spec('pair', 'text_to_text'),
    'language': Spec('text'),
    'masked': Spec('pieces', 'masked'),
    'denoise': Spec('text_pair', 'denoise'),
    'images': Spec('image_classes', 'images'),
    'captions': Spec('image_writes'),
    'contrastive': Spec('image_text', 'contrastive'),
    'classify': Spec('classes', 'classify'),
    'labelling': Spec('tags', 'labelling'),
    'answers': Spec('spans', 'answers'),
    'words': Spec('vectors', 'words'),
}


def tasks_with(*parts: str) -> tuple[str, ...]:
    """Lists the tasks whose models have one of these parts."""
    return tuple(task for task, spec in TASKS.items() if FORMS[spec.form].has & set(parts))


def models_with(*parts: str) -> Conditions:
    """Returns the condition that models have one of these parts."""
    return 'train.task', tasks_with(*parts)


def models_with_all(*parts: str) -> Conditions:
    """Returns the condition that models have all of these parts."""
    return 'train.task', tuple(task for task, spec in TASKS.items() if FORMS[spec.form].has >= set(parts))


def data_with(kind: str) -> Conditions:
    """Returns the condition that the task's data have `languages` or `trees`."""
    return 'train.task', tuple(task for task, spec in TASKS.items() if spec.data == kind)


def _group(options: type) -> object:
    """Declares a group of options that has a meaning with the tasks that name it."""
    name = re.sub('(?<=[a-z])(?=[A-Z])', '_', options.__name__).lower()
    return declare.group(
        options, only=('train.task', tuple(task for task, spec in TASKS.items() if spec.group == name))
    )


@dataclasses.dataclass(frozen=True)
class Masked:
    """Hidden pieces of a text (Devlin et al. 2019)."""

    rate: float = option(0.15, 'share of the pieces that are hidden', minimum=0.01, maximum=0.9)
    of: Literal['ordinary', 'all'] = option(
        'ordinary',
        "the pieces of a row that the share counts: without ends and special ones, or all (BERT's code)",
    )
    most: int | None = option(None, 'most hidden pieces of a row; by default any number', minimum=1)
    words: bool = option(False, 'hide all pieces of a word or none')
    next_sentence: float = option(
        0.0,
        'weight of the loss of whether the second of two texts follows the first; 0 trains single texts',
        minimum=0.0,
    )

    def places(self, positions: int) -> int:
        """Returns the most pieces that can be hidden in a row of `positions`."""
        return min(max(round(self.rate * positions), 1), self.most or positions)

    pool: Literal['mean', 'first'] = option(
        'mean', "embed's vector of a text: the mean of the encoder's outputs, or the first output", free=True
    )


# The objective of which the options of hidden spans are.
_SPANS = ('denoise.objective', ('spans',))


@dataclasses.dataclass(frozen=True)
class Denoise:
    """A text of which a model writes what is missing (Raffel et al. 2020)."""

    objective: Literal['spans', 'prefix'] = option(
        'spans', 'what a model writes: the hidden spans of a text, or all after a random part (prefix LM)'
    )
    density: float = option(
        0.15, 'share of the pieces that are hidden', minimum=0.01, maximum=0.5, only=_SPANS
    )
    span: float = option(3.0, 'mean length of a hidden span in pieces', minimum=1.0, only=_SPANS)
    sentinels: int = option(
        100,
        'most hidden spans of a text, which have pieces of their own above data.pieces',
        minimum=1,
        only=_SPANS,
    )

    def amounts(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Counts the hidden pieces and the spans of texts of `counts` pieces, 0 below two pieces."""
        noise = np.clip(np.rint(self.density * counts), 1, counts - 1)
        # A text is cut into as many visible parts as spans.
        number = np.clip(np.rint(noise / self.span), 1, counts - noise)
        return tuple(np.where(counts < 2, 0, some).astype(np.int64) for some in (noise, number))

    def lengths(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the most pieces of source and target, with their ends, of texts of `counts` pieces."""
        if self.objective == 'prefix':
            return (np.where(counts < 2, counts + 1, counts),) * 2
        noise, number = self.amounts(counts)
        return counts - noise + number + 1, noise + number + 1

    def raw_length(self, row_len: int) -> int:
        """Returns the most pieces of a text whose source and target have at most `row_len` pieces each."""
        return int(np.flatnonzero(np.maximum(*self.lengths(np.arange(2 * row_len))) <= row_len)[-1])


# Channels that a residual network normalises together.
GROUP = 8
# Models whose layers read patches.
_PATCHES = ('model.kind', ('transformer', 'recurrent'))
_IMAGE_CLASSES = models_with_all('image', 'classes')
# A changed image can contradict the text that is to be written.
_AUGMENTED = 'train.task', (*_IMAGE_CLASSES[1], *tasks_with('towers'))


@dataclasses.dataclass(frozen=True)
class Images:
    """Images and their classes (Dosovitskiy et al. 2021)."""

    size: int = option(32, 'width and height of an image in pixels', minimum=1)
    pixels: Literal['rgb', 'grey'] = option('rgb', 'three colour channels, or one grey channel')
    patch: int = option(
        4,
        'width and height of a patch in pixels; must divide images.size. With convolutional layers, of the '
        'pixels that a vector describes: the sides are halved until then',
        minimum=1,
    )
    stem: Literal['patches', 'convolutions'] = option(
        'patches',
        'what makes vectors of pixels: a linear map of each patch, or two convolutions, whose strides are '
        'the root of images.patch each',
        only=_PATCHES,
    )
    sinusoids: bool = option(
        False,
        "whether fixed sinusoids of a patch's row and column are added to its vector; model.positions are "
        'added as well, unless they are none',
        only=_PATCHES,
    )
    patch_bias: bool = option(
        True, "whether the patches' linear map has a bias; CLIP's has none", only=_PATCHES
    )
    classes: int | None = option(
        None, 'number of classes; by default as many as the data has', minimum=2, only=_IMAGE_CLASSES
    )
    pool: Literal['token', 'mean'] = option(
        'token', "which vector the head reads: a class token's, or the mean of the patches'"
    )
    begin: Literal['random', 'zeros', 'scaled'] = option(
        'random',
        "first values of the class token and of the head's kernel; the authors' code has zeros; scaled is "
        "CLIP's token, N(0, 1/width)",
    )
    crop: int = option(
        0,
        'pixels of black around a training image, from which a window of its size is cut',
        minimum=0,
        only=_AUGMENTED,
    )
    flip: bool = option(False, 'whether half of the training images are mirrored', only=_AUGMENTED)
    randaugment: int = option(
        0, 'operations on a training image, chosen among 16 (Cubuk et al. 2020)', minimum=0, only=_AUGMENTED
    )
    magnitude: float = option(
        10.0, 'strength of these operations', minimum=0.0, maximum=10.0, only=_AUGMENTED
    )
    mixup: float = option(
        0.0,
        'alpha: training images are mixed with others, by shares from Beta(alpha, alpha)',
        minimum=0.0,
        only=_IMAGE_CLASSES,
    )
    cutmix: float = option(
        0.0,
        'alpha: training images get a window of others, with an area from Beta(alpha, alpha)',
        minimum=0.0,
        only=_IMAGE_CLASSES,
    )

    @property
    def augments(self) -> bool:
        """Returns whether training images are changed."""
        return bool(self.crop or self.flip or self.randaugment or self.mixup or self.cutmix)

    @property
    def channels(self) -> int:
        """Returns the number of channels of a pixel."""
        return {'rgb': 3, 'grey': 1}[self.pixels]

    @property
    def stages(self) -> int:
        """Returns the number of stages of convolutional layers, each with half of the sides of the last."""
        return self.patch.bit_length()

    @property
    def positions(self) -> int:
        """Returns the number of patches of an image, plus one for a class token."""
        return (self.size // self.patch) ** 2 + (self.pool == 'token')


@dataclasses.dataclass(frozen=True)
class Contrastive:
    """Images and texts with vectors in one space (Radford et al. 2021)."""

    d_e: int | None = option(
        None, 'width of the vector space of images and texts, if not model.d_model', minimum=1
    )
    causal: bool = option(
        True, "whether a piece sees only earlier ones, so that only a text's end sees all, as in CLIP"
    )
    negatives: Literal['microbatch', 'batch'] = option(
        'microbatch', 'the pairs that the loss compares: the pairs of a microbatch, or of the whole batch'
    )
    templates: str = option(
        '{}',
        'texts with {} for the name of a class, separated by vertical bars; the class has their mean vector',
        free='evaluation',
    )


@dataclasses.dataclass(frozen=True)
class Classify:
    """A class or a number for a text or several texts (Kim 2014; Devlin et al. 2019)."""

    output: Literal['class', 'number'] = option('class', 'what a text has: a class or a real number')
    pool: Literal['mean', 'first', 'last'] = option(
        'mean', "which of an example's vectors the head reads: their mean, the first or the last"
    )
    causal: bool = option(
        False,
        'whether a piece sees only earlier ones, as in GPT, whose head reads the last',
        only=('model.kind', ('transformer',)),
    )
    classes: int | None = option(None, 'number of classes; by default as many as the data has', minimum=1)


@dataclasses.dataclass(frozen=True)
class Labelling:
    """A tag for each word."""

    classes: int | None = option(None, 'number of tags; by default as many as the data has', minimum=1)


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers that are parts of a paragraph (Rajpurkar et al. 2016)."""

    stride: int = option(32, 'pieces between the beginnings of two windows of a paragraph', minimum=1)
    longest: int = option(30, 'most pieces of an answer', minimum=1)
    no_answer: bool = option(False, 'whether a question may have no answer (SQuAD 2.0)')


@dataclasses.dataclass(frozen=True)
class TextToText:
    """Texts from texts with a prefix, of one data set or several (Raffel et al. 2020)."""

    prefix: str | None = option(
        None,
        'text before each source, followed by a colon: summarise, answer, translate or another; by '
        'data set NAME=PREFIX,NAME=PREFIX, with the column `set` of the tables as NAME',
    )
    cap: int | None = option(
        None, 'examples above which a data set counts no more in a mixture; by default no limit', minimum=1
    )
    temperature: float = option(
        1.0, "T of a mixture: a data set's share is proportional to its examples^(1/T)", minimum=1.0
    )

    @property
    def prefixes(self) -> dict[str, str]:
        """Returns the prefix of each data set; the name '' stands for every data set.

        Raises:
          ConfigError: a part of the option lacks its data set, or two have the same.
        """
        if '=' not in (self.prefix or ''):
            return {'': self.prefix or ''}
        parts = [part.partition('=') for part in self.prefix.split(',')]
        prefixes = {name.strip(): prefix.strip() for name, equals, prefix in parts if equals}
        if len(prefixes) < len(parts) or '' in prefixes:
            wanted = 'PREFIX or NAME=PREFIX,NAME=PREFIX'
            raise ConfigError(f'text_to_text.prefix={self.prefix}: expected {wanted}')
        return prefixes


@dataclasses.dataclass(frozen=True)
class Words:
    """Vectors of words, learned from the words near them (Mikolov et al. 2013)."""

    predict: Literal['skipgram', 'cbow'] = option(
        'skipgram', 'predict a word from each word near it, or from the mean of all words near it'
    )
    output: Literal['negatives', 'hierarchical'] = option(
        'negatives', 'distinguish a word from noise words, or decide at each inner node of a Huffman tree'
    )
    window: int = option(5, 'most words on each side that count as near', minimum=1)
    sample: float = option(
        1e-3, 'frequency above which words are left out at random; 0 leaves out none', minimum=0.0
    )
    negatives: int = option(
        5, 'noise words for each word that is predicted', minimum=1, only=('words.output', ('negatives',))
    )
    pool: int = option(
        64,
        'noise words that a row draws and all its predictions share, each with weight negatives / pool',
        minimum=1,
        only=('words.output', ('negatives',)),
    )
    limit: int = option(
        64,
        'expected gradients of a vector in an update above which they add up to no more than this number '
        'of their mean',
        minimum=1,
    )


@dataclasses.dataclass(frozen=True)
class TaskOptions:
    """The groups of options that belong to one task each."""

    masked: Masked = _group(Masked)
    denoise: Denoise = _group(Denoise)
    images: Images = declare.group(Images, only=models_with('image'))
    contrastive: Contrastive = _group(Contrastive)
    classify: Classify = _group(Classify)
    labelling: Labelling = _group(Labelling)
    answers: Answers = _group(Answers)
    text_to_text: TextToText = _group(TextToText)
    words: Words = _group(Words)
