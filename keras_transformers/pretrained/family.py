"""Families of published models: configuration, weights and sizes."""

import dataclasses
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import keras

from keras_transformers.layers import gelu_sigmoid, gelu_tanh
from keras_transformers.pretrained.comparison import check_same
from keras_transformers.pretrained.files import Tensors
from keras_transformers.pretrained.weight_mapping import Mappings

# Of every Hugging Face configuration; none changes what a model computes from the same inputs.
WITHOUT_EFFECT = frozenset(
    "_name_or_path _attn_implementation_autoset _commit_hash _diffusers_version "
    "attn_implementation architectures model_type transformers_version torch_dtype dtype "
    "custom_pipelines finetuning_task gradient_checkpointing id2label label2id num_labels "
    "_num_labels initializer_range initializer_factor init_std layerdrop model_max_length name "
    "output_attentions output_hidden_states problem_type return_dict "
    "use_return_dict task_specific_params tokenizer_class torchscript use_bfloat16 use_cache "
    "is_encoder_decoder prefix bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id "
    "decoder_start_token_id forced_bos_token_id forced_eos_token_id chunk_size_feed_forward "
    # How to generate, which older files have here; `load_search` reads it.
    "bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping "
    "encoder_no_repeat_ngram_size exponential_decay_length_penalty length_penalty max_length "
    "max_new_tokens min_length no_repeat_ngram_size num_beam_groups num_beams "
    "num_return_sequences output_scores remove_invalid_values repetition_penalty "
    "return_dict_in_generate suppress_tokens temperature top_k top_p typical_p "
    "renormalize_logits force_bos_token_to_be_generated "
    # What sentence-transformers does with the logits of a classifier.
    "sbert_ce_default_activation_function sentence_transformers".split()
)
# Of older files; another value than these changes the model.
SETTLED: dict[str, tuple[Any, ...]] = {"tf_legacy_loss": (False,), "is_decoder": (False,)}
SETTLED |= {"add_cross_attention": (False,)}
SETTLED |= {"tie_word_embeddings": (True,), "tie_encoder_decoder": (False,)}
SETTLED |= {"cross_attention_hidden_size": (None,), "adapters": (None,)}
SETTLED |= {"quantization_config": (None,), "pruned_heads": (None, {})}

GELU_TANH = keras.activations.serialize(gelu_tanh)
ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "gelu_new": GELU_TANH,
    "gelu_pytorch_tanh": GELU_TANH,
    "gelu_fast": GELU_TANH,
    "quick_gelu": keras.activations.serialize(gelu_sigmoid),
}


