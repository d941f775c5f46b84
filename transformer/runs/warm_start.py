"""Warm start: begins a training with the parameters and tokenizers of other runs."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from absl import logging
from etils import epath

from transformer import config as configs
from transformer import files
from transformer.config import Config, ConfigError, declare
from transformer.data import codec
from transformer.data.codec import Codecs, Labels
from transformer.data.tokenizers.foreign import read_given
from transformer.nn import models
from transformer.nn.positions import resize_grid
from transformer.runs import parameters_file, restore, workdir
from transformer.runs.hashes import fingerprint, named_leaves
from transformer.runs.workdir import Run

_POSITIONS = 'positions/table'  # the name of an image classifier's table of learned positions
# The part of a model that a run's parameters become, before its folder: image=runs/vit.
_PLACE = re.compile(r'([a-z_]+)=(.+)', re.DOTALL)


class Start(NamedTuple):
    """The runs that a training starts from.

    Attributes:
      record: the contents of init_from.json, also in result.json: `workdir`, `checkpoint`, `steps`, `place`,
        `params_sha256`; `taken`, the names of the copied parameters; `resized`, those of them that are
        positions of another grid; and `left`, the reason not to copy each other parameter of either model.
        With several runs, `starts` has the record of each.
      codecs: the runs' codecs, by field.
    """

    record: dict[str, object]
    codecs: Codecs


class WarmStart(NamedTuple):
    """A run that a training starts from: its place in the new model ('' for the whole) and its checkpoint."""

    place: str
    run: Run
    choice: str
    asked: str


def origins(words: Sequence[str]) -> list[WarmStart]:
    """Parses each `[PLACE=]WORKDIR[:CHECKPOINT]` and opens its work directory."""
    found = []
    for word in words:
        match = None if epath.Path(restore.parse_checkpoint(word)[0]).exists() else _PLACE.fullmatch(word)
        place, rest = match.groups() if match else ('', word)
        folder, choice = restore.parse_checkpoint(rest)
        found.append(WarmStart(place, Run.open(folder), choice or 'scored', f'--init_from={word}'))
    return found


def codecs_of(config: Config, found: Sequence[WarmStart]) -> Codecs:
    """Returns the runs' tokenizers by field.

    Raises:
      ConfigError: the config asks for other tokenizers, or two runs disagree.
    """
    codecs: dict[str, object] = {}
    for origin in found:
        its = codec.tokenizers(origin.run.codecs)
        if its and configs.has(config, 'texts'):
            _check_tokenizers(config, origin, its)
            for field, tokenizer in its.items():
                if codecs.setdefault(field, tokenizer).sha256 != tokenizer.sha256:
                    raise ConfigError(f'{origin.asked}: its tokenizer of {field} is not that of another run')
    return codecs


def continued(config: Config, folder: epath.Path) -> Start | None:
    """Returns the start of a work directory in use, or None if `train.seed` drew its first parameters."""
    if not (folder / 'config.json').exists():
        return None
    run = Run.open(folder)
    resumes = workdir.holds_work(folder) or not configs.differences(run.config, config, free=False)
    record = run.start() if resumes else None
    return Start(record, run.codecs) if record else None


def start(config: Config, found: Sequence[WarmStart], folder: epath.Path) -> Start:
    """Reads the runs' parameters and compares them with the new model's, whose config is complete.

    Raises:
      ConfigError: a run shares no parameter, two runs have the same one, or `folder` began differently.
    """
    records, taken = [], {}
    for origin in found:
        _warn_of_languages(config, origin)
        records.append(_record(config, origin))
        for name in records[-1]['taken']:
            if name in taken:
                raise ConfigError(f'{origin.asked}: {name} is already from {taken[name]}')
            taken[name] = origin.asked
    for record in records:
        record['left'] = {name: why for name, why in record['left'].items() if name not in taken}
    record, *others = records
    if others:
        digests = [one['params_sha256'] for one in records]
        folders = ', '.join(one['workdir'] for one in records)
        record = {'workdir': folders, 'params_sha256': files.json_sha256(digests), 'starts': records}
    if (folder / 'config.json').exists() and workdir.holds_work(folder):
        workdir.check_start(Run.open(folder), record)
    return Start(record, codecs_of(config, found))


def first_params(config: Config, record: dict[str, object], fresh: models.Params) -> models.Params:
    """Returns the parameters before the first update: those taken from other runs, and the rest from `fresh`.

    Raises:
      ConfigError: a run's parameters have changed since the start.
    """
    for one in _starts(record):
        run = Run.open(one['workdir'])
        choice = 'average' if one['checkpoint'] == 'average' else ','.join(map(str, one['steps']))
        if (run.folder / parameters_file.FILE).exists():  # an exported model, which has one checkpoint
            choice = 'scored'
        other = jax.device_get(restore.restore_params(run.config, run.folder, choice)[0])
        if fingerprint(other) != one['params_sha256']:
            raise ConfigError(
                f'--init_from={one["workdir"]}: its checkpoint {choice} has changed since the start'
            )
        place = one.get('place', '')
        other = placed(as_encoder(config, run.config, other), place)
        other = fit_positions(config, run.config, other, place, fresh)
        common, _ = compare_leaves(fresh, other)
        if lacking := sorted(set(one['taken']) - set(common)):
            raise ConfigError(f'init_from.json: {lacking[0]!a}: no parameter of both models')
        fresh = merge(fresh, other, one['taken'])
    return fresh


def placed(tree, place: str):
    """Returns a tree of parameters as the part `place` of a larger tree, or unchanged if it is ''."""
    return {place: tree} if place else tree


def as_encoder(config: Config, other: Config, tree):
    """Returns a language model's parameters with its decoder as the encoder of a model that writes nothing.

    The trees of other models, and of other layers than the Transformer's, stay as they are.

    Reference: Radford et al. 2018, §3.2.
    """
    reads = configs.has(other, 'continues') and not configs.has(config, 'writes')
    if not reads or other.model.kind != 'transformer':
        return tree
    return {'encoder' if name == 'decoder' else name: part for name, part in tree.items()}


def fit_positions(config: Config, other: Config, tree, place: str, own):
    """Resizes an image classifier's learned positions to the grid of patches of the new model's images.

    A class token keeps its position, which is 0 if the other model has none. Rows of the table that images do
    not use become 0.

    Args:
      config, other: the new model's config and the image classifier's. Other runs' trees stay as they are.
      tree: the other run's parameters at their place in the new model, or their shapes.
      own: the new model's parameters.
    """
    name = f'{place}/{_POSITIONS}' if place else _POSITIONS
    ours, theirs = named_leaves(own).get(name), named_leaves(tree).get(name)
    if ours is None or theirs is None or not (configs.has(config, 'image') and configs.has(other, 'image')):
        return tree
    grids = [
        (one.images.size // one.images.patch, int(one.images.pool == 'token')) for one in (config, other)
    ]
    if configs.has(other, 'texts') or grids[0] == grids[1] or ours.shape[1] != theirs.shape[1]:
        return tree
    (side, token), (old, old_token) = grids
    table = jax.ShapeDtypeStruct(ours.shape, theirs.dtype)
    if isinstance(theirs, np.ndarray):
        table = np.zeros(ours.shape, theirs.dtype)
        table[: min(token, old_token)] = theirs[: min(token, old_token)]
        table[token : token + side**2] = resize_grid(theirs[old_token : old_token + old**2], side)
    leaves = named_leaves(tree) | {name: table}
    return jax.tree.unflatten(jax.tree.structure(tree), leaves.values())


def compare_leaves(own, other) -> tuple[list[str], dict[str, str]]:
    """Finds the leaves with equal name, shape and type in both trees, and the reason for each other leaf."""
    here, there = named_leaves(own), named_leaves(other)
    left = {}
    for name in sorted(here.keys() | there.keys()):
        if name not in there:
            left[name] = 'only in the new model'
        elif name not in here:
            left[name] = 'only in the other run'
        elif _form(here[name]) != _form(there[name]):
            left[name] = f'{_form(there[name])} there, {_form(here[name])} here'
    return sorted(here.keys() - left.keys()), left


def merge(own, other, taken: list[str]):
    """Returns the tree `own` with the leaves named in `taken` from the tree `other`."""
    there = named_leaves(other)
    leaves = {**named_leaves(own), **{name: there[name] for name in taken}}
    return jax.tree.unflatten(jax.tree.structure(own), leaves.values())


def describe(record: dict[str, object]) -> Iterator[str]:
    """Yields lines that describe a warm start, with the parameters that are left out grouped by reason."""
    for one in _starts(record):
        steps = ', '.join(map(str, one['steps']))
        place = f'{one["place"]}: ' if one.get('place') else ''
        yield (
            f'{place}starts from {one["workdir"]}, checkpoint {one["checkpoint"]} (step {steps}): '
            f'{len(one["taken"])} arrays taken, {len(one["left"])} left out'
        )
        if one.get('resized'):
            yield f'  resized to the new grid of patches: {", ".join(one["resized"])}'
        for reason in dict.fromkeys(one['left'].values()):
            first, *others = [name for name, its_reason in one['left'].items() if its_reason == reason]
            yield f'  {reason}: {first}' + (f' and {len(others)} more' if others else '')


def _starts(record: dict[str, object]) -> list[dict[str, object]]:
    return record.get('starts', [record])


def _form(leaf) -> str:
    return f'{leaf.dtype.name} {leaf.shape}'


def _record(config: Config, origin: WarmStart) -> dict[str, object]:
    run = origin.run
    own, theirs = map(models.parameter_shapes, (config, run.config))
    theirs = placed(as_encoder(config, run.config, theirs), origin.place)
    other = fit_positions(config, run.config, theirs, origin.place, own)
    taken, left = compare_leaves(own, other)
    if not taken:
        # A parameter of another shape says more than one that only one of the models has.
        name, reason = min(left.items(), key=lambda item: item[1].startswith('only'))
        raise ConfigError(f'{origin.asked}: shares no parameter with the new model; first: {name}: {reason}')
    resized = [] if other is theirs else [name for name in taken if name.endswith(_POSITIONS)]
    params, its_origin = restore.restore_params(run.config, run.folder, origin.choice)
    folder = str(run.folder)
    return {
        # Absolute, because the training can be resumed from another folder.
        'workdir': folder if '://' in folder else os.path.abspath(folder),
        'checkpoint': its_origin.name,
        'steps': its_origin.steps,
        **({'place': origin.place} if origin.place else {}),
        'params_sha256': fingerprint(jax.device_get(params)),
        'taken': taken,
        'left': left,
        **({'resized': resized} if resized else {}),
    }


def _warn_of_languages(config: Config, origin: WarmStart) -> None:
    """Warns if the run's tokenizer was learned from other languages than the new texts have."""
    ours, theirs = map(_languages, (config, origin.run.config))
    if codec.tokenizers(origin.run.codecs) and theirs and ours - theirs:
        logging.warning(
            '%s: its tokenizer was learned from %s, not from %s, of which it needs more pieces a word',
            origin.asked, ' and '.join(sorted(theirs)), ' and '.join(sorted(ours - theirs)),
        )  # fmt: skip


