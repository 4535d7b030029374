"""Parts of text models in published configurations: norms, heads, encoders, decoders."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras

from keras_transformers.layers import (
    CausalSelfAttention,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    PositionalEncoding,
    PositionEmbedding,
    SelfAttention,
    TokenEmbedding,
)
from keras_transformers.layers.parts import OWN_DTYPE, serialized
from keras_transformers.models import (
    ClassificationHead,
    LanguageHead,
    LanguageModel,
    MaskedLanguageHead,
    SpanHead,
    TaggingHead,
    TextEncoder,
    Transformer,
)
from keras_transformers.models.language_model import decoder_block, decoder_embedding
from keras_transformers.models.text_encoder import (
    encoder_block,
    encoder_embedding,
    encoder_head,
    encoder_norm,
)
from keras_transformers.pretrained.weight_mapping import Mappings, linear

# What changes nothing that a model computes: names, precision, and how it was started or trained.
UNSAID = ("name", "dtype", OWN_DTYPE, "trainable", "seed", "dropout", "drop_path")
UNSAID += ("module", "registered_name")
UNSAID_ENDS = ("_initializer", "_regularizer", "_constraint")


def parts_of(block: Any) -> dict[str, Any]:
    """What makes a block, built or not, as configurations and numbers."""
    config = block.get_config()
    config["mixer"] = config["mixer"] or serialized(block.mixer)
    config["feed_forward"] = config["feed_forward"] or serialized(block.feed_forward)
    kept = ("mixer", "feed_forward", "norm", "norm_first", "layer_scale")
    return {"class": type(block).__name__, **{name: config[name] for name in kept}}


def said(config: Any) -> Any:
    """A configuration without what changes nothing that is computed."""
    if not isinstance(config, dict):  # Keras makes lists of axes when it builds a norm
        return config[0] if isinstance(config, (list, tuple)) and len(config) == 1 else config
    return {
        key: said(value)
        for key, value in config.items()
        if key not in UNSAID and not key.endswith(UNSAID_ENDS)
    }


def refused(model: Any, received: Any, expected: str) -> ValueError:
    """What to raise of a model that cannot be written."""
    return ValueError(
        f"save: a {type(model).__name__} must be {expected}. Received: {str(received)[:200]}"
    )


def one_for_both(arguments: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Arguments in which encoder and decoder have one value of each of the names.

    Raises:
        ValueError: If the decoder's, `decoder_NAME`, is another.
    """
    arguments = dict(arguments)
    for name in names:
        decoders = arguments.pop(f"decoder_{name}")
        if decoders != arguments[name]:
            raise ValueError(
                f"config.json: encoder and decoder must have one {name}. Received: "
                f"{arguments[name]} and {decoders}"
            )
    return arguments


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


# Of each part, the function that makes it and the keywords that this takes.
Makers: TypeAlias = dict[str, tuple[Callable[..., Any], tuple[str, ...]]]
OF_BLOCK = ("num_heads", "mlp_dim", "style", "attention_dropout", "activation", "norm_epsilon")


def encoder_keywords(
    model: TextEncoder,
    restoring: str | None = None,
    of_head: Callable[[Any, dict[str, Any]], dict[str, Any] | None] = lambda head, found: None,
) -> dict[str, Any]:
    """What `TextEncoder.from_variant` makes such a model of; of heads, those of the model's own.

    Args:
        model: Built.
        restoring: Name of the activation that a `MaskedLanguageHead` must have; by default that of
            the feed-forward networks.
        of_head: Function of the head and of what was found that gives the keywords of a head that
            only this family has, None of another.

    Raises:
        ValueError: If no keywords make such a model; the message names the part.
    """
    found = numbers_of(model, model.encoder_blocks[0])
    names = ("vocab_size", "hidden_dim", "max_length", "token_types", "padding_id")
    of_embedding = (*names, "first_position", "embedding_dim", "norm_epsilon", "style")
    table = model.embedding.get_config()
    found |= {name: table[name] for name in of_embedding[:-2]}
    styles = ("bert", "modern")
    makers: Makers = {
        "embedding": (encoder_embedding, of_embedding),
        "block": (encoder_block, OF_BLOCK),
    }
    found = _styled(model, model.encoder_blocks[0], found, styles, makers)
    return found | (of_head(model.head, found) or _of_head(model.head, found, restoring))


