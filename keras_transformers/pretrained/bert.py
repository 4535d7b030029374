"""BERT, DistilBERT, RoBERTa, XLM-R and ELECTRA."""

from collections.abc import Callable
from typing import Any

import keras

from keras_transformers.models import (
    ClassificationHead,
    HeadTransform,
    MaskedLanguageHead,
    TaggingHead,
    TextEncoder,
)
from keras_transformers.models.text_encoder import HEAD_WORDS, encoder_head, encoder_norm
from keras_transformers.pretrained.family import (
    Configuration,
    Family,
    Setting,
    Weights,
    activation,
    number,
    read_block,
    size,
)
from keras_transformers.pretrained.heads import ENCODER_HEADS, read_head, text_classes
from keras_transformers.pretrained.weight_mapping import (
    Mappings,
    WeightMapping,
    attention,
    linear,
    norm,
)


def make_encoder(arguments: dict[str, Any], head_activation: str | None = None) -> TextEncoder:
    """Makes an encoder of flat keywords.

    Args:
        arguments: The keywords.
        head_activation: Name of the activation of a head that restores tokens; by default that of
            the blocks.
    """
    if head_activation is not None and arguments["head"] == "masked_language":
        head = encoder_head(
            "masked_language",
            activation=head_activation,
            norm=encoder_norm("bert", arguments["norm_epsilon"]),
            embedding_dim=arguments["embedding_dim"],
        )
        arguments = _replace_head(arguments, head)
    return TextEncoder.from_variant("base", **arguments)


def _replace_head(arguments: dict[str, Any], head: keras.layers.Layer | None) -> dict[str, Any]:
    """Returns keywords with a layer in the place of those that make a head."""
    keywords = {name: value for name, value in arguments.items() if name not in HEAD_WORDS}
    return {**keywords, "head": head}


def read_encoder(model: TextEncoder) -> dict[str, Any]:
    """Returns the keywords that `make_encoder` makes such a model of."""
    embedding = model.embedding
    return {
        "vocab_size": embedding.vocab_size,
        "hidden_dim": embedding.hidden_dim,
        "max_length": embedding.max_length,
        "token_types": embedding.token_types,
        "padding_id": embedding.padding_id,
        "first_position": embedding.first_position,
        "embedding_dim": embedding.embedding_dim,
        "num_layers": len(model.encoder_blocks),
        "dropout": model.configuration.dropout,
        **read_block(model.encoder_blocks[0]),
        **_read_head(model.head),
    }


def _read_head(head: Any) -> dict[str, Any]:
    settings = read_head(head)
    if isinstance(head, MaskedLanguageHead):
        settings["head"] = "masked_language"
    if isinstance(head, ClassificationHead):
        settings["pooling"] = head.pooling
        settings["pooler_activation"] = keras.activations.serialize(head.activation)
    return settings


def embeddings(start: str, tied: str) -> Mappings:
    """The mappings of a model's embedding, the table of tokens also under the name `tied`."""
    table = f"{start}.word_embeddings.weight"
    return [
        WeightMapping("embedding/token_embedding/token_embedding", table, also=(tied,)),
        WeightMapping(
            "embedding/position_embedding/position_embedding", f"{start}.position_embeddings.weight"
        ),
        WeightMapping(
            "embedding/token_type_embedding/token_embedding",
            f"{start}.token_type_embeddings.weight",
        ),
        *norm("embedding/norm", f"{start}.LayerNorm"),
    ]


def bert_layers(prefix: str) -> Mappings:
    """The mappings of the blocks of BERT and of what has the same names but for the first."""
    layer = f"{prefix}.encoder.layer.{{i}}"
    return [
        *attention(
            "encoder_{i}/mixer",
            f"{layer}.attention.self.query",
            f"{layer}.attention.self.key",
            f"{layer}.attention.self.value",
            f"{layer}.attention.output.dense",
        ),
        *norm("encoder_{i}/mixer_norm", f"{layer}.attention.output.LayerNorm"),
        *linear("encoder_{i}/feed_forward/hidden", f"{layer}.intermediate.dense"),
        *linear("encoder_{i}/feed_forward/output", f"{layer}.output.dense"),
        *norm("encoder_{i}/feed_forward_norm", f"{layer}.output.LayerNorm"),
    ]


