"""Recall by its definition, with several texts an image, equal texts, equal vectors and chunks."""

import numpy as np
import pytest

from transformer.data.rows import distinct
from transformer.tasks.contrastive import scores


def test_distinct_values_are_numbered_by_their_first_row():
    first, of_rows = distinct(['b', 'a', 'b', 'c', 'a'])
    assert first.tolist() == [0, 1, 3] and of_rows.tolist() == [0, 1, 0, 2, 1]
    found = scores.partners(np.array([0, 1, 0, 2, 1]), np.array([3, 3, 0, 1, 3]))
    assert [one.tolist() for one in found] == [[0, 3], [3], [1]]


@pytest.mark.parametrize('chunk', [3, 256])
def test_recall_by_its_definition(monkeypatch, chunk):
    """Each of 40 images has three texts, of which any counts."""
    monkeypatch.setattr(scores, '_CHUNK', chunk)
    rng = np.random.default_rng(0)
    images, texts = rng.normal(size=(40, 6)), rng.normal(size=(120, 6))
    right = [np.array([i, 40 + i, 80 + i]) for i in range(40)]
    texts[:40] += images
    found = scores.recall(images.astype(np.float32), texts.astype(np.float32), right)
    for most in (1, 5, 10):
        nearest = [np.argsort(-texts @ image)[:most] for image in images]
        hits = [
            bool(set(own.tolist()) & set(near.tolist())) for own, near in zip(right, nearest, strict=True)
        ]
        low, high = found[f'r{most}']['interval']
        assert low < found[f'r{most}']['score'] == np.mean(hits) < high
    assert 0.1 < found['r1']['score'] < found['r10']['score'] < 1


def test_equal_vectors_find_nothing():
    same = np.ones((20, 4), np.float32)
    assert scores.ranks(same, same, [np.array([i, 0]) for i in range(1, 20)] + [np.array([0])])[:2] == [
        18,
        18,
    ]
    found = scores.recall(same, same, [np.array([i]) for i in range(20)])
    assert [one['score'] for one in found.values()] == [0, 0, 0]


def test_vectors_without_numbers_find_nothing():
    vectors, right = np.eye(20, 20, dtype=np.float32), [np.array([i]) for i in range(20)]
    assert scores.ranks(vectors, vectors, right) == [0] * 20
    assert scores.ranks(np.full_like(vectors, np.nan), vectors, right) == [19] * 20
    # A wrong candidate without numbers is nearer than the right one.
    assert scores.ranks(vectors[:1], np.where(np.arange(20)[:, None] == 7, np.nan, vectors), right) == [1]
