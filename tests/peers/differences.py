"""Which tests of others are run on what, and why some of them do not pass."""

import pathlib
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_transformers import layers, text
from keras_transformers.generation import BeamSearch

NONE = types.MappingProxyType({})


class Peer(NamedTuple):
    """A file of tests.

    Args:
        path: In the clone.
        words: Dict of regular expressions to what is put in their places, imports among them.
        differs: Dict of patterns of test names to what differs on purpose: an object of ours, and
            words of its docstring that say so.
        not_ours: Dict of patterns to why a test does not apply.
    """

    path: str
    words: Mapping[str, str] = NONE
    differs: Mapping[str, tuple[Any, str]] = NONE
    not_ours: Mapping[str, str] = NONE


KERAS, HUB = "keras/src/layers", "keras_hub/src"
MODELING = f"{HUB}/layers/modeling"
WORDS = {r"^from keras.src import layers$": "from tests.peers import keras_layers as layers"}
ATTENTION = {
    **WORDS,
    r"\._(query|key|value|output)_dense\b": r".\1_dense",
    # There is no gate; what else these tests claim is run without it.
    r'"?\buse_gate"?[=:] ?True,?': "",
    r"expected_num_trainable_weights=10": "expected_num_trainable_weights=8",
    r"expected_num_trainable_weights=5\b": "expected_num_trainable_weights=4",
    r"(?s)self.assertNotAllClose\(\s+\S+,\s+layer._gate_dense.kernel,\s+\)": "",
    r"must be equal": "must be",
}
MHA = layers.MultiHeadAttention
OF_ATTENTION = {
    "test_masking_*causal": (MHA, "a padded query is one of zeros, which Keras lets attend to"),
    "test_sliding_window*": (MHA, "nor are there `sliding_window`, `use_gate` and `flash_"),
    "test_flash_attention_with_errors": (MHA, "`use_gate` and `flash_attention`"),
}
PRIVATE = {
    "test_causal_only_skipped_for_subclass": "a private method",
    "test_compute_attention_combines_causal_and_explicit_mask_*": "a private method",
}
SAFE_MODE = {"test_safe_mode_*": "a vocabulary is an argument, not a file that is set later"}


def hub_layer(module, words, differs=NONE):
    """Tests of a layer of KerasHub, whose import of it is exchanged."""
    theirs = rf"^from keras_hub.src.layers.modeling.{module} import \(?\s*(\w+),?\s*\)?$"
    words = {theirs: r"from tests.peers.hub_layers import \1", **words}
    return Peer(f"{MODELING}/{module}_test.py", words, differs)


def sampler(name, differs=NONE):
    """Tests of one of KerasHub's samplers."""
    theirs = rf"^from keras_hub.src.samplers.{name}_sampler import"
    words = {theirs: "from tests.peers.samplers import"}
    return Peer(f"{HUB}/samplers/{name}_sampler_test.py", words, differs)


def tokenizer(module, differs, words=NONE, not_ours=NONE):
    """Tests of one of KerasHub's tokenizers."""
    theirs = r"^from keras_hub.src.tokenizers.\w+ import"
    words = {theirs: "from tests.peers.tokenizers import", **words}
    return Peer(f"{HUB}/tokenizers/{module}_test.py", words, differs, not_ours)


