"""Folders of published models, read and written, also with weights of 4 bits; all families."""

import dataclasses
import math
import pathlib
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, overload

import keras
import numpy as np

from keras_transformers import models
from keras_transformers.core.types import Array, StrPath
from keras_transformers.layers.base import PolicyOfParts
from keras_transformers.models import TextEncoder
from keras_transformers.models.base import PROBLEMS, check_choice
from keras_transformers.pretrained.bert import (
    BERT,
    DISTILBERT,
    ELECTRA,
    MODERNBERT,
    ROBERTA,
    XLM_ROBERTA,
)
from keras_transformers.pretrained.clip import CLIP, SIGLIP
from keras_transformers.pretrained.detr import CONDITIONAL_DETR, DEFORMABLE_DETR, DETR
from keras_transformers.pretrained.family import Family, check_sizes
from keras_transformers.pretrained.files import (
    CONFIG,
    Tensors,
    classes_of,
    find,
    has_chat_template,
    read_json,
    write_json,
    write_tensors,
)
from keras_transformers.pretrained.gpt2 import GPT2
from keras_transformers.pretrained.llama import GEMMA2, LLAMA, MISTRAL, PHI3, QWEN2, QWEN3
from keras_transformers.pretrained.pooling import load_pooling
from keras_transformers.pretrained.segformer import SEGFORMER
from keras_transformers.pretrained.swin import SWIN, SWINV2
from keras_transformers.pretrained.tokenizers import save_tokenizer
from keras_transformers.pretrained.transformer import BART, M2M_100, MARIAN, MBART, MT5, PEGASUS, T5
from keras_transformers.pretrained.vit import (
    BEIT,
    DEIT,
    DINOV2,
    DINOV2_WITH_REGISTERS,
    VIT,
    VIT_MAE,
)
from keras_transformers.pretrained.weight_mapping import (
    Mappings,
    Names,
    WeightMapping,
    assign,
    gather,
)
from keras_transformers.saving.untrusted_files import within

