"""Claims about import paths of version 0.2 that lead to `localization`."""

import pytest

from keras_transformers import localization, text
from keras_transformers.text import cleaning, files


@pytest.mark.parametrize(
    ("module", "names"),
    [(text, ["Glossary"]), (cleaning, cleaning.__all__), (files, files.__all__)],
    ids=["text", "text.cleaning", "text.files"],
)
def test_names_of_version_0_2_keep_their_paths(module, names):
    moved = {name: getattr(module, name) for name in names}
    assert moved == {name: getattr(localization, name) for name in names}
    assert moved.keys() <= set(localization.__all__) & set(module.__all__)


def test_every_name_had_a_path_in_version_0_2():
    assert {*cleaning.__all__, *files.__all__, "Glossary"} == {*localization.__all__}
