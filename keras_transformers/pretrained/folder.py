"""Folders of published models, read and written, and the list of all families."""

import math
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, overload

import keras

from keras_transformers import models
from keras_transformers.core.types import StrPath
from keras_transformers.models import TextEncoder
from keras_transformers.models.base import PROBLEMS, check_choice
from keras_transformers.pretrained import quantised
from keras_transformers.pretrained.bart import BART, M2M_100, MARIAN, MBART, PEGASUS
from keras_transformers.pretrained.beit import BEIT
from keras_transformers.pretrained.bert import BERT, DISTILBERT, ELECTRA, ROBERTA, XLM_ROBERTA
from keras_transformers.pretrained.clip import CLIP, SIGLIP
from keras_transformers.pretrained.deformable_detr import DEFORMABLE_DETR
from keras_transformers.pretrained.detr import CONDITIONAL_DETR, DETR
from keras_transformers.pretrained.dinov2 import DINOV2, DINOV2_WITH_REGISTERS
from keras_transformers.pretrained.family import Family, check_sizes
from keras_transformers.pretrained.files import (
    CONFIG,
    classes_of,
    find,
    has_chat_template,
    read_json,
    write_json,
    write_tensors,
)
from keras_transformers.pretrained.gpt2 import GPT2
from keras_transformers.pretrained.llama import GEMMA2, LLAMA, MISTRAL, PHI3, QWEN2, QWEN3
from keras_transformers.pretrained.modernbert import MODERNBERT
from keras_transformers.pretrained.pooling import load_pooling
from keras_transformers.pretrained.quantised import read_scheme
from keras_transformers.pretrained.segformer import SEGFORMER
from keras_transformers.pretrained.swin import SWIN, SWINV2
from keras_transformers.pretrained.t5 import MT5, T5
from keras_transformers.pretrained.tokenizers import save_tokenizer
from keras_transformers.pretrained.vit import DEIT, VIT, VIT_MAE
from keras_transformers.pretrained.weight_mapping import assign, gather
from keras_transformers.saving.untrusted_files import within

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
    tensors = quantised.tensors_of(folder, scheme)
    arguments |= quantised.policy(tensors, family)
    arguments |= weights.arguments(tensors.shapes)
    check_sizes(family, config, tensors, where)
    try:
        values = sum(map(math.prod, tensors.shapes.values()))
        with within(values, zeros=True):
            model = family.build(arguments)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    model.published_as, mappings = family.name, weights.mappings(model)
    filled = quantised.fill(model, mappings, tensors)
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
