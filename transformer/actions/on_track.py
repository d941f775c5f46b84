"""Compares a training with the committed curves of trainings with the same config, or nearly the same."""

import math
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from absl import logging
from etils import epath

from transformer import config as configs
from transformer import files
from transformer.config import Config, ConfigError
from transformer.runs import curve, metrics_file, workdir
from transformer.runs.curve import Curve
from transformer.runs.workdir import Run

# The results of a checkout; an installation has none.
RESULTS = pathlib.Path(__file__).parents[2] / 'experiments' / 'results'
PUBLIC = ('evidence', 'wmt17_de-en.json')  # beside the results
# The standard deviation over seeds of the logarithm of the dev loss, where no second seed shows it.
# Measured after the last update: 0.032 for Table 3 at the grammar's scale, 0.004 on Multi30k; along the
# curves of SST-2: 0.019.
DEVIATION = 0.03
# Deviations. With two or three references and up to 60 updates, 10 to 20 % of the trainings that differ in
# their seed alone are beyond it at some update.
LIMIT = 3.0
MOST_DIFFERENT = 3  # options by which a reference can differ
_PUBLIC_SHAPE = {
    'trainings': {'*': {'newstest2013': {'loss': [float], 'bleu': [float]}, '*': object}},
    '*': object,
}


class Reference(NamedTuple):
    """A committed training whose curve a training is compared with.

    Attributes:
      name: its folder among the results.
      differences: the values there and here of each option that differs and changes what is learned, but for
        the seed.
    """

    name: str
    curve: Curve
    differences: Mapping[str, tuple[object, object]]


class Point(NamedTuple):
    """A dev loss after an update, and the geometric mean of the references' dev losses."""

    step: int
    loss: float
    reference: float


class Comparison(NamedTuple):
    """A training beside its references.

    Attributes:
      verdict: 'on track', 'behind' or 'ahead', by the last of `points`, or 'not comparable' without any.
      points: the updates after which the training and all references were evaluated.
      first: the first point beyond `band`, or None.
      deviation: the standard deviation of the logarithm of the dev loss over the references' seeds, or
        `DEVIATION` for a single one.
      band: the difference of the logarithms that is more than seeds do.
    """

    verdict: str
    points: Sequence[Point]
    first: Point | None
    deviation: float
    band: float


def references(
    config: Config, manifest: Mapping[str, object], root: pathlib.Path = RESULTS
) -> list[Reference]:
    """Returns the committed trainings with the fewest options that differ, at most `MOST_DIFFERENT`.

    Their dev splits have the same pieces and their task has the same options, so that dev losses can be
    compared.
    """
    here, group = curve.data_hashes(manifest), configs.TASKS[config.train.task].group
    candidates = []
    for file in sorted(root.glob(f'**/{curve.FILE}')):
        committed = curve.read(file)
        if committed.data['dev'] != here['dev']:
            continue
        record = workdir.read_result(epath.Path(file.parent)).get('config')
        if record is None:
            raise ConfigError(f'{file.parent}: has a {curve.FILE}, but no result.json with its config')
        differ = configs.record_differences(record, config)
        differ.pop('train.seed', None)
        if not any(key == 'train.task' or key.startswith(f'{group}.') for key in differ):
            candidates.append(Reference(str(file.parent.relative_to(root)), committed, differ))
    nearest = min((one.differences for one in candidates), key=len, default={})
    return [one for one in candidates if one.differences == nearest and len(nearest) <= MOST_DIFFERENT]


def spread(curves: Sequence[Mapping[int, float]]) -> float:
    """Computes the pooled standard deviation of log dev losses over seeds, `DEVIATION` for one."""
    shared = _shared(curves)
    if len(curves) < 2 or not shared:
        return DEVIATION
    variances = [statistics.variance(math.log(one[step]) for one in curves) for step in shared]
    return math.sqrt(statistics.fmean(variances))


def _shared(curves: Sequence[Mapping[int, float]]) -> list[int]:
    """Returns the updates after which all were evaluated, with positive losses."""
    steps = sorted(set.intersection(*(set(one) for one in curves))) if curves else []
    return [step for step in steps if all(one[step] > 0 for one in curves)]


def compare(losses: Mapping[int, float], curves: Sequence[Mapping[int, float]]) -> Comparison:
    """Compares dev losses by update with those of at least one reference."""
    points = []
    for step in _shared([losses, *curves]):
        mean = math.exp(statistics.fmean(math.log(one[step]) for one in curves))
        points.append(Point(step, losses[step], mean))
    deviation = spread(curves)
    # The mean of n seeds has a deviation of its own.
    band = LIMIT * deviation * math.sqrt(1 + 1 / len(curves))
    parted = [point for point in points if abs(_ahead(point)) > band]
    if not points:
        verdict = 'not comparable'
    elif points[-1] not in parted:
        verdict = 'on track'
    else:
        verdict = 'ahead' if _ahead(points[-1]) > 0 else 'behind'
    return Comparison(verdict, points, parted[0] if parted else None, deviation, band)


