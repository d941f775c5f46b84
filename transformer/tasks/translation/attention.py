"""The attention of a translation model: within a sentence, and from its translation to the sentence."""

import re
from collections.abc import Sequence

from transformer.config import ConfigError
from transformer.inference.attention import (
    CROSS_ATTENTION,
    DECODER_SELF_ATTENTION,
    ENCODER_SELF_ATTENTION,
    START_MARK,
    Attended,
    Attention,
    attention_weights,
    check_word,
    has_word,
    one_row,
    words_of,
)
from transformer.inference.generate import as_texts
from transformer.runs.restore import Trained
from transformer.tasks.translation.translator import cut, translate

# The example in the blog post about the paper. Figures 3 to 5 of the paper have others.
ANIMAL = "The animal didn't cross the street because it was too {}."
PRONOUNS = ('er', 'sie', 'es', 'he', 'she', 'it')


def attention(
    trained: Trained, sentence: object = None, *, word: str | None = None, target_word: str | None = None
) -> Attention:
    """Returns the encoder's attention in a sentence, and the decoder's in the model's translation of it.

    A query of the decoder is the piece that it predicts there. The keys of its self-attention are the
    pieces that it has read, the start token first.

    A figure draws the attention of `word` and `target_word`. If None, `sentence` is the blog post's; `word`
    is "it", if the sentence has one; `target_word`, given a `word`, is the first pronoun or the last word.
    """
    [sentence] = as_texts([ANIMAL.format('tired') if sentence is None else sentence], 'sentence')
    decode = trained.config.decode
    source, target = trained.codecs['source'], trained.codecs['target']
    # Cut as for a search, because learned positions have no rows beyond.
    read = cut(source.encode(sentence), decode.max_source_len)
    # Before the search, which takes long.
    check_word('word', word, source.marked(read))
    [translation] = translate(trained, [sentence])
    written = cut(target.encode(translation), decode.max_source_len + decode.extra_len)
    batch = {'source': one_row(read), 'target': one_row(written)}
    weights = attention_weights(trained.config, trained.params, batch)
    if word is not None and 'encoder/self_attention' not in weights:
        raise ConfigError(f'--word={word}: the encoder of this model has no attention')
    read, written = source.marked(read), target.marked(written)
    check_word('target_word', target_word, written)
    if word is None and has_word(read, 'it'):
        word = 'it'
    if target_word is None and word:
        target_word = _pronoun_or_last_word(written)
    kinds = {
        'encoder/self_attention': (ENCODER_SELF_ATTENTION, read, read, word),
        'decoder/cross_attention': (CROSS_ATTENTION, written, read, target_word),
        'decoder/self_attention': (DECODER_SELF_ATTENTION, written, [START_MARK, *written[:-1]], None),
    }
    attended = [
        Attended(name, weights[path], queries, keys, focus)
        for path, (name, queries, keys, focus) in kinds.items()
        if path in weights
    ]
    return Attention(sentence, translation, attended)


def _pronoun_or_last_word(pieces: Sequence[str]) -> str | None:
    words = [word for word, _ in words_of(pieces) if re.match(r'\w', word)]
    return next((w for w in words[1:] if w in PRONOUNS), words[-1] if words else None)
