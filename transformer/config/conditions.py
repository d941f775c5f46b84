"""Conditions of options: the tasks, kinds of models and sources with which an option has a meaning."""

from transformer.config.tasks import data_with, models_with

# Tasks by their data, then by the parts of their models.
LANGUAGES, TREES = map(data_with, ('languages', 'trees'))
LANGUAGE = models_with('continues')
ONE_TEXT, TEXTS, WRITES, RUNNING = map(models_with, ('one_text', 'texts', 'writes', 'running'))
IMAGES = models_with('image')
PREDICTS = models_with('writes', 'pieces')
# Tasks that predict distributions over pieces or classes.
SMOOTHED = models_with('writes', 'pieces', 'classes')
# All tasks with texts, except language models.
ENCODES = ('train.task', tuple(task for task in TEXTS[1] if task not in LANGUAGE[1]))
# An encoder, and a decoder that attends to its output.
DECODES = ('train.task', tuple(task for task in WRITES[1] if task not in LANGUAGE[1]))
# Tasks with texts that write none.
READS = ('train.task', tuple(task for task in TEXTS[1] if task not in WRITES[1]))
# Of these, the ones whose models have classes, of texts or of words, or find spans.
ANSWERS = ('train.task', tuple(task for task in READS[1] if task in models_with('classes', 'spans')[1]))
# Models that write from a text.
PROMPTED = ('train.task', tuple(task for task in WRITES[1] if task not in IMAGES[1]))
# Kinds of models by their layers. Recurrent layers need no encoding of positions.
LAYERED = ('model.kind', ('transformer',))
POSITIONED = ('model.kind', ('transformer', 'convolutional'))
RECURRENT = ('model.kind', ('recurrent',))
CONVOLUTIONAL = ('model.kind', ('convolutional',))
RECURRENT_PAIR = (*RECURRENT, *DECODES)
# Values of options that other options belong to.
ADAM = ('train.optimizer', ('adam',))
NORMAL = ('model.init', ('normal', 'truncated_normal'))
# Sources by what they read: stored data, or what the package generates.
GENERATED = ('grammar', 'pictures', 'scenes')
SOURCES = ('tfds', 'text', 'table', 'conll', 'squad', 'trees', *GENERATED, 'folders', 'idx')
STORED = ('data.source', tuple(source for source in SOURCES if source not in GENERATED))
# What is generated has splits of its own, of which an option can name slices.
_SPLITS = ('train', 'dev', 'test')
OWN_SPLITS = 'data.source', {'grammar': _SPLITS, 'pictures': _SPLITS, 'scenes': (*_SPLITS, 'unseen')}