def _ahead(point: Point) -> float:
    return math.log(point.reference / point.loss)


def describe(run: Run, root: pathlib.Path = RESULTS) -> list[str]:
    """Returns lines that say whether a training is on track, and if it is not, the likely reasons."""
    found = references(run.config, run.manifest, root)
    if not found:
        return _without_reference(run.config, root)
    curves = [one.curve.dev_losses() for one in found]
    result = compare(dict(metrics_file.dev_losses(run.folder)), curves)
    names = ', '.join(one.name for one in found)
    seeds = 'assumed: the reference has one seed' if len(curves) < 2 else f'of {len(curves)} seeds'
    more = f'a difference of {100 * math.expm1(result.band):.1f} % is more than seeds do'
    lines = [
        f'reference: {names} of {root.parent.name}/{root.name}',
        f'deviation of the dev loss: {100 * result.deviation:.1f} % ({seeds}); {more}',
    ]
    if not result.points:
        return [*lines, 'not comparable yet: no dev loss after an update at which the reference has one']
    lines.append(f'{result.verdict}: {_text(result.points[-1])}')
    if result.first:
        lines.append(f'first apart: {_text(result.first)}')
    if reasons := _reasons(run, found[0]):
        lines.append(f'{"differs" if result.verdict == "on track" else "likely why"}: {"; ".join(reasons)}')
    elif result.verdict == 'behind':
        lines.append('likely why: no option or data differ; look for a change of code or of versions')
    return lines


def _text(point: Point) -> str:
    return f'update {point.step:,}: dev loss {point.loss:.4g}, reference {point.reference:.4g}'


def _reasons(run: Run, reference: Reference) -> list[str]:
    """Returns what differs between a training and a reference."""
    reasons = []
    for key, (there, here) in reference.differences.items():
        reason = f'{key} is {here}, {there} in the reference'
        if _are_numbers(there, here):
            reason += f' (x {here / there:.3g})'
        reasons.append(reason)
    if curve.data_hashes(run.manifest)['train'] != reference.curve.data['train']:
        reasons.append('other training data')
    if run.start():
        reasons.append('the training started from other parameters: --init_from')
    return reasons


def _are_numbers(there: object, here: object) -> bool:
    return all(isinstance(x, int | float) and not isinstance(x, bool) for x in (there, here)) and there != 0


def _without_reference(config: Config, root: pathlib.Path) -> list[str]:
    if not root.is_dir():
        return ['reference: none here: the curves are in experiments/results of a checkout']
    lines = [
        f'reference: none: no committed curve has this dev data and at most {MOST_DIFFERENT} other options'
    ]
    if config.data.source == 'tfds' and str(config.data.name).startswith('wmt14'):
        lines.append(
            "the paper's models on WMT14 were never trained here; "
            f'public trainings of another setting: {public_band(root)}'
        )
    return lines


def public_band(root: pathlib.Path = RESULTS) -> str:
    """Describes the final dev scores of public trainings at WMT's scale.

    Raises:
      ConfigError: the file of their scores is missing or damaged.
    """
    file = root.parent.joinpath(*PUBLIC)
    if not file.is_file():
        raise ConfigError(f'{file}: no such file, though {root} exists; restore it from the repository')
    trainings = files.read_json(file, _PUBLIC_SHAPE)['trainings']
    tuned = [one for name, one in trainings.items() if name.startswith('ext-')]
    loss, bleu = ([x for one in tuned for x in one['newstest2013'][score]] for score in ('loss', 'bleu'))
    return (
        f'WMT17 German to English, d_model 1024, pre-norm, {len(loss)} trainings of about 133,000 updates '
        f'ended on newstest2013 with a loss of {min(loss):.2f} to {max(loss):.2f} nats a piece, '
        f'BLEU {min(bleu):.1f} to {max(bleu):.1f}'
    )


def notes(
    config: Config, manifest: Mapping[str, object], root: pathlib.Path = RESULTS
) -> Callable[[Mapping[int, float]], str]:
    """Returns a function from a training's dev losses by update to the note that its progress shows.

    The note is empty where there is no reference with the same config, or a damaged one.
    """
    try:
        found = references(config, manifest, root)
    except ConfigError as error:
        logging.warning('%s; the training is compared with no reference', error)
        found = []
    curves = [one.curve.dev_losses() for one in found if not one.differences]

    def note(losses: Mapping[int, float]) -> str:
        result = compare(losses, curves) if curves else None
        if not result or not result.points or result.points[-1].step != max(losses):
            return ''
        apart = f', {result.verdict}, apart at {result.first.step:,}' if result.first else ''
        return f'reference {result.points[-1].reference:.4g}{apart}'

    return note
