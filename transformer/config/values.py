"""Answers questions about a config: its options' values, and what its models and rows have."""

import dataclasses

import ml_collections

from transformer.config.declare import has_meaning
from transformer.config.options import OPTIONS, Config, Model
from transformer.config.tasks import FORMS, TASKS

PARTS = {key: key.split('.') for key in OPTIONS}


def flatten(config: Config | ml_collections.ConfigDict) -> dict[str, object]:
    """Returns the value of every option by its dotted name, in the order of declaration."""
    return {key: getattr(getattr(config, group), name) for key, (group, name) in PARTS.items()}


def form_of(config: Config) -> str:
    """Returns the form of a config's models, a name in `FORMS`."""
    return TASKS[config.train.task].form


def has(config: Config, part: str) -> bool:
    """Returns whether a config's models have a part, as listed in `tasks.Form`."""
    return part in FORMS[form_of(config)].has


def couples_batch(config: Config) -> bool:
    """Returns whether the loss of a row depends on all other rows of its batch."""
    return has(config, 'towers') and config.contrastive.negatives == 'batch'


def sentinels(config: Config) -> int:
    """Returns the number of pieces that a model has above those of its tokenizer."""
    return config.denoise.sentinels if has_meaning(OPTIONS, flatten(config), 'denoise.sentinels') else 0


def row_positions(config: Config) -> int:
    """Returns the most positions of a training row's last text: pieces, or patches and the class token."""
    if not has(config, 'texts') and has(config, 'image'):
        return config.images.positions
    one_text = config.data.batching in ('bucketed', 'padded')
    return config.data.max_len if one_text else config.data.row_len


def image_tower(config: Config) -> Model:
    """Returns all options of the encoder of images in a model that has texts, too."""
    own, values = config.image_model, flatten(config)
    if not has_meaning(OPTIONS, values, 'image_model.N'):
        return config.model
    normal = has_meaning(OPTIONS, values | {'model.init': own.init}, 'model.init_std')
    # An option of `model` that is not its default holds for images, too.
    derived = config.model.norm == 'pre'
    norm_final = own.norm == 'pre' if config.model.norm_final == derived else config.model.norm_final
    std = config.model.init_std if normal and own.init_std_positions is None else own.init_std_positions
    return dataclasses.replace(
        config.model,
        **vars(own) | {'init_std_positions': std},
        d_k=own.d_model // own.h,
        d_v=own.d_model // own.h,
        norm_final=norm_final,
        token_types=0,
        max_len=config.images.positions,
    )
