"""Claims about what runs without XLA and without us, for every exporter."""

import keras
import pytest

from tests.export import examples
from tests.serving.answers import ask, differences, write
from tests.serving.loader import as_lists
from tests.serving.reachable import MUST_COMPILE, reached, read
from tests.test_imports import run_without

# One reader each of texts and of images. The others are slow. That text generators answer without
# XLA is tested in tests/export/test_text_generator.py, too.
REPRESENTATIVES = ("text classifier", "image classifier, vit")
OTHERS = [name for name in examples.MAKE if name not in REPRESENTATIVES]


def few(served):
    """A request of three lengths or sizes, and none."""
    many = examples.requests(served)[0]
    return [[many[2], many[0], many[5]], []]


def _made(name, folder):
    """An export, a small one, and its requests, in a folder."""
    keras.utils.set_random_seed(3)
    served = examples.MAKE[name]()
    return served, write(folder / name.replace(", ", "-"), served, few(served))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    return {name: _made(name, folder) for name in REPRESENTATIVES}


@pytest.fixture(scope="module")
def portable(made):
    """Name -> answers of a process without XLA, the same for all."""
    answers = ask([folder for _, folder in made.values()], without_xla=True)
    return dict(zip(made, answers, strict=True))


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_process_with_tensorflow_alone_and_no_xla_answers_as_we_do(made, portable, name):
    served, _ = made[name]
    answers = [served(examples.as_tensor(request)) for request in few(served)]
    compiled = {"answers": [as_lists(each) for each in answers]}
    assert portable[name].get("without_xla")
    assert not differences(compiled, portable[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_the_other_searches_and_models_do_too(name, tmp_path_factory):
    _, folder = _made(name, tmp_path_factory.mktemp("served"))
    (compiled,), (portable,) = ask([folder], "xla"), ask([folder], without_xla=True)
    assert not differences(compiled, portable)
    _check_signatures(folder)


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_nothing_of_xla_is_reached_from_serving_default(made, name):
    _check_signatures(made[name][1])


def _check_signatures(folder):
    graph = read(folder / "model")
    names = reached(graph, "serving_default")
    assert len(names) > 50  # it is walked at all
    assert not [each for each in names if each.startswith("Xla")]
    assert MUST_COMPILE not in names
    assert MUST_COMPILE in reached(graph, "xla")
    portable, compiled = (graph.signature_def[each] for each in ("serving_default", "xla"))
    for side in ("inputs", "outputs"):
        ours, theirs = (getattr(each, side) for each in (portable, compiled))
        assert _shapes(ours) == _shapes(theirs)
        assert all(shape[0] is None for _, shape in _shapes(ours).values())


def _shapes(tensors):
    """Name -> type and shape, None for any size."""
    return {
        name: (info.dtype, [None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim])
        for name, info in tensors.items()
    }


EXPORT = """
from keras_transformers import export, models

model = models.ViT.from_variant("Ti/14", num_classes=2, image_size=28, num_layers=1)
model.build((None, 28, 28, 3))
export.image_classifier(model, PATH, ["cat", "dog"])
"""


def test_an_image_classifier_is_exported_without_tensorflow_text(tmp_path):
    code = EXPORT.replace("PATH", repr(str(tmp_path)))
    run_without(["tensorflow_text"], code)
    assert (tmp_path / "saved_model.pb").is_file()
