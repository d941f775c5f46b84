"""The numbers of parameters of published models, by shapes alone: no array is made."""

import pathlib

import pytest

from transformer.config import config_dict, has, replace, resolve
from transformer.config.files import read_config_file
from transformer.data.rows import rows_per_batch
from transformer.nn import cost, models

CONFIGS = pathlib.Path(__file__).parent.parent.parent / 'configs'
PUBLISHED = {
    'bert_base': 109_482_240,
    'bert_large': 335_141_888,
    'gpt2_small': 124_439_808,
    'gpt2_medium': 354_823_168,
    'gpt2_large': 774_030_080,
    'gpt2_xl': 1_557_611_200,
    'gpt3_175b': 174_604_259_328,
    'bloom_560m': 559_214_592,
    't5_small': 60_506_624,
    't5_base': 222_903_552,
    't5_1_1_small': 76_961_152,
    't5_1_1_base': 247_577_856,
    'vit_ti16': 5_717_416,
    'vit_s16': 22_050_664,
    'vit_b16': 86_567_656,
    'vit_l16': 304_326_632,
    'clip_vit_b32': 151_277_313,
    'clip_vit_b16': 149_620_737,
}
# BERT's number is of the encoder with its pooler, a linear map from d_model to d_model. Our encoder has no
# pooler, but the linear map of the head for hidden pieces has as many parameters; the rest of that head does
# not count.
UNCOUNTED = {'bert_base': ('head_norm', 'softmax_bias'), 'bert_large': ('head_norm', 'softmax_bias')}


@pytest.mark.parametrize('name', PUBLISHED)
def test_parameters_of_published_models(name):
    config = resolve(read_config_file(str(CONFIGS / f'{name}.py')))

    def count(layers: int) -> int:
        sizes = {'model.N': layers} | ({'model.N_decoder': layers} if has(config, 'pair') else {})
        sizes |= {'image_model.N': layers} if has(config, 'towers') else {}
        shapes = models.parameter_shapes(replace(config, sizes))
        return sum(
            cost.parameters(part) for key, part in shapes.items() if key not in UNCOUNTED.get(name, ())
        )

    # All layers are equal, so two tell the size of each.
    assert count(1) + (config.model.N - 1) * (count(2) - count(1)) == PUBLISHED[name]


def test_parameters_of_the_towers_of_clip():
    config = resolve(read_config_file(str(CONFIGS / 'clip_vit_b32.py')))
    assert config.image_model.N == config.model.N == 12
    one, two = (
        models.parameter_shapes(replace(config, {'model.N': layers, 'image_model.N': layers}))
        for layers in (1, 2)
    )
    for tower, published in {'image': 87_849_216, 'text': 63_428_096, 'log_scale': 1}.items():
        first, second = cost.parameters(one[tower]), cost.parameters(two[tower])
        assert first + 11 * (second - first) == published


def test_rows_of_equal_sizes_are_counted_once(monkeypatch):
    traced, count = [], cost.forward_cost
    monkeypatch.setattr(cost, 'forward_cost', lambda *row: traced.append(row) or count(*row))
    cost._row_cost.cache_clear()
    base = resolve(config_dict({'model.N': 1, 'model.d_model': 8, 'model.d_ff': 12, 'model.h': 2}))
    rows = [replace(base, {'model.P_drop': rate, 'train.steps': 10}) for rate in (0.0, 0.1, 0.2)]
    assert len({cost.model_parameters(row) for row in rows}) == len({*map(cost.update_flops, rows)}) == 1
    assert len(traced) == 1
    wider = replace(base, {'model.d_ff': 13})
    # Each of the two feed-forward layers has a row, a column and a bias more.
    assert cost.model_parameters(wider) - cost.model_parameters(base) == 2 * (8 + 8 + 1)
    assert len(traced) == 2


def test_flops_do_not_depend_on_the_kernel_of_a_platform():
    """In bfloat16, rows of 128 have a kernel for TPUs beside the program for all other platforms."""
    rows = {'model.N': 1, 'data.batching': 'packed', 'data.row_len': 128, 'data.max_len': 128}
    in_types = (
        cost.update_flops(resolve(config_dict({**rows, 'model.dtype': dtype})))
        for dtype in ('float32', 'bfloat16')
    )
    assert len(set(in_types)) == 1


@pytest.mark.parametrize(
    ('changes', 'width', 'rows'),
    [
        (
            {'data.batching': 'packed', 'data.row_len': 48, 'data.max_len': 48, 'data.batch_tokens': 2048},
            48,
            40,
        ),
        (
            {'data.batching': 'packed', 'data.row_len': 128, 'data.max_len': 128, 'data.batch_tokens': 2000},
            128,
            8,
        ),
        ({'data.batching': 'bucketed', 'data.max_len': 36, 'data.batch_tokens': 1152}, 36, 32),
        ({'data.batch_tokens': 32_768}, cost.BUCKET_LENGTH, 32_768 / 48),
    ],
)
def test_an_update_has_the_rows_of_a_batch(changes, width, rows):
    small = {'model.N': 1, 'model.d_model': 8, 'model.d_ff': 12, 'model.h': 2}
    config = resolve(config_dict({**small, **changes}))
    assert (cost.row_length(config), cost.update_rows(config)) == (width, rows)
    if config.data.batching == 'packed':
        assert rows == rows_per_batch(config.data, width, config.train.microbatches)
    forward = cost.forward_cost(config, models.blank(config, 8, width))
    assert cost.update_flops(config) == pytest.approx(3 * forward.flops * rows / 8)
