"""SavedModels that fill in what is masked in a raw text."""

import tensorflow as tf

from keras_transformers.export.rounds import Served, check_lengths, in_rounds, padded, strings
from keras_transformers.text import framed

CANDIDATES = 5


class MaskFiller(Served):
    """A masked language model and its tokenizer as one function from text to text.

    Every `[MASK]` of a text is filled with the token that the model finds most probable there, each
    by itself. Lengths and batch sizes are few, as in `TextClassifier`; weights are shared.

    Args:
        model: A `models.TextEncoder` with `head="masked_language"`, or any model from ids `(batch,
            length)`, 0 = padding, to logits `(batch, length, vocab_size)`.
        tokenizer: A `text.WordPieceTokenizer`.
        lengths: Lengths in ids, [CLS] and [SEP] included, to which texts are padded; what exceeds
            the last is cut off, and said so in `truncated`.

    Raises:
        ValueError: If the lengths do not increase.

    Example:
    >>> from keras_transformers.export import MaskFiller
    >>> from keras_transformers.models import TextEncoder
    >>> from keras_transformers.text import WordPieceTokenizer
    >>> special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    >>> tokenizer = WordPieceTokenizer([*special, "a", "cat", "sat"])
    >>> model = TextEncoder.from_variant("tiny", 8, head="masked_language")
    >>> filler = MaskFiller(model, tokenizer, lengths=(8,))
    >>> [len(text.split()) for text in filler.fill(["a [MASK] sat", "a cat"])]
    [3, 2]
    """

    kind = "mask_filler"

    def __init__(self, model, tokenizer, lengths=(32, 64, 128, 256, 512)):
        super().__init__(name="mask_filler")
        lengths = check_lengths("MaskFiller", "lengths", lengths)
        model(tf.ones((1, 2), tf.int32), training=False)
        self._variables = [variable.value for variable in model.variables]  # for the SavedModel
        self._tokenizer = tokenizer
        self._longest = lengths[-1]
        number = min(CANDIDATES, tokenizer.vocab_size)
        special = tf.one_hot(tokenizer.special_ids, tokenizer.vocab_size, 1e9)
        never = tf.reduce_max(special, axis=0)

        @tf.function(jit_compile=True)
        def fill(ids):
            logits = tf.cast(model(ids, training=False), tf.float32) - never
            masked = ids == tokenizer.mask_id
            filled = tf.where(masked, tf.argmax(logits, axis=-1, output_type=tf.int32), ids)
            first = tf.argmax(tf.cast(masked, tf.int32), axis=1)
            at_first = tf.nn.softmax(tf.gather(logits, first, batch_dims=1))
            return filled, *tf.math.top_k(at_first, number), tf.reduce_any(masked, axis=1)

        def compute(ids):
            filled, probabilities, best, any_masked = fill(padded(ids, lengths))
            words = tf.reshape(tokenizer.detokenize(tf.reshape(best, [-1, 1])), [-1, number])
            return {
                "text": tokenizer.detokenize(filled),
                "candidates": tf.where(any_masked[:, None], words, ""),
                "probabilities": tf.where(any_masked[:, None], probabilities, 0.0),
            }

        self._compute = compute
        self._results = {
            "text": tf.TensorSpec([None], tf.string),
            "candidates": tf.TensorSpec([None, number], tf.string),
            "probabilities": tf.TensorSpec([None, number], tf.float32),
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def __call__(self, text):
        """Fills in a batch of texts.

        Args:
            text: UTF-8 strings `(batch,)`, with any number of `[MASK]` in each.

        Returns:
            Dict of `text` string `(batch,)`, as the tokenizer writes it; `candidates` string
            `(batch, 5)` for the first `[MASK]`, best first, and their `probabilities` float32
            `(batch, 5)`, "" and 0 where there is none; `truncated` bool `(batch,)`.
        """
        ids, truncated = framed(self._tokenizer, text, self._longest)
        found = in_rounds(ids, self._compute, self._results, self._tokenizer.end_id)
        return {**found, "truncated": truncated}

    def fill(self, texts):
        """Fills in a list of str."""
        return [text.decode() for text in self(strings(texts))["text"].numpy()]


def mask_filler(model, tokenizer, path, lengths=(32, 64, 128, 256, 512)):
    """Exports a SavedModel that fills in `[MASK]`, loadable with tensorflow and tensorflow-text.

    Its signature `serving_default` takes `text` string `(batch,)` and gives `text`, `candidates`,
    `probabilities` and `truncated`, see `MaskFiller`. In the loading process, `import
    tensorflow_text` registers the tokenizer's ops.

    Args:
        model, tokenizer, lengths: See `MaskFiller`.
        path: Folder to write.

    Returns:
        The path, a `pathlib.Path`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    >>> tokenizer = text.WordPieceTokenizer([*special, "a", "cat", "sat"])
    >>> model = models.TextEncoder.from_variant("tiny", 8, head="masked_language")
    >>> path = export.mask_filler(model, tokenizer, tempfile.mkdtemp(), lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(text=tf.constant(["a [MASK] sat"])))
    ['candidates', 'probabilities', 'text', 'truncated']
    """
    return MaskFiller(model, tokenizer, lengths).save(path)
