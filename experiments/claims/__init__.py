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

CLAIMS = {
    'gradients': gradients.CLAIM,
    'recall': recall.CLAIM,
    'bottleneck': bottleneck.CLAIM,
    'parallelism': parallelism.CLAIM,
    'scaling': scaling.CLAIM,
    'order': order.CLAIM,
    'offsets': offsets.CLAIM,
    'mask': mask.CLAIM,
    'depth': depth.CLAIM,
    'warmup': warmup.CLAIM,
    'extrapolation': extrapolation.CLAIM,
    'head_count': head_count.CLAIM,
    'smoothing': smoothing.CLAIM,
    'beams': beams.CLAIM,
    'heads': heads.CLAIM,
    'pronoun': pronoun.CLAIM,
}
