"""Families of published models: configuration, weights, sizes, and what they cannot express."""

import dataclasses
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras

from keras_transformers.layers import FeedForward, SelfAttention, gelu_sigmoid, gelu_tanh
from keras_transformers.layers.adapters import Adapted
from keras_transformers.layers.base import BaseLayer
from keras_transformers.layers.blocks.transformer import Block, EncoderBlock
from keras_transformers.layers.parts import OWN_DTYPE
from keras_transformers.models import ClassificationHead, LanguageHead, SpanHead, TaggingHead
from keras_transformers.models.base import BaseModel
from keras_transformers.pretrained.files import Tensors
from keras_transformers.pretrained.weight_mapping import Mappings, linear

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
    """A setting that is a number, 0 or more.

    `transformers` declares those with a whole default as integers, and reads no 1.0 there.
    """
    write = as_integer if isinstance(default, int) else same
    return Setting(theirs, ours, default, not_negative, write)


def as_integer(value: Any) -> Any:
    """Returns a whole number as an integer, and any other value as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
        """The names of all published settings that have a meaning here."""
        names = {name for setting in self.settings for name in (setting.theirs, *setting.also)}
        names |= {name for combined in self.combined for name in combined.theirs}
        return names | SETTLED.keys() | self.settled.keys() | WITHOUT_EFFECT | self.without_effect

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
        unknown = [f"`{name}`" for name in config if name not in self.known]
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
        for setting in self.settings:
            name, value = setting.theirs, self.value(config, setting.theirs)
            try:
                arguments[setting.ours] = self.read_setting(config, name)
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"{where}: `{name}` must be {error}. Received: {value!r}"
                ) from None
        values = {item.theirs: self.value(config, item.theirs) for item in self.settings}
        for combined in self.combined:
            try:
                arguments[combined.ours] = combined.read({**config, **values})
            except (ValueError, TypeError, ZeroDivisionError) as error:
                raise ValueError(f"{where}: {error}") from None
        return arguments

    def read_setting(self, config: dict[str, Any], theirs: str) -> Any:
        """Returns a published setting as ours; raises ValueError with the expected value."""
        (setting,) = (item for item in self.settings if item.theirs == theirs)
        return setting.read(self.value(config, theirs))

    def value(self, config: dict[str, Any], theirs: str) -> Any:
        """Returns the value of a published setting, or its default."""
        (setting,) = (item for item in self.settings if item.theirs == theirs)
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
        for setting in self.settings:
            ours = arguments[setting.ours]
            try:
                value = setting.write(ours)
            except ValueError as error:
                raise ValueError(
                    f"save: models of type {self.name} must have as {setting.ours} {error}. "
                    f"Received: {ours!r}"
                ) from None
            if value is not None or setting.default is None:  # None stands for the default
                config[setting.theirs] = value
        for combined in self.combined:
            try:
                config |= combined.write(arguments)
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


def read_block(block: Any) -> dict[str, Any]:
    """Returns the settings of a block with attention, a network and norms, by our names."""
    mixer, network = block.mixer, block.feed_forward
    return {
        "num_heads": mixer.num_heads,
        "attention_dropout": mixer.dropout,
        "mlp_dim": network.mlp_dim,
        "activation": keras.activations.serialize(network.activation),
        "norm_epsilon": block.mixer_norm.epsilon,
    }


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


# Settings that change nothing that a model computes: names, precision, how it was started and
# trained; and layers that `build` makes of other settings.
IGNORED = {"name", "dtype", OWN_DTYPE, "trainable", "frozen_blocks", "seed", "dropout", "drop_path"}
IGNORED |= {"dropout_layer", "criterion", "prediction"}
IGNORED_ENDS = ("_initializer", "_regularizer", "_constraint")
# Numbers of a block that make a part where none was given. The part is compared instead of them.
NUMBERS_OF_PARTS = {
    "mixer": ("num_heads", "window_size"),
    "cross_attention": ("num_heads",),
    "feed_forward": ("mlp_dim", "activation"),
}
# Arguments of models that make layers. The layers are compared instead of them.
ARGUMENTS_OF_LAYERS = {"block", "blocks", "encoder_block", "decoder_block", "embedding", "head"}
ARGUMENTS_OF_LAYERS |= {"positions", "pooling", "queries", "num_layers", "num_heads", "mlp_dim"}
ARGUMENTS_OF_LAYERS |= {"decoder_heads", "decoder_mlp_dim", "vocab_size", "max_length"}
ARGUMENTS_OF_LAYERS |= {"hidden_dim", "patch_size", "window_size", "version"}


class ClassName(str):
    """The name of a class, which messages show without quotes."""

    __repr__ = str.__str__


def check_same(model: Any, expected: Any, family: str) -> None:
    """Raises ValueError unless a model computes what the published code would.

    A family reads its settings from the parts of a model as plain attributes. Models have more
    settings than a published configuration can express. So the family makes a second model of what
    it has read, and both are compared, setting by setting.

    Args:
        model: Built.
        expected: The model that the family makes of what it has read. It is not built.
        family: `model_type` of the published models, for the message.
    """
    ours = dict(settings_of(model))
    theirs = dict(settings_of(expected))
    for path in {**theirs, **ours}:
        if ours.get(path) != theirs.get(path):
            raise ValueError(
                f"save: models of type {family} must have {path}={theirs.get(path)!r}. "
                f"Received: {ours.get(path)!r}"
            )


def settings_of(part: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the settings of a part and of the parts inside it, and their classes, by path.

    Args:
        part: A layer, its serialised form, a dataclass, a list of such, or a plain value.
        path: Path of the part, empty for the model itself, whose class is not compared.
    """
    if isinstance(part, list | tuple):
        yield from _settings_of_list(part, path)
        return
    settings = _settings_inside(part)
    if settings is None:
        yield path, part
        return
    if path:
        yield path, ClassName(_class_name(part))
    for name, value in settings.items():
        if name not in IGNORED and not name.endswith(IGNORED_ENDS):
            yield from settings_of(value, f"{path}.{name}" if path else name)


