"""SavedModels that take raw text and give raw text: tokenizer and search inside."""

import numpy as np
import tensorflow as tf

from keras_transformers.export.rounds import (
    Served,
    check_lengths,
    for_lengths,
    in_rounds,
    strings,
    uniform,
)
from keras_transformers.generation import BeamSearch, Request, decode
from keras_transformers.generation.request import most_tokens, padding_of

RESULTS = {
    "translation": tf.TensorSpec([None], tf.string),
    "score": tf.TensorSpec([None], tf.float32),
}


class Translator(Served):
    """A trained model, its tokenizer and a search as one function from text to text.

    Sentences are sorted by length and padded to a few lengths and batch sizes, so that XLA compiles
    a handful of shapes, each when it is first met. A sentence of n pieces, END included, gets a
    translation of at most `min(2 n + 10, n + 50)` (n + 50: Vaswani et al. 2017, section 6.1). The
    model's weights are shared, not copied: used during training it translates with the weights of
    the moment.

    Args:
        model: A `models.Transformer`, or any model with its `start_decoding` and `decode_step`.
        tokenizer: A `text.SentencePieceTokenizer` or `text.MarianTokenizer`, whose padding is the
            model's.
        search: `BeamSearch(...)` (default: 4 beams), `Greedy()` or `Sampling(...)`.
        source_lengths: Lengths in pieces, END included, to which sources are padded; what exceeds
            the last is cut off, and said so in `truncated`.

    Raises:
        ValueError: If `source_lengths` do not increase.

    Example:
    >>> from keras_transformers.export import Translator
    >>> from keras_transformers.models import Transformer
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = Transformer(14, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> translator = Translator(model, tokenizer, source_lengths=(8,))
    >>> len(translator.translate(["a cat", "", "a cat sat on a mat"]))
    3
    """

    kind = "translator"

    def __init__(self, model, tokenizer, search=None, source_lengths=(16, 32, 64, 128)):
        super().__init__()
        lengths = check_lengths("Translator", "source_lengths", source_lengths)
        if not model.built:
            model({name: np.ones((1, 1), "int32") for name in ("source", "target")})
        self._variables = [variable.value for variable in model.variables]  # for the SavedModel
        self._tokenizer = tokenizer
        search = BeamSearch() if search is None else search
        branches = [_decoder(model, search, length, tokenizer) for length in lengths]
        self._translate_chunk = for_lengths(lengths, branches)
        self._longest = lengths[-1]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def __call__(self, text):
        """Translates a batch of sentences.

        Args:
            text: UTF-8 strings `(batch,)`; an empty one gives an empty translation.

        Returns:
            Dict of `translation` string `(batch,)`; `score` float32 `(batch,)`, the search's score;
            `truncated` bool `(batch,)`, whether the end of the sentence was cut off.
        """
        ids = self._tokenizer.tokenize(text)
        lengths = ids.row_lengths()
        end = tf.fill([ids.nrows(), 1], self._tokenizer.end_id)
        sources = tf.concat([ids[:, : self._longest - 1], end], axis=1)
        found = in_rounds(sources, self._translate_chunk, RESULTS, self._tokenizer.end_id)
        empty = lengths == 0
        return {
            "translation": tf.where(empty, "", found["translation"]),
            "score": tf.where(empty, 0.0, found["score"]),
            "truncated": lengths > self._longest - 1,
        }

    def translate(self, sentences):
        """Translates a list of str to a list of str."""
        result = self(strings(sentences))
        return [text.decode() for text in result["translation"].numpy()]


def _decoder(model, search, length, tokenizer):
    """Translates ragged ids of up to `length` pieces; the search is compiled by XLA."""
    most, padding = most_tokens(length), padding_of(model)

    @tf.function(jit_compile=True)
    def run(source, drawn):
        # Each sentence's limit follows from its own length, whatever it is padded to: what it
        # becomes must not depend on its neighbours in the batch.
        pieces = tf.reduce_sum(tf.cast(source != padding, tf.int32), axis=1)
        limits = search.constraints.limits(pieces, most_tokens(pieces, tf.minimum))
        forced = tf.fill([source.shape[0] or tf.shape(source)[0], most], padding)
        marks = (tokenizer.start_id, tokenizer.end_id)
        request = Request(forced, *marks, *limits, drawn, padding_id=padding)
        return decode(model, source, search, request)

    def translate(ids):
        source = ids.to_tensor(padding, shape=[None, length])
        # A sentence alone is traced apart: layers take quicker ways when they know it is.
        # (TensorFlow folds a condition on the shape of `source` into a wrong constant.)
        result = tf.cond(
            tf.equal(ids.nrows(), 1),
            lambda: run(tf.ensure_shape(source, [1, length]), uniform(search, most, 1)),
            lambda: run(source, uniform(search, most, tf.shape(source)[0])),
        )
        tokens, scores = result["tokens"], result["scores"]
        if tokens.shape.rank == 3:  # the best of `n_best`, the first of several samples
            tokens, scores = tokens[:, 0], scores[:, 0]
        return {"translation": tokenizer.detokenize(tokens), "score": scores}

    return translate


def translator(model, tokenizer, path, search=None, source_lengths=(16, 32, 64, 128)):
    """Exports a SavedModel that translates raw text, loadable with tensorflow and tensorflow-text.

    Its signature `serving_default` takes `text` string `(batch,)` and gives `translation` string,
    `score` float32 and `truncated` bool, each `(batch,)`. In the loading process, `import
    tensorflow_text` registers the tokenizer's ops.

    Args:
        model, tokenizer, search, source_lengths: See `Translator`.
        path: Folder to write.

    Returns:
        The path, a `pathlib.Path`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> tokenizer = text.SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = models.Transformer(14, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> path = export.translator(model, tokenizer, tempfile.mkdtemp(), source_lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(text=tf.constant(["a cat"])))
    ['score', 'translation', 'truncated']
    """
    return Translator(model, tokenizer, search, source_lengths).save(path)