def read_activation(name: str) -> str:
    """Returns our activation of a published name; raises ValueError for any other name."""
    if name not in ACTIVATIONS:
        raise ValueError(f"one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def write_activation(ours: Any) -> str:
    """Returns the published name of an activation of ours."""
    for theirs, name in ACTIVATIONS.items():
        if name == ours:
            return theirs
    raise ValueError(f"an activation that is published as one of {', '.join(ACTIVATIONS)}")


def same(value: Any) -> Any:
    """The value itself."""
    return value


@dataclasses.dataclass(frozen=True)
class Setting:
    """A published setting that one argument of our model stands for.

    Args:
        theirs: Its name in `config.json`.
        ours: Name of our argument.
        default: What it is where `config.json` says nothing.
        read, write: From their value to ours and back; ValueError with what is expected.
        also: Other names that it has in some files.
    """

    theirs: str
    ours: str
    default: Any
    read: Callable[[Any], Any] = same
    write: Callable[[Any], Any] = same
    also: tuple[str, ...] = ()


def size(theirs: str, ours: str, default: Any) -> Setting:
    """A setting that is a positive integer."""
    return Setting(theirs, ours, default, positive, positive)


def activation(theirs: str, ours: str, default: str) -> Setting:
    """A setting that names an activation."""
    return Setting(theirs, ours, default, read_activation, write_activation)


def number(theirs: str, ours: str, default: float) -> Setting:
    """A setting that is a number, 0 or more."""
    return Setting(theirs, ours, default, not_negative)


def flag(theirs: str, ours: str, default: bool) -> Setting:
    """A setting that is true or false."""
    return Setting(theirs, ours, default, boolean, boolean)


def boolean(value: Any) -> bool:
    """The value itself; ValueError unless it is true or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def positive(value: Any) -> int:
    """The value itself; ValueError unless it is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("a positive integer")
    return value


def natural(value: Any) -> int:
    """The value itself; ValueError unless it is an integer of 0 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("an integer, 0 or more")
    return value


def not_negative(value: Any) -> float:
    """The value itself; ValueError unless it is a number of 0 or more."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise ValueError("a number, 0 or more")
    return value


@dataclasses.dataclass(frozen=True)
class Combined:
    """An argument of our model that several published settings say together.

    Args:
        ours: Name of our argument.
        theirs: Their names in `config.json`.
        read: From `config.json`, in which each `Setting` has its value, to our argument; ValueError
            with a sentence.
        write: From our arguments to the published settings; ValueError likewise.
    """

    ours: str
    theirs: tuple[str, ...]
    read: Callable[[dict[str, Any]], Any]
    write: Callable[[dict[str, Any]], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Between the `config.json` of a family of published models and arguments of ours.

    Args:
        name: Their `model_type`.
        settings: The `Setting`s.
        combined: The `Combined` ones.
        fixed: Arguments that our model is given whatever `config.json` says; a model with others
            cannot be saved.
        settled: Published setting -> values with which it changes nothing here.
        without_effect: Further settings without effect on what is computed.
        inner: What settings inside others are where nothing is said, for `extent`.
    """

    name: str
    settings: tuple[Setting, ...]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settled: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    without_effect: frozenset[str] = frozenset()
    inner: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    combined: tuple[Combined, ...] = ()

    @property
    def known(self) -> set[str]:
        """Every published setting of which it is known what it does."""
        found = {name for each in self.settings for name in (each.theirs, *each.also)}
        found |= {name for each in self.combined for name in each.theirs}
        return found | SETTLED.keys() | self.settled.keys() | WITHOUT_EFFECT | self.without_effect

    def read(self, config: dict[str, Any], where: Any) -> dict[str, Any]:
        """Our arguments for a published configuration.

        Args:
            config: The dict.
            where: Its file, for messages.

        Returns:
            Dict of arguments, without those of the architecture.

        Raises:
            ValueError: If a setting has no counterpart here, or is no such value.

        Warns:
            UserWarning: If a setting is unknown: the published code reads none but these, which
                `tests/pretrained/test_settings_that_are_read.py` holds against it.
        """
        settled = {**SETTLED, **self.settled}
        unknown = [f"`{each}`" for each in config if each not in self.known]
        if unknown:
            warnings.warn(
                f"{where}: {', '.join(unknown)} is read by no published model of type {self.name}, "
                "and is ignored.",
                stacklevel=3,
            )
        for name, value in config.items():
            if name in settled and value not in settled[name]:
                raise ValueError(
                    f"{where}: `{name}` must be {_listed(settled[name])} for models of type "
                    f"{self.name}. Received: {value!r}"
                )
        arguments = dict(self.fixed)
        for each in self.settings:
            value = self.value(config, each.theirs)
            try:
                arguments[each.ours] = self.read_setting(config, each.theirs)
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"{where}: `{each.theirs}` must be {error}. Received: {value!r}"
                ) from None
        values = {each.theirs: self.value(config, each.theirs) for each in self.settings}
        for one in self.combined:
            try:
                arguments[one.ours] = one.read({**config, **values})
            except (ValueError, TypeError, ZeroDivisionError) as error:
                raise ValueError(f"{where}: {error}") from None
        return arguments

    def read_setting(self, config: dict[str, Any], theirs: str) -> Any:
        """What a published setting is to us; ValueError with what is expected."""
        (setting,) = (each for each in self.settings if each.theirs == theirs)
        return setting.read(self.value(config, theirs))

    def value(self, config: dict[str, Any], theirs: str) -> Any:
        """A published setting's value, its default where there is none."""
        (setting,) = (each for each in self.settings if each.theirs == theirs)
        for name in (setting.theirs, *setting.also):
            if config.get(name) is not None:
                return config[name]
        default = setting.default
        return default(config) if callable(default) else default

    def extent(self, config: dict[str, Any], setting: Any) -> Any:
        """A setting's value as we read it, for `Weights`.

        "depths.2" is the third of a list, "a.b" what a dict has; a number is what it is.
        """
        if isinstance(setting, int):
            return setting
        first, *rest = setting.split(".")
        value = self.read_setting(config, first)
        for key in rest:
            value = value[int(key)] if key.isdigit() else value.get(key, self.inner.get(key))
        return value

    def write(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The published configuration for our arguments, without what no setting says.

        Raises:
            ValueError: If the published code knows no such model.
        """
        for name, value in self.fixed.items():
            if arguments.get(name, value) != value:  # nothing is said of heads that are not there
                raise ValueError(
                    f"save: models of type {self.name} must have {name}={value!r}. "
                    f"Received: {arguments[name]!r}"
                )
        config = {"model_type": self.name}
        for each in self.settings:
            try:
                value = each.write(arguments[each.ours])
            except ValueError as error:
                raise ValueError(
                    f"save: models of type {self.name} must have as {each.ours} {error}. "
                    f"Received: {arguments[each.ours]!r}"
                ) from None
            if value is not None or each.default is None:  # else the default, which it stands for
                config[each.theirs] = value
        for one in self.combined:
            try:
                config |= one.write(arguments)
            except ValueError as error:
                raise ValueError(f"save: for models of type {self.name} {error}") from None
        return config


def _listed(values: Iterable[Any]) -> str:
    return " or ".join(map(repr, values))


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
        make: Function of our arguments that makes a model, which is not built.
        read: Function of a built model that reads its arguments, as `make` takes them, from
            attributes of its parts. `check_same` finds what they cannot express.
        shape: Function of our arguments that gives the shape that the model is built for.
        classes: Whether our model has `num_classes`, which `id2label` names.
        others: Further classes of ours, of architectures that add more than a head.
    """

    configuration: Configuration
    weights: Weights
    model: type[keras.Model]
    architectures: Mapping[str, dict[str, Any]]
    tasks: Mapping[str, str]
    make: Callable[[dict[str, Any]], Any]
    read: Callable[[Any], dict[str, Any]]
    shape: Callable[[dict[str, Any]], Any] = lambda arguments: (None, None)
    classes: bool = False
    others: tuple[type[keras.Model], ...] = ()

    @property
    def name(self) -> str:
        """Its `model_type`."""
        return self.configuration.name

    def build(self, arguments: dict[str, Any]) -> Any:
        """Returns a built model of our arguments."""
        model = self.make(arguments)
        model.build(self.shape(arguments))
        return model

    def describe(self, model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the published configuration of a built model, and our arguments.

        Raises:
            ValueError: If the published code has no such model; the message names the setting.
        """
        try:
            arguments = self.read(model)
        except AttributeError as error:
            received = None if error.obj is None else type(error.obj).__name__
            raise ValueError(
                f"save: models of type {self.name} must have a part with `{error.name}`. "
                f"Received: {received} in its place"
            ) from None
        config = self.configuration.write(arguments)
        try:
            expected = self.make(arguments)
        except ValueError as error:
            raise ValueError(f"save: for models of type {self.name} {error}") from None
        check_same(model, expected, self.name)
        return config, arguments


def image_classes(title: str) -> dict[str, Any]:
    """Returns the arguments of `Family` that name an image encoder and its classifier.

    Args:
        title: Start of the names of the published classes.
    """
    encoder, classifier = f"{title}Model", f"{title}ForImageClassification"
    return {
        "architectures": {encoder: {"num_classes": None}, classifier: {}},
        "tasks": {"classification": classifier, "features": encoder},
        "classes": True,
    }


def check_sizes(family: Family, config: dict[str, Any], tensors: Tensors, where: Any) -> None:
    """ValueError unless key tensors have the extents, and layers the numbers, of the configuration.

    Args:
        family: A `Family`.
        config: The published configuration.
        tensors: `Tensors`.
        where: Its file, for messages.
    """
    weights, extent = family.weights, family.configuration.extent
    bare = weights.prefix and not any(name.startswith(weights.prefix) for name in tensors.shapes)

    def named(names: Iterable[str]) -> list[str]:
        names = (names,) if isinstance(names, str) else names
        return [name.removeprefix(weights.prefix) if bare else name for name in names]

    for names, settings in weights.sizes.items():
        names = named(names)
        there = [name for name in names if name in tensors.shapes]
        if not there:
            raise ValueError(f"{tensors.folder}: the tensor {names[0]} is missing.")
        expected = tuple(extent(config, setting) for setting in settings)
        if tensors.shapes[there[0]] != expected:
            listed = ", ".join(
                f"{setting}={extent}"
                for setting, extent in zip(settings, expected, strict=True)
                if isinstance(setting, str)
            )
            raise ValueError(
                f"{where}: with {listed}, the tensor {there[0]} must have shape {expected}. "
                f"Received: {tensors.shapes[there[0]]}"
            )
    layers = weights.layers(config) if callable(weights.layers) else weights.layers
    for setting, starts in layers.items():
        starts, expected = named(starts), extent(config, setting)
        found = _numbers(tensors.shapes, starts)
        if len(found) != expected or found != set(range(len(found))):
            raise ValueError(
                f"{where}: {setting}={expected} must be the number of layers {starts[0]}0, "
                f"{starts[0]}1, ... Received: {len(found)}"
            )


def _numbers(names: Iterable[str], starts: Iterable[str]) -> set[int]:
    """The numbers that follow one of the starts."""
    after = [
        name.removeprefix(start).split(".")[0]
        for start in starts
        for name in names
        if name.startswith(start)
    ]
    return {int(number) for number in after if number.isdigit() and len(number) < 9}
