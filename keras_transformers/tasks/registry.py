"""The list of tasks. A new task is one file, with `TASKS`, and one line in `MODULES`."""

import dataclasses
import functools
import importlib
from typing import Any

MODULES = (
    ".image_classification",
    ".image_embedding",
    ".mask_filling",
    ".object_detection",
    ".question_answering",
    ".segmentation",
    ".sentence_embedding",
    ".tagging",
    ".text_classification",
    ".text_generation",
    ".translation",
    ".zero_shot",
)


@dataclasses.dataclass(frozen=True)
class Task:
    """The classes of a task.

    Args:
        exporter: A `Served`, which answers raw requests by a model and writes a SavedModel.
        predictor: A `Predictor`, which takes texts and images, and gives plain Python. Its `kind`
            is the name of the task, in SavedModels and in the folders that `Predictor.save` writes.
        fitting: A `Fitted`, which trains, evaluates and saves the model; None if there is none.
        output: Name of an output that no other task has. It tells the task of a SavedModel that
            does not say its kind.
    """

    exporter: type[Any]
    predictor: type[Any]
    fitting: type[Any] | None = None
    output: str | None = None

    @property
    def kind(self) -> str:
        """Name of the task."""
        return str(self.predictor.kind)


@functools.cache
def all_tasks() -> dict[str, Task]:
    """Returns all tasks by their kinds."""
    modules = (importlib.import_module(name, __package__) for name in MODULES)
    return {task.kind: task for module in modules for task in module.TASKS}


def predictor_of(kind: str | None) -> type[Any]:
    """Returns the class of the predictors of a kind."""
    return all_tasks()[str(kind)].predictor
