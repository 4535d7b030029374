"""What a constructor is given: the words of other libraries, and how to make the same again."""

import functools
import inspect
import itertools
from collections.abc import Callable, Collection
from typing import Any, Self, cast

import keras
import numpy as np

from keras_transformers.annotations import Mixin

# Keras's, KerasHub's, PyTorch's and transformers' words for what is called by one here.
WORDS = {
    "mlp_dim": (
        "intermediate_dim", "intermediate_size", "dim_feedforward", "feedforward_dim",
        "feed_forward_dim", "ff_dim", "ffn_dim", "d_ff", "mlp_hidden_dim",
    ),
    "hidden_dim": (
        "hidden_size", "d_model", "model_dim", "embed_dim", "embedding_dim", "emb_dim", "n_embd",
        "output_dim",
    ),
    "num_heads": (
        "nhead", "n_head", "n_heads", "heads", "num_attention_heads", "num_query_heads",
    ),
    "num_key_value_heads": ("key_value_num_heads", "num_kv_heads", "n_kv_heads", "kv_heads"),
    "key_dim": ("head_dim", "head_size", "dim_head", "kdim", "d_head"),
    "value_dim": ("vdim",),
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "depth", "num_blocks"),
    "dropout": ("dropout_rate", "dropout_prob", "hidden_dropout_prob", "hidden_dropout"),
    "rate": ("p", "drop_prob"),
    "attention_dropout": ("attention_probs_dropout_prob", "attn_dropout", "attention_dropout_rate"),
    "drop_path": ("drop_path_rate", "drop_path_prob", "stochastic_depth"),
    "layer_scale": ("layer_scale_init_value", "layerscale_value"),
    "norm_epsilon": ("layer_norm_epsilon", "layer_norm_eps", "epsilon", "eps"),
    "norm_first": ("normalize_first", "pre_norm", "prenorm"),
    "activation": ("hidden_act", "activation_function", "hidden_activation"),
    "use_bias": ("bias",),
    "vocab_size": ("vocabulary_size", "input_dim", "num_embeddings", "num_tokens", "n_vocab"),
    "max_length": (
        "sequence_length", "max_sequence_length", "max_len", "max_position_embeddings",
        "n_positions", "context_length", "block_size",
    ),
    "num_classes": ("num_labels", "classes"),
    "image_size": ("image_shape", "img_size"),
    "patch_size": ("patch_len",),
}  # fmt: skip
OURS = {theirs: ours for ours, words in WORDS.items() for theirs in words}
# What a block is not told, for it is an argument of one of its parts.
OF_PARTS = {
    "attention_dropout": "mixer=SelfAttention(num_heads, dropout=...)",
    "qkv_bias": "mixer=SelfAttention(num_heads, use_bias=...)",
    "norm_epsilon": "norm=LayerNormalization(epsilon=...)",
}


class Arguments(Mixin):
    """A layer or model that knows what it was made with, and the words that others use.

    Comes before Keras's class among the bases. NumPy's numbers become Python's on their way into a
    constructor, so that they are what they are checked for, and can be written as JSON. Vectors of
    integers are cast to the compute dtype of the layer, as an operation on floats would do.

    Attributes:
        vector_arguments: Names of those arguments of `call` that are vectors, a tuple.
    """

    vector_arguments: tuple[str, ...] = ("x", "query", "value", "key", "context")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _of_plain_numbers(cls.__init__)  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        known = None
        for word, value in kwargs.items():
            if word not in OURS and word not in ("hidden_dim", *OF_PARTS):
                continue
            known = parameters_of(cast(Any, cls)) if known is None else known
            if word not in known:
                _refuse_word(cls, word, value, known)
        made = super().__new__(cls, *args, **kwargs)
        # A function, for Keras would take layers in a tuple or a dict for layers of this one.
        made.make_again = functools.partial(cls, *args, **kwargs)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = _arguments_of_call(cast(Any, type(self)))
        given = [
            self._as_floats(name, value)
            for name, value in itertools.zip_longest(names[: len(args)], args)
        ]
        named = {name: self._as_floats(name, value) for name, value in kwargs.items()}
        return super().__call__(*given, **named)

    def _as_floats(self, name: str | None, value: Any) -> Any:
        """The value of an argument of `call`; vectors of integers as floats."""
        if name not in self.vector_arguments or not hasattr(value, "dtype"):
            return value
        dtype = keras.backend.standardize_dtype(value.dtype)
        if dtype == "bool" or keras.backend.is_int_dtype(dtype):
            return keras.ops.cast(value, self.compute_dtype)
        return value


def _of_plain_numbers(make: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *_plain(args), **_plain(kwargs))

    # Keras asks for it without unwrapping.
    vars(__init__)["__signature__"] = inspect.signature(make)
    return __init__


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    if type(value) is dict:
        return {name: _plain(each) for name, each in value.items()}
    return value


def _refuse_word(cls: type, word: str, value: Any, known: Collection[str]) -> None:
    ours = OURS.get(word, word)
    if ours in known:
        raise ValueError(
            f"{cls.__name__}: `{word}` is called `{ours}` here. Received: {word}={value!r}"
        )
    if ours in OF_PARTS and "mixer" in known:
        raise ValueError(
            f"{cls.__name__}: `{word}` is an argument of a part here, {OF_PARTS[ours]}. "
            f"Received: {word}={value!r}"
        )
    if ours == "hidden_dim":
        raise ValueError(
            f"{cls.__name__}: `{word}` must be left out, for the width is that of the input. "
            f"Received: {word}={value!r}"
        )


@functools.cache
def _arguments_of_call(cls: Any) -> tuple[str, ...]:
    """The names of what `call` of a class takes, without `self`."""
    return tuple(inspect.signature(cls.call).parameters)[1:]


@functools.cache
def parameters_of(cls: Any) -> frozenset[str]:
    """What the constructors of a class and of those it comes from take by name."""
    return frozenset(
        name
        for one in cls.__mro__
        if "__init__" in vars(one)
        for name in inspect.signature(one.__init__).parameters
    )