BITS, PACKED = 4, 8  # of a weight, and how many an int32 has
WHERE = "`quantization_config`"


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How the matrices of a folder are packed.

    Args:
        method: "gptq", "awq" or "compressed-tensors".
        size: Number of inputs of a group; -1 for all.
        zero_less: What is added to a stored zero point: 1 in GPTQ's first format.
        ordered: Whether inputs are in groups by a tensor of their own, `g_idx`.
    """

    method: str
    size: int
    zero_less: int = 0
    ordered: bool = False

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The tensors of a matrix, the integers first."""
        if self.method == "compressed-tensors":
            return "weight_packed", "weight_scale", "weight_shape"
        return ("qweight", "scales", "qzeros") + ("g_idx",) * (self.method == "gptq")

    def shape(self, packed: tuple[int, ...]) -> tuple[int, int]:
        """Number of outputs and of inputs, by the shape of the integers."""
        rows, columns = packed
        if self.method == "gptq":
            return columns, rows * PACKED
        return (columns * PACKED, rows) if self.method == "awq" else (rows, columns * PACKED)

    def groups(self, inputs: int) -> int:
        """Number of groups of so many inputs."""
        return 1 if self.size == -1 else -(-inputs // self.size)


def read_scheme(config: Mapping[str, Any], where: Any) -> Scheme | None:
    """The scheme of a `config.json`, None where weights are as trained; ValueError for others."""
    given = config.get("quantization_config")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError(f"{where}: {WHERE} must be an object or null. Received: {given!r:.100}")
    method = given.get("quant_method")
    readers = {"gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed}
    if method not in readers:
        raise ValueError(
            f"{where}: {WHERE} must have as `quant_method` one of {', '.join(readers)}, whose "
            f"four bits are read as they are. Received: {method!r:.100}. Have the published code "
            "save the model in floating-point numbers, and load those."
        )
    return readers[method](given, f"{where}: {WHERE} of {method}")


def _must(given: Mapping[str, Any], where: str, allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """ValueError unless each setting that is there has one of the values."""
    for name, values in allowed.items():
        if name in given and not any(given[name] is v or given[name] == v for v in values):
            listed = " or ".join(map(repr, values))
            raise ValueError(f"{where} must have `{name}` {listed}. Received: {given[name]!r:.200}")


def _size(given: Mapping[str, Any], where: str) -> int:
    size = given.get("group_size", -1)
    if not isinstance(size, int) or isinstance(size, bool) or size < -1 or size == 0:
        raise ValueError(
            f"{where} must have as `group_size` a positive integer, or -1 for all inputs. "
            f"Received: {size!r:.100}"
        )
    return size


def _gptq(given: Mapping[str, Any], where: str) -> Scheme:
    formats = ("gptq", "gptq_v2")
    name = "format" if "checkpoint_format" not in given else "checkpoint_format"
    allowed = {"bits": (BITS,), name: formats, "pack_dtype": ("int32",)}
    _must({"bits": None, **given}, where, {**allowed, "is_marlin_format": (False,)})
    first = given.get(name, "gptq") == "gptq"
    return Scheme("gptq", _size(given, where), int(first), ordered=True)


def _awq(given: Mapping[str, Any], where: str) -> Scheme:
    given = {"bits": given.get("w_bit"), "group_size": given.get("q_group_size", -1), **given}
    _must(given, where, {"bits": (BITS,), "version": ("gemm", "GEMM"), "zero_point": (True,)})
    return Scheme("awq", _size(given, where))


def _compressed(given: Mapping[str, Any], where: str) -> Scheme:
    _must({"format": None, **given}, where, {"format": ("pack-quantized",)})
    _must(given, where, {"kv_cache_scheme": (None,), "quantization_status": ("compressed",)})
    groups = given.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        raise ValueError(
            f"{where} must have one group of `config_groups`. Received: {groups!r:.200}"
        )
    (group,) = groups.values()
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        raise ValueError(f"{where} must have `weights` in its group. Received: {group!r:.200}")
    _must(group, where, {"input_activations": (None,), "output_activations": (None,)})
    allowed = {"num_bits": (BITS,), "type": ("int",), "symmetric": (True,), "dynamic": (False,)}
    _must({"num_bits": None, **weights}, where, {**allowed, "actorder": (None,)})
    _must(weights, where, {"strategy": ("group", "channel")})
    sizes = {"group_size": weights.get("group_size") or -1}
    return Scheme("compressed-tensors", _size(sizes, where))


MIDDLE = 8  # what lies between their integers and ours
# Of eight columns, those that AWQ's kernels want beside each other, from the lowest bits up.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
STRAIGHT = tuple(range(PACKED))


@dataclasses.dataclass(frozen=True)
class Groups:
    """A matrix `(inputs, outputs)` of 4-bit numbers.

    Args:
        values: Integers of -8 to 7.
        scale, zero: `(groups, outputs)`.
        group: Of each input, the number of its group.
    """

    values: Array
    scale: Array
    zero: Array
    group: Array


class PackedTensors(Tensors):
    """`Tensors` in which a matrix of four bits stands as the one that it was, `NAME.weight`.

    Args:
        folder: Path of the folder.
        scheme: How matrices are packed.

    Raises:
        ValueError: If a tensor of a matrix is missing, or of another shape than the integers say.
    """

    def __init__(self, folder: StrPath, scheme: Scheme) -> None:
        super().__init__(folder)
        self.scheme = scheme
        first, *others = scheme.suffixes
        ending = f".{first}"
        self.packed = {n.removesuffix(ending) for n in self.shapes if n.endswith(ending)}
        for name in sorted(self.packed):
            outputs, inputs = self._extents(name, self.shapes.pop(name + ending))
            groups = scheme.groups(inputs)
            expected = {
                "scales": (groups, outputs),
                "qzeros": (groups, outputs // PACKED),
                "g_idx": (inputs,),
                "weight_scale": (outputs, groups),
                "weight_shape": (2,),
            }
            for suffix in others:
                found = self.shapes.pop(f"{name}.{suffix}", None)
                if found != expected[suffix]:
                    raise ValueError(
                        f"{self.folder}: the tensor {name}.{suffix} must be there with shape "
                        f"{expected[suffix]}, as {first} and config.json have it. Received: {found}"
                    )
            self.shapes[f"{name}.weight"] = outputs, inputs

    def _extents(self, name: str, shape: tuple[int, ...]) -> tuple[int, int]:
        if len(shape) != 2 or 0 in shape:
            raise ValueError(
                f"{self.folder}: the tensor {name}.{self.scheme.suffixes[0]} must be a matrix. "
                f"Received: shape {shape}"
            )
        return self.scheme.shape(shape)

    def groups(self, name: str) -> Groups:
        """The matrix `NAME.weight`, turned so that what goes in comes first."""
        inputs = self.shapes[f"{name}.weight"][1]
        readers = {"gptq": self._gptq, "awq": self._awq, "compressed": self._compressed}
        values, scale, zero = readers[self.scheme.method.split("-")[0]](name)
        number = self.scheme.groups(inputs)
        group = np.arange(inputs) // (inputs if self.scheme.size == -1 else self.scheme.size)
        if self.scheme.ordered:
            group = self.read(f"{name}.g_idx")
            if group.dtype.kind not in "iu" or group.min() < 0 or group.max() >= number:
                raise ValueError(
                    f"{self.folder}: the tensor {name}.g_idx must have numbers of {number} groups."
                )
        middle = np.int8(MIDDLE)
        return Groups(values - middle, scale.astype("float32"), zero - middle, group)

    def _integers(self, name: str, axis: int, order: tuple[int, ...] = STRAIGHT) -> Array:
        """The 4-bit integers of a tensor, int8, of which each int32 has eight along an axis."""
        packed = self.read(name)
        if packed.dtype != "int32":
            raise ValueError(f"{self.folder}: {name} must be of int32. Received: {packed.dtype}")
        shifts = [BITS * order.index(i) for i in range(PACKED)]
        parts = [((packed >> shift) & 15).astype("int8") for shift in shifts]
        shape = [size * (PACKED if i == axis else 1) for i, size in enumerate(packed.shape)]
        return np.stack(parts, axis + 1).reshape(shape)

    def _gptq(self, name: str) -> tuple[Array, Array, Array]:
        zero = self._integers(f"{name}.qzeros", 1) + np.int8(self.scheme.zero_less)
        if zero.max() > 15:  # the first format has no 0, and some code reads this as such
            raise ValueError(
                f"{self.folder}: the tensor {name}.qzeros must have zero points of 1 to 15 in "
                "GPTQ's first format. Received: 16; have it saved as gptq_v2"
            )
        return self._integers(f"{name}.qweight", 0), self.read(f"{name}.scales"), zero

    def _awq(self, name: str) -> tuple[Array, Array, Array]:
        values, zero = (self._integers(f"{name}.{n}", 1, AWQ_ORDER) for n in ("qweight", "qzeros"))
        return values, self.read(f"{name}.scales"), zero

    def _compressed(self, name: str) -> tuple[Array, Array, Array]:
        scale = self.read(f"{name}.weight_scale").T
        shape, stored = self.shapes[f"{name}.weight"], self.read(f"{name}.weight_shape")
        if tuple(stored) != shape:
            raise ValueError(
                f"{self.folder}: the tensor {name}.weight_shape must be {shape}. Received: {stored}"
            )
        zero = np.full(scale.shape, MIDDLE, "int8")
        return self._integers(f"{name}.weight_packed", 1).T, scale, zero


def tensors_of(folder: StrPath, scheme: Scheme | None) -> Tensors:
    """The tensors of a folder, a matrix of four bits as the one that it was."""
    return Tensors(folder) if scheme is None else PackedTensors(folder, scheme)


def quantised_policy(tensors: Tensors, family: Family) -> dict[str, Any]:
    """`dtype` of a model some of whose projections are in four bits; else nothing.

    Raises:
        ValueError: If other matrices of the folder are.
    """
    if not isinstance(tensors, PackedTensors):
        return {}
    default = keras.config.dtype_policy()
    found, left = {}, set(tensors.packed)
    mappings = [each for each in family.weights.projections() if isinstance(each, WeightMapping)]
    kernels = [each for each in mappings if each.theirs.endswith(".weight")]
    for mapping in kernels:
        pattern = re.escape(mapping.theirs.removesuffix(".weight")).replace(r"\{i\}", r"(\d+)")
        for name in sorted(left):
            if match := re.fullmatch(pattern, name):
                inputs = tensors.shapes[f"{name}.weight"][1]
                size = inputs if tensors.scheme.size == -1 else tensors.scheme.size
                path = mapping.ours.removesuffix("/kernel").format(i=match[1])
                found[path] = keras.dtype_policies.Int4DTypePolicy(f"int4/{size}", default.name)
                left.remove(name)
    if left:
        raise ValueError(
            f"{tensors.folder}: of models of type {family.name}, "
            f"{'projections of the blocks' if kernels else 'no matrix'} can be in four bits. "
            f"Received: {min(left)}; {len(left)} such in all"
        )
    return {"dtype": PolicyOfParts(default, found)}


def fill_quantised(model: keras.Model, mappings: Mappings, tensors: Tensors) -> set[str]:
    """Gives the 4-bit layers of a model their values; returns the published names."""
    used: set[str] = set()
    if not isinstance(tensors, PackedTensors):
        return used
    names = Names(mappings)
    for layer in model._flatten_layers():
        if layer.quantization_mode != "int4":
            continue
        path = layer.path.removeprefix(f"{model.name}/")
        mapping, name, _ = names.of(f"{path}/kernel")
        _fill_layer(layer, mapping, tensors, name)
        used.add(name)
        bias = f"{name.removesuffix('weight')}bias"
        if layer.bias is None and bias in tensors.shapes:  # GPTQ's oldest files have zeros
            if np.any(tensors.read(bias)):
                raise ValueError(
                    f"{tensors.folder}: the tensor {bias} must be zeros, or not there."
                )
            used.add(bias)
    return used


def _fill_layer(layer: Any, mapping: WeightMapping, tensors: PackedTensors, name: str) -> None:
    given = tensors.groups(name.removesuffix(".weight"))
    kernel, _, _ = keras.quantizers.pack_int4(given.values, axis=-1)
    if tuple(kernel.shape) != tuple(layer._kernel.shape):
        raise ValueError(
            f"{tensors.folder}: the tensor {name} must have shape "
            f"{mapping.layout.their_shape(tuple(layer.kernel.shape))}, as config.json has it. "
            f"Received: {tensors.shapes[name]}"
        )
    for ours, theirs in (
        (layer._kernel, kernel),
        (layer.kernel_scale, given.scale),
        (layer.kernel_zero, given.zero),
        (layer.g_idx, given.group.astype("float32")),
    ):
        ours.assign(theirs)


ALL = (MARIAN, M2M_100, MBART, BART, PEGASUS, T5, MT5, BERT, DISTILBERT, ROBERTA, XLM_ROBERTA)
ALL += (ELECTRA, MODERNBERT, GPT2, LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA2, PHI3)
ALL += (VIT, DEIT, DINOV2, DINOV2_WITH_REGISTERS, BEIT, SWIN, SWINV2, SEGFORMER, VIT_MAE, DETR)
ALL += (CONDITIONAL_DETR, DEFORMABLE_DETR, CLIP, SIGLIP)
FAMILIES = {family.name: family for family in ALL}


Task: TypeAlias = Literal[
    "features", "classification", "tagging", "question_answering", "masked_language",
    "language_model", "translation", "summarization", "text_to_text", "reconstruction", "detection",
    "segmentation", "distilled_classification", "zero_shot_classification",
]  # fmt: skip


@overload
def load(
    folder: StrPath,
    task: Literal["translation", "summarization", "text_to_text"],
    revision: str | None = None,
) -> models.Transformer: ...
@overload
def load(
    folder: StrPath, task: Literal["language_model"], revision: str | None = None
) -> models.LanguageModel: ...
@overload
def load(
    folder: StrPath, task: Literal["masked_language"], revision: str | None = None
) -> TextEncoder: ...
@overload
def load(
    folder: StrPath, task: Literal["reconstruction"], revision: str | None = None
) -> models.MAE: ...
@overload
def load(
    folder: StrPath, task: Literal["detection"], revision: str | None = None
) -> models.DETR: ...
@overload
def load(
    folder: StrPath, task: Literal["zero_shot_classification"], revision: str | None = None
) -> models.DualEncoder: ...
@overload
def load(
    folder: StrPath, task: Literal["segmentation"], revision: str | None = None
) -> models.SegFormer: ...
@overload
def load(folder: StrPath, task: Task | None = None, revision: str | None = None) -> Any: ...
def load(folder: StrPath, task: Task | None = None, revision: str | None = None) -> Any:
    """A model with the weights of a folder that Hugging Face's `transformers` could load.

    Families: Marian (OPUS-MT), M2M-100 and NLLB, mBART, BART, PEGASUS, T5 and Flan-T5, mT5, BERT,
    DistilBERT, RoBERTa, XLM-R, ELECTRA, ModernBERT, GPT-2, Llama (SmolLM too), Mistral, Qwen 2 and
    3, Gemma 2, Phi-3, ViT, DeiT, DINOv2, BEiT, Swin, Swin V2, SegFormer, masked autoencoders,
    DETR, Conditional DETR, Deformable DETR, CLIP and SigLIP. Weights are read from safetensors
    alone, one tensor at a time; nothing in the folder is executed. They have the type of Keras's
    policy (`keras.config.set_dtype_policy`), whatever the file's. Ids, pictures and logits are
    those of the published model.

    Args:
        folder: Path of the folder, with `config.json` and `model.safetensors` (or its shards); or a
            name on the hub, "organization/model", see `pretrained.find`.
        task: None for what `config.json` says the weights were made for; or "features" for the
            model without its head, "classification", "tagging", "question_answering",
            "masked_language", "language_model", "translation", "summarization", "text_to_text"
            (T5), "reconstruction", "detection", "segmentation", "distilled_classification" (DeiT),
            or "zero_shot_classification", if the file has what that needs.
        revision: Branch, tag or commit of a name; by default "main".

    Returns:
        A built model: `Transformer`, `TextEncoder`, `LanguageModel`, `ViT`, `Swin`, `PVT`,
        `SegFormer`, `MAE`, `DETR` or `DualEncoder`. Its attribute `unused_tensors` lists the
        tensors that it has no use for.

    Raises:
        FileNotFoundError: If the folder, `config.json` or the weights are missing.
        ValueError: If the architecture or a setting is not known or has no counterpart here, a
            tensor is missing or of another shape than `config.json` says, a file is broken, or the
            weights are in a pickle.

    Warns:
        UserWarning: If a setting is read by no published model; or if there is a chat template,
            which is not applied.

    Example:
    >>> import tempfile
    >>> from keras_transformers import models, pretrained
    >>> model = models.ViT.from_variant("Ti/16", 3, image_size=32, num_layers=1)
    >>> model.build((None, 32, 32, 3))
    >>> folder = pretrained.save(model, tempfile.mkdtemp(), classes=["cat", "dog", "rose"])
    >>> again = pretrained.load(folder)
    >>> again.count_params() == model.count_params(), again.unused_tensors
    (True, ())
    """
    folder = find(folder, revision)
    model = read_model(folder, task)
    if isinstance(model, TextEncoder) and model.head is None:
        _warn_of_pooling(folder)
    return model


def _warn_of_pooling(folder: StrPath) -> None:
    """Warns of a sentence encoder with other vectors than `export` makes by default."""
    try:
        asked = load_pooling(folder)
    except ValueError as error:
        warnings.warn(f"The model alone is loaded, without what follows it: {error}", stacklevel=3)
        return
    asked = {name: asked[name] for name in ("pooling", "normalize", "prompt") if name in asked}
    if asked and asked != {"pooling": "mean", "normalize": True}:
        listed = ", ".join(f"{name}={value!r}" for name, value in asked.items())
        warnings.warn(
            f"{folder} is a sentence encoder: give export.SentenceEncoder {listed}, as "
            "pretrained.load_pooling says, or have keras_transformers.load do so.",
            stacklevel=3,
        )


def read_model(folder: StrPath, task: Task | None = None) -> Any:
    """As `load`, without a word on what a sentence encoder does with the model's vectors."""
    folder = pathlib.Path(folder)
    config = read_json(folder, CONFIG)
    family = _family_of(folder, config)
    architecture = _architecture(folder, config, family, task)
    where = f"{folder / CONFIG}"
    scheme = read_scheme(config, where)
    config = {**config, "quantization_config": None}
    arguments = family.configuration.read(config, where)
    if family.classes:
        arguments["num_classes"] = len(classes_of(config, where))
    arguments |= family.architectures[architecture]
    if hasattr(family.model, "problem_type"):
        check_choice(str(where), {"problem_type": None, **config}, "problem_type", PROBLEMS)
        arguments["problem_type"] = config.get("problem_type")
    weights = family.weights
    tensors = tensors_of(folder, scheme)
    arguments |= quantised_policy(tensors, family)
    arguments |= weights.arguments(tensors.shapes)
    check_sizes(family, config, tensors, where)
    try:
        values = sum(map(math.prod, tensors.shapes.values()))
        with within(values, zeros=True):
            model = family.build(arguments)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    model.published_as, mappings = family.name, weights.mappings(model)
    filled = fill_quantised(model, mappings, tensors)
    model.unused_tensors = tuple(assign(model, mappings, tensors, weights.prefix, filled))
    if isinstance(model, models.LanguageModel) and has_chat_template(folder):
        warnings.warn(
            f"{folder} has a chat template, by which turns of a conversation become one text. It "
            "is not applied: give the model texts as the template writes them.",
            stacklevel=3,
        )
    return model


def _family_of(folder: pathlib.Path, config: dict[str, Any]) -> Family:
    name = config.get("model_type")
    if name not in FAMILIES:
        raise ValueError(
            f"{folder / CONFIG}: `model_type` must be one of {', '.join(FAMILIES)}. "
            f"Received: {name!r}"
        )
    return FAMILIES[name]


def _architecture(
    folder: pathlib.Path, config: dict[str, Any], family: Family, task: Task | None
) -> str:
    """The published class whose head is wanted."""
    if task is not None:
        if task not in family.tasks:
            raise ValueError(
                f"load: `task` must be None or one of {', '.join(family.tasks)} for models of type "
                f"{family.name}. Received: {task!r}"
            )
        return family.tasks[task]
    listed = config.get("architectures") or []
    known = [name for name in listed if name in family.architectures]
    if not known:
        raise ValueError(
            f"{folder / CONFIG}: `architectures` must have one of {', '.join(family.architectures)}"
            f"; or give `task`. Received: {listed}"
        )
    return known[0]


def save(
    model: keras.Model,
    folder: StrPath,
    classes: Sequence[str] | None = None,
    family: str | None = None,
    tokenizer: Any = None,
) -> pathlib.Path:
    """Writes a model as a folder that Hugging Face's `transformers` can load.

    Active adapters are merged into what is written; the model itself keeps them apart.

    Args:
        model: A `Transformer`, `TextEncoder`, `LanguageModel`, `ViT`, `Swin`, `PVT`, `SegFormer`,
            `MAE`, `DETR` or `DualEncoder`, built, with settings that the published code has.
        folder: Path of the folder; made where it is not there.
        classes: Names of the classes, where there are such; two may have the same, as ImageNet's
            cranes.
        family: `model_type` to write, where several would do; by default the first that does.
        tokenizer: What `save_tokenizer` takes: its files are written too, and `config.json` says
            which tokens begin and end a text. Without it, programs that generate text take the ids
            of the first model that was published.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        ValueError: If the published code knows no such model; the message names the setting. If the
            model is not built.

    Example:
    >>> import tempfile
    >>> from keras_transformers import models, pretrained
    >>> model = models.LanguageModel.from_variant("tiny", 31, padding_id=-1)
    >>> model.build((None, None))
    >>> sorted(path.name for path in pretrained.save(model, tempfile.mkdtemp()).iterdir())
    ['config.json', 'model.safetensors']
    """
    if any(layer.quantization_mode for layer in model._flatten_layers()):
        raise ValueError(
            f"save: `model` must have weights in floating-point numbers. Received: '{model.name}', "
            "quantised; `.keras` files keep it as it is"
        )
    if not model.built:
        raise ValueError(
            f"save: `model` must be built. Received: '{model.name}', which has no weights; call "
            "it, or `model.build` with the shape of its inputs"
        )
    family, architecture, config, arguments = _describe(model, family)
    weights = family.weights
    bare = weights.prefix if architecture in weights.bare else ""
    tensors = gather(model, weights.mappings(model), bare)
    config["architectures"] = [architecture]
    number = arguments.get("num_classes")
    if family.classes and number is not None:
        names = [f"LABEL_{i}" for i in range(number)] if classes is None else list(classes)
        if len(names) != number:
            raise ValueError(f"save: `classes` must be {number} names. Received: {len(names)}")
        config["id2label"] = {str(i): name for i, name in enumerate(names)}
        # Of one name for several, the last; nothing that computes reads it.
        config["label2id"] = {name: i for i, name in enumerate(names)}
        if getattr(model, "problem_type", None):
            config["problem_type"] = model.problem_type
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        save_tokenizer(tokenizer, folder)
        config |= _text_marks(model, tokenizer)
    write_tensors(folder, tensors)
    write_json(folder, CONFIG, config)
    return folder


def _text_marks(model: Any, tokenizer: Any) -> dict[str, int | None]:
    """The ids of START and END for `config.json` of a model that generates text."""
    if not isinstance(model, models.Transformer | models.LanguageModel):
        return {}
    marks: dict[str, int | None] = {
        "eos_token_id": tokenizer.end_id if tokenizer.end_id >= 0 else None
    }
    if isinstance(model, models.LanguageModel):
        marks["bos_token_id"] = tokenizer.start_id
    return marks


def _describe(model: Any, name: str | None) -> tuple[Family, str, dict[str, Any], dict[str, Any]]:
    """Returns the family and class that a model is saved as, its configuration, its arguments."""
    reasons: list[str] = []
    for description in descriptions(model, name, reasons):
        return description
    reasons = reasons or [f"save: no family has models like {type(model).__name__}."]
    raise ValueError(" ".join(dict.fromkeys(reasons)))  # several families give the same reason


def descriptions(
    model: Any, name: str | None, reasons: list[str]
) -> Iterator[tuple[Family, str, dict[str, Any], dict[str, Any]]]:
    """Yields everything that a model can be saved as, as `_describe` returns it.

    Args:
        model: Built.
        name: `model_type` of the only family to try, or None for all.
        reasons: List that gets the reason of each family that has no such model.
    """
    if name is not None and name not in FAMILIES:
        raise ValueError(f"save: `family` must be one of {', '.join(FAMILIES)}. Received: {name!r}")
    for family in ALL if name is None else [FAMILIES[name]]:
        if not isinstance(model, (family.model, *family.others)):
            continue
        try:
            config, arguments = family.describe(model)
        except ValueError as error:
            reasons.append(str(error))
            continue
        for architecture, settings in family.architectures.items():
            if all(arguments[key] == value for key, value in settings.items()):
                yield family, architecture, config, arguments
