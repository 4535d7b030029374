"""ELECTRA (Clark et al. 2020): the discriminator and the generator."""

from typing import Any

from keras_transformers.models import HeadTransform, MaskedLanguageHead, TaggingHead, TextEncoder
from keras_transformers.models.text_encoder_variants import HEAD_WORDS
from keras_transformers.pretrained.bert import (
    STYLE,
    bert_layers,
    bert_settings,
    bert_weights,
    classes,
    embeddings,
    make_encoder,
)
from keras_transformers.pretrained.configuration import Configuration, size
from keras_transformers.pretrained.family import Family
from keras_transformers.pretrained.heads import OF_ENCODERS, of_texts
from keras_transformers.pretrained.parts import refused, said
from keras_transformers.pretrained.text_parts import encoder_keywords, of_restoring
from keras_transformers.pretrained.weight_mapping import Mappings, WeightMapping, linear, norm

RESTORING = "gelu"  # of the head that restores tokens, whatever the blocks have
# Of the discriminator: whether each token was replaced, one logit.
DETECTION: dict[str, Any] = {"head": "detection", "num_classes": 1}
BLOCKS = [
    *embeddings("electra.embeddings", "generator_lm_head.weight"),
    *linear("embedding/projection", "electra.embeddings_project"),
    *bert_layers("electra"),
]
MAPPINGS = [
    *BLOCKS,
    *linear("head/transform/dense", "generator_predictions.dense"),
    *norm("head/transform/norm", "generator_predictions.LayerNorm"),
    WeightMapping("head/bias", "generator_lm_head.bias"),
]
DETECTION_MAPPINGS = [
    *BLOCKS,
    *linear("head/transform/dense", "discriminator_predictions.dense"),
    *linear("head/classes", "discriminator_predictions.dense_prediction"),
]


def _detects(head: Any) -> bool:
    return isinstance(head, TaggingHead) and head.transform is not None


def _mappings(model: Any) -> Mappings:
    if _detects(model.head):
        return DETECTION_MAPPINGS
    return [*MAPPINGS, *classes(model)]


def _detection_head(activation: Any) -> TaggingHead:
    return TaggingHead(1, dropout=0.0, transform=HeadTransform(activation))


def _make(arguments: dict[str, Any]) -> TextEncoder:
    if arguments["head"] == "detection":
        head = _detection_head(arguments["activation"])
        arguments = {k: v for k, v in arguments.items() if k not in HEAD_WORDS} | {"head": head}
    return make_encoder(arguments, RESTORING)


def _arguments(model: TextEncoder) -> dict[str, Any]:
    found = encoder_keywords(model, of_head=_of_head)
    return {**found, "embedding_dim": found["embedding_dim"] or found["hidden_dim"]}


def _of_head(head: Any, found: dict[str, Any]) -> dict[str, Any] | None:
    """The keywords of a head that restores or detects replaced tokens; None of another."""
    if isinstance(head, MaskedLanguageHead):  # which has a transform whatever the width
        return of_restoring(head, found, RESTORING, found["embedding_dim"] or found["hidden_dim"])
    if not _detects(head):
        return None
    made = _detection_head(found["activation"])
    if said(head.get_config()) != said(made.get_config()):
        raise refused(head, said(head.get_config()), f"like {said(made.get_config())}")
    return DETECTION


ELECTRA_CONFIGURATION = Configuration(
    name="electra",
    settings=(*bert_settings(30522), size("embedding_size", "embedding_dim", 128)),
    fixed={
        **{key: value for key, value in STYLE.items() if key != "embedding_dim"},
        "pooler_activation": "gelu",
    },
    settled={"position_embedding_type": ("absolute",), "pad_token_id": (0, None)},
    # Those of the summary belong to multiple choice alone.
    without_effect=frozenset({"classifier_dropout", "summary_type", "summary_use_proj"})
    | {"summary_activation", "summary_first_dropout", "summary_last_dropout"}
    | {"summary_proj_to_labels"},
)
ELECTRA = Family(
    configuration=ELECTRA_CONFIGURATION,
    weights=bert_weights("electra", "Electra", _mappings, width="embedding_size"),
    model=TextEncoder,
    **of_texts("Electra", OF_ENCODERS, ElectraForPreTraining=DETECTION),
    make=_make,
    arguments=_arguments,
)
