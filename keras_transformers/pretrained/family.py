"""What a family of published models is to us: a configuration, weights, and a class of ours."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import keras

from keras_transformers.pretrained.configuration import Configuration
from keras_transformers.pretrained.weight_mapping import Mappings


@dataclasses.dataclass(frozen=True)
class Weights:
    """Between the tensors of a family's files and weights of ours.

    Args:
        mappings: Function of our model that gives its weight mappings.
        sizes: Published tensor (or several, one of which is there) -> the settings of its extents,
            see `Configuration.extent`.
        layers: Setting -> start of the names of its layers, "bert.encoder.layer.", or several that
            there may be; or a function of `config.json` that gives such a dict.
        prefix: What names begin with where there is a head.
        bare: Published classes whose files lack that prefix.
        arguments: Function of the names of a file's tensors that gives arguments of ours which
            `config.json` does not say.
        modules: What `transformers` calls its modules where files keep older names, as adapters
            do not: pattern -> replacement, applied in this order; or several of them, where the
            parts of a fused tensor are modules of their own.
        projections: Mappings of the kernels that a folder may have in four bits.
    """

    mappings: Callable[[Any], Mappings]
    sizes: Mapping[Any, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    layers: Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )
    prefix: str = ""
    bare: tuple[str, ...] = ()
    arguments: Callable[[Collection[str]], dict[str, Any]] = lambda names: {}
    modules: Mapping[str, str | tuple[str, ...]] = dataclasses.field(default_factory=dict)
    projections: Callable[[], Mappings] = list


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of published models.

    Args:
        configuration: Its `Configuration`.
        weights: Its `Weights`.
        model: Class of ours, most often the only one.
        architectures: Published class -> what our model is given for it besides the settings. The
            first that fits a model of ours is what it is saved as.
        tasks: Task -> published class, for `load(folder, task)`.
        make: Function of our arguments that gives a built model.
        arguments: Function of a model that gives its arguments, as `make` takes them.
        classes: Whether our model has `num_classes`, which `id2label` names.
        others: Further classes of ours, of architectures that add more than a head.
    """

    configuration: Configuration
    weights: Weights
    model: type[keras.Model]
    architectures: Mapping[str, dict[str, Any]]
    tasks: Mapping[str, str]
    make: Callable[[dict[str, Any]], Any]
    arguments: Callable[[Any], dict[str, Any]]
    classes: bool = False
    others: tuple[type[keras.Model], ...] = ()

    @property
    def name(self) -> str:
        """Its `model_type`."""
        return self.configuration.name


def of_images(title: str) -> dict[str, Any]:
    """The arguments of `Family` for an encoder of images and its classifier, `{title}Model` ..."""
    encoder, classifier = f"{title}Model", f"{title}ForImageClassification"
    return {
        "architectures": {encoder: {"num_classes": None}, classifier: {}},
        "tasks": {"classification": classifier, "features": encoder},
        "classes": True,
    }