def bert_settings(vocab_size: int) -> tuple[Setting, ...]:
    """The settings of BERT and its like, with what the size of the vocabulary is by default."""
    return (
        size("vocab_size", "vocab_size", vocab_size),
        size("hidden_size", "hidden_dim", 768),
        size("num_hidden_layers", "num_layers", 12),
        size("num_attention_heads", "num_heads", 12),
        size("intermediate_size", "mlp_dim", 3072),
        size("max_position_embeddings", "max_length", 512),
        size("type_vocab_size", "token_types", 2),
        activation("hidden_act", "activation", "gelu"),
        number("hidden_dropout_prob", "dropout", 0.1),
        number("attention_probs_dropout_prob", "attention_dropout", 0.1),
        number("layer_norm_eps", "norm_epsilon", 1e-12),
    )


def bert_weights(
    prefix: str, title: str, mappings: Callable[[Any], Mappings], width: str = "hidden_size"
) -> Weights:
    """The weights of BERT and its like.

    Args:
        prefix: What the names of the encoder's tensors begin with.
        title: What the names of the published classes begin with.
        mappings: As for `Weights`.
        width: The setting that says how wide the tables are.
    """
    start = f"{prefix}.embeddings"
    return Weights(
        mappings=mappings,
        sizes={
            f"{start}.word_embeddings.weight": ("vocab_size", width),
            f"{start}.position_embeddings.weight": ("max_position_embeddings", width),
            f"{prefix}.encoder.layer.0.intermediate.dense.weight": (
                "intermediate_size",
                "hidden_size",
            ),
        },
        layers={"num_hidden_layers": f"{prefix}.encoder.layer."},
        prefix=f"{prefix}.",
        bare=(f"{title}Model",),
    )


def classes(model: Any) -> Mappings:
    """The mappings of heads of classes and spans; behind a pooler classes have another name."""
    pooled = hasattr(model.head, "pooler")
    return [
        *linear("head/pooler", "classifier.dense"),
        *linear("head/classes", "classifier.out_proj" if pooled else "classifier"),
        *linear("head/ends", "qa_outputs"),
    ]


BERT_ROWS = [
    *embeddings("bert.embeddings", "cls.predictions.decoder.weight"),
    *bert_layers("bert"),
    *linear("head/transform", "cls.predictions.transform.dense"),
    *norm("head/norm", "cls.predictions.transform.LayerNorm"),
    WeightMapping("head/bias", "cls.predictions.bias", also=("cls.predictions.decoder.bias",)),
    *linear("head/pooler", "bert.pooler.dense"),
    *linear("head/classes", "classifier"),
    *linear("head/ends", "qa_outputs"),
]

DISTILBERT_LAYER = "distilbert.transformer.layer.{i}"
DISTILBERT_ROWS = [
    *embeddings("distilbert.embeddings", "vocab_projector.weight"),
    *attention(
        "encoder_{i}/mixer",
        *(f"{DISTILBERT_LAYER}.attention.{name}_lin" for name in ("q", "k", "v", "out")),
    ),
    *norm("encoder_{i}/mixer_norm", f"{DISTILBERT_LAYER}.sa_layer_norm"),
    *linear("encoder_{i}/feed_forward/hidden", f"{DISTILBERT_LAYER}.ffn.lin1"),
    *linear("encoder_{i}/feed_forward/output", f"{DISTILBERT_LAYER}.ffn.lin2"),
    *norm("encoder_{i}/feed_forward_norm", f"{DISTILBERT_LAYER}.output_layer_norm"),
    *linear("head/transform", "vocab_transform"),
    *norm("head/norm", "vocab_layer_norm"),
    WeightMapping("head/bias", "vocab_projector.bias"),
    *linear("head/pooler", "pre_classifier"),
    *linear("head/classes", "classifier"),
    *linear("head/ends", "qa_outputs"),
]

FIXED = {"pooling": "token", "padding_id": 0, "first_position": 0, "embedding_dim": None}

BERT_CONFIGURATION = Configuration(
    name="bert",
    settings=bert_settings(30522),
    fixed={**FIXED, "pooler_activation": "tanh"},
    settled={"position_embedding_type": ("absolute",), "pad_token_id": (0, None)},
    without_effect=frozenset({"classifier_dropout", "directionality", "pooler_fc_size"})
    | {"pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head"}
    | {"pooler_type"},
)
BERT = Family(
    configuration=BERT_CONFIGURATION,
    weights=bert_weights("bert", "Bert", lambda model: BERT_ROWS),
    model=TextEncoder,
    **text_classes("Bert", ENCODER_HEADS, BertForPreTraining=ENCODER_HEADS["ForMaskedLM"]),
    make=make_encoder,
    read=read_encoder,
)

