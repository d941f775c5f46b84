"""Reads questions whose answers are parts of a paragraph, in the JSON of SQuAD 1.1 and 2.0."""

import json
from collections.abc import Iterator

from etils import epath

from transformer.config import ConfigError, Data
from transformer.data.fields import Example, Reading
from transformer.data.sources import entries, text
from transformer.data.sources.text import SourceFile


def rows(data: Data, reading: Reading, split: str) -> Iterator[Example]:
    """Yields the questions of a split as `question`, `context` and `answer`. A row's line is its number."""
    for entry in entries.parse(data, split):
        path = entries.find(data, entry.name, split)
        names = dict.fromkeys(reading.fields, str(path.relative_to(entries.root(data))))
        for number, values in entry.numbered(list(_questions(path))):
            yield Example(values, names, number, 'question')


def origins(data: Data, reading: Reading, split: str) -> list[SourceFile]:
    """Describes the files of a split by their numbers of questions."""
    del reading
    return text.counted_origins(data, split, _questions)


def _questions(path: epath.Path) -> Iterator[dict[str, object]]:
    """Yields each question with its paragraph and its answers' places, with blanks for newlines."""

    def line(value: str) -> str:
        value.encode()  # half of a surrogate pair raises a ValueError
        return value.replace('\n', ' ').replace('\r', ' ')

    number, content = 0, text.whole(path)
    try:
        for article in json.loads(content)['data']:
            for paragraph in article['paragraphs']:
                context = line(paragraph['context'])
                for question in paragraph['qas']:
                    missing = question.get('is_impossible', False)
                    answers = () if missing else question['answers']
                    places = tuple((int(one['answer_start']), line(one['text'])) for one in answers)
                    yield {'question': line(question['question']), 'context': context, 'answer': places}
                    number += 1
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        raise ConfigError(f'{path}: not the JSON of SQuAD (after question {number})') from None
