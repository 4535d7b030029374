"""Claims about which part of a text each id stands for, beside the package `tokenizers`."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.core.words import byte_letters
from keras_transformers.text import FastTokenizer, SentencePieceTokenizer, with_offsets

tokenizers = pytest.importorskip("tokenizers")
TEXTS = [
    "It's 1889 (see Mr. Smith's U.S. office), isn't it?",
    "Überall  in\tTokyo: 東京都 costs $5,000.00!",
    "  spaces   around  ",
    "новый-день, γειά σου; naïve café…",
    "",
]


def definition(kind):
    """Of BERT's kind, every character a piece; of GPT-2's, with a few merges."""
    if kind == "bert":
        letters = sorted({letter for text in TEXTS for letter in text if not letter.isspace()})
        pieces = ["[UNK]", *letters, *(f"##{letter}" for letter in letters)]
        model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
        model |= {"max_input_chars_per_word": 100, "vocab": {p: i for i, p in enumerate(pieces)}}
        normalizer = {"type": "BertNormalizer", "clean_text": True, "lowercase": False}
        normalizer |= {"handle_chinese_chars": True, "strip_accents": None}
        return {
            "model": model,
            "normalizer": normalizer,
            "pre_tokenizer": {"type": "BertPreTokenizer"},
        }
    merges = [f"Ġ {letter}" for letter in byte_letters() if letter != "Ġ"]
    merges += ["i t", "Ġi t", "' s"]
    pieces = [*byte_letters(), *("".join(each.split()) for each in merges)]
    model = {"type": "BPE", "vocab": {p: i for i, p in enumerate(pieces)}, "merges": merges}
    cut = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"model": model, "pre_tokenizer": cut}


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize("in_graph", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_words_are_those_of_the_package(kind, in_graph):
    ours = FastTokenizer(definition(kind))
    theirs = tokenizers.Tokenizer.from_str(json.dumps({"added_tokens": [], **definition(kind)}))
    found = (tf.function(with_offsets) if in_graph else with_offsets)(ours, tf.constant(TEXTS))
    for i, text in enumerate(TEXTS):
        expected = theirs.encode(text, add_special_tokens=False)
        assert found.ids[i].numpy().tolist() == expected.ids
        data = text.encode()
        words = [
            data[a:b].decode() for a, b in zip(*(e[i].numpy() for e in found[1:]), strict=True)
        ]
        spans = [expected.word_to_chars(word) for word in expected.word_ids]
        assert words == [text[a:b].strip() for a, b in spans]


def test_pieces_of_sentencepiece_stand_for_what_white_space_divides():
    tokenizer = SentencePieceTokenizer.train(["it was in 1889, said Mr. Smith"] * 9, vocab_size=24)
    text = "It was, said Mr. Smith."
    found = with_offsets(tokenizer, [text])
    data = text.encode()
    words = [
        data[a:b].decode()
        for a, b in zip(found.starts[0].numpy(), found.ends[0].numpy(), strict=True)
    ]
    assert list(dict.fromkeys(words)) == text.split()
    assert np.array_equal(found.ids[0], tokenizer.tokenize(text))
