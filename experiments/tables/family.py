"""The table `family`: the main models that were trained here, each beside a public number."""

from collections.abc import Iterable
from typing import NamedTuple


class Public(NamedTuple):
    """A number that others published.

    Attributes:
      number: the score, as it was printed.
      of: the model, and what differs from ours: its data, its size or how it was scored.
      source: the publication or page.
    """

    number: str
    of: str
    source: str


class Member(NamedTuple):
    """A model and its data: a row of the table.

    Attributes:
      model: its kind.
      data: the task's data on which it is scored.
      runs: the folders of its trainings in experiments/results, which differ in their seeds.
      measure: a measure of its task.
      split: the scores of result.json.
      public: a number on the same data, if one is known.
    """

    model: str
    data: str
    runs: tuple[str, ...]
    measure: str
    split: str = 'test'
    public: Public | None = None


def _bert(size: str, number: str) -> Public:
    return Public(number, f'BERT {size}, pre-trained, test of GLUE', 'google-research/bert')


def _seeds(run: str, seeds: Iterable[int] = (1, 2, 3)) -> tuple[str, ...]:
    return tuple(f'{run}{seed}' for seed in seeds)


def _hour(task: str) -> tuple[str, ...]:
    return _seeds(f'pretraining/hour/{task}-masked-')


