"""A writer's page: a text goes on, more or less boldly."""

import dataclasses
import itertools

import keras
import tensorflow as tf
from keras import ops

from keras_transformers.export import TextGenerator
from keras_transformers.generation import Sampling
from keras_transformers.pretrained import load_search

from .asking import cut
from .examples import settings_of

NEW_TOKENS = 128
MASKED = -1e9


class AdjustableModel:
    """A language model whose distribution is bent by numbers that can be changed at any time.

    A search has its numbers compiled into it, and another temperature would compile for seconds;
    here they are variables: logits are divided by `temperature`, and what is not among the most
    probable tokens that sum to `top_p` is never chosen.

    Args:
        model: Anything with `start_decoding` and `decode_step` as `models.LanguageModel` has.
    """

    def __init__(self, model):
        self._model = model
        self.temperature = tf.Variable(1.0, trainable=False)
        self.top_p = tf.Variable(1.0, trainable=False)

    def __getattr__(self, name):
        return getattr(self._model, name)

    def decode_step(self, *inputs):
        """The next logits, as `top_p` leaves them, and the state."""
        logits, state = self._model.decode_step(*inputs)
        logits = ops.cast(logits, "float32") / self.temperature
        return nucleus(logits, self.top_p), state


def nucleus(logits, top_p):
    """Logits, with a very small number for all but the fewest tokens whose sum is `top_p`."""
    ranked = tf.sort(logits, direction="DESCENDING")
    probabilities = tf.nn.softmax(ranked)
    before = tf.cumsum(probabilities, axis=-1, exclusive=True)
    kept = tf.where(before < top_p, ranked, float("inf"))
    return tf.where(logits >= tf.reduce_min(kept, axis=-1, keepdims=True), logits, MASKED)


@dataclasses.dataclass(frozen=True)
class SamplingSettings:
    """How boldly a folder's texts are meant to go on, and how far."""

    temperature: float = 0.8
    top_p: float = 0.95
    new_tokens: int = NEW_TOKENS


def sampling_settings(folder, predictor=None):
    """The `SamplingSettings` of a run or of published weights, whose predictor has a model."""
    settings = settings_of(folder)
    names = [field.name for field in dataclasses.fields(SamplingSettings)]
    if "temperature" in settings and "new_tokens" in settings:  # a run
        return SamplingSettings(**{name: settings[name] for name in names})
    model = None if predictor is None else predictor.model
    most = getattr(model, "most_positions", None) or 2 * NEW_TOKENS
    asked = SamplingSettings(new_tokens=min(NEW_TOKENS, most // 2))
    try:
        found = load_search(folder)
    except (FileNotFoundError, ValueError):
        return asked
    if isinstance(found, Sampling):
        return dataclasses.replace(asked, temperature=found.temperature, top_p=found.top_p or 1.0)
    return asked


class Writer:
    """Goes on with texts, by a model whose temperature and `top_p` differ from text to text.

    Args:
        model, tokenizer: As `export.TextGenerator` takes them.
        new_tokens: Most tokens of a continuation.
    """

    def __init__(self, model, tokenizer, new_tokens=NEW_TOKENS):
        if not model.built:
            model(keras.ops.ones((1, 1), "int32"))
        self._adjustable = AdjustableModel(model)
        self._generator = TextGenerator(self._adjustable, tokenizer, Sampling(), new_tokens)

    def write(self, prompt, temperature, top_p):
        """Yields a text and what follows it so far, and a sentence, while it is written.

        Raises:
            ValueError: If a number is out of its range.
        """
        if not temperature > 0 or not 0 < top_p <= 1:
            raise ValueError("The temperature must be above 0, top_p above 0 and at most 1.")
        self._adjustable.temperature.assign(temperature)
        self._adjustable.top_p.assign(top_p)
        pieces = self._generator.stream(prompt or "")
        note = cut({"truncated": pieces.truncated}, "beginning")
        for text in itertools.accumulate(pieces, initial=pieces.prompt):
            yield text, note


def write(predictor, prompt):
    """A text and what follows it, by the numbers of the export; and a sentence."""
    found = predictor.predict(prompt or "", details=True)
    return found["text"], cut(found, "beginning")
