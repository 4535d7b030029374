"""From a model and a batch of ids to decoded ids."""

import keras
import numpy as np
from keras import ops

from keras_transformers.generation.search import Greedy


def decode(model, source, forced, search, start_id=1, end_id=2):
    """Runs a search on a model's decoder: the traceable heart of `generate`.

    Args:
        model: Anything with `start_decoding` and `decode_step` as `models.Transformer` has.
        source: Integer ids `(batch, source_length)`, 0 = padding.
        forced: Integer ids `(batch, max_length)`; 0 leaves the choice to the search. Its static
            second size is the limit on tokens.
        search: `Greedy()` or `BeamSearch(...)`.
        start_id: The token before the first.
        end_id: The token that ends a sequence.

    Returns:
        The search's dict of `tokens`, `scores` and `lengths`.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.generation import Greedy, decode
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> model.build({"source": (None, None), "target": (None, None)})
    >>> source, forced = ops.array([[5, 7, 2]]), ops.zeros((1, 4), "int32")
    >>> tuple(decode(model, source, forced, Greedy())["tokens"].shape)
    (1, 4)
    """
    state, shared = model.start_decoding(source, search.beams, forced.shape[1])

    def step(ids, index, state):
        return model.decode_step(ids, index, state, shared)

    return search(step, state, forced, start_id, end_id)


class _Generator(keras.Model):
    """Lets Keras compile `decode` for whichever backend is in use."""

    def __init__(self, model, search, start_id, end_id):
        super().__init__(name="generator", dtype=model.dtype_policy)
        self.model = model
        self.search = search
        self.ids = (start_id, end_id)
        self.compile(jit_compile=True)
        self.built = True

    def call(self, inputs):
        return decode(self.model, inputs["source"], inputs["forced"], self.search, *self.ids)


def generate(
    model, source=None, prompt=None, search=None, max_length=None, start_id=1, end_id=2
):
    """Decodes a batch with XLA; compiled once for each shape of `source` and each search.

    Args:
        model: Anything with `start_decoding` and `decode_step` as `models.Transformer` has.
        source: Integer ids `(batch, source_length)`, 0 = padding. Pad to a few fixed lengths: each
            new shape compiles anew.
        prompt: Optional integer ids `(batch, prompt_length)`: how every output must begin, from
            the first place on; 0 behind it leaves the choice to the search.
        search: `Greedy()` (default) or `BeamSearch(...)`.
        max_length: Limit on tokens, END included; by default `2 * source_length + 10`.
        start_id: The token before the first.
        end_id: The token that ends a sequence.

    Returns:
        Dict of NumPy arrays: `tokens` int32 `(batch, [n_best,] max_length)`, without START, with
        END, then 0; `scores` float32 `(batch, [n_best])`; `lengths` int32, END included.

    Raises:
        ValueError: If `source` is not a batch of integer ids, or `prompt` does not fit it.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.generation import BeamSearch, generate
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> result = generate(model, np.array([[5, 7, 2]]), search=BeamSearch(2), max_length=6)
    >>> result["tokens"].shape
    (1, 6)
    """
    search = Greedy() if search is None else search
    source = np.asarray(source)
    if source.ndim != 2 or not np.issubdtype(source.dtype, np.integer):
        raise ValueError(
            "generate: `source` must be integer ids of shape (batch, length). "
            f"Received: {source.dtype} of shape {source.shape}"
        )
    limit = 2 * source.shape[1] + 10 if max_length is None else max_length
    forced = np.zeros((len(source), limit), "int32")
    if prompt is not None:
        prompt = np.asarray(prompt)
        if prompt.ndim != 2 or len(prompt) != len(source) or prompt.shape[1] > limit:
            raise ValueError(
                f"generate: `prompt` must be of shape ({len(source)}, at most {limit}). "
                f"Received: shape {prompt.shape}"
            )
        forced[:, : prompt.shape[1]] = prompt
    if not model.built:
        model({"source": source[:1], "target": forced[:1, :1]})
    # Kept on the model, out of Keras's tracking: it would make the model its own sub-layer.
    compiled = vars(model).setdefault("_generators", {})
    key = (search, source.shape, limit, start_id, end_id)
    if key not in compiled:
        compiled[key] = _Generator(model, search, start_id, end_id)
    inputs = {"source": source.astype("int32"), "forced": forced}
    return keras.tree.map_structure(ops.convert_to_numpy, compiled[key].predict_on_batch(inputs))
