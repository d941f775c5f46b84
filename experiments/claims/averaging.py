"""The mean of the last checkpoints is better than the last one."""

import jax
import numpy as np

from experiments.claims import claim, small_language
from experiments.claims.claim import Measurements, Verdict, by_name, prepared, spreads
from experiments.claims.panels import JOINED, curves
from transformer.config import replace
from transformer.tasks import task_of

AVERAGED, EVERY, SEEDS = 5, 10, 3
# As the paper has them: its schedule, dropout and label smoothing.
CHANGES = {
    'model.P_drop': 0.1,
    'train.eps_ls': 0.1,
    'train.schedule': 'inverse_sqrt',
    'train.peak_lr': None,
    'train.lr_constant': 0.8,
    'train.warmup_steps': 50,
}
NAMES = ('last', 'mean')
SOURCE = '§6.1'
CRITERION = (
    f'small language models of the grammar, {small_language.UPDATES} updates: the loss on dev of the mean of '
    f'the last {AVERAGED} checkpoints, {EVERY} updates apart, is below the loss of the last one, with every '
    'seed'
)


def measure(seed: int) -> dict:
    """Measures the loss on dev of the last checkpoint and of the mean."""
    config = small_language.config(CHANGES)
    order = task_of(config).batches(replace(config, {'train.seed': seed}), prepared(config), 'train')
    updates, kept = small_language.UPDATES, []
    for step, params in enumerate(claim.checkpoints(config, map(order.batch, range(updates)), seed), 1):
        if (updates - step) % EVERY == 0 and updates - step < AVERAGED * EVERY:
            kept.append(jax.device_get(params))
    mean = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0, dtype=np.float64).astype(np.float32), *kept)
    scored = zip(NAMES, (kept[-1], mean), strict=True)
    return {name: small_language.loss(config, params) for name, params in scored}


def judge(measurements: Measurements) -> Verdict:
    losses = by_name(measurements)
    holds = all(mean < last for last, mean in zip(losses['last'], losses['mean'], strict=True))
    return Verdict(holds, f'loss on dev: {spreads(losses, ".4f")}')


PANELS = (curves(NAMES, '', 'loss on dev', style=JOINED),)
