"""Loads trained models as objects whose methods are their task's verbs."""

import os
import types

from etils import epath

from transformer.config import ConfigError
from transformer.runs import process, restore
from transformer.runs.restore import Trained
from transformer.runs.workdir import Run
from transformer.tasks import task_of


class LoadedModel:
    """A trained model whose methods are its task's verbs, such as `translate` or `generate`."""

    def __init__(self, trained: Trained):
        self.trained = trained
        self._verbs = task_of(trained.config).verbs
        for name, verb in self._verbs.items():
            setattr(self, name, types.MethodType(verb, trained))

    def __reduce__(self) -> tuple:
        return type(self), (self.trained,)  # methods that are attributes cannot be pickled

    def __repr__(self) -> str:
        return f'<model of train.task={self.trained.config.train.task}: {", ".join(self._verbs)}>'


def load(folder: epath.PathLike, choice: str | int = 'scored') -> LoadedModel:
    """Loads the model of a work directory."""
    if not isinstance(folder, str | os.PathLike):
        raise ConfigError(f'{folder!r}: not the name of a folder')
    process.keep_programs()
    trained, _ = restore.load_and_report(Run.open(folder), str(choice))
    return LoadedModel(trained)
