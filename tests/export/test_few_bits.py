"""Claims about exports of models in four bits: what is served answers as the model in memory."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.export import examples

# "translator" decodes by three beams, "text generator" by two.
SEARCHED = ("translator, int4", "text generator, int4")


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHED)
def test_a_served_model_in_four_bits_answers_as_the_one_in_memory(name, tmp_path):
    keras.utils.set_random_seed(0)
    served = examples.IN_FEWER_BITS[name]()
    kernels = [each for each in served.model._flatten_layers() if each.quantization_mode]
    assert {each.quantization_mode for each in kernels} >= {"int4"}
    loaded = tf.saved_model.load(str(served.save(tmp_path / "served")))
    # With the beginnings of lines that it knows, a generator has nothing else to choose from.
    begun = [" ".join(line.split()[:4]) for line in examples.LINES if len(line.split()) > 5]
    requests = [begun, begun[:1]] if served.kind == "text_generator" else examples.requests(served)
    for request in requests[:3]:
        text = examples.as_tensor(request)
        expected = served(text)
        for signature in ("serving_default", "xla"):
            found = loaded.signatures[signature](text=text)
            assert found.keys() == expected.keys()
            for key, value in found.items():
                if value.dtype.is_floating:
                    np.testing.assert_allclose(value, expected[key], atol=1e-4)
                else:
                    np.testing.assert_array_equal(value, expected[key], err_msg=key)
        answers = expected["translation" if "translation" in expected else "text"].numpy()
        assert len(set(answers)) > len(request) / 2  # it says other things of other texts
