"""Training models of texts by a loss that takes their last hidden states."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

from keras_transformers.annotations import ModelMixin, Tensor
from keras_transformers.layers import TokenEmbedding

# Whether the step that is traced now wants hidden states instead of logits.
_HIDDEN: contextvars.ContextVar[bool] = contextvars.ContextVar("hidden", default=False)


@contextlib.contextmanager
def hidden_states(wanted: bool = True) -> Iterator[None]:
    """Calls of models in this context give hidden states, where that is wanted."""
    token = _HIDDEN.set(wanted)
    try:
        yield
    finally:
        _HIDDEN.reset(token)


class TrainsWithoutLogits(ModelMixin):
    """A model of tokens that makes no logits where its loss, `LinearCrossEntropy`, needs none.

    In steps of `fit` and `evaluate`, `call` then gives hidden states, and `compute_loss` hands them
    to the loss with the table. Metrics are updated there too, from what the loss knows of each
    token.
    """

    def output_table(self) -> tuple[TokenEmbedding, list[Any]] | None:
        """A hook: the table that makes the logits and biases that come to them, or None.

        Before the model is built, a bias may be None.
        """
        raise NotImplementedError

    @property
    def _gives_hidden(self) -> bool:
        """Whether `call` is in a step that wants no logits."""
        return _HIDDEN.get()

    def _scored(self, x: Tensor, logits: Callable[[Tensor], Tensor]) -> Tensor:
        """Logits of hidden states, or in a step without logits these themselves."""
        return x if self._gives_hidden else logits(x)

    def _without_logits(self) -> bool:
        if not hasattr(getattr(self, "loss", None), "of_hidden"):
            return False
        found = self.output_table()
        return found is not None and found[0].table_scale is None  # not of a quantised table

    @property
    def _labels_each_token(self) -> bool:
        """A hook: true if labels are `(batch, length)`."""
        return True

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.fit` does; refuses `class_weight` where tokens have labels."""
        self._check_class_weight("fit", kwargs)
        return super().fit(*args, **kwargs)

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.train_on_batch` does, and refuses what `fit` does."""
        self._check_class_weight("train_on_batch", kwargs)
        return super().train_on_batch(*args, **kwargs)

    def _check_class_weight(self, method: str, options: dict[str, Any]) -> None:
        class_weight = options.get("class_weight")
        if class_weight is not None and self._labels_each_token:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `class_weight` of `{method}` must be None, "
                "because Keras would read one class in each row of labels. Weigh tokens by a "
                f"`sample_weight` of the labels' shape. Received: class_weight={class_weight}"
            )

    def train_step(self, *args: Any) -> Any:
        with hidden_states(self._without_logits()):
            return super().train_step(*args)

    def test_step(self, *args: Any) -> Any:
        with hidden_states(self._without_logits()):
            return super().test_step(*args)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        found = self.output_table() if _HIDDEN.get() else None
        if found is not None:
            embedding, biases = found
            bias = sum(biases[1:], biases[0]) if biases else None
            loss: Any = self.loss
            compiled = self.jit_compile and not self.run_eagerly
            given = (embedding.output_table, bias, sample_weight, training, compiled)
            y_pred = loss.of_hidden(y, embedding.before_logits(y_pred), *given)
            super().compute_metrics(x, y, y_pred, sample_weight)
        return super().compute_loss(x, y, y_pred, sample_weight, training=training)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if _HIDDEN.get():  # `compute_loss` has updated them
            return self.get_metrics_result()
        return super().compute_metrics(x, y, y_pred, sample_weight)
