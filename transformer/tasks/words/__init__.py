"""Vectors of words, learned from the words near them (Mikolov et al. 2013), and commands on vectors."""

from transformer.config.flag import Flag
from transformer.tasks.commands import Tool

COMMANDS = {}
_MOST = {'most': Flag(int, None, 'use only the first N words, which are the most frequent', 'N', least=2)}
_COUNT = {'count': Flag(int, None, 'number of words to print (default: 10)', 'N', least=1)}
_LOWERCASE = {'lowercase': Flag(bool, False, 'lowercase the words of the call and of files')}
_FROM = 'VECTORS is a file (word2vec or GloVe) or a work directory.'
_TOOLS = 'transformer.tasks.words.tools'
TOOLS = {
    'neighbours': Tool(
        f'Print the words whose vectors have the largest cosines with a word. {_FROM}',
        f'{_TOOLS}:neighbours',
        ('VECTORS', 'WORD...'),
        _MOST | _COUNT,
        ('{} neighbours runs/skipgram king london',),
    ),
    'analogy': Tool(
        f'Answers to "a is to b as c is to ...", or the right ones among a file of questions. {_FROM}',
        f'{_TOOLS}:analogy',
        ('VECTORS', 'WORD...'),
        _MOST
        | _COUNT
        | _LOWERCASE
        | {
            'by': Flag(
                str,
                'adding',
                'add cosines (3CosAdd) or multiply them (3CosMul)',
                'NAME',
                choices=('adding', 'multiplying'),
                argument='method',
            ),
            'questions': Flag(str, None, 'a file of questions: four words a line', 'FILE'),
        },
        (
            '{} analogy runs/skipgram man woman king',
            '{} analogy FILE --questions=questions-words.txt --most=30000',
        ),
    ),
    'similarity': Tool(
        f"Spearman's correlation of cosines and numbers in files: two words and a number a line. {_FROM}",
        f'{_TOOLS}:similarity',
        ('VECTORS', 'FILE...'),
        _MOST | _LOWERCASE,
        ('{} similarity runs/skipgram wordsim353.tsv --lowercase',),
    ),
    'vectors': Tool(
        f'Write vectors as a file. {_FROM}',
        f'{_TOOLS}:convert',
        ('VECTORS', 'FILE'),
        _MOST
        | {
            'layout': Flag(
                str,
                'word2vec',
                "word2vec's text, the same in binary, or GloVe's text",
                'NAME',
                choices=('word2vec', 'binary', 'glove'),
            )
        },
        ('{} vectors runs/skipgram vectors.txt --layout=glove',),
    ),
    'picture': Tool(
        f'Draw words at the first two principal components of their vectors. {_FROM}',
        f'{_TOOLS}:picture',
        ('VECTORS', 'FILE', 'WORD...'),
        _MOST,
        ('{} picture runs/skipgram words.png king queen man woman',),
    ),
}
