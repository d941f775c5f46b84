"""Text to text: every task as a text that follows from a text with a prefix (Raffel et al. 2020)."""

import dataclasses
from collections.abc import Mapping, Sequence

from transformer.config import Config, ConfigError
from transformer.data import mixture
from transformer.data.batches import Batches
from transformer.data.dataset import Dataset, Split
from transformer.data.fields import Label, Reading
from transformer.data.text_pairs import Prefixed, References, prefixed, references
from transformer.progress import Progress, counting, no_progress
from transformer.runs.restore import Trained
from transformer.tasks import findings
from transformer.tasks.contract import Measure, Scored, Shown, means_of, watched
from transformer.tasks.text_to_text import scores, writer
from transformer.tasks.translation import task as translation
from transformer.tasks.translation.translator import hypotheses, translate

OPTION = 'text_to_text.prefix'
SHOWN = 300  # characters of a source that is shown


def reading(config: Config) -> Reading:
    """Returns the fields: a source with a prefix, its references and, if there are several, its data set.

    Raises:
      ConfigError: the data is not in several sets, but an option is for several.
    """
    own = config.text_to_text
    columns = [part.partition('=')[0] for part in (config.data.columns or '').split(',')]
    several = 'set' in columns or '' not in own.prefixes
    for option, unset in {'cap': None, 'temperature': 1.0}.items():
        if not several and getattr(own, option) != unset:
            raise ConfigError(
                f'text_to_text.{option}: needs data sets to mix; data.columns=set=COLUMN,... names them'
            )
    prefixes = tuple(own.prefixes.items())
    fields = {
        'source': Prefixed(None, OPTION, prefixes=prefixes, of='set' if several else None),
        'target': References(None),
        **({'set': Label()} if several else {}),
    }
    options = ('source', 'columns', 'tokenizer', 'pieces', 'max_len', 'train_examples')
    return Reading(fields, options)


def batches(config: Config, dataset: Dataset, split: str) -> Batches:
    """Lays out pairs as in translation. In training, an epoch is a mixture of the data sets."""
    fields, own = dict(dataset.splits[split].fields), config.text_to_text
    sets = fields.pop('set', None)
    if split == 'train' and sets is not None:
        chosen = mixture.mixed(sets.values, own.cap, own.temperature, config.train.seed)
        fields = {name: field.take(chosen) for name, field in fields.items()}
    return translation.batches(config, dataclasses.replace(dataset, splits={split: Split(fields)}), split)


def evaluate(trained: Trained, dataset: Dataset, split: str, progress: Progress = no_progress) -> Scored:
    """Computes the loss and the scores that the prefixes call for, of all examples and of each data set."""
    config, decode = trained.config, dataclasses.asdict(trained.config.decode)
    asked = _asked(config, dataset, split)
    on_done = counting(progress, 'outputs', len(asked))
    prompts = [one.prompt for one in asked]
    lines = translate(trained, prompts, split=split, on_done=on_done, **decode)
    means = means_of(TASK, trained, dataset, split, progress)
    return Scored(means | scores.score(asked, lines), {'decode': decode}, lines)


def _asked(config: Config, dataset: Dataset, split: str) -> list[scores.Asked]:
    """Returns the examples of a split other than train."""
    texts, numbers = dataset.texts(split), dataset.splits[split].fields.get('set')
    sets = [''] * len(texts['source'])
    if numbers is not None:
        sets = [dataset.codecs['set'].names[number] for number in numbers.values]
    prefix, asked = reading(config).fields['source'].prefix, []
    for source, target, name in zip(texts['source'], texts['target'], sets, strict=True):
        own = prefix(name, split)
        asked.append(scores.Asked(prefixed(own, source), own, references(target), name))
    return asked


def watch(trained: Trained, dataset: Dataset, progress: Progress = no_progress) -> dict[str, float]:
    """Computes the scores of greedy outputs on dev."""
    asked = _asked(trained.config, dataset, 'dev')
    prompts = [one.prompt for one in asked]
    on_done = counting(progress, 'outputs', len(prompts))
    lines = translate(trained, prompts, method='greedy', split=None, on_done=on_done)
    entry = scores.score(asked, lines)
    return watched(TASK.measures, entry)


def show(trained: Trained, dataset: Dataset) -> Shown:
    """Shows the outputs of the first test examples."""
    prompts = [one.prompt for one in _asked(trained.config, dataset, 'test')[:4]]
    pairs = zip(prompts, translate(trained, prompts), strict=True)
    return Shown([line for prompt, text in pairs for line in (f'  {prompt[:SHOWN]}', f'    {text}')])


def _of_lines(texts: Mapping[str, Sequence[str]], lines: Sequence[str]) -> list[float]:
    """Computes ROUGE-L of each line."""
    return scores.rouge_of_lines(lines, list(map(references, texts['target'])))['rougeL']


def _measure(name: str, meaning: str, *path: str, decimals: int = 2, **options) -> Measure:
    return Measure(name, meaning, path or (name, 'score'), decimals, 'higher', watched=True, **options)


TASK = translation.TASK._replace(
    reading=reading,
    batches=batches,
    evaluate=evaluate,
    measures=(
        Measure('loss', 'loss', ('loss',), heading=None),
        Measure('perplexity', 'perplexity', ('perplexity',), 3, heading='PPL'),
        _measure('rouge1', 'ROUGE-1', heading='R-1'),
        _measure('rouge2', 'ROUGE-2', heading='R-2'),
        _measure('rougeL', 'ROUGE-L', heading='R-L', of_lines=_of_lines),
        _measure('right', 'right', decimals=1, percent=True),
        _measure('exact', 'exact match', heading=None),
        _measure('f1', 'F1', heading=None),
        _measure('bleu', 'sacreBLEU', heading='BLEU'),
        _measure('solved', 'data sets with 95 % right', 'solved', decimals=0, heading='solved'),
    ),
    watch=watch,
    show=show,
    findings=findings.of_writing,
    verbs={
        **{name: getattr(writer, name) for name in ('summarise', 'answer', 'translate', 'translations')},
        'hypotheses': hypotheses,
        'likelihoods': translation.likelihoods,
    },
)
