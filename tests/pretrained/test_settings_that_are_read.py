"""Claims about which settings change a model: by the published code itself, not from memory."""

import ast
import importlib.util
import inspect
import pathlib
import warnings

import pytest

from keras_transformers import pretrained
from keras_transformers.models import LanguageModel
from keras_transformers.pretrained.folder import FAMILIES
from tests.pretrained.test_bad_folders import edit

hf = pytest.importorskip("transformers")
# Read, but of the code's own making or of what is no weight and no number of a model.
OF_THE_CODE = {"_attn_implementation", "to_dict", "get_text_config", "vision_config"}


def read_by(kind):
    """The settings that a published family's code reads: what it takes of a `config`."""
    kind = kind.replace("-", "_")
    spec = importlib.util.find_spec(f"transformers.models.{kind}.modeling_{kind}")
    found = set()
    for node in ast.walk(ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))):
        of = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(of, ast.Name) and of.id == "config":
            found.add(node.attr)
        if isinstance(of, ast.Attribute) and of.attr == "config":
            found.add(node.attr)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
            what, name = node.args[:2]
            if "config" in ast.unparse(what) and isinstance(name, ast.Constant):
                found.add(name.value)
    return found


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_setting_that_the_published_code_reads_is_known(kind):
    family, other = FAMILIES[kind], hf.CONFIG_MAPPING[kind].attribute_map
    read = {other.get(name, name) for name in read_by(kind)} - OF_THE_CODE
    assert read <= family.configuration.known, sorted(read - family.configuration.known)


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_setting_that_the_published_configuration_has_is_known(kind):
    names = {
        name
        for each in hf.CONFIG_MAPPING[kind].__mro__
        for name in vars(each)
        if issubclass(each, hf.PretrainedConfig)
        and each is not hf.PretrainedConfig
        and not name.startswith("_")
        and not inspect.isroutine(getattr(each, name, None))
    }
    fields = hf.CONFIG_MAPPING[kind]().to_dict().keys()
    assert fields & names <= FAMILIES[kind].configuration.known


@pytest.fixture
def folder(tmp_path):
    model = LanguageModel.from_variant(
        "small", 31, hidden_dim=12, num_heads=3, mlp_dim=20, num_layers=1, padding_id=-1
    )
    model.build((None, None))
    return pretrained.save(model, tmp_path / "gpt2")


def test_a_setting_that_nobody_reads_is_named_and_the_model_loads(folder):
    # Those of gpt2-medium, and of a sentence-transformers' classifier.
    edit(folder, n_special=0, predict_special_tokens=True, output_past=True, number_of_wheels=4)
    with pytest.warns(UserWarning, match="`number_of_wheels` is read by no published model of"):
        assert pretrained.load(folder).count_params()


def test_a_setting_known_from_the_hub_is_no_news(folder):
    edit(folder, n_special=0, predict_special_tokens=True, output_past=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        pretrained.load(folder)
