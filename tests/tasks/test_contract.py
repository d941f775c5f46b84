"""The contract of a task: the lines of an evaluation's scores."""

from transformer.tasks.contract import Measure, describe

MEASURES = (Measure('loss', 'loss', ('loss',)), Measure('f1', 'F1 of spans', ('f1', 'score'), 2))


def test_lines_of_the_scores_that_have_a_value():
    entry = {'loss': None, 'f1': {'score': 12.345, 'interval': [10.0, 20.5]}}
    assert list(describe(MEASURES, entry)) == ['F1 of spans       12.35  [10.00, 20.50]']
    assert list(describe(MEASURES, {'loss': None})) == []
