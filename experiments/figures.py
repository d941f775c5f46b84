"""Pictures of attention, as the paper's figures 3 to 5 look at it."""

import re
from collections.abc import Sequence

import matplotlib
import numpy as np
from etils import epath
from jaxtyping import Float

from transformer import commands
from transformer.config import ConfigError
from transformer.introspect import Attention, attention

matplotlib.use('agg')
from matplotlib import pyplot as plt

PRONOUNS = ('er', 'sie', 'es', 'he', 'she', 'it')


def draw_attention(
    folder: epath.Path, sentences: Sequence[str], word: str, target_word: str | None, choice: str
) -> list[epath.Path]:
    """Draws, in one picture, what a word of each sentence and a word of its translation attend to.

    Rows are heads, layer by layer, and their mean; columns are the source's pieces. Left: encoder
    self-attention of `word`. Right: cross-attention from where the decoder predicts `target_word`.

    Args:
      target_word: the first pronoun of the translation if none.
      choice: the checkpoint.

    Raises:
      ConfigError: a sentence or its translation lacks the word.
    """
    translator = commands.load(folder, choice)
    translations = translator.translate(sentences)
    found = [attention(translator, s, t) for s, t in zip(sentences, translations, strict=True)]
    heads = found[0].encoder.shape[0] * found[0].encoder.shape[1] + 1
    widest = max(len(a.source) for a in found)
    figure, axes = plt.subplots(
        len(found),
        2,
        figsize=(2 * (1.6 + 0.42 * widest), len(found) * (1.5 + 0.24 * heads)),
        squeeze=False,
        layout='constrained',
    )
    for (left, right), seen, sentence, translation in zip(axes, found, sentences, translations, strict=True):
        spoken = target_word or _first_pronoun(translation)
        _heat_map(left, _heads(seen.encoder, seen.source, word), seen, f'encoder: "{word}"\n{sentence}')
        _heat_map(
            right,
            _heads(seen.cross, seen.target, spoken),
            seen,
            f'decoder: "{spoken}"\n{translation}',
        )
    path = folder / 'figures' / 'attention.png'
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


def _first_pronoun(translation: str) -> str:
    words = re.findall(r'\w+', translation)
    return next((w for w in words[1:] if w in PRONOUNS), words[-1] if words else '')


def _heads(weights: Float[np.ndarray, 'N H Q S'], pieces: list[str], word: str) -> Float[np.ndarray, 'N H S']:
    """The weights of a word's pieces, averaged."""
    words, where = [], []
    for i, piece in enumerate(pieces):
        if piece.startswith('▁') or not re.match(r'\w', piece) or not words:
            words.append('')
            where.append([])
        words[-1] += piece.lstrip('▁')
        where[-1].append(i)
    if word not in words:
        raise ConfigError(f'--word={word}: not a word of {" ".join(filter(None, words))!r}')
    return weights[:, :, where[words.index(word)]].mean(axis=2)


def _heat_map(axis, weights: Float[np.ndarray, 'N H S'], seen: Attention, title: str) -> None:
    layers, heads, width = weights.shape
    rows = np.concatenate([weights.reshape(-1, width), weights.mean(axis=(0, 1))[None]])
    axis.imshow(rows, cmap='viridis', vmin=0.0, vmax=1.0, aspect='auto')
    axis.set_title(title, fontsize=9, loc='left')
    labels = [f'layer {n} head {h}' for n in range(layers) for h in range(heads)]
    axis.set_yticks(range(len(rows)), [*labels, 'mean'], fontsize=7)
    shown = [piece.replace('▁', ' ').strip() or piece for piece in seen.source]
    axis.set_xticks(range(width), shown, rotation=60, ha='right', fontsize=8)
    for edge in range(1, layers + 1):
        axis.axhline(edge * heads - 0.5, color='white', linewidth=1.5)
