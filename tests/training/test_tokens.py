"""Claims about how models that predict tokens are trained."""

import numpy as np
import pytest

from keras_transformers.models import LanguageModel, Transformer
from keras_transformers.training import LinearCrossEntropy, SmoothedCrossEntropy, token_learning

IDS = np.array([[1, 5, 7, 3], [1, 7, 5, 0]])


@pytest.mark.parametrize("vocab_size, kind", [(99_999, SmoothedCrossEntropy), (100_000, None)])
def test_a_large_vocabulary_is_learned_without_all_logits(vocab_size, kind):
    model = LanguageModel(vocab_size, 4, num_heads=1, mlp_dim=4, num_layers=1)
    learned = token_learning(0, 0.1, model)
    assert type(learned["loss"]) is (kind or LinearCrossEntropy)
    assert learned["loss"].label_smoothing == 0.1


def test_both_losses_and_their_metrics_are_the_same(monkeypatch):
    model = Transformer(11, 8, num_heads=2, mlp_dim=12, num_layers=1)
    inputs = {"source": IDS, "target": IDS[:, :-1]}
    model(inputs)
    values = []
    for limit in (12, 11):
        monkeypatch.setattr("keras_transformers.training.metrics.LARGE", limit)
        learned = token_learning(0, 0.1, model)
        model.compile(**learned, jit_compile=False)
        values.append(model.evaluate(inputs, IDS[:, 1:], verbose=0))
        assert isinstance(learned["loss"], LinearCrossEntropy) == (limit == 11)
    np.testing.assert_allclose(*values, rtol=1e-5)
