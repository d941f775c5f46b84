"""The command `experiments.evidence`: its tables, and the numbers on the page of results."""

import json
import re

import pytest

from experiments.evidence import __main__ as evidence
from experiments.evidence import trainings
from experiments.tables.user_files import ROOT


def run(*words: str) -> int:
    return evidence.main(['evidence', *words])


def parse(text: str) -> dict[str, list[list[str]]]:
    """Parses the cells of Markdown's tables by heading, each table with its head."""
    sections = {}
    for part in re.split(r'^### ', text, flags=re.MULTILINE)[1:]:
        lines = [line.strip('|').split('|') for line in part.splitlines() if line.startswith('|')]
        sections[part.partition('\n')[0]] = [
            [cell.strip() for cell in line] for line in lines if '---' not in line[0]
        ]
    return sections


@pytest.fixture(scope='module')
def printed() -> dict[str, list[list[str]]]:
    """Renders and parses the tables of both commands."""
    both = evidence.noise_tables.sections() + evidence.prediction_tables.sections()
    return parse(evidence.sections.text(both, *evidence._FORMATS['markdown']))


def column(table: list[list[str]], heading: str) -> dict[str, str]:
    """Returns the first column with a heading, by row."""
    place = table[0].index(heading)
    return {row[0]: row[place] for row in table[1:]}


def test_table_3_marks_what_may_be_chance(printed):
    table = printed["The paper's Table 3: what is beyond noise"]
    of_bleu, of_perplexity = column(table, 'ΔBLEU'), column(table, 'ΔPPL')
    assert (of_bleu['D2'], of_bleu['A4'], of_bleu['base']) == ('-0.3 ≈', '-0.4', '')
    assert (of_perplexity['D2'], of_perplexity['C3']) == ('+0.03 ≈', '-0.04')
    assert sum('≈' in cell for cell in of_bleu.values()) == 7


def test_table_2_compares_with_both_sizes(printed):
    table = printed["The paper's Table 2: what is beyond noise"]
    rows = {row[0]: row[1:] for row in table[1:]}
    assert rows['ConvS2S Ensemble'] == ['26.36', '-0.94', '-2.04', '41.29', '+3.19', '-0.51']
    assert rows['ByteNet'] == ['23.75', '-3.55', '-4.65', '', '', '']
    assert rows['Transformer (big)'] == ['28.4', '+1.10', '', '41.8', '+3.70', '']
    assert len(rows) == 10 and not any('≈' in cell for row in rows.values() for cell in row)


def test_label_smoothing_alone(printed):
    table = printed['Label smoothing of 0.1 alone']
    differences, halves = column(table, 'difference'), column(table, '95%')
    # The means of five differences, and Student's t with 4 degrees of freedom.
    smoothed, plain = trainings.samples('newstest2014', 'loss', ['ext-0', 'ext-2'])
    pairs = [a - b for a, b in zip(smoothed, plain, strict=True)]
    mean = sum(pairs) / 5
    half = 2.77645 * (sum((pair - mean) ** 2 for pair in pairs) / 4 / 5) ** 0.5
    assert differences['loss, newstest2014'] == f'{mean:+.4f}' == '+0.0935'
    assert halves['loss, newstest2014'] == f'±{half:.4f}' == '±0.0021'
    assert (differences['BLEU, newstest2014'], halves['BLEU, newstest2014']) == ('+0.16', '±0.34')


def test_ceilings_stand_beside_ours(printed):
    table = printed['Ceiling of the rank correlation with Table 3']
    assert column(table, 'grammar') == {'PPL': '0.90', 'BLEU': '0.84'}
    assert column(table, 'multi30k') == {'PPL': '0.74', 'BLEU': '0.40'}
    assert column(table, 'ceiling')['BLEU'] == '0.912'


def test_predictions_of_table_3(printed):
    table = printed['Perplexity predicted from small trainings']
    errors = column(table, 'mean error')
    assert list(errors.values())[:4] == ['0.322', '0.135', '0.219', '0.152']
    rows = column(printed['Each row predicted by the others'], 'error grammar')
    assert len(rows) == 19 and (rows['C1'], rows['A4']) == ('-0.71', '+0.00')


def test_public_results_beside_the_first_prediction(printed):
    table = printed['The first prediction beside public results']
    assert column(table, 'ΔBLEU') == {'newstest2013': '+0.77', 'newstest2014': '+0.82'}
    sealed = column(printed['Sealed predictions'], 'Δlog')
    assert set(column(table, 'sealed Δlog').values()) == {sealed['pre-norm']}


def test_page_of_results_has_the_printed_numbers(printed):
    """Each table of the page's sections, cell by cell, in the columns that it shows."""
    page = (ROOT / 'experiments' / 'results' / 'README.md').read_text()
    section = page.partition("\n## How sure the paper's numbers are\n")[2]
    section = section.partition('\n## Recurrent, convolutional')[0]
    blocks = re.findall(r'(?:^\|.*\n)+', section, re.MULTILINE)
    assert len(blocks) == 4
    tables = list(printed.values())
    for block in blocks:
        (head, *rows) = parse(f'### x\n{block}')['x']
        (table,) = (table for table in tables if table[0][0] == head[0] and set(head) <= set(table[0]))
        for heading in head[1:]:
            assert {row[0]: row[head.index(heading)] for row in rows}.items() <= column(
                table, heading
            ).items()


@pytest.mark.parametrize(
    'command, heading', [('noise', 'Label smoothing'), ('predict', 'Sealed predictions')]
)
def test_commands_print(capsys, command, heading):
    assert run(command) == 0
    out = capsys.readouterr().out
    assert f'\n{heading}' in out and '|' not in out


def test_collect_writes_the_committed_form(tmp_path, capsys):
    line = 'ext\t0\t0\t9\t30.0\t1.0\t29.0\t1.1\n'
    (tmp_path / 'runs.tsv').write_text(
        'run\tset\tseed\tstep\ttest_bleu\ttest_loss\tdev_bleu\tdev_loss\n' + line
    )
    file = tmp_path / 'new' / 'final.json'
    assert run('collect', str(tmp_path), f'--output={file}') == 0
    written, committed = json.loads(file.read_text()), json.loads(trainings.FILE.read_text())
    assert list(written) == list(committed)
    assert {key: text for key, text in written.items() if key != 'trainings'}.items() <= committed.items()
    assert run('collect', str(tmp_path / 'nowhere'), f'--output={file}') == 2
    assert 'nowhere' in capsys.readouterr().err


def test_seal_needs_a_date(tmp_path, capsys):
    file = tmp_path / 'sealed.json'
    assert run('seal', f'--output={file}') == 2
    assert '--date' in capsys.readouterr().err and not file.exists()
