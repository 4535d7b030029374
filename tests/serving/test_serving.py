"""Claims about the program that asks the exports in other processes."""

import sys

import pytest
import tensorflow as tf

from tests.serving import environments
from tests.serving.__main__ import CURRENT, EVERY, check, interpreters
from tests.serving.answers import differences
from tests.serving.reachable import MUST_COMPILE, reached, read


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_an_export_answers_in_a_process_of_its_own(name, tmp_path):
    (row,) = check(name, tmp_path, {CURRENT: sys.executable}).values()
    assert row["XLA_off"] == row["answers_equal"] == "yes"


class Branches(tf.Module):
    """Compiles only in the second branch of what a branch calls."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="x")])
    def hidden(self, x):
        compiled = tf.function(lambda: 2 * x, jit_compile=True)
        inner = lambda: tf.switch_case(x, [lambda: x, compiled])  # noqa: E731
        return {"y": tf.cond(x > 0, inner, lambda: x)}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="x")])
    def plain(self, x):
        return {"y": tf.cond(x > 0, lambda: 3 * x, lambda: x)}


def test_what_is_compiled_in_a_branch_is_reached(tmp_path):
    module = Branches()
    signatures = {"hidden": module.hidden, "plain": module.plain}
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    graph = read(tmp_path)
    assert MUST_COMPILE in reached(graph, "hidden")
    assert MUST_COMPILE not in reached(graph, "plain") and "Mul" in reached(graph, "plain")


def test_answers_that_differ_are_told():
    ours = {"answers": [{"label": ["a", "b"], "score": [0.5, 1.0]}]}
    close = {"answers": [{"label": ["a", "b"], "score": [0.500001, 1.0]}]}
    assert not differences(ours, ours) and not differences(ours, close)
    for theirs, told in [
        ({"label": ["a", "c"], "score": [0.5, 1.0]}, "label: 1 of 2 differ"),
        ({"label": ["a", "b"], "score": [0.5, 1.1]}, "score: 1 of 2 differ"),
        ({"label": ["a"], "score": [0.5]}, "label: shape"),
        ({"label": ["a", "b"]}, "has outputs"),
    ]:
        assert told in differences(ours, {"answers": [theirs]})[0]
    assert differences(ours, {"error": "lost"}) == ["lost"]


def test_an_environment_that_is_there_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(environments.subprocess, "run", lambda *a, **k: pytest.fail("installs"))
    folder = tmp_path / "tensorflow-2.20"
    folder.mkdir()
    (folder / "installed").touch()
    found = interpreters(["2.19", "2.20", CURRENT], ["2.19=/there/python"], tmp_path)
    assert found["2.19"] == "/there/python" and found[CURRENT] == sys.executable
    assert found["2.20"].startswith(str(folder))
