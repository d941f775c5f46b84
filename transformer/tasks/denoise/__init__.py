"""Denoising: writes the hidden spans of a text, or what follows its beginning (T5, Raffel et al. 2020)."""

from transformer.tasks.commands import ENSEMBLE, NBEST, TaskCommand

COMMANDS = {
    'fill': TaskCommand(
        'With a model of hidden spans, a line can have several [MASK], whose texts are separated by tabs.',
        flags=NBEST,
        options=('decode.',),
        examples=('echo "[MASK] Hund schläft [MASK]." | {} fill --workdir=FOLDER',),
        note=ENSEMBLE,
    )
}