def decoder_keywords(model: LanguageModel) -> dict[str, Any]:
    """What `LanguageModel.from_variant` makes such a model of; raises as `encoder_keywords`."""
    block = model.decoder_blocks[0]
    found = numbers_of(model, block)
    if isinstance(model.get_config()["block"], list | tuple):
        expected = "such that keywords of `from_variant` make it"
        raise refused(model, "blocks of several kinds", expected)
    of_embedding = ("vocab_size", "hidden_dim", "max_length", "padding_id", "tie_weights", "style")
    table = model.embedding.get_config()
    found |= {name: table[name] for name in of_embedding[:-1]}
    found |= head_keywords(model.head)
    found["num_key_value_heads"] = getattr(block.mixer, "num_key_value_heads", None)
    of_block = (*OF_BLOCK, "num_key_value_heads")
    makers: Makers = {
        "embedding": (decoder_embedding, of_embedding),
        "block": (decoder_block, of_block),
    }
    return _styled(model, block, found, ("gpt2", "modern"), makers)


def numbers_of(model: Any, block: Any) -> dict[str, Any]:
    """The keywords that are numbers of a block of any style."""
    mixer, network = block.mixer, block.feed_forward
    found = {
        "num_layers": model.get_config()["num_layers"],
        "dropout": model.get_config()["dropout"],
        "num_heads": getattr(mixer, "num_heads", None),
        "mlp_dim": getattr(network, "mlp_dim", None),
        "attention_dropout": getattr(mixer, "dropout", None),
        "norm_epsilon": getattr(block.mixer_norm, "epsilon", None),
    }
    for name, part in (("num_heads", mixer), ("mlp_dim", network), ("norm_epsilon", block)):
        if found[name] is None:
            raise refused(model, type(part).__name__, f"with {name}, as published ones are")
    return {
        **found,
        "activation": keras.activations.serialize(getattr(network, "activation", None)),
    }


def _styled(
    model: Any, block: Any, found: dict[str, Any], styles: tuple[str, ...], makers: Makers
) -> dict[str, Any]:
    """What was found, with the style in which it makes such parts."""
    wrong = []
    for style in styles:
        given = {**found, "style": style}
        made = {
            name: make(**{word: given[word] for word in words})
            for name, (make, words) in makers.items()
        }
        ours = {**parts_of(block), "embedding": serialized(model.embedding)}
        theirs = {**parts_of(made["block"]), "embedding": serialized(made["embedding"])}
        differing = [name for name, part in ours.items() if said(part) != said(theirs[name])]
        if not differing:
            return given
        wrong.append((differing[0], ours[differing[0]]))
    name, part = wrong[0]
    received = part["class_name"] if isinstance(part, dict) else part
    if isinstance(part, dict):
        received = f"{received} with {said(part['config'])}"
    raise refused(model, received, f"such that keywords of `from_variant` make its `{name}`")


def of_restoring(
    head: MaskedLanguageHead, found: dict[str, Any], activation: str, table: int | None
) -> dict[str, Any]:
    """The keywords of a head that restores tokens.

    Args:
        head: The head.
        found: Those of the rest of the model.
        activation: Name of the activation that it must have.
        table: Width of a table of tokens that it has a transform for.
    """
    norm = encoder_norm(found["style"], found["norm_epsilon"])
    made = encoder_head("masked_language", activation=activation, norm=norm, embedding_dim=table)
    if said(serialized(head)) != said(serialized(made)):
        expected = f"with a head with activation {activation!r} and the norm of the blocks"
        raise refused(head, said(head.get_config()), expected)
    return {"head": "masked_language", "num_classes": None}


def _of_head(head: Any, found: dict[str, Any], restoring: str | None) -> dict[str, Any]:
    """The keywords of a head."""
    if isinstance(head, MaskedLanguageHead):
        activation = found["activation"] if restoring is None else restoring
        return of_restoring(head, found, activation, found["embedding_dim"])
    if getattr(head, "_transform", None) is not None:
        raise refused(head, said(head.get_config()), "without a `transform`")
    if isinstance(head, SpanHead):
        return {"head": "question_answering", "num_classes": None}
    if isinstance(head, TaggingHead):
        return {"head": "tagging", "num_classes": head.num_classes}
    if isinstance(head, ClassificationHead):
        return {
            "head": "classification",
            "num_classes": head.num_classes,
            "pooling": head.pooling,
            "pooler_activation": keras.activations.serialize(head.activation),
            "problem_type": head.problem_type,
        }
    if head is not None:
        raise refused(head, type(head).__name__, "with one of the heads of keras_transformers")
    return {"head": None, "num_classes": None}


