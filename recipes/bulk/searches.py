"""A translator with another search than the one that it was saved with."""

import tensorflow as tf

from keras_transformers.export import Translator
from keras_transformers.generation import Constraints, Greedy, Sampling
from keras_transformers.predictors import TranslatorPredictor


class SeededTranslator(Translator):
    """A `Translator` that draws by a seed and the text alone.

    The random numbers of `Sampling(seed=...)` follow from a row's number, which is another one if
    a corpus is shared out in other ways. Here they follow from the text. A text becomes the same
    wherever it stands, up to the rounding of what is computed, so that a job that was killed or is
    shared out goes on as it was begun.
    """

    def __init__(self, *arguments, seed):
        super().__init__(*arguments)
        self._seed = seed

    def drawn(self, ids, most, rows):
        """See `Translator.drawn`."""
        if not isinstance(self.search, Sampling):
            return super().drawn(ids, most, rows)
        texts = tf.strings.reduce_join(tf.strings.as_string(ids), axis=1, separator=" ")
        keys = tf.strings.to_hash_bucket_strong(texts, (1 << 31) - 1, [self._seed, 0])
        beams = self.search.beams
        return tf.map_fn(
            lambda key: tf.random.stateless_uniform([most, beams], [key, self._seed]),
            keys,
            fn_output_signature=tf.TensorSpec([None, beams], tf.float32),
        )


def searching(predictor, search, seed, signature):
    """The predictor of a translator that chooses tokens in another way.

    What its own search must or must not choose stays so.

    Args:
        predictor: Of the translator.
        search: "greedy" or "sample".
        seed: Of what is drawn.
        signature: "xla" compiles; all else does not.

    Raises:
        ValueError: If it is no translator, or its model and tokenizer are not there.
    """
    if predictor.kind != "translator":
        raise ValueError(f"--search is of translators. Received: a {predictor.kind}")
    try:
        parts = predictor.model, predictor.tokenizer
    except AttributeError as error:
        raise ValueError(
            f"--search {search} needs the folder of a run, or one with published weights: {error}"
        ) from None
    constraints = Constraints() if predictor.search is None else predictor.search.constraints
    chosen = {"greedy": Greedy, "sample": Sampling}[search](constraints=constraints)
    translator = SeededTranslator(*parts, chosen, seed=seed)
    made = TranslatorPredictor(translator if signature == "xla" else translator.portable)
    vars(made)["languages"] = translator.target_languages
    made._made["served"] = translator  # what streams
    return made
