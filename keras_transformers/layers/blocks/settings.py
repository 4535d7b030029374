"""What a block is made of: its arguments, its parts and its configuration."""

from typing import Any, Unpack

import keras

from keras_transformers.annotations import Activation, LayerOptions, Part, Shape
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.blocks.feed_forward import FeedForward
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import beside, check_sequence, rate, refuse, whole_number
from keras_transformers.layers.parts import (
    Prototype,
    arguments_of_call,
    follow_owner,
    norm_prototype,
    part_or_numbers,
)
from keras_transformers.layers.regularization import Dropout, DropPath, LayerScale
from keras_transformers.layers.rematerialization import Rematerialized
from keras_transformers.layers.traced import Traced


class BranchOptions(LayerOptions, total=False):
    """What every block takes by name as well."""

    drop_path: float
    layer_scale: float | None


class SwinOptions(BranchOptions, total=False):
    """What a `SwinBlock` takes by name as well."""

    dropout: float
    feed_forward: Part | None


class PoolingOptions(SwinOptions, total=False):
    """What a `PoolingBlock` takes by name as well."""

    norm: Part | None
    mixer: None


class BlockSettings(Traced, Arguments, Composite, Rematerialized, keras.layers.Layer):
    """What the blocks are made of; it computes nothing.

    A number makes a default part, in `build`, and an object takes its whole place.

    Args:
        num_heads, mlp_dim, dropout, ...: See `EncoderBlock`.

    Attributes:
        default_activation: That of the default feed-forward network.
        mixer, feed_forward: The parts, once built.
    """

    default_activation = "relu"

    def __init__(
        self,
        num_heads: int | None = None,
        mlp_dim: int | None = None,
        dropout: float = 0.0,
        activation: Activation | None = "relu",
        norm_first: bool = False,
        mixer: Part | None = None,
        feed_forward: Part | None = None,
        norm: Part | None = None,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._given: dict[str, Prototype] = {
            **self._part("mixer", mixer, num_heads=num_heads),
            **self._part("feed_forward", feed_forward, mlp_dim=mlp_dim),
        }
        self.mixer: Any = None
        self.feed_forward: Any = None
        self.num_heads = whole_number(self, "num_heads", num_heads, optional=mixer is not None)
        network = feed_forward is not None
        self.mlp_dim = whole_number(self, "mlp_dim", mlp_dim, optional=network)
        self.activation = keras.activations.get(activation)
        default = keras.activations.get(self.default_activation)
        if network and self.activation is not default:
            refuse(self, "activation", beside("feed_forward"), repr(activation))
        self._norm = norm_prototype(self, norm)
        self.dropout = rate(self, "dropout", dropout)
        self.norm_first = norm_first
        self.drop_path = rate(self, "drop_path", drop_path)
        self.layer_scale = layer_scale
        self.supports_masking = True

    @property
    def most_positions(self) -> int | None:
        """The longest sequence that the mixer takes; None without a limit."""
        mixer = self._given.get("mixer")
        most: int | None = None if mixer is None else getattr(mixer.layer, "most_positions", None)
        return most

    def _part(self, argument: str, given: Any, **numbers: Any) -> dict[str, Prototype]:
        """A part that was given, copied, by its name; beside it there is no number.

        It becomes an attribute in `build`, so that weights come in the order of the branches.
        """
        prototype = part_or_numbers(self, argument, given, **numbers)
        if prototype is None:
            return {}
        made = prototype.copy(self, argument)
        return {argument: Prototype(self, argument, made, keras.layers.Layer)}

    def _check(self, x_shape: Shape) -> None:
        """Raises ValueError unless the block's own attention can be made for `x`."""
        if "mixer" in self._given:  # it has shapes of its own, a grid's perhaps
            return
        check_sequence(self, x_shape)
        if x_shape[-1] % self.num_heads:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `num_heads` must divide the width of `x`, "
                f"{x_shape[-1]}. Received: num_heads={self.num_heads}"
            )

    def _build_branch(
        self,
        name: str,
        default: tuple[Any, ...],
        *shapes: Any,
        norm_shape: Shape | None = None,
        branch_shape: Shape | None = None,
    ) -> None:
        """Builds a part, its norm, and the factor on it, if there is one.

        Args:
            name: That of the part.
            default: A class and its arguments, which make the part unless it was given.
            *shapes: Of the part's inputs.
            norm_shape, branch_shape: Of what the norm is given, and of what the part gives, where
                they are not the first of `shapes`.
        """
        if name in self._given:
            layer = self._given[name].layer
        else:
            kind, *arguments = default
            layer = kind(*arguments, name=name, dtype=self.dtype_policy)
            follow_owner(layer, None)
        setattr(self, name, layer)
        layer.build(*shapes)
        setattr(self, f"_{name}_takes", arguments_of_call(layer))
        norm = self._branch_norm(name)
        norm.build(norm_shape or shapes[0])
        setattr(self, f"{name}_norm", norm)
        scale = None
        if self.layer_scale is not None:
            scale = LayerScale(self.layer_scale, name=f"{name}_scale", dtype=self.dtype_policy)
            scale.build(branch_shape or norm_shape or shapes[0])
        setattr(self, f"{name}_scale", scale)

    def _branch_norm(self, name: str) -> Any:
        """A hook: the norm of the branch of the part called `name`, not built."""
        return self._norm.copy(self, f"{name}_norm")

    def copied_norm(self, owner: Any, name: str) -> Any:
        """A norm like those of the branches, for instance the one behind a pre-norm stack."""
        return self._norm.copy(owner, name)

    def _build_feed_forward(self, x_shape: Shape) -> None:
        default = (FeedForward, self.mlp_dim, self.activation)
        self._build_branch("feed_forward", default, x_shape)
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.drop_path_layer = DropPath(self.drop_path, dtype=self.dtype_policy)

    def closing_norm(self, owner: Any, name: str) -> Any:
        """The norm that closes a stack of such blocks, a copy of theirs; None after post-norm."""
        return self._norm.copy(owner, name) if self.norm_first else None

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return tuple(x_shape)

    def given_part(self, name: str) -> Any:
        """The layer that was given as a part, "mixer" or another; None where numbers make it."""
        return self._given[name].layer if name in self._given else None

    def _serialized(self, argument: str) -> Any:
        """The configuration of a part that was given; None of a default one."""
        return self._given[argument].serialized() if argument in self._given else None

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "dropout": self.dropout,
            "activation": keras.activations.serialize(self.activation),
            "norm_first": self.norm_first,
            "mixer": self._serialized("mixer"),
            "feed_forward": self._serialized("feed_forward"),
            "norm": self._norm.serialized(),
            "drop_path": self.drop_path,
            "layer_scale": self.layer_scale,
        }
