"""What papers claim, as experiments: each file measures one claim, in a few minutes on two cores."""

from experiments.claims import (
    beams,
    bottleneck,
    depth,
    extrapolation,
    gradients,
    head_count,
    heads,
    mask,
    offsets,
    order,
    parallelism,
    pronoun,
    recall,
    scaling,
    smoothing,
    warmup,
)

# By file name, in the order in which they are printed.
CLAIMS = {
    module.__name__.rpartition('.')[2]: module.CLAIM
    for module in (
        gradients, recall, bottleneck, parallelism, scaling, order, offsets, mask, depth, warmup,
        extrapolation, head_count, smoothing, beams, heads, pronoun,
    )
}  # fmt: skip
