"""Checks of arguments, with errors that name layer, argument, expected and received."""

import numbers
from collections.abc import Mapping
from typing import Any, NoReturn

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array, Shape, Tensor


def refuse(layer: Any, argument: str, expected: str, received: Any) -> NoReturn:
    """Raises ValueError: names layer and argument, what was expected and what was received.

    Classes take it as a method, `_refuse = refuse`.
    """
    raise ValueError(f"{named(layer, argument)} must be {expected}. Received: {received}")


def beside(argument: str) -> str:
    """What errors expect of a number where an object was given for the same part."""
    return f"left out beside `{argument}`, which has its own"


def named(layer: Any, argument: str) -> str:
    """An argument of a layer as errors name it."""
    return f"{type(layer).__name__} '{layer.name}': `{argument}`"


# Names that Keras, KerasHub, PyTorch and transformers use, and the names that they have here. The
# page docs/migrate/argument_names.md has both tables; a test compares them.
FOREIGN_NAMES = {
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
# Arguments of other libraries' blocks -> what to give a block here.
ELSEWHERE = {
    "hidden_dim": "the width of a block is that of its input",
    "attention_dropout": "give a block `mixer=SelfAttention(num_heads, dropout=...)`",
    "qkv_bias": "give a block `mixer=SelfAttention(num_heads, use_bias=...)`",
    "norm_epsilon": "give a block `norm=LayerNormalization(epsilon=...)`",
}


def refuse_unknown(
    owner: str, name: str, value: Any, elsewhere: Mapping[str, str] | None = None
) -> NoReturn:
    """Raises ValueError: a class does not take this keyword argument.

    The message says what an argument of another library is called here.

    Args:
        owner: Name of the class.
        name, value: The argument.
        elsewhere: Argument -> what to give the class instead of it.
    """
    ours = next((ours for ours, names in FOREIGN_NAMES.items() if name in names), name)
    rule = "is no argument" if ours == name else f"is called `{ours}` here"
    if elsewhere and ours in elsewhere:
        rule += f"; {elsewhere[ours]}"
    raise ValueError(f"{owner}: `{name}` {rule}. Received: {name}={value!r}")


def whole_number(
    layer: Any, argument: str, value: Any, least: int = 1, optional: bool = False
) -> Any:
    """A number of things as an int, NumPy's too; None where it is optional."""
    if value is None and optional:
        return None
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and value >= least):
        expected = "a positive integer" if least == 1 else f"an integer of at least {least}"
        refuse(layer, argument, expected, repr(value))
    return int(value)


def rate(layer: Any, argument: str, value: Any) -> float:
    """A probability of dropping as a float."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (number and 0 <= value < 1):
        refuse(layer, argument, "a rate in [0, 1)", repr(value))
    return float(value)


def check_floating(layer: Any, argument: str, x: Tensor) -> None:
    """Raises ValueError unless `x` is a floating tensor."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    if not keras.backend.is_float_dtype(dtype):
        expected = "floating, cast and scaled as the layer was or will be trained"
        refuse(layer, argument, expected, f"dtype {dtype}, shape {tuple(x.shape)}")


def check_sequence(layer: Any, x_shape: Shape) -> None:
    """Raises ValueError unless `x` is a batch of sequences of known width."""
    if len(x_shape) != 3 or x_shape[-1] is None:
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}': `x` must have shape (batch, length, "
            f"hidden_dim) with a known width. Received: shape {tuple(x_shape)}"
        )


# The largest whole number up to which a type holds every one.
EXACT = {"bfloat16": 2**8, "float16": 2**11, "float32": 2**24, "float64": 2**53}


def as_ids(layer: Any, argument: str, ids: Any, most: int | None = None) -> Tensor:
    """Whole numbers as int32, after `check_ids`: TensorFlow takes no rows by bytes."""
    check_ids(layer, argument, ids, most)
    return ids if dtype_name(ids) == "int32" else ops.cast(ids, "int32")


def check_ids(layer: Any, argument: str, ids: Any, most: int | None = None) -> None:
    """Raises ValueError unless a tensor holds whole numbers.

    Floats are taken, as by `keras.layers.Embedding`, for `keras.Input` makes them unless told
    otherwise: float32 holds every id, and half precision those of a small vocabulary. A fraction is
    found wherever values are known; a compiled program cuts it off.

    Args:
        layer: Whose argument it is, for the message.
        argument: Its name.
        ids: A tensor or an array.
        most: The largest number that it can hold, None where that is unknown.
    """
    dtype = dtype_name(ids)
    fault = None
    if dtype in EXACT:
        if "16" in dtype and (most is None or most > EXACT[dtype]):
            fault = f"{dtype}, which holds each number up to {EXACT[dtype]} only"
            fault += '; keras.Input(shape, dtype="int32") makes integers'
        elif not _whole(known_values(ids)):
            fault = f"{dtype} with fractions"
    elif not dtype.startswith(("int", "uint")):
        fault = dtype
    if fault:
        refuse(layer, argument, "integers, or floats that hold integers", fault)


def dtype_name(x: Any) -> str:
    """Name of the dtype of a tensor of whatever backend, or of an array."""
    dtype = getattr(x.dtype, "name", x.dtype)
    return str(dtype).rpartition(".")[2]


def known_values(x: Any) -> Array | None:
    """The values of a tensor as an array; None while a program is traced."""
    try:
        return ops.convert_to_numpy(x)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return None


def _whole(values: Array | None) -> bool:
    """Whether values are whole numbers, as far as they are known."""
    if values is None:
        return True
    values = np.asarray(values, "float64")
    return bool(np.all(np.isfinite(values)) and np.all(values == np.floor(values)))
