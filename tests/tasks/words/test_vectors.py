"""Commands on vectors: neighbours, analogies and similarities by hand, from files and models."""

import matplotlib.image
import numpy as np
import pytest

from transformer.cli import main as run
from transformer.config import ConfigError
from transformer.data.word_vectors import WordRows
from transformer.tasks.words import vectors
from transformer.tasks.words.vectors import WordTable

WORDS = ['the', 'king', 'queen', 'man', 'woman', 'cat', 'dog', 'zero']


@pytest.fixture(scope='module')
def table():
    rows = np.random.default_rng(3).normal(size=(8, 5)).astype(np.float32)
    rows[7] = 0.0
    return WordTable(WordRows(WORDS, rows))


@pytest.fixture
def file(table, tmp_path):
    rows = ''.join(f'{word} {" ".join(map(str, v))}\n' for word, v in zip(WORDS, table.vectors, strict=True))
    (tmp_path / 'vectors.txt').write_text(rows)
    return str(tmp_path / 'vectors.txt')


def cosine(table, one, other):
    x, y = (table.vectors[WORDS.index(word)].astype(np.float64) for word in (one, other))
    return x @ y / max(np.linalg.norm(x) * np.linalg.norm(y), 1e-9)


def test_neighbours(table):
    expected = sorted(((cosine(table, 'king', word), word) for word in WORDS if word != 'king'), reverse=True)
    found = table.neighbours(['king'], 3)
    assert [word for word, _ in found] == [word for _, word in expected[:3]]
    np.testing.assert_allclose([c for _, c in found], [c for c, _ in expected[:3]], atol=1e-6)
    assert len(table.neighbours(['king'], 100)) == 7
    with pytest.raises(ConfigError, match='tiger'):
        table.neighbours(['tiger'], 3)


@pytest.mark.parametrize('method', ['adding', 'multiplying'])
def test_analogies(table, method):
    def score(x):
        a, b, c = (cosine(table, x, word) for word in ('man', 'woman', 'king'))
        return b - a + c if method == 'adding' else (b + 1) / 2 * (c + 1) / 2 / ((a + 1) / 2 + 0.001)

    others = sorted((w for w in WORDS if w not in ('man', 'woman', 'king')), key=score, reverse=True)
    found = table.analogy(['man', 'woman', 'king'], 8, method)
    assert [word for word, _ in found] == others
    np.testing.assert_allclose([s for _, s in found], [*map(score, others)], rtol=1e-4, atol=1e-6)
    best, second = others[:2]
    questions = [['man', 'woman', 'king', best], ['man', 'woman', 'king', second], ['man', 'a', 'b', 'c']]
    assert table.answer(questions, method) == (1, 2, 3)
    # More than are answered at once.
    assert table.answer(questions * 200, method) == (200, 400, 600)


def test_similarity(table):
    pairs = [('king', 'queen', 4.0), ('cat', 'dog', 2.0), ('man', 'woman', 3.0), ('cat', 'tiger', 9.0)]
    cosines = [cosine(table, a, b) for a, b, _ in pairs[:3]]
    ranks = np.argsort(np.argsort(cosines))
    # 1 - 6 Σ d² / (n (n² - 1)).
    expected = 1 - 6 * np.square(ranks - np.array([2, 0, 1])).sum() / 24
    correlation, known = table.similarity(pairs)
    assert (correlation, known) == (pytest.approx(expected), 3)
    assert table.similarity(pairs[2:]) == (None, 1)


def test_principal_components():
    points = np.random.default_rng(4).normal(size=(40, 6)) * [1, 5, 1, 1, 9, 1]
    found, centred = vectors.principal_components(points), points - points.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, [-1, -2]]
    # An axis has two signs; one makes the sum of its numbers positive.
    np.testing.assert_allclose(found, centred @ (axes * np.sign(axes.sum(axis=0))), atol=1e-8)
    np.testing.assert_allclose(np.square(found).sum(axis=0), values[[-1, -2]])


@pytest.mark.parametrize('shape', [(1, 6), (3, 1), (1, 1)])
def test_fewer_than_two_components(shape):
    found = vectors.principal_components(np.arange(float(np.prod(shape))).reshape(shape))
    assert found.shape == (shape[0], 2) and not found[:, 1].any()