def warn_of_classes(found: Sequence[WarmStart], codecs: Codecs) -> None:
    """Warns if a run's outputs for its classes become the outputs for as many other classes."""
    for origin in found:
        for field, ours in codecs.items():
            theirs = origin.run.codecs.get(field)
            if not (isinstance(ours, Labels) and isinstance(theirs, Labels) and ours.size == theirs.size):
                continue
            pairs = zip(theirs.names, ours.names, strict=True)
            if other := next((pair for pair in pairs if pair[0] != pair[1]), None):
                message = '%s: its output for the class %s becomes the one for %s'
                logging.warning(message, origin.asked, *other)


def _languages(config: Config) -> set[str]:
    """Lists the languages of a config's texts, as far as it names them."""
    values = configs.flatten(config)
    keys = ('data.source_language', 'data.target_language', 'data.language')
    return {values[key] for key in keys if declare.has_meaning(configs.OPTIONS, values, key) and values[key]}


def _check_tokenizers(config: Config, origin: WarmStart, tokenizers: Codecs) -> None:
    """Raises ConfigError if a config asks for tokenizers other than the run's."""
    data, other = config.data, origin.run.config.data
    for option, ours, theirs in (
        ('data.tokenizer', data.tokenizer, other.tokenizer),
        ('data.vocabulary', data.vocabulary, other.vocabulary),
        ('data.pieces', data.pieces, codec.size(tokenizers)),
    ):
        if ours != theirs:
            raise ConfigError(f'{option}={ours!r}: {origin.asked} brings its tokenizer, which has {theirs!r}')
    file = data.tokenizer_model
    if file and not codec.same(read_given(data, [*tokenizers]), tokenizers):
        raise ConfigError(f'data.tokenizer_model={file}: {origin.asked} brings another tokenizer')
