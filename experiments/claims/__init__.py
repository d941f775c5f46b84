"""What papers claim, as experiments: each file measures one claim, in a few minutes on two cores.

A claim is a module. Its docstring is the statement; SOURCE says which paper makes it, and CRITERION when it
holds (written before anything was measured, unless the README of the results says otherwise). `measure(seed)`
gives one of SEEDS measurements, as JSON; `judge(measurements)` decides; PANELS draw them, side by side.
"""

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
    module.__name__.rpartition('.')[2]: module
    for module in (
        gradients, recall, bottleneck, parallelism, scaling, order, offsets, mask, depth, warmup,
        extrapolation, head_count, smoothing, beams, heads, pronoun,
    )
}  # fmt: skip
