"""RoBERTa (Liu et al. 2019)."""

from typing import Any

import keras

from keras_transformers.models import MaskedLanguageHead, TextEncoder
from keras_transformers.models.text_encoder_variants import HEAD_WORDS
from keras_transformers.pretrained.bert import (
    HEADS,
    STYLE,
    TASKS,
    bert_layers,
    bert_settings,
    bert_sizes,
    embeddings,
    make_encoder,
)
from keras_transformers.pretrained.configuration import Configuration
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.text_parts import encoder_keywords
from keras_transformers.pretrained.weight_mapping import Mappings, WeightMapping, linear, norm

RESTORING = "gelu"  # of the head that restores tokens, whatever the blocks have
MAPPINGS = [
    *embeddings("roberta.embeddings", "lm_head.decoder.weight"),
    *bert_layers("roberta"),
    *linear("head/transform", "lm_head.dense"),
    *norm("head/norm", "lm_head.layer_norm"),
    WeightMapping("head/bias", "lm_head.bias", also=("lm_head.decoder.bias",)),
    *linear("head/pooler", "classifier.dense"),
]


def _mappings(model: Any) -> Mappings:
    """Those of the classes have another name below a pooler."""
    pooled = hasattr(model.head, "pooler")
    return [*MAPPINGS, *linear("head/classes", "classifier.out_proj" if pooled else "classifier")]


def _make(arguments: dict[str, Any]) -> TextEncoder:
    if arguments["head"] == "masked_language":
        arguments = {k: v for k, v in arguments.items() if k not in HEAD_WORDS}
        layer_norm = keras.layers.LayerNormalization(epsilon=arguments["norm_epsilon"])
        arguments["head"] = MaskedLanguageHead(RESTORING, layer_norm)
    return make_encoder(arguments)


ROBERTA_CONFIGURATION = Configuration(
    name="roberta",
    settings=bert_settings(50265),
    # The position of padding is its id, and the first token has the one after it.
    fixed={**STYLE, "padding_id": 1, "first_position": 2, "pooler_activation": "tanh"},
    settled={"position_embedding_type": ("absolute",), "pad_token_id": (1,)},
    without_effect=frozenset({"classifier_dropout"}),
)
ROBERTA_WEIGHTS = Weights(
    mappings=_mappings,
    sizes=bert_sizes("roberta"),
    layers={"num_hidden_layers": "roberta.encoder.layer."},
    prefix="roberta.",
    bare=("RobertaModel",),
)
ROBERTA = Family(
    configuration=ROBERTA_CONFIGURATION,
    weights=ROBERTA_WEIGHTS,
    model=TextEncoder,
    architectures={f"Roberta{ending}": given for ending, given in HEADS.items()},
    tasks={task: f"Roberta{ending}" for task, ending in TASKS.items()},
    classes=True,
    make=_make,
    arguments=lambda model: encoder_keywords(model, RESTORING),
)
