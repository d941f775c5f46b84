"""The model card of an exported model: its kind, data and scores, and how to run it."""

import html
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence

from transformer import config as configs
from transformer.config.declare import has_meaning
from transformer.interop.hugging_face.kind import Kind
from transformer.runs.restore import Origin
from transformer.runs.workdir import Run
from transformer.tasks import task_of
from transformer.tasks.contract import describe

_LOAD = 'from transformers import {model}, AutoTokenizer\n\ntokenizer = AutoTokenizer.from_pretrained(FOLDER)'
# By form.
_USE = {
    'pair': f"""{_LOAD}
model = {{model}}.from_pretrained(FOLDER)
batch = tokenizer(['...'], return_tensors='pt', padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))""",
    'text': f"""{_LOAD}
model = {{model}}.from_pretrained(FOLDER)
batch = tokenizer(['...'], return_tensors='pt')
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))""",
    'pieces': """from transformers import pipeline

print(pipeline('fill-mask', model=FOLDER)('... [MASK] ...'))""",
    'image_text': """from transformers import pipeline

classify = pipeline('zero-shot-image-classification', model=FOLDER)
print(classify('picture.png', candidate_labels=['...', '...'], hypothesis_template='{{}}'))""",
    'image_classes': """from transformers import pipeline

print(pipeline('image-classification', model=FOLDER)('picture.png'))""",
}
# A pipeline gives every model three colours.
_USE_OF_GREY = """import numpy as np
from PIL import Image
from transformers import AutoImageProcessor, {model}

processor, model = (kind.from_pretrained(FOLDER) for kind in (AutoImageProcessor, {model}))
image = np.asarray(Image.open('picture.png').convert('L'))[..., None]
inputs = processor(image, return_tensors='pt', input_data_format='channels_last')
print(model.config.id2label[model(**inputs).logits.argmax().item()])"""


def text(run: Run, origin: Origin, kind: Kind, differences: Sequence[str]) -> str:
    """Returns the card, in Markdown.

    Args:
      differences: lines that describe how the other program's computation differs.
    """
    return '\n'.join([*_head(run), *_model(run, origin, kind, differences), *_data(run), *_scores(run), ''])


def _head(run: Run) -> Iterator[str]:
    """Yields the lines that model hubs read. The user must state the licence."""
    values = configs.flatten(run.config)
    names = 'data.source_language', 'data.target_language', 'data.language'
    languages = [values[name] for name in names if has_meaning(configs.OPTIONS, values, name)]
    yield '---'
    yield 'library_name: transformers'
    yield 'license:'
    if known := [language for language in languages if language]:
        # Quoted, since YAML reads "no" as false.
        yield f'language: {json.dumps(known)}'
    yield '---'


def _model(run: Run, origin: Origin, kind: Kind, differences: Sequence[str]) -> Iterator[str]:
    yield f'# {run.folder.name}\n'
    yield f'A {kind.architecture} for `train.task={run.config.train.task}`: {origin} of a training by\n'
    yield f'    {shlex.join(["run.py", "--config=configs/base.py", *_options(run)])}\n'
    yield '```python'
    is_grey = kind.form == 'image_classes' and run.config.images.channels == 1
    yield (_USE_OF_GREY if is_grey else _USE[kind.form]).format(model=kind.architecture)
    yield '```'
    if differences:
        yield '\nWhere transformers and the program that trained it differ:\n'
        yield from (f'- {line}' for line in differences)


def _options(run: Run) -> list[str]:
    """Returns the flags of the options that differ from the defaults, but for the folder of data."""
    values = configs.differences(configs.resolve_values({}), run.config)
    return [
        f'--config.{key}={value}'
        for key, (_, value) in values.items()
        if key != 'data.dir' and value is not None
    ]


def _data(run: Run) -> Iterator[str]:
    manifest = run.manifest
    yield '\n## Data\n'
    if not manifest['files']:
        yield f'Unknown here: the model came from another program ({manifest["imported"]["format"]}).'
        return
    yield '| split | file | lines | SHA-256 |'
    yield '|---|---|---|---|'
    for split, entries in manifest['files'].items():
        for entry in entries:
            name = html.escape(' '.join(entry['name'].split()), quote=False).replace('|', '\\|')
            yield f'| {split} | {name} | {entry.get("lines", "")} | {entry["sha256"]} |'


def _scores(run: Run) -> Iterator[str]:
    scores = run.result().get('scores', {})
    if not scores:
        return
    yield '\n## Scores'
    for split, entry in scores.items():
        yield f'\n{split}, checkpoint {entry["checkpoint"]}:\n'
        yield from (f'    {line}' for line in describe(task_of(run.config).measures, entry))
        if signatures := list(_signatures(entry)):
            yield ''
            yield from (f'- {name}: `{signature}`' for name, signature in signatures)


def _signatures(entry: Mapping, name: str = '') -> Iterator[tuple[str, str]]:
    """Yields each score's name and signature, which records how the score was computed."""
    for key, value in entry.items():
        if key == 'signature':
            yield name, value
        elif isinstance(value, Mapping):
            yield from _signatures(value, key)