def _settings_of_list(values: list[Any] | tuple[Any, ...], path: str) -> Iterator[tuple[str, Any]]:
    if not any(isinstance(value, keras.layers.Layer | dict) for value in values):
        # Keras replaces the axis of a norm by a list of axes when it builds the norm.
        yield path, values[0] if len(values) == 1 else list(values)
        return
    for i, value in enumerate(values):
        yield from settings_of(value, f"{path}[{i}]")


def _settings_inside(part: Any) -> Mapping[str, Any] | None:
    """Returns the settings of a part by name; None of a plain value."""
    if isinstance(part, BaseModel):
        return _settings_of_model(part)
    if isinstance(part, Block):
        return _settings_of_block(part)
    if isinstance(part, keras.layers.Layer):
        return part.get_config()
    if isinstance(part, dict) and "class_name" in part:
        config = part["config"]
        return config if isinstance(config, dict) else {"name of function": config}
    if dataclasses.is_dataclass(part):
        return vars(part)
    return None


def _settings_of_model(model: BaseModel) -> dict[str, Any]:
    """Returns the layers of a model, and its arguments that make no layers."""
    settings: dict[str, Any] = {
        name: value
        for name, value in vars(model).items()
        if not name.startswith("_") and name != "configuration" and _has_parts(value)
    }
    for name, value in vars(model.configuration).items():
        if name not in (*ARGUMENTS_OF_LAYERS, *IGNORED):
            settings[f"configuration.{name}"] = value
    return settings


def _has_parts(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, keras.layers.Layer) for item in value)
    return isinstance(value, keras.layers.Layer) or dataclasses.is_dataclass(value)


def _settings_of_block(block: Block) -> dict[str, Any]:
    """Returns the configuration of a block, with the parts that numbers have made."""
    settings = block.get_config()
    parts = {"mixer": block.mixer, "feed_forward": block.feed_forward}
    if isinstance(block, EncoderBlock) and not block.built:  # `build` makes these of the numbers
        if block.num_heads is not None:
            parts["mixer"] = SelfAttention(block.num_heads)
        if block.mlp_dim is not None:
            parts["feed_forward"] = FeedForward(block.mlp_dim, block.activation)
    if "cross_attention" in settings:
        parts["cross_attention"] = block.cross_attention
    for name, layer in parts.items():
        if name in settings:
            settings[name] = settings[name] or layer
            for number in NUMBERS_OF_PARTS[name]:
                settings.pop(number, None)
    return settings


