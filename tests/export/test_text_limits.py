"""Claims about what a model has room for: positions, ids, and how far a writer goes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers import export, models
from keras_transformers.generation import (
    BeamSearch,
    Boundaries,
    Constraints,
    Greedy,
    Sampling,
    generate,
)
from keras_transformers.layers import (
    DecoderBlock,
    EncoderBlock,
    MLPMixing,
    PositionalEncoding,
    PositionEmbedding,
    RandomSynthesizer,
)
from keras_transformers.models.text_model import TextEmbedding
from keras_transformers.tasks.rounds import uniform
from tests.export import examples

POSITIONS = 16
HEADS = {
    "text classifier": {"head": "classification", "num_classes": 2},
    "mask filler": {"head": "masked_language"},
    "sentence encoder": {},
}
LONG = " ".join(["the cat sat on a mat"] * 9)


def made(kind, lengths=None, positions=POSITIONS, vocab=None):
    """An export of an encoder with a few positions."""
    words = examples.word_pieces()
    model = models.TextEncoder.from_variant(
        "tiny", vocab or words.vocab_size, num_layers=1, max_length=positions, **HEADS[kind]
    )
    if kind == "text classifier":
        return export.TextClassifier(model, words, ["a", "b"], lengths)
    make = export.MaskFiller if kind == "mask filler" else export.SentenceEncoder
    return make(model, words, lengths=lengths)


@pytest.mark.parametrize("kind", HEADS)
def test_a_text_longer_than_the_positions_is_cut_and_said_to_be(kind):
    served = made(kind)
    assert served.longest == POSITIONS
    found = served.portable(tf.constant([LONG, "the cat"]))
    assert found["truncated"].numpy().tolist() == [True, False]
    cut = " ".join(LONG.split()[: POSITIONS - 2])  # besides [CLS] and [SEP]
    short = served.portable(tf.constant([cut]))
    assert not short["truncated"].numpy()[0]
    for name in ("probabilities", "embedding"):
        if name in found:
            np.testing.assert_allclose(found[name][0], short[name][0], atol=1e-5)


# What makes a source end at the last of a few positions.
LIMITS = {
    "one table": {"positions": PositionEmbedding(POSITIONS)},
    "a table of sources": {"positions": (PositionEmbedding(POSITIONS), PositionalEncoding())},
    "a table of targets": {"positions": (PositionalEncoding(), PositionEmbedding(POSITIONS))},
    "mixing": {"encoder_block": EncoderBlock(mixer=MLPMixing(8, POSITIONS), mlp_dim=8)},
    "scores": {"encoder_block": EncoderBlock(mixer=RandomSynthesizer(2, POSITIONS), mlp_dim=8)},
}


@pytest.mark.parametrize("kind", LIMITS)
def test_a_source_longer_than_the_positions_is_cut_and_said_to_be(kind):
    words, sizes = examples.tokenizer(), {"num_heads": 2, "mlp_dim": 8}
    sizes = {} if "encoder_block" in LIMITS[kind] else sizes
    if not sizes:
        sizes = {"decoder_block": DecoderBlock(2, 8)}
    model = models.Transformer(words.vocab_size, 8, num_layers=1, **sizes, **LIMITS[kind])
    served = export.Translator(model, words, Greedy())
    assert model.most_positions == served.longest == POSITIONS
    assert words.tokenize([LONG]).row_lengths()[0] > 33
    found = served.portable(tf.constant([LONG, "the cat"]))
    assert found["truncated"].numpy().tolist() == [True, False]
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than the model reads"):
        served.predict([LONG, "the cat"])


def test_a_text_model_is_as_long_as_its_mixers_reach():
    block = EncoderBlock(mixer=MLPMixing(8, 11), mlp_dim=8)
    for positions, most in ((None, 11), (5, 5), (30, 11)):
        embedding = TextEmbedding(20, 8, max_length=positions)
        model = models.TextEncoder(embedding=embedding, num_layers=1, block=block)
        assert model.most_positions == most


@pytest.mark.parametrize("kind", HEADS)
def test_lengths_beyond_the_positions_are_refused(kind):
    with pytest.raises(ValueError, match=r"`lengths` must be at most 16, .*\(8, 32\)"):
        made(kind, (8, 32))
    assert made(kind, (8, POSITIONS)).longest == POSITIONS
    with pytest.raises(ValueError, match=r"`lengths` must increase, from 1 on.*\(0, 8\)"):
        made(kind, (0, 8))
    assert made(kind, positions=1000).longest == 1000


def translator(vocab):
    model = models.Transformer(vocab, hidden_dim=8, num_heads=2, mlp_dim=8, num_layers=1)
    return export.Translator(model, examples.tokenizer())


def test_prompts_and_sources_are_read_as_far_as_the_positions_go():
    words = examples.tokenizer()
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "mlp_dim": 8}

    def language_model(positions):
        return models.LanguageModel.from_variant(
            "tiny", words.vocab_size, **sizes, max_length=positions
        )

    for positions in (4096, 300):
        served = export.TextGenerator(language_model(positions), words)
        assert served.longest == positions - 128  # the tokens that follow
    with pytest.raises(ValueError, match="the model's 140 positions must hold"):
        export.TextGenerator(language_model(140), words)

    class Bart(models.Transformer):
        most_positions = 1024

    model = Bart(words.vocab_size, **sizes)
    assert export.Translator(model, words).longest == 1024
    assert translator(words.vocab_size).longest == 512  # which has no limit


def writer(vocab=None, **options):
    """A writer whose choices depend on what it reads."""
    size = examples.tokenizer().vocab_size if vocab is None else vocab
    model = models.LanguageModel.from_variant("tiny", size, num_layers=1, max_length=64)
    model.build((None, None))
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(0, 0.5, weight.shape) for weight in model.weights])
    options = {"new_tokens": 6, "prompt_lengths": (8,), **options}
    return export.TextGenerator(model, examples.tokenizer(), **options)


@pytest.mark.parametrize("kind", ["translator", "writer", *HEADS])
def test_a_tokenizer_larger_than_the_model_is_refused(kind):
    makers = {"translator": translator, "writer": writer}
    make = makers.get(kind, lambda vocab: made(kind, vocab=vocab))
    with pytest.raises(ValueError, match="`tokenizer` must have at most as many pieces .*, 9"):
        make(9)


def test_a_writer_has_positions_for_prompt_and_continuation():
    assert writer(new_tokens=48, prompt_lengths=None).longest == 16
    with pytest.raises(ValueError, match="64 positions must hold .*new_tokens=49"):
        writer(new_tokens=49, prompt_lengths=(16,))


@pytest.mark.parametrize("request_of_another_rank", ["the cat", [["the cat"]]])
def test_a_request_of_another_rank_gets_a_sentence(request_of_another_rank):
    served, tensor = writer(), tf.constant(request_of_another_rank)
    for ask in (served, served.portable):
        for request in (request_of_another_rank, tensor):
            with pytest.raises(ValueError, match=r"TextGenerator: `text` must be strings of shape"):
                ask(request)


def test_samples_without_a_seed_are_others_after_every_load(tmp_path):
    """Also where all else is seeded, as before training."""
    keras.utils.set_random_seed(3)
    module = tf.Module()
    module.draw = tf.function(lambda: uniform(Sampling(), 5, tf.range(2)), input_signature=[])
    tf.saved_model.save(module, str(tmp_path))
    drawn = []
    for _ in range(2):
        draw = tf.saved_model.load(str(tmp_path)).draw
        drawn += [tuple(draw().numpy().ravel().tolist()) for _ in range(2)]
    assert len(set(drawn)) == 4
    assert all(0 <= number < 1 for numbers in drawn for number in numbers)


SEARCHES = [
    pytest.param(Greedy(), marks=pytest.mark.slow),
    pytest.param(BeamSearch(3, 2.0, normalization="length"), marks=pytest.mark.slow),
    pytest.param(
        BeamSearch(3, 1.0, normalization="length", early_stopping=False), marks=pytest.mark.slow
    ),
    BeamSearch(2, constraints=Constraints(min_length=9, no_repeat_ngram=2)),
    Greedy(Constraints(min_new=4, boundaries=Boundaries(ends=(2, 7, 9), last=2))),
]


@pytest.mark.parametrize("search", SEARCHES)
def test_a_writer_goes_as_far_as_generate_does(search):
    served, new = writer(search=search), 6
    words = examples.tokenizer()
    texts = ["the cat", "", "a mat and the old dog"]
    found = served.portable(tf.constant(texts))
    tf.config.run_functions_eagerly(True)  # nothing is worth compiling
    try:
        for position, ids in enumerate(words.tokenize(texts).to_list()):
            alone = generate(
                served.model,
                prompt=np.array([ids], "int32").reshape(1, -1),
                search=search,
                max_length=len(ids) + new,
                start_id=words.start_id,
                end_id=words.end_id,
            )["tokens"]
            text = words.detokenize(alone)[0].numpy()
            assert found["text"][position].numpy() == text
            ends = np.isin(alone[0, len(ids) :], search.constraints.boundaries.ends or [2])
            ends = ends[: new - (search.constraints.boundaries.last is not None)]
            assert found["finished"][position].numpy() == ends.any()
    finally:
        tf.config.run_functions_eagerly(False)


def test_a_writer_has_no_source_to_be_measured_by():
    search = Greedy(Constraints(max_ratio=1.5))
    with pytest.raises(ValueError, match="TextGenerator: without a source, `min_ratio` and"):
        writer(search=search)
