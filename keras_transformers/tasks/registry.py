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
    """Returns all tasks by their kinds; the modules are imported for the first call.

    Raises:
        ValueError: If two tasks have one kind.
    """
    tasks: dict[str, Task] = {}
    for name in MODULES:
        for task in importlib.import_module(name, __package__).TASKS:
            if task.kind in tasks:
                raise ValueError(f"{task.kind}: each kind of task must stand once in {MODULES}.")
            tasks[task.kind] = task
    return tasks


def predictor_of(kind: str | None) -> type[Any]:
    """Returns the class of the predictors of a kind.

    Raises:
        ValueError: If there is no task of this kind.
    """
    tasks = all_tasks()
    if kind not in tasks:
        raise ValueError(f"`kind` must be one of {', '.join(tasks)}. Received: {kind!r}")
    return tasks[kind].predictor
