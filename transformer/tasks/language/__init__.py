"""Language modelling: predicts each piece of a text from those before it (Radford et al. 2018)."""

from transformer.tasks.commands import ENSEMBLE, FIGURE, PROMPT, SCORE_PAIRS, SEARCH, TaskCommand

COMMANDS = {
    'generate': TaskCommand(
        'Continue a text, or each line of standard input, with a language model.',
        verb='hypotheses',
        flags={'prompt': PROMPT, **SEARCH},
        text='prompt',
        options=('decode.',),
        examples=(
            '{} generate --workdir=FOLDER --prompt="Der Hund" --samples=5',
            '{} generate --workdir=FOLDER --config.decode.method=beam < FILE',
        ),
        note=ENSEMBLE,
    ),
    'score-pairs': SCORE_PAIRS._replace(
        summary='For a language model, omit the source.', options=('data.stride',)
    ),
    'figure': FIGURE,
}
