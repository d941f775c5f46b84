"""Captions of images: data, loss and scores."""

import dataclasses
from collections.abc import Iterator

from etils import epy

from transformer.data.dataset import Dataset
from transformer.data.generated import sources as generated
from transformer.data.rows import distinct
from transformer.data.text_input import row_batches
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import bootstrap
from transformer.tasks import findings as shared
from transformer.tasks.captions import scores
from transformer.tasks.captions.captioner import caption
from transformer.tasks.contract import Measure, Scored, Shown, Task, means_of, watched
from transformer.tasks.images.task import reading_with_text
from transformer.tasks.translation import bleu
from transformer.training import losses

with epy.lazy_imports():
    from transformer.tasks.captions import draw
    from transformer.tasks.images import looks

SHOWN = 4  # images that are shown after a training


def write_captions(
    trained: Trained, dataset: Dataset, split: str, progress: Progress, **options
) -> tuple[list[str], dict[str, object]]:
    """Writes and scores a caption of each different image, whose references are the captions of all its rows.

    If the source can judge captions, `facts` is the share of those whose facts all hold.

    Returns:
      The caption of each row's image, and the scores.
    """
    data, pixels = trained.config.data, dataset.splits[split].fields['image'].values
    first, of_rows = distinct(map(bytes, pixels))
    images, references = pixels[first], [[] for _ in first]
    for number, text in zip(of_rows, dataset.texts(split)['text'], strict=True):
        references[number].append(text)
    on_done = counting(progress, 'captions', len(images))
    lines = [best[0].text for best in caption(trained, images, on_done=on_done, **options)]
    entry = scores.score(lines, references, data.language)
    if truth := generated.scene_truth(data, reading_with_text(trained.config)):
        right = [truth(*pair) is True for pair in zip(images, lines, strict=True)]
        entry['facts'] = bootstrap.mean_entry(right)
    return [lines[number] for number in of_rows], entry | {'images': len(images)}


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes the loss of all captions, and scores one that the model writes for each different image."""
    decode = dataclasses.asdict(trained.config.decode)
    lines, entry = write_captions(trained, dataset, split, progress, **decode)
    means = means_of(TASK, trained, dataset, split, progress)
    return Scored(means | entry, {'decode': decode}, lines)


def watch(trained: Trained, dataset: Dataset, progress: Progress = no_progress) -> dict[str, float]:
    """Computes the scores of greedy captions on dev."""
    _, entry = write_captions(trained, dataset, 'dev', progress, method='greedy')
    return watched(TASK.measures, entry)


def show(trained: Trained, dataset: Dataset) -> Shown:
    """Shows captions of the first different test images, and draws where the decoder looks for each word."""
    pixels = dataset.splits['test'].fields['image'].values
    pixels = pixels[distinct(map(bytes, pixels))[0][:SHOWN]]
    lines = [best[0].text for best in caption(trained, pixels)]
    found = lambda: [draw.look(trained, *pair) for pair in zip(pixels, lines, strict=True)]
    return Shown([f'  {line}' for line in lines], {'captions': lambda: looks.draw(found())})


def findings(trained: Trained, dataset: Dataset, outcome: shared.Outcome) -> Iterator[shared.Finding]:
    """Yields a finding if the model hardly beats frequencies, or writes the same, nothing or repetitions."""
    yield from shared.of_writing(trained, dataset, outcome)
    yield from shared.repeated(outcome)


def _measure(name: str, meaning: str, decimals: int = 2, **options) -> Measure:
    return Measure(name, meaning, (name, 'score'), decimals, 'higher', **options)


TASK = Task(
    reading=reading_with_text,
    batches=row_batches,
    sums=losses.written_sums,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss', ('loss',), heading=None),
        Measure('perplexity', 'perplexity', ('perplexity',), 3, heading='PPL'),
        _measure('facts', 'captions whose facts all hold', percent=True, heading='facts', watched=True),
        _measure('cider', 'CIDEr-D', 3, watched=True),
        _measure('bleu', 'sacreBLEU', heading='BLEU', watched=True),
        *(_measure(f'bleu{order}', f'BLEU-{order} of words', heading=None) for order in scores.ORDERS),
        _measure(
            'chrf',
            'chrF',
            heading=None,
            of_lines=lambda texts, lines: bleu.chrf_of_lines(lines, texts['text']),
        ),
    ),
    watch=watch,
    show=show,
    findings=findings,
    verbs={'caption': caption},
)
