"""Heads of text models: the published classes that have them, and their settings."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.models import ClassificationHead, LanguageHead, SpanHead, TaggingHead
from keras_transformers.pretrained.weight_mapping import Mappings, linear

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
