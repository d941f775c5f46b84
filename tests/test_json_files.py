"""Every file of JSON is read by one reader, which checks the content."""

import pytest

from transformer import files
from transformer.config import OPTIONS, ConfigError, declare

SHAPE = {
    'size': files.SIZE,
    'name?': (str, None),
    'numbers': {'*': [float]},
    'form?': ('a', True, {'x': bool}),
}


@pytest.mark.parametrize(
    'content',
    [
        '{"size": 3, "numbers": {}}',
        '{"size": 1, "name": null, "numbers": {"a": [1, 2.5, -1e300]}}',
        '{"size": 1, "name": "\\ud83d\\ude00", "numbers": {}, "form": "a"}',
        '{"size": 1, "numbers": {}, "form": {"x": false}}',
        b'{"size": 1, "numbers": {"\xc3\xa4": []}, "form": true}',
    ],
)
def test_values_of_the_shape(content):
    assert files.parse_json(content, SHAPE, 'f')['size'] in (1, 3)


@pytest.mark.parametrize(
    ('content', 'named'),
    [
        ('', 'damaged'),
        ('[]', 'damaged'),
        ('{}', "'size'"),
        ('{"size": true, "numbers": {}}', 'size=True'),
        ('{"size": 1.0, "numbers": {}}', 'size=1.0'),
        ('{"size": 0, "numbers": {}}', 'size=0'),
        ('{"size": 4294967296, "numbers": {}}', 'size=4294967296'),
        ('{"size": 1, "numbers": {}, "name": 5}', 'name=5'),
        ('{"size": 1, "numbers": {"a": [1, false]}}', 'numbers.a.1=False'),
        (f'{{"size": 1, "numbers": {{"a": [1{"0" * 400}]}}}}', 'numbers.a.0=1000'),
        ('{"size": 1, "numbers": {}, "form": 1}', 'form=1'),
        ('{"size": 1, "numbers": {}, "form": {"x": 0}}', 'form.x=0'),
        ('{"size": 1, "numbers": {}, "other": 1}', "'other'"),
        ('{"size": NaN, "numbers": {}}', 'NaN'),
        ('{"size": 1e999, "numbers": {}}', '1e999'),
        (f'{{"size": {"1" * 5000}}}', 'damaged'),
        ('{"size": 1, "numbers": {"\\ud800": []}}', 'UTF-8'),
        (b'{"size": 1, "numbers": {"\xff": []}}', 'UTF-8'),
        ('[' * 100_000, 'nested'),
        ('[' * 200 + ']' * 200, 'nested'),
    ],
)
def test_other_values_are_named(content, named):
    with pytest.raises(ConfigError, match='^f: ') as error:
        files.parse_json(content, SHAPE, 'f')
    assert named in str(error.value)
    assert len(str(error.value)) < 400


def test_a_hundred_levels():
    content = '[' * 100 + ']' * 100
    assert files.parse_json(content, object, 'f')
    with pytest.raises(ConfigError):
        files.parse_json(f'[{content}]', object, 'f')


def test_options_of_other_encodings_or_without_bounds():
    for key, value in (('data.dir', '\udcff'), ('model.d_ff', 10**400), ('model.P_drop', 10**400)):
        with pytest.raises(ConfigError, match=key):
            declare.check_value(OPTIONS, key, value)