EPSILON = 1e-5  # of every norm
OFFSET = 2  # rows of BART's tables in front of that of the first token
KINDS = ("halves", "fairseq", "learned")


def make_translator(arguments: dict[str, Any]) -> Transformer:
    """A built translator of the keywords that `translator_keywords` gives."""
    given = dict(arguments)
    shared = given["shared"]
    if shared and given["target_vocab_size"] != given["vocab_size"]:
        raise ValueError(
            "With `share_encoder_decoder_embeddings` both sides must have one `vocab_size`. "
            f"Received: {given['vocab_size']} and {given['target_vocab_size']}"
        )
    width = given["hidden_dim"]
    for name in ("num_heads", "decoder_num_heads"):
        if width % given[name]:
            raise ValueError(f"`{name}` must divide the width {width}. Received: {given[name]}")
    model = Transformer(
        num_layers=(given["num_layers"], given["num_decoder_layers"]),
        dropout=given["dropout"],
        embedding=_table(given, "target") if shared else _tables(given),
        positions=_positions(given),
        encoder_block=_encoder_block(given),
        decoder_block=_decoder_block(given),
    )
    model.build({"source": (None, None), "target": (None, None)})
    return model


def translator_keywords(model: Transformer) -> dict[str, Any]:
    """What `make_translator` makes such a model of.

    Args:
        model: Built.

    Raises:
        ValueError: If no keywords make such a model; the message names the part.
    """
    encoder, decoder = model.encoder_blocks[0], model.decoder_blocks[0]
    source, target = model.source_embedding, model.target_embedding
    found = {
        "vocab_size": source.vocab_size,
        "target_vocab_size": target.vocab_size,
        "shared": source is target,
        "hidden_dim": target.hidden_dim,
        "scale_embedding": target.scale,
        "logits_bias": target.logits_bias,
        "padding_id": model.padding_id,
        "num_layers": len(model.encoder_blocks),
        "num_decoder_layers": len(model.decoder_blocks),
        "num_heads": getattr(encoder.mixer, "num_heads", None),
        "decoder_num_heads": getattr(decoder.mixer, "num_heads", None),
        "mlp_dim": getattr(encoder.feed_forward, "mlp_dim", None),
        "decoder_mlp_dim": getattr(decoder.feed_forward, "mlp_dim", None),
        "dropout": model.dropout_layer.rate,
        "attention_dropout": getattr(encoder.mixer, "dropout", 0.0),
        "norm_first": encoder.norm_first,
        "activation": keras.activations.serialize(
            getattr(encoder.feed_forward, "activation", None)
        ),
        "positions": None,
        "table_rows": getattr(model.source_positions, "max_length", None),
    }
    for name, value in found.items():
        if value is None and ("num_heads" in name or "mlp_dim" in name):
            owner = encoder if name in ("num_heads", "mlp_dim") else decoder
            part = owner.mixer if "heads" in name else owner.feed_forward
            raise refused(model, type(part).__name__, f"with {name}, as published ones are")
    if source.scale != target.scale:
        raise refused(model, "tables of different `scale`", "with one `scale` of both tables")
    found["positions"] = _kind_of_positions(model, found)
    tables = (_table(found, "target"),) * 2 if found["shared"] else _tables(found)
    check_tables(model, *tables)
    check_blocks(model, _encoder_block(found), _decoder_block(found))
    return found


def _table(given: dict[str, Any], side: str) -> TokenEmbedding:
    target = side == "target"
    rows = given["target_vocab_size"] if target else given["vocab_size"]
    return TokenEmbedding(
        rows,
        given["hidden_dim"],
        given["scale_embedding"],
        logits_bias=target and given["logits_bias"],
        padding_id=given["padding_id"],
    )


