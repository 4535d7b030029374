"""GPT-2 (Radford et al. 2019)."""

from typing import Any

from keras_transformers.models import LanguageModel
from keras_transformers.pretrained.family import (
    CLASSES,
    SPANS,
    WRITES,
    Configuration,
    Family,
    Weights,
    activation,
    decoder_head,
    decoder_head_mappings,
    flag,
    number,
    read_block,
    read_decoder_head,
    size,
    text_classes,
)
from keras_transformers.pretrained.llama import padding
from keras_transformers.pretrained.weight_mapping import (
    FLAT,
    FusedPart,
    Mappings,
    Matrix,
    WeightMapping,
    norm,
)

# Arguments that make a head, or that no head makes necessary.
HEAD_ARGUMENTS = ("head", "num_classes", "problem_type", "logits_cap", "has_unused_table")


def _make(arguments: dict[str, Any]) -> LanguageModel:
    keywords = {name: value for name, value in arguments.items() if name not in HEAD_ARGUMENTS}
    if arguments["head"] is not None and not arguments.get("has_unused_table", False):
        keywords["tie_weights"] = True
    return LanguageModel.from_variant("small", **keywords, head=decoder_head(arguments))


def _read(model: LanguageModel) -> dict[str, Any]:
    embedding, head = model.embedding, read_decoder_head(model.head)
    return {
        "vocab_size": embedding.vocab_size,
        "hidden_dim": embedding.hidden_dim,
        "max_length": embedding.max_length,
        "padding_id": embedding.padding_id,
        "tie_weights": embedding.tie_weights,
        "num_layers": len(model.decoder_blocks),
        "dropout": model.configuration.dropout,
        **read_block(model.decoder_blocks[0]),
        **head,
        # A model that wrote text before it got its head may have a table of logits.
        "has_unused_table": head["head"] is not None and not embedding.tie_weights,
    }


def _dense(ours: str, theirs: str, inputs: int = 1) -> Mappings:
    """Kernels lie as ours do."""
    return [
        WeightMapping(f"{ours}/kernel", f"{theirs}.weight", Matrix(inputs, straight=True)),
        WeightMapping(f"{ours}/bias", f"{theirs}.bias", FLAT),
    ]


def _attention(ours: str, theirs: str) -> Mappings:
    """The mappings of an attention whose projections to heads are one."""
    mappings = _dense(f"{ours}/attention_output", f"{theirs}.c_proj", inputs=2)
    for position, name in enumerate(("query", "key", "value")):
        kernel = FusedPart(position, Matrix(straight=True))
        mappings.append(WeightMapping(f"{ours}/{name}/kernel", f"{theirs}.c_attn.weight", kernel))
        mappings.append(
            WeightMapping(f"{ours}/{name}/bias", f"{theirs}.c_attn.bias", FusedPart(position, FLAT))
        )
    return mappings


LAYER = "transformer.h.{i}"
MAPPINGS = [
    WeightMapping("embedding/position_embedding/position_embedding", "transformer.wpe.weight"),
    *norm("decoder_{i}/mixer_norm", f"{LAYER}.ln_1"),
    *_attention("decoder_{i}/mixer", f"{LAYER}.attn"),
    *norm("decoder_{i}/feed_forward_norm", f"{LAYER}.ln_2"),
    *_dense("decoder_{i}/feed_forward/hidden", f"{LAYER}.mlp.c_fc"),
    *_dense("decoder_{i}/feed_forward/output", f"{LAYER}.mlp.c_proj"),
    *norm("norm", "transformer.ln_f"),
]


def _mappings(model: LanguageModel) -> Mappings:
    also = ("lm_head.weight",) if model.embedding.tie_weights and model.writes else ()
    tokens = "embedding/token_embedding"
    return [
        WeightMapping(f"{tokens}/token_embedding", "transformer.wte.weight", also=also),
        WeightMapping(f"{tokens}/output_embedding", "lm_head.weight"),
        *MAPPINGS,
        *decoder_head_mappings(model, tagging="classifier"),
    ]


GPT2_CONFIGURATION = Configuration(
    name="gpt2",
    settings=(
        size("vocab_size", "vocab_size", 50257),
        size("n_embd", "hidden_dim", 768),
        size("n_layer", "num_layers", 12),
        size("n_head", "num_heads", 12),
        size("n_inner", "mlp_dim", lambda config: 4 * config.get("n_embd", 768)),
        size("n_positions", "max_length", 1024),
        activation("activation_function", "activation", "gelu_new"),
        number("resid_pdrop", "dropout", 0.1),
        number("attn_pdrop", "attention_dropout", 0.1),
        number("layer_norm_epsilon", "norm_epsilon", 1e-5),
        flag("tie_word_embeddings", "tie_weights", True),
    ),
    combined=(padding(),),
    fixed={"logits_cap": None},
    settled={
        "tie_word_embeddings": (True, False),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
    },
    without_effect=frozenset("n_ctx embd_pdrop reorder_and_upcast_attn summary_activation".split())
    | frozenset("summary_first_dropout summary_proj_to_labels summary_type".split())
    | {"summary_use_proj", "summary_last_dropout", "classifier_dropout", "hidden_dropout"}
    # Of older files; nothing has read them for years.
    | {"n_special", "predict_special_tokens", "output_past"},
)
GPT2_WEIGHTS = Weights(
    mappings=_mappings,
    sizes={
        "transformer.wte.weight": ("vocab_size", "n_embd"),
        "transformer.wpe.weight": ("n_positions", "n_embd"),
        "transformer.h.0.mlp.c_fc.weight": ("n_embd", "n_inner"),
    },
    layers={"n_layer": "transformer.h."},
    prefix="transformer.",
    bare=("GPT2Model",),
)
# The base model has the same weights: what it lacks, the output, is the table of tokens.
HEADS = {"LMHeadModel": WRITES, "Model": WRITES, **CLASSES, **SPANS}
GPT2 = Family(
    configuration=GPT2_CONFIGURATION,
    weights=GPT2_WEIGHTS,
    model=LanguageModel,
    **text_classes("GPT2", HEADS),
    make=_make,
    read=_read,
)