FAMILY = (
    Member('Transformer', 'grammar, translation', ('grammar',), 'bleu'),
    Member(
        'Transformer', 'Multi30k, 2016', ('multi30k',), 'bleu',
        public=Public('39.0', 'recurrent, lowercased and tokenised', 'Multi30k, the organisers'),
    ),
    Member('LSTM, attention', 'Multi30k, 2016', ('architectures/lstm-attention-seed1',), 'bleu'),
    Member('GRU, attention', 'Multi30k, 2016', ('architectures/gru-attention-seed1',), 'bleu'),
    Member('convolutional', 'Multi30k, 2016', ('architectures/convolutional-seed1',), 'bleu'),
    Member(
        'Transformer', 'newstest2014, 228,000 pairs', ('news_small',), 'bleu',
        public=Public('24.38', 'base, trained on WMT 2014', 'Joey NMT'),
    ),
    Member('Transformer', 'grammar, trees', ('parsing_grammar',), 'f1'),
    Member(
        'Transformer', 'GENIA, trees of dev', _seeds('table4-genia/transformer-seed', (0, 1)), 'f1',
        public=Public('83.6', "Charniak's parser, another split", 'GENIA'),
    ),
    Member('LSTM, attention', 'GENIA, trees of dev', ('table4-genia/lstm-attention-seed1',), 'f1'),
    Member('Transformer', 'CRAFT, trees of dev', ('craft_parsing',), 'f1'),
    Member(
        'Transformer', 'names, dev', ('names',), 'exact',
        public=Public('35.7 %', '5.6 M parameters, another split', 'arabic-name-romanizer 0.2.0'),
    ),
    Member(
        'convolutional', 'names, dev', _seeds('names_architectures/convolutional-seed', range(2, 7)), 'exact',
    ),
    Member(
        'GRU, attention', 'names, dev',
        _seeds('names_architectures/gru-attention-seed', range(2, 7)), 'exact',
        public=Public('38.7 %', 'GRU, 1.7 M parameters, another split', 'arabic-name-romanizer 0.2.0'),
    ),
    Member('GPT', 'grammar, German', ('gpt_grammar',), 'grammatical'),
    Member(
        'GPT', 'Tiny Shakespeare, bytes', ('gpt_shakespeare',), 'loss',
        public=Public('1.88', 'characters, 3 minutes on a laptop', 'karpathy/nanoGPT'),
    ),
    Member(
        'LSTM', 'Penn Treebank, valid', ('ptb',), 'perplexity',
        public=Public('115', 'its small model, on test', 'the code of Zaremba et al. 2014'),
    ),
    Member('GPT', 'Penn Treebank, valid', ('ptb/transformer',), 'perplexity'),
    Member('BERT', 'grammar, German', ('bert_grammar',), 'gaps'),
    Member(
        'one attention layer', 'SST-2, dev', _seeds('sst2/seed'), 'accuracy',
        public=_bert('tiny', '83.2 %'),
    ),
    Member('BERT, 2.5 M parameters', 'SST-2, dev', _hour('sst2'), 'accuracy', public=_bert('tiny', '83.2 %')),
    Member('BERT, 2.5 M parameters', 'TREC, a tenth of train', _hour('trec'), 'accuracy'),
    Member(
        'BERT, 2.5 M parameters', 'CoLA, dev in domain', _hour('cola'), 'matthews', 'dev',
        public=_bert('tiny', '0'),
    ),
    Member('BERT, 2.5 M parameters', 'MRPC, validation', _hour('mrpc'), 'f1', public=_bert('tiny', '0.811')),
    Member('BERT, 2.5 M parameters', 'RTE, dev', _hour('rte'), 'accuracy', public=_bert('tiny', '57.2 %')),
    Member('MiniLM, fine-tuned', 'SST-2, dev', ('minilm/sst2',), 'accuracy', public=_bert('small', '89.7 %')),
    Member('LSTM', 'TREC, a tenth of train', ('trec',), 'accuracy'),
    Member('MiniLM, fine-tuned', 'TREC, a tenth of train', ('minilm/trec',), 'accuracy'),
    Member('LSTM', 'CoLA, dev in domain', ('cola',), 'matthews', 'dev', public=_bert('tiny', '0')),
    Member(
        'MiniLM, fine-tuned', 'CoLA, dev in domain', ('minilm/cola',), 'matthews', 'dev',
        public=_bert('small', '0.278'),
    ),
    Member('LSTM', 'STS-B, dev', ('stsb',), 'pearson', public=_bert('tiny', '0.743')),
    Member('MiniLM, fine-tuned', 'STS-B, dev', ('minilm/stsb',), 'pearson', public=_bert('small', '0.788')),
    Member('Transformer', 'GENIA, tags of dev', ('genia_tags/transformer',), 'accuracy'),
    Member('LSTM', 'GENIA, tags of dev', ('genia_tags/lstm',), 'accuracy'),
    Member('Transformer', 'SQuAD 1.1, dev', ('squad',), 'f1'),
    Member('MiniLM, fine-tuned', 'SQuAD 1.1, dev', ('minilm/squad',), 'f1'),
    Member(
        'Transformer', 'bAbI, 20 tasks of 1,000', ('babi',), 'right',
        public=Public('49 %', 'LSTM', 'Weston et al. 2015'),
    ),
    Member(
        'T5', 'SciTLDR, dev', ('scitldr/denoise',), 'rouge1',
        public=Public('34.8', 'T5-small, its own pre-training', 'a T5-small tuned on SciTLDR'),
    ),
    Member('ViT', 'shapes of the package', ('vit_pictures',), 'accuracy'),
    Member('CLIP', 'scenes, 1,000 pairs', ('clip_pictures',), 'text_of_image_r1'),
    Member('Transformer', 'captions of scenes', ('captions_pictures',), 'facts'),
    Member('LSTM, attention', 'captions of scenes', ('captions_pictures/lstm',), 'facts'),
    Member('Transformer', 'German captions of scenes', ('captions_pictures/german',), 'facts'),
    Member('Transformer', 'captions of photographs, 125', ('captions_flickr8k',), 'cider'),
    Member('CLIP', 'emoji, another drawer, 154', ('clip_emoji',), 'image_of_text_r1'),
    Member(
        'ViT', 'MNIST', ('vit_mnist',), 'accuracy',
        public=Public('96.3 %', '4 blocks, d 16, patch 7', 'a public ViT on MNIST'),
    ),
    Member('ViT', 'CIFAR-10, 5,000 pictures', _seeds('cifar10/vit-seed'), 'accuracy'),
    Member('residual network', 'CIFAR-10, 5,000 pictures', _seeds('cifar10/resnet-seed'), 'accuracy'),
)  # fmt: skip
