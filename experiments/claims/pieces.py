"""Pieces of words make better use of the same computation than characters, and characters than bytes."""

from experiments.claims import small_language
from experiments.claims.claim import Measurements, Verdict, by_name, spreads
from experiments.claims.panels import JOINED, curves

TOKENIZERS = {'bpe': 600, 'characters': 315, 'bytes': 259}  # data.tokenizer and data.pieces
LENGTH, SEEDS = 160, 3  # positions of a row, enough for every sentence in bytes
SOURCE = '§5.1; Sennrich et al. 2016'
CRITERION = (
    f'small language models of the grammar, {small_language.UPDATES} updates of as many tokens: bits per '
    'character of dev are fewer with BPE than with characters, and with characters than with bytes, with '
    'every seed'
)


def measure(seed: int) -> dict:
    """Measures bits per character on dev by tokenizer."""
    bits = {}
    for tokenizer, pieces in TOKENIZERS.items():
        rows = {'data.row_len': LENGTH, 'data.max_len': LENGTH, 'data.batch_tokens': 8 * LENGTH}
        config = small_language.config({'data.tokenizer': tokenizer, 'data.pieces': pieces} | rows)
        bits[tokenizer] = small_language.bits_per_character(config, small_language.train(config, seed))
    return bits


def judge(measurements: Measurements) -> Verdict:
    bits = by_name(measurements)
    ordered = zip(*bits.values(), strict=True)
    return Verdict(all(a < b < c for a, b, c in ordered), f'bits per character: {spreads(bits, ".3f")}')


PANELS = (curves(list(TOKENIZERS), '', 'bits per character', style=JOINED, ylim=(0, None)),)
