"""The options of search and evaluation."""

import dataclasses
from typing import Literal

from transformer.config.conditions import PROMPTED, TREES
from transformer.config.declare import option

MOST_PIECES = 2**30 - 1  # two such numbers add up to less than 2^31


@dataclasses.dataclass(frozen=True)
class Decode:
    """Search and evaluation. None of these options changes what is learned."""

    method: Literal['beam', 'greedy', 'sample'] = option('beam', 'kind of search', '§6.1')
    beam: int = option(4, 'hypotheses per sentence', '§6.1', minimum=1)
    alpha: float = option(0.6, 'length penalty ((5 + n)/6)^alpha', '§6.1', minimum=0.0, maximum=10.0)
    extra_len: int = option(
        50,
        'most pieces that a translation can have beyond its source, or a continuation beyond its prompt; of '
        'a caption all of them',
        '§6.1',
        minimum=0,
        maximum=MOST_PIECES,
    )
    max_source_len: int = option(
        256,
        'pieces, including the end, to which longer sentences and prompts are cut',
        minimum=2,
        maximum=MOST_PIECES,
        only=PROMPTED,
    )
    temperature: float = option(1.0, 'divisor of the logits when sampling', minimum=1e-4, maximum=1e6)
    top_k: int = option(0, 'sample among the k likeliest pieces; 0 for all', minimum=0)
    top_p: float = option(
        1.0, 'sample among the likeliest pieces with this total probability', minimum=1e-6, maximum=1.0
    )
    well_formed: bool = option(
        False, "search only among trees over a sentence's words, so that no output needs repair", only=TREES
    )


# The methods of search that use an option, for those that not all use.
METHODS = {
    'decode.beam': 'beam',
    'decode.alpha': 'beam',
    'decode.temperature': 'sample',
    'decode.top_k': 'sample',
    'decode.top_p': 'sample',
}