def test_commands(table, file, tmp_path, capfd):
    (tmp_path / 'pairs.tsv').write_text('# people\nKing\tqueen\t4\ncat\tdog\t2\nman\ttiger\t3\n')
    (tmp_path / 'questions.txt').write_text(': family\nman woman king queen\nman woman king tiger\n')

    def out(*words):
        assert run.main(['run.py', *words]) == 0
        return [line.split('\t') for line in capfd.readouterr().out.splitlines()]

    found = out('neighbours', file, 'king', 'cat', '--count=2')
    assert [line[0] for line in found] == ['king', 'king', 'cat', 'cat']
    assert found[0][1:] == [table.neighbours(['king'], 1)[0][0], f'{table.neighbours(["king"], 1)[0][1]:.4f}']
    assert out('similarity', file, str(tmp_path / 'pairs.tsv'))[0][1:] == [
        'none', '1 of 3 pairs whose words are known',
    ]  # fmt: skip
    correlation = out('similarity', file, str(tmp_path / 'pairs.tsv'), '--lowercase')[0]
    assert correlation[1] in ('1.0000', '-1.0000') and correlation[2].startswith('2 of 3')
    right = table.answer([WORDS[3:5] + WORDS[1:3]], 'multiplying').right
    lines = out('analogy', file, f'--questions={tmp_path / "questions.txt"}', '--by=multiplying')
    assert [line[0] for line in lines] == ['family', 'all'] and lines[1][2].startswith(f'{right} of 1 ')
    assert (
        out('analogy', file, 'man', 'woman', 'king', '--count=1')[0][0]
        == table.analogy(WORDS[3:5] + ['king'], 1, 'adding')[0][0]
    )
    assert out('analogy', file, 'Man', 'woman', 'KING', '--lowercase') == out(
        'analogy', file, 'man', 'woman', 'king'
    )
    # Two parts of a file have one name.
    parts = ': family\nman woman king queen\n: other\ncat dog king queen\n: family\nking queen man woman\n'
    (tmp_path / 'parts.txt').write_text(parts)
    totals = [
        line[2].rpartition(' ')[2] for line in out('analogy', file, f'--questions={tmp_path / "parts.txt"}')
    ]
    assert totals == ['2', '1', '3']
    assert out('vectors', file, str(tmp_path / 'v.bin'), '--layout=binary', '--most=3')
    again = vectors.load(str(tmp_path / 'v.bin'))
    assert again.words == WORDS[:3]
    np.testing.assert_array_equal(again.vectors, table.vectors[:3])
    out('picture', file, str(tmp_path / 'words.png'), 'king', 'queen', 'man')
    assert matplotlib.image.imread(tmp_path / 'words.png').std() > 0
    out('picture', file, str(tmp_path / 'words.PNG'), 'king', 'queen', 'man')


@pytest.mark.parametrize(
    ('words', 'named'),
    [
        (['neighbours', 'FILE'], 'neighbours'),
        (['neighbours', 'FILE', 'tiger'], 'tiger'),
        (['analogy', 'FILE', '--questions=FILE', '--count=3'], '--count=3'),
        (['neighbours', 'absent', 'king'], 'absent'),
        (['analogy', 'FILE', 'king'], 'three words'),
        (['analogy', 'FILE', '--questions=bad'], 'line 2'),
        (['similarity', 'FILE', 'bad'], 'line 1'),
        (['similarity', 'FILE', 'nan'], 'line 2'),
        (['similarity', 'FILE', 'empty'], 'empty'),
        (['similarity', 'FILE', 'blank'], 'empty'),
        (['similarity', 'empty', 'bad'], 'line 1'),
        (['vectors', 'empty', 'out'], 'empty'),
        (['picture', 'FILE', 'out', 'king', 'queen', 'man'], 'out: '),
        (['picture', 'FILE', 'out.xyz', 'king', 'queen', 'man'], 'png'),
    ],
)
def test_mistakes(file, tmp_path, monkeypatch, capfd, words, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'empty').write_text('')
    (tmp_path / 'nan').write_text('king\tman\t1\nking\tqueen\tnan\n')
    (tmp_path / 'blank').write_text('\n \n')
    (tmp_path / 'bad').write_text(': kind\none two three\n')
    assert run.main(['run.py', *(file if word == 'FILE' else word for word in words)]) == 2
    out, err = capfd.readouterr()
    assert out == '' and err.count('\n') == 1 and named in err
    assert not (tmp_path / 'out').exists()
