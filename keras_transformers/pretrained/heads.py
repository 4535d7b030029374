"""The heads of published models of text: which class has which, and what makes it here."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.layers.parts import serialized
from keras_transformers.models import ClassificationHead, LanguageHead, SpanHead, TaggingHead
from keras_transformers.pretrained.parts import refused, said
from keras_transformers.pretrained.weight_mapping import Mappings, linear

NO_CLASSES: dict[str, Any] = {"num_classes": None}
OF_CLASSES: dict[str, dict[str, Any]] = {
    "ForSequenceClassification": {"head": "classification"},
    "ForTokenClassification": {"head": "tagging"},
}
OF_SPANS: dict[str, dict[str, Any]] = {
    "ForQuestionAnswering": {"head": "question_answering", **NO_CLASSES}
}
# The ends of the names of published classes -> arguments of ours that they stand for.
OF_ENCODERS: dict[str, dict[str, Any]] = {
    "Model": {"head": None, **NO_CLASSES},
    "ForMaskedLM": {"head": "masked_language", **NO_CLASSES},
    **OF_CLASSES,
    **OF_SPANS,
}
# No id is set aside for padding where text is written: of many of these models it is END's.
WRITES: dict[str, Any] = {"head": None, "padding_id": -1, **NO_CLASSES}
WITHOUT_SPANS: dict[str, dict[str, Any]] = {"ForCausalLM": WRITES, **OF_CLASSES}
OF_DECODERS = {**WITHOUT_SPANS, **OF_SPANS}


def of_texts(
    title: str, heads: Mapping[str, dict[str, Any]], **others: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of `Family` that say which heads there are.

    Args:
        title: What the names of the published classes begin with.
        heads: Their ends -> arguments of ours; the first of each `head` is that of its task.
        **others: Further classes -> arguments of ours.
    """
    tasks: dict[str, str] = {}
    for ending, given in heads.items():
        without = "language_model" if given is WRITES else "features"
        tasks.setdefault(given["head"] or without, f"{title}{ending}")
    architectures = {f"{title}{ending}": given for ending, given in heads.items()}
    return {"architectures": {**architectures, **others}, "tasks": tasks, "classes": True}


def decoder_head(given: Mapping[str, Any]) -> keras.layers.Layer | None:
    """The head of a decoder: `head`, `num_classes`, `problem_type`, and `logits_cap` of logits."""
    kind, number = given["head"], given["num_classes"]
    if kind == "classification":
        return ClassificationHead(
            number,
            pooling="last",
            dropout=0.0,
            problem_type=given.get("problem_type"),
            transform=keras.layers.Identity(),
            use_bias=False,
        )
    if kind == "tagging":
        return TaggingHead(number)
    if kind == "question_answering":
        return SpanHead()
    cap = given.get("logits_cap")
    return None if cap is None else LanguageHead(cap)


def head_keywords(head: Any) -> dict[str, Any]:
    """What `decoder_head` makes such a head of.

    Raises:
        ValueError: If nothing does.
    """
    kinds = {ClassificationHead: "classification", TaggingHead: "tagging"}
    kinds[SpanHead] = "question_answering"
    found = {
        "head": kinds.get(type(head)),
        "num_classes": getattr(head, "num_classes", None),
        "problem_type": getattr(head, "problem_type", None),
        "logits_cap": getattr(head, "soft_cap", None),
    }
    made = decoder_head(found)
    if said(serialized(head)) != said(serialized(made)):
        expected = "like one of the published decoders'"
        raise refused(head, said(head.get_config()), expected)
    return found


def head_of_decoder(model: Any, tagging: str = "score") -> Mappings:
    """The mappings of a decoder's head; that of tokens' classes is called `tagging`."""
    classes = tagging if isinstance(model.head, TaggingHead) else "score"
    return [*linear("head/classes", classes), *linear("head/ends", "qa_outputs")]