DISTILBERT_CONFIGURATION = Configuration(
    name="distilbert",
    settings=(
        size("vocab_size", "vocab_size", 30522),
        size("dim", "hidden_dim", 768),
        size("n_layers", "num_layers", 6),
        size("n_heads", "num_heads", 12),
        size("hidden_dim", "mlp_dim", 3072),
        size("max_position_embeddings", "max_length", 512),
        activation("activation", "activation", "gelu"),
        number("dropout", "dropout", 0.1),
        number("attention_dropout", "attention_dropout", 0.1),
    ),
    fixed={**FIXED, "token_types": 0, "norm_epsilon": 1e-12, "pooler_activation": "relu"},
    settled={"pad_token_id": (0, None)},
    # The table of positions is in the file, however it was made.
    without_effect=frozenset({"sinusoidal_pos_embds", "qa_dropout", "seq_classif_dropout"})
    | {"output_past", "tie_weights_"},
)
DISTILBERT_WEIGHTS = Weights(
    mappings=lambda model: DISTILBERT_ROWS,
    sizes={
        "distilbert.embeddings.word_embeddings.weight": ("vocab_size", "dim"),
        "distilbert.embeddings.position_embeddings.weight": ("max_position_embeddings", "dim"),
        "distilbert.transformer.layer.0.ffn.lin1.weight": ("hidden_dim", "dim"),
    },
    layers={"n_layers": "distilbert.transformer.layer."},
    prefix="distilbert.",
    bare=("DistilBertModel",),
)
DISTILBERT = Family(
    configuration=DISTILBERT_CONFIGURATION,
    weights=DISTILBERT_WEIGHTS,
    model=TextEncoder,
    **text_classes("DistilBert", ENCODER_HEADS),
    make=make_encoder,
    read=read_encoder,
)


HEAD_ACTIVATION = "gelu"  # of a head that restores tokens, whatever the blocks have
MAPPINGS = [
    *embeddings("roberta.embeddings", "lm_head.decoder.weight"),
    *bert_layers("roberta"),
    *linear("head/transform", "lm_head.dense"),
    *norm("head/norm", "lm_head.layer_norm"),
    WeightMapping("head/bias", "lm_head.bias", also=("lm_head.decoder.bias",)),
]


def _family(name: str, title: str, vocab_size: int) -> Family:
    """A family of RoBERTa's kind.

    Args:
        name: Its `model_type`.
        title: What the names of the published classes begin with.
        vocab_size: Size of the vocabulary where nothing is said.
    """
    configuration = Configuration(
        name=name,
        settings=bert_settings(vocab_size),
        # The position of padding is its id, and the first token has the one after it.
        fixed={**FIXED, "padding_id": 1, "first_position": 2, "pooler_activation": "tanh"},
        settled={"position_embedding_type": ("absolute",), "pad_token_id": (1,)},
        without_effect=frozenset({"classifier_dropout", "output_past"}),
    )
    return Family(
        configuration=configuration,
        weights=bert_weights("roberta", title, lambda model: [*MAPPINGS, *classes(model)]),
        model=TextEncoder,
        **text_classes(title, ENCODER_HEADS),
        make=lambda arguments: make_encoder(arguments, HEAD_ACTIVATION),
        read=read_encoder,
    )


ROBERTA = _family("roberta", "Roberta", 50265)
XLM_ROBERTA = _family("xlm-roberta", "XLMRoberta", 30522)


# Of the discriminator: whether each token was replaced, one logit.
DETECTION: dict[str, Any] = {"head": "detection", "num_classes": 1}
BLOCKS = [
    *embeddings("electra.embeddings", "generator_lm_head.weight"),
    *linear("embedding/projection", "electra.embeddings_project"),
    *bert_layers("electra"),
]
ELECTRA_MAPPINGS = [
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
    return [*ELECTRA_MAPPINGS, *classes(model)]


def _make_electra(arguments: dict[str, Any]) -> TextEncoder:
    if arguments["head"] == "detection":
        transform = HeadTransform(arguments["activation"])
        head = TaggingHead(1, dropout=0.0, transform=transform)
        arguments = _replace_head(arguments, head)
    return make_encoder(arguments, HEAD_ACTIVATION)


def _read_electra(model: TextEncoder) -> dict[str, Any]:
    arguments = read_encoder(model)
    if arguments["embedding_dim"] is None:
        arguments["embedding_dim"] = arguments["hidden_dim"]
    return {**arguments, **DETECTION} if _detects(model.head) else arguments


ELECTRA_CONFIGURATION = Configuration(
    name="electra",
    settings=(*bert_settings(30522), size("embedding_size", "embedding_dim", 128)),
    fixed={
        **{key: value for key, value in FIXED.items() if key != "embedding_dim"},
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
    **text_classes("Electra", ENCODER_HEADS, ElectraForPreTraining=DETECTION),
    make=_make_electra,
    read=_read_electra,
)
