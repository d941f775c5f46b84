"""Constituency parsing: sentences into trees (Vinyals et al. 2015; §6.3)."""

from transformer.config.flag import Flag
from transformer.tasks.commands import ENSEMBLE, NBEST, TaskCommand, Tool

COMMANDS = {
    'parse': TaskCommand(
        'Write the tree of each sentence of standard input, one per line.',
        flags={
            **NBEST,
            'raw': Flag(bool, False, 'split the sentences into words, as the Penn Treebank does'),
            'draw': Flag(str, None, "also draw each line's tree, as SVG and PNG", 'FOLDER'),
        },
        options=('decode.',),
        examples=(
            'echo "The dog sleeps ." | {} parse --workdir=FOLDER',
            '{} parse --workdir=FOLDER --raw --draw=FOLDER < FILE',
        ),
        note=ENSEMBLE,
    )
}
TOOLS = {
    'evalb': Tool(
        'Score a file of trees against the right trees, one per line, with the tables of EVALB.',
        'transformer.tasks.parsing.evalb_command:main',
        ('GOLD', 'TEST'),
        {
            'params': Flag(str, None, "EVALB's parameter file (default: the rules of COLLINS.prm)", 'FILE'),
            'cutoff': Flag(int, None, 'longest sentence of the second summary (default: 40)', 'N', least=0),
            'max_errors': Flag(
                int, None, 'one more error is allowed, then scoring ends (default: 10)', 'N', least=0
            ),
            'interval': Flag(bool, False, 'add the 95 % interval of F1 over resampled sentences'),
            'other': Flag(str, None, "another parser's trees: how its F1 differs, with p", 'FILE'),
        },
        ('{} evalb GOLD TEST', '{} evalb GOLD TEST --params=COLLINS.prm --other=FILE'),
    )
}
