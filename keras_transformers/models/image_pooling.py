"""What the classes of a Vision Transformer are told by."""

import dataclasses
from typing import Any, Literal, Self, TypeAlias

import keras

from keras_transformers.annotations import Config, Part
from keras_transformers.layers.parts import serialized, serialized_parts
from keras_transformers.models.image_embedding import ImageEmbedding

Pooled: TypeAlias = Literal["token", "mean", "distilled"]
WORDS = ("token", "mean", "distilled")


@keras.saving.register_keras_serializable("keras_transformers")
@dataclasses.dataclass(frozen=True, eq=False)
class ImagePooling:
    """How the tokens of a `ViT` become the vector that its head sees.

    Args:
        kind: "token", the class token; "mean", of the patches; "distilled", class and distillation
            token, each with a head of its own, the logits being the mean of both (Touvron et al.
            2021, "DeiT", https://arxiv.org/abs/2012.12877, section 4); or a layer from tokens
            after the last norm, `(batch, tokens, hidden_dim)`, to a vector, such as
            `AttentionPooling(12, 3072)`, of which a copy is made.
        representation_dim: Width of a dense layer with tanh before the head (of Dosovitskiy et al.
            2021 while pre-training), or None.

    Raises:
        ValueError: If there is no such kind, `representation_dim` is not positive, or both heads of
            "distilled" would be given a representation.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import AttentionPooling
    >>> from keras_transformers.models import ImagePooling, ViT
    >>> pooling = ImagePooling(AttentionPooling(2, 32), representation_dim=24)
    >>> model = ViT(10, 32, 8, 16, 2, 32, num_layers=1, pooling=pooling)
    >>> tuple(model(np.zeros((3, 32, 32, 1), "float32")).shape), model.head.kernel.shape[0]
    ((3, 10), 24)
    """

    kind: Pooled | Part = "token"
    representation_dim: int | None = None

    def __post_init__(self) -> None:
        if not (self.kind in WORDS if isinstance(self.kind, str) else self.is_layer):
            raise ValueError(
                f"ViT: `pooling` must be one of {', '.join(WORDS)} or a layer such as "
                f"`AttentionPooling(num_heads, mlp_dim)`. Received: {self.kind!r}"
            )
        width = self.representation_dim
        if width is not None and not (isinstance(width, int) and width > 0):
            raise ValueError(
                f"ViT: `representation_dim` must be a positive integer. Received: {width!r}"
            )
        if self.kind == "distilled" and width is not None:
            raise ValueError(
                'ViT: `representation_dim` must be None with `pooling`="distilled". '
                f"Received: {width}"
            )

    @property
    def is_layer(self) -> bool:
        """Whether a layer pools."""
        return isinstance(self.kind, keras.layers.Layer)

    @property
    def of_class_token(self) -> bool:
        """Whether a class token is needed."""
        return self.kind in ("token", "distilled")

    def check(self, embedding: ImageEmbedding, num_classes: int | None) -> None:
        """Raises ValueError unless the tokens and classes are there that are needed."""
        needed = {
            "a class token": not self.of_class_token or embedding.class_token is not None,
            "a distillation token": self.kind != "distilled"
            or embedding.distillation_token is not None,
            "classes": self.kind != "distilled" or num_classes is not None,
        }
        for thing, there in needed.items():
            if not there:
                raise ValueError(f'ViT: `pooling`="{self.kind}" needs {thing}. Received: none')

    def get_config(self) -> Config:
        kind = serialized(self.kind) if self.is_layer else self.kind
        return {"kind": kind, "representation_dim": self.representation_dim}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(**{**config, "kind": _deserialized(config["kind"])})


def as_pooling(given: Any) -> ImagePooling:
    """An `ImagePooling`; a kind of it, or the configuration of either, as one."""
    given = _deserialized(given)
    return given if isinstance(given, ImagePooling) else ImagePooling(given)


def serialized_pooling(given: Any) -> Any:
    """What `as_pooling` takes as a configuration; words as they are."""
    if isinstance(given, ImagePooling):
        return keras.saving.serialize_keras_object(given)
    return serialized_parts(given)


def _deserialized(given: Any) -> Any:
    return keras.saving.deserialize_keras_object(given) if isinstance(given, dict) else given