# The folder of their files of bytes.
BYTES = r"__import__('os').environ['PEERS_BYTES'] + '/\1'"
PEERS = [
    Peer(str(pathlib.Path(__file__).with_name("every_layer_cases.py"))),
    Peer(
        f"{KERAS}/attention/multi_head_attention_test.py",
        {
            **ATTENTION,
            r"(?s)self.assertIsInstance\(\s+layer._gate_dense\.\w+.constraint, .*?\)": "",
            r"self.assertDType\(layer._gate_dense._kernel, .int8.\)": "",
            r"layer.trainable_variables, 8": "layer.trainable_variables, 7",
            r'"argument `': '"`',
            r"Invalid `": "`",
        },
        {
            **OF_ATTENTION,
            "test_attention_axes_*": (MHA, "so that there is no `attention_axes`"),
            "test_high_dim_attention_*": (MHA, "so that there is no `attention_axes`"),
            "test_causal_only_masks_non_4d_inputs": (MHA, "inputs are of rank 3"),
            "test_compute_output_shape_high_dim_*": (MHA, "inputs are of rank 3"),
            "test_compute_output_shape_different_qv_last_dims": (MHA, "inputs are of rank 3"),
            "test_compute_output_shape_*_different_proj": (MHA, "has one axis of features"),
            "test_*_output_shape_as_tuple": (MHA, "the output has one axis of features"),
        },
        PRIVATE,
    ),
    Peer(
        f"{KERAS}/attention/grouped_query_attention_test.py",
        ATTENTION,
        {
            **OF_ATTENTION,
            "test_shape_mismatch_error_query_*": (MHA, "value: `(batch, keys, value_width)`"),
        },
        PRIVATE,
    ),
    Peer(
        f"{KERAS}/attention/attention_test.py",
        WORDS,
        {"test_attention_with_dropout": (layers.dot_product_attention, "weights before dropout")},
        {
            "*calculate_score*": "a private method",
            "*compute_mask*": "of a layer; here it is a function",
            "*_basics": "of a layer; here it is a function",
            "*_config": "of a layer; here it is a function",
            "*_compute_output_shape": "of a layer; here it is a function",
            "*_does_not_leak_*": "of a layer; here it is a function",
            "*_errors": "a list of inputs",
            "*_correctness": "a score without weights by `concat`; that by `dot` is run elsewhere",
            "*_invalid_score_mode": "a score is an object or a function",
            "test_attention_with_mask": "a mask of queries",
        },
    ),
    Peer(
        f"{KERAS}/core/reversible_embedding_test.py",
        {
            **WORDS,
            r"\.embeddings\b": ".table",
            r"\.reverse_embeddings\b": ".output_embedding",
            r"\.reverse_embeddings_scale\b": ".output_scale",
            r'"logit_soft_cap": 50,': "",
            r"(?s)layer = \S+\(\s+\S+, \S+, logit_soft_cap=5.*?4\.168.*?$": "",
        },
        {
            "test_reverse_dtype": (layers.TokenEmbedding, "have no soft cap and the compute dtype"),
            "*int4*": (layers.TokenEmbedding, 'it is quantised by "int8" alone'),
            "test_reversible_embedding_*int8*": (layers.TokenEmbedding, "Keras's own quantizers"),
        },
    ),
    hub_layer(
        "transformer_encoder",
        {
            r"encoder\(input, mask\)": "encoder(input, padding_mask=mask)",
            r"\._self_attention_layer_norm": ".mixer_norm",
            r"\._feedforward_layer_norm": ".feed_forward_norm",
            r"variables=3": "variables=2",  # one dropout serves both branches
        },
    ),
    hub_layer(
        "transformer_decoder",
        {
            r"\bdecoder_sequence\b": "x",
            r"\bencoder_sequence\b": "context",
            r"\._self_attention_layer_norm": ".mixer_norm",
            r"\._feedforward_layer_norm": ".feed_forward_norm",
            r"variables=3": "variables=2",  # one dropout serves all branches
            r"variables=5": "variables=2",  # the attention to a context has none
        },
        {"test_cache_call_is_correct*": (layers.DecoderBlock, "A call takes no cache")},
    ),
    hub_layer(
        "position_embedding",
        {r"start_index=": "start=", r"\.position_embeddings": ".table"},
        {
            "*_4d": (layers.PositionEmbedding, "If `x` is not of rank 3"),
            "test_more_than_3_*": (layers.PositionEmbedding, "If `x` is not of rank 3"),
        },
    ),
    hub_layer(
        "sine_position_encoding",
        {r"start_index=": "start="},
        {
            "*_4d": (layers.PositionalEncoding, "or `x` is not of rank 3"),
            "test_multi_dimension_*": (layers.PositionalEncoding, "or `x` is not of rank 3"),
        },
    ),
    hub_layer("alibi_bias", {}, {"*_bias_max*": (layers.ALiBi, "with `m_h = 2^(-8 h / H)`")}),
    hub_layer(
        "f_net_encoder",
        {r"\._mixing_layer_norm": ".mixer_norm", r"\._output_layer_norm": ".feed_forward_norm"},
        {"*_propagation": (layers.EncoderBlock, "dropout: Rate on the output of each branch")},
    ),
    hub_layer(
        "rotary_embedding",
        {r"start_index=": "start="},
        {
            "test_positions_2d_array": (
                layers.AttentionPositionEncoding,
                "Positions are int32 vectors",
            )
        },
    ),
    hub_layer(
        "cached_multi_head_attention",
        {r"layer\._combine_equation": '"acbe,aecd->abcd"', r"\._(value|output)_": r".\1_"},
        {"*_cache*": (layers.CausalSelfAttention, "layer.step(x[:, i : i + 1], cache, i)")},
    ),
    Peer(
        f"{MODELING}/transformer_layer_utils_test.py",
        {r"^import keras_hub.*$": "from tests.peers.hub_layers import utils"},
    ),
    *map(sampler, ("greedy", "random", "top_k", "top_p")),
    # Its prompt has a log-probability of -1e9 a token.
    sampler("beam", {"test_stateless_call": (BeamSearch, "below -5e8 counts as one that is not")}),
    tokenizer(
        "byte_pair_tokenizer",
        {
            "test_tokenize_prefix_space": (text.BytePairTokenizer, "no space is put before a text"),
            "*_with_special_tokens": (text.BytePairTokenizer, "If a byte or a piece of a merge is"),
            # Of two newlines KerasHub makes one token, as Llama 3 does.
            "test_whitespace_split": (text.BytePairTokenizer, "Hugging Face's `GPT2Tokenizer`"),
        },
        {r'(?s)keras.utils.get_file\(\s+None,\s+".*?/([a-z]+\.\w+)",\s+\)': BYTES},
        SAFE_MODE,
    ),
    tokenizer(
        "word_piece_tokenizer",
        {
            "test_no_splitting*": (text.WordPieceTokenizer, "Text is always split"),
            "test_word_piece_only": (text.WordPieceTokenizer, "Text is always split"),
            "test_strip_accents": (text.WordPieceTokenizer, "becomes lower case and loses its acc"),
            "*_string_dtype": (text.WordPieceTokenizer, "names of the special tokens are BERT's"),
            "*_non_default_config": (text.WordPieceTokenizer, "`##` and the names of the special"),
        },
        not_ours=SAFE_MODE,
    ),
    tokenizer(
        "word_piece_tokenizer_trainer",
        {
            name: (text.WordPieceTokenizer.train, "come from merging the most frequent pairs")
            for name in (
                "test_dataset_input",
                "test_filenames_input",
                "*lowercase",
                "test_split",
                "*_cjk",
                "test_skip_split",
                "*_accents",
                "*_tokens",
                "*_output_file",
                "*_indicator",
            )
        },
        not_ours={
            "test_filenames_without_split": "the words of a message",
            "test_invalid_input": "the words of a message",
        },
    ),
    tokenizer("sentence_piece_tokenizer", {}, not_ours=SAFE_MODE),
    tokenizer(
        "sentence_piece_tokenizer_trainer",
        {},
        {r're.escape\(f"Received: type.*"\)': '"must be an iterable of str"'},
    ),
]
# Files of KerasHub's layers, samplers and tokenizers for which nothing of ours can stand in.
NOT_HERE = {
    "anchor_generator": "DETR has no anchors",
    "box_matcher": "DETR's matching is one to one",
    "non_max_supression": "DETR needs none",
    "masked_lm_head": "a head of `models.TextEncoder`",
    "token_and_position_embedding": "`TokenEmbedding` and `PositionEmbedding` are two layers",
    "audio_converter": "no sound",
    "image_converter": "functions of a dataset: `vision`",
    "masked_lm_mask_generator": "a function of a dataset: `text.masked`",
    "multi_segment_packer": "arguments of `WordPieceTokenizer.tokenize`: `start`, `end`, `pair`",
    "random_deletion": "no augmentation of words",
    "random_swap": "no augmentation of words",
    "start_end_packer": "arguments of `tokenize`: `start`, `end`",
    "contrastive_sampler": "no such search",
    "speculative_sampler": "no such search",
    "serialization": "searches are dataclasses, not configurations",
    "byte_tokenizer": "no such tokenizer; `SentencePieceTokenizer.train(lossless=True)`",
    "unicode_codepoint_tokenizer": "no such tokenizer",
    "tokenizer": "the base of presets",
}
