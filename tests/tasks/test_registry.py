"""Claims about the registry of tasks."""

import pytest

from keras_transformers import export, fitting, predictors
from keras_transformers.tasks import registry

TASKS = registry.all_tasks()


@pytest.mark.parametrize("kind", TASKS)
def test_the_classes_of_a_task_are_of_one_kind(kind):
    task = TASKS[kind]
    assert task.predictor.kind == kind
    assert task.fitting is None or task.fitting.kind == kind
    # Arrays of more channels than files have are classified by the exporter of images.
    assert task.exporter.kind == {"array_classifier": "image_classifier"}.get(kind, kind)


def test_each_exporter_predictor_and_fitting_of_the_public_names_has_a_task():
    exporters = {getattr(export, name) for name in export.__all__}
    assert {task.exporter for task in TASKS.values()} == {
        exporter for exporter in exporters if isinstance(exporter, type)
    }
    assert {kind: task.predictor for kind, task in TASKS.items()} == predictors.KINDS
    assert {kind: task.fitting for kind, task in TASKS.items() if task.fitting} == fitting.FITTINGS


def test_an_output_tells_one_task():
    outputs = [task.output for task in TASKS.values() if task.output]
    assert len(outputs) == len(set(outputs))


def test_two_tasks_of_one_kind_are_refused(monkeypatch):
    monkeypatch.setattr(registry, "MODULES", (*registry.MODULES, ".tagging"))
    registry.all_tasks.cache_clear()
    try:
        with pytest.raises(ValueError, match="text_tagger: each kind of task must stand once"):
            registry.all_tasks()
    finally:
        registry.all_tasks.cache_clear()


def test_an_unknown_kind_is_refused_with_those_known():
    with pytest.raises(ValueError, match="`kind` must be one of .*translator.*Received: None"):
        registry.predictor_of(None)
