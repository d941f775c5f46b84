"""Loads trained models as objects whose methods are their task's verbs."""

import functools

from etils import epath

from transformer.runs import process, restore
from transformer.runs.restore import Trained
from transformer.runs.workdir import Run
from transformer.tasks import task_of


class LoadedModel:
    """A trained model whose methods are its task's verbs, such as `translate` or `generate`."""

    def __init__(self, trained: Trained):
        self.trained = trained
        for name, verb in task_of(trained.config).verbs.items():
            setattr(self, name, functools.partial(verb, trained))


def load(folder: epath.PathLike, choice: str | int = 'scored') -> LoadedModel:
    """Loads the model of a work directory."""
    process.keep_programs()
    trained, _ = restore.load_and_report(Run.open(folder), str(choice))
    return LoadedModel(trained)
