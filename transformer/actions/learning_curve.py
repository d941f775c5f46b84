"""Finds in a learning curve whether a training was too short, overfitted, or read its data very often."""

from collections.abc import Iterator

from transformer.runs import metrics_file
from transformer.runs.workdir import Run
from transformer.tasks.contract import Finding

FALLING = 0.02  # the relative fall of the dev loss between the last two evaluations that is still fast
RISEN = 0.01  # the relative rise above the lowest dev loss that is more than noise
MANY_EPOCHS = 40  # twice as many as the paper's base model has, of WMT's 4.5 million pairs


def findings(run: Run) -> Iterator[Finding]:
    """Yields findings about the length of a training, from its metrics.jsonl and result.json."""
    losses = metrics_file.dev_losses(run.folder)
    if len(losses) > 1:
        (before, loss_before), (last, loss) = losses[-2:]
        best, lowest = min(losses, key=lambda point: point[1])
        if loss > (1 + RISEN) * lowest:
            yield Finding(
                f'dev loss rose from {lowest:.3f} after {best:,} updates to {loss:.3f} after {last:,}',
                'the model overfits: it learns its training data by heart',
                'train.scored=best, or train.patience; more data, model.P_drop, or a smaller model',
            )
        elif loss_before > (1 + FALLING) * loss:
            yield Finding(
                f'dev loss still fell by {loss_before - loss:.3f} in the last {last - before:,} updates',
                'the training was too short',
                'train.steps',
            )
    epochs = run.result().get('epochs', 0)
    if epochs > MANY_EPOCHS:
        yield Finding(
            f'{epochs:,.0f} epochs: the training read its data so often',
            "the paper's base model reads its data 20 times; reading little data often leads to overfitting",
            'more data, or train.steps',
        )
