"""RoBERTa (Liu et al. 2019)."""

from typing import Any

import keras

from keras_transformers.models import MaskedLanguageHead, TextEncoder
from keras_transformers.models.text_encoder_variants import HEAD_WORDS
from keras_transformers.pretrained.bert import HEADS, STYLE, TASKS, make_encoder
from keras_transformers.pretrained.configuration import (
    Configuration,
    activation,
    number,
    positive,
    size,
)
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.text_parts import encoder_keywords
from keras_transformers.pretrained.weight_mapping import (
    Mappings,
    WeightMapping,
    attention,
    linear,
    norm,
)

EMBEDDINGS, LAYER = "roberta.embeddings", "roberta.encoder.layer.{i}"
RESTORING = "gelu"  # of the head that restores tokens, whatever the blocks have
MAPPINGS = [
    WeightMapping(
        "embedding/token_embedding/token_embedding",
        f"{EMBEDDINGS}.word_embeddings.weight",
        also=("lm_head.decoder.weight",),
    ),
    WeightMapping(
        "embedding/position_embedding/position_embedding",
        f"{EMBEDDINGS}.position_embeddings.weight",
    ),
    WeightMapping(
        "embedding/token_type_embedding/token_embedding",
        f"{EMBEDDINGS}.token_type_embeddings.weight",
    ),
    *norm("embedding/norm", f"{EMBEDDINGS}.LayerNorm"),
    *attention(
        "encoder_{i}/mixer",
        f"{LAYER}.attention.self.query",
        f"{LAYER}.attention.self.key",
        f"{LAYER}.attention.self.value",
        f"{LAYER}.attention.output.dense",
    ),
    *norm("encoder_{i}/mixer_norm", f"{LAYER}.attention.output.LayerNorm"),
    *linear("encoder_{i}/feed_forward/hidden", f"{LAYER}.intermediate.dense"),
    *linear("encoder_{i}/feed_forward/output", f"{LAYER}.output.dense"),
    *norm("encoder_{i}/feed_forward_norm", f"{LAYER}.output.LayerNorm"),
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


CONFIGURATION = Configuration(
    name="roberta",
    settings=(
        size("vocab_size", "vocab_size", 50265),
        size("hidden_size", "hidden_dim", 768),
        size("num_hidden_layers", "num_layers", 12),
        size("num_attention_heads", "num_heads", 12),
        size("intermediate_size", "mlp_dim", 3072),
        size("max_position_embeddings", "max_length", 512),
        size("type_vocab_size", "token_types", 2, write=positive),
        activation("hidden_act", "activation", "gelu"),
        number("hidden_dropout_prob", "dropout", 0.1),
        number("attention_probs_dropout_prob", "attention_dropout", 0.1),
        number("layer_norm_eps", "norm_epsilon", 1e-12),
    ),
    # The position of padding is its id, and the first token has the one after it.
    fixed={**STYLE, "padding_id": 1, "first_position": 2, "pooler_activation": "tanh"},
    settled={"position_embedding_type": ("absolute",), "pad_token_id": (1,)},
    without_effect=frozenset({"classifier_dropout"}),
)
WEIGHTS = Weights(
    mappings=_mappings,
    sizes={
        f"{EMBEDDINGS}.word_embeddings.weight": ("vocab_size", "hidden_size"),
        f"{EMBEDDINGS}.position_embeddings.weight": ("max_position_embeddings", "hidden_size"),
        "roberta.encoder.layer.0.intermediate.dense.weight": ("intermediate_size", "hidden_size"),
    },
    layers={"num_hidden_layers": "roberta.encoder.layer."},
    prefix="roberta.",
    bare=("RobertaModel",),
)
ROBERTA = Family(
    configuration=CONFIGURATION,
    weights=WEIGHTS,
    model=TextEncoder,
    architectures={f"Roberta{ending}": given for ending, given in HEADS.items()},
    tasks={task: f"Roberta{ending}" for task, ending in TASKS.items()},
    classes=True,
    make=_make,
    arguments=lambda model: encoder_keywords(model, RESTORING),
)