def _tables(given: dict[str, Any]) -> tuple[TokenEmbedding, TokenEmbedding]:
    return _table(given, "source"), _table(given, "target")


def _positions(given: dict[str, Any]) -> Any:
    """Sines first, as Marian has them; as fairseq has them; or tables, each with a norm behind."""
    if given["positions"] == "halves":
        return PositionalEncoding(layout="halves")
    if given["positions"] == "fairseq":
        # Its slowest rate is 1 / 10000 itself; and positions are numbered from the padding's on.
        width = given["hidden_dim"]
        if width % 2 or width < 4:
            raise ValueError(f"`d_model` must be even and at least 4. Received: {width}")
        slowest = 10000.0 ** (width / (width - 2))
        return PositionalEncoding(slowest, "add", "halves", given["padding_id"] + 1)
    rows = given["table_rows"]
    return tuple(
        PositionEmbedding(
            rows, first_position=OFFSET, norm=keras.layers.LayerNormalization(epsilon=EPSILON)
        )
        for _ in range(2)
    )


def _encoder_block(given: dict[str, Any]) -> EncoderBlock:
    mixer = SelfAttention(given["num_heads"], dropout=given["attention_dropout"])
    return EncoderBlock(mixer=mixer, **_of_both(given, given["mlp_dim"]))


def _decoder_block(given: dict[str, Any]) -> DecoderBlock:
    attention = {"num_heads": given["decoder_num_heads"], "dropout": given["attention_dropout"]}
    return DecoderBlock(
        mixer=CausalSelfAttention(**attention),
        cross_attention=CrossAttention(**attention),
        **_of_both(given, given["decoder_mlp_dim"]),
    )


def _of_both(given: dict[str, Any], mlp_dim: int) -> dict[str, Any]:
    return {
        "dropout": given["dropout"],
        "feed_forward": FeedForward(mlp_dim, given["activation"]),
        "norm_first": given["norm_first"],
        "norm": keras.layers.LayerNormalization(epsilon=EPSILON),
    }


def _kind_of_positions(model: Transformer, found: dict[str, Any]) -> str:
    """Which of `KINDS` a model has."""
    pair = (model.source_positions, model.target_positions)
    ours = [said(serialized(layer)) for layer in pair]
    for kind in KINDS:
        if kind == "learned" and found["table_rows"] is None:
            continue
        if kind == "fairseq" and (found["hidden_dim"] % 2 or found["hidden_dim"] < 4):
            continue
        made = _positions({**found, "positions": kind})
        made = made if isinstance(made, tuple) else (made, made)
        if ours == [said(serialized(layer)) for layer in made]:
            return kind
    kinds = ", ".join(sorted({type(layer).__name__ for layer in pair}))
    raise refused(model, kinds, "with positions as Marian, M2M-100 or BART has them")


def check_tables(model: Transformer, source: TokenEmbedding, target: TokenEmbedding) -> None:
    """Raises ValueError for tables of tokens other than these, which are not built."""
    for ours, expected in ((model.source_embedding, source), (model.target_embedding, target)):
        if said(serialized(ours)) != said(serialized(expected)):
            received = f"{type(ours).__name__} with {said(ours.get_config())}"
            raise refused(model, received, f"with {type(expected).__name__} as published ones are")


def check_blocks(model: Transformer, encoder: EncoderBlock, decoder: DecoderBlock) -> None:
    """Raises ValueError for blocks other than copies of these, which are not built."""
    hidden = (None, None, model.target_embedding.hidden_dim)
    encoder.build(hidden)
    decoder.build(hidden, hidden)
    sides = (
        ("encoder_block", model.encoder_blocks, encoder),
        ("decoder_block", model.decoder_blocks, decoder),
    )
    for side, blocks, expected in sides:
        theirs = _described(expected)
        for block in blocks:
            ours = _described(block)
            wrong = [name for name, part in ours.items() if part != theirs[name]]
            if wrong:
                received = f"one with another {', '.join(wrong)}"
                raise refused(model, received, f"such that `{side}` is a plain one")


def _described(block: Any) -> dict[str, Any]:
    parts = {
        **parts_of(block),
        "cross_attention": serialized(getattr(block, "cross_attention", None)),
    }
    return {name: said(part) for name, part in parts.items()}