def _class_name(part: Any) -> str:
    """Returns the name of the class of a part; adapters in a layer do not change it."""
    if isinstance(part, dict):
        return str(part["class_name"])
    if isinstance(part, Adapted) and not isinstance(part, BaseLayer):
        kinds = (kind for kind in type(part).__mro__ if issubclass(kind, keras.layers.Layer))
        return next(kind.__name__ for kind in kinds if not issubclass(kind, Adapted))
    return type(part).__name__


# The ends of the names of published classes -> arguments of ours that they stand for.
NO_CLASSES: dict[str, Any] = {"num_classes": None}
CLASSES: dict[str, dict[str, Any]] = {
    "ForSequenceClassification": {"head": "classification"},
    "ForTokenClassification": {"head": "tagging"},
}
SPANS: dict[str, dict[str, Any]] = {
    "ForQuestionAnswering": {"head": "question_answering", **NO_CLASSES}
}
ENCODER_HEADS: dict[str, dict[str, Any]] = {
    "Model": {"head": None, **NO_CLASSES},
    "ForMaskedLM": {"head": "masked_language", **NO_CLASSES},
    **CLASSES,
    **SPANS,
}
# A model that writes text has no id for padding: many of these models use the id of END.
WRITES: dict[str, Any] = {"head": None, "padding_id": -1, **NO_CLASSES}
DECODER_HEADS_WITHOUT_SPANS: dict[str, dict[str, Any]] = {"ForCausalLM": WRITES, **CLASSES}
DECODER_HEADS = {**DECODER_HEADS_WITHOUT_SPANS, **SPANS}


def text_classes(
    title: str, heads: Mapping[str, dict[str, Any]], **further: dict[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of `Family` that name the classes of a text model.

    Args:
        title: Start of the names of the published classes.
        heads: End of a name -> arguments of ours. The first class of each `head` serves its task.
        **further: Whole names of further classes -> arguments of ours.
    """
    tasks: dict[str, str] = {}
    for ending, settings in heads.items():
        task_without_head = "language_model" if settings is WRITES else "features"
        tasks.setdefault(settings["head"] or task_without_head, f"{title}{ending}")
    architectures = {f"{title}{ending}": settings for ending, settings in heads.items()}
    return {"architectures": {**architectures, **further}, "tasks": tasks, "classes": True}


def read_head(head: Any) -> dict[str, Any]:
    """Returns the settings of a head that text encoders and language models have."""
    if isinstance(head, ClassificationHead):
        return {
            "head": "classification",
            "num_classes": head.num_classes,
            "problem_type": head.problem_type,
        }
    if isinstance(head, TaggingHead):
        return {"head": "tagging", "num_classes": head.num_classes}
    if isinstance(head, SpanHead):
        return {"head": "question_answering", "num_classes": None}
    return {"head": None, "num_classes": None}


def decoder_head(arguments: Mapping[str, Any]) -> keras.layers.Layer | None:
    """Makes the head of a language model.

    Args:
        arguments: What `read_decoder_head` returns, among others.
    """
    kind, num_classes = arguments["head"], arguments["num_classes"]
    if kind == "classification":
        return ClassificationHead(
            num_classes,
            pooling="last",
            dropout=0.0,
            problem_type=arguments.get("problem_type"),
            transform=keras.layers.Identity(),
            use_bias=False,
        )
    if kind == "tagging":
        return TaggingHead(num_classes)
    if kind == "question_answering":
        return SpanHead()
    cap = arguments.get("logits_cap")
    return None if cap is None else LanguageHead(cap)


def read_decoder_head(head: Any) -> dict[str, Any]:
    """Returns the settings that `decoder_head` makes such a head of."""
    cap = head.soft_cap if isinstance(head, LanguageHead) else None
    return {**read_head(head), "logits_cap": cap}


def decoder_head_mappings(model: Any, tagging: str = "score") -> Mappings:
    """Returns the mappings of a decoder's head; `tagging` is the name of a layer that tags."""
    classes = tagging if isinstance(model.head, TaggingHead) else "score"
    return [*linear("head/classes", classes), *linear("head/ends", "qa_outputs")]
