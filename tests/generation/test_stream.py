"""Claims about `stream`: one sequence whose tokens are handed over while they are chosen."""

import functools
import itertools

import numpy as np
import pytest

from keras_transformers.generation import (
    BeamSearch,
    Boundaries,
    Constraints,
    Greedy,
    Sampling,
    Shortlist,
    Shortlisted,
    Speculative,
    generate,
    stream,
)
from keras_transformers.models import LanguageModel, RecurrentTranslator, Transformer
from tests.generation.model import END, SOURCE, VOCAB, Decoder, make, shared_model
from tests.slow import slow_except

LENGTH = 13
ONE = SOURCE[:1]


@functools.cache
def model_of(kind):
    """Random models, with weights so large that what they choose depends on what they read."""
    if kind == "transformer":
        return shared_model()
    if kind == "decoder alone":  # which takes in a prompt token by token
        model = Decoder()
        model(ONE)
    elif kind == "recurrent":
        model = RecurrentTranslator(VOCAB, hidden_dim=16)
        model.build({"source": (None, None), "target": (None, None)})
    else:
        dtype = {"language model": None, "half precision": "mixed_bfloat16"}[kind]
        model = LanguageModel(VOCAB, 16, num_heads=2, mlp_dim=24, num_layers=2, dtype=dtype)
        model.build((None, None))
    rng = np.random.default_rng(3)
    model.set_weights([rng.normal(size=weight.shape) * 0.6 for weight in model.get_weights()])
    return model


KINDS = ("language model", "transformer", "decoder alone", "recurrent", "half precision")
SEARCHES = {
    "greedy": Greedy(),
    "sampling": Sampling(seed=5),
    "cut": Sampling(temperature=1.5, top_k=7, top_p=0.9, min_p=0.05, seed=2),
    "constrained": Greedy(Constraints(no_repeat_ngram=2, min_new=4, repetition_penalty=1.3)),
    "required": Sampling(seed=1, constraints=Constraints(required=(5, 9), banned=(7, (3, 4)))),
    "bounded": Greedy(Constraints(boundaries=Boundaries(ends=(END, 8), first=6, last=END))),
}
PROMPTS = {
    "none": None,
    "two": [[4, 9]],
    "with END": [[4, END, 5]],
    "padded": [[0, 4, 9, 0]],
    "with a hole": [[4, 0, 9]],
    "empty": np.zeros((1, 0), "int32"),
    "whole": [[3] * LENGTH],
}


def asked(kind, prompt, search, **options):
    """Arguments of `generate` and `stream`."""
    reads = kind in ("transformer", "recurrent", "decoder alone")
    prompt = np.zeros((1, 0), "int32") if prompt is None and not reads else prompt
    options = {"prompt": prompt, "search": search, "max_length": LENGTH, **options}
    return (model_of(kind), ONE) if reads else (model_of(kind),), options


def behind_the_prompt(found, prompt):
    """The tokens of `generate` from the first on that no prompt gives."""
    ids = [] if prompt is None else np.trim_zeros(np.asarray(prompt)[0], "f").tolist()
    size = ids.index(0) if 0 in ids else len(ids)
    return found["tokens"][0, size : found["lengths"][0]].tolist()


EVERY = [f"{kind}, {search}" for kind, search in itertools.product(KINDS, SEARCHES)]
FEW = ["language model, sampling", "transformer, constrained", "language model, required"]
FEW += ["decoder alone, greedy", "half precision, cut", "recurrent, bounded"]


@pytest.mark.parametrize("case", slow_except(EVERY, *FEW))
def test_the_tokens_are_those_of_generate(case):
    kind, name = case.split(", ")
    for prompt in ("two", "with END"):
        inputs, options = asked(kind, PROMPTS[prompt], SEARCHES[name])
        expected = behind_the_prompt(generate(*inputs, **options), PROMPTS[prompt])
        for number in (1, 3, None):
            tokens = list(stream(*inputs, **options, tokens_at_a_time=number))
            assert tokens == expected and all(type(token) is int for token in tokens)
        assert expected


@pytest.mark.parametrize("kind", ["language model", "transformer", "decoder alone"])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_what_a_prompt_gives_is_not_among_them(kind, prompt):
    inputs, options = asked(kind, PROMPTS[prompt], Greedy())
    expected = behind_the_prompt(generate(*inputs, **options), PROMPTS[prompt])
    assert list(stream(*inputs, **options)) == expected
    assert bool(expected) == (prompt != "whole")


@pytest.mark.parametrize(
    "options",
    [
        {"start_id": None, "prompt": [[4, 9, 5]]},
        {"cache_dtype": "int8"},
        {"end_id": 5},
        {"phrases": [[[5, 9, 0], [10, 0, 0]]]},
        {"max_length": 1},
    ],
    ids=str,
)
def test_the_other_arguments_are_those_of_generate(options):
    inputs, options = asked("language model", **{"prompt": [[4]], "search": Greedy()} | options)
    found = generate(*inputs, **options)
    assert list(stream(*inputs, **options)) == behind_the_prompt(found, options["prompt"])


def test_without_a_seed_every_stream_draws_anew():
    inputs, options = asked("language model", [[4]], Sampling(temperature=3.0))
    assert len({tuple(stream(*inputs, **options)) for _ in range(9)}) > 1


def test_a_token_comes_before_the_next_is_chosen_and_nothing_compiles_twice():
    model, steps = make(), []
    step = model.decode_step
    model.decode_step = lambda *arguments: steps.append(arguments[0].shape) or step(*arguments)
    whole = list(stream(model, ONE, max_length=LENGTH))
    (program,), traced, runs = model._generators.values(), len(steps), []
    run = program.run
    program.run = lambda inputs: runs.append(inputs) or run(inputs)
    tokens = stream(model, ONE, max_length=LENGTH, tokens_at_a_time=1)
    assert runs == []  # nothing before it is asked for
    for number, token in enumerate(tokens):
        assert token == whole[number]
        assert len(runs) == 2 + number  # the source, and a step each
    runs.clear()
    assert list(stream(model, ONE, max_length=LENGTH, tokens_at_a_time=4)) == whole
    assert len(runs) == 1 + -(-len(whole) // 4)
    other = ONE[:, ::-1]
    for number in (1, 2, 5, None):
        for search in (Sampling(seed=1), Sampling(seed=2)):
            list(stream(model, other, search=search, max_length=LENGTH, tokens_at_a_time=number))
        list(stream(model, other, max_length=LENGTH, tokens_at_a_time=number))
    assert len(model._generators) == 2 and len(steps) == 2 * traced  # greedy, and sampling


def test_streams_take_turns_and_are_left_at_any_time():
    inputs, options = asked("transformer", None, Greedy())
    whole = generate(*inputs, **options)
    expected = behind_the_prompt(whole, None)
    left = stream(*inputs, **options, tokens_at_a_time=1)
    assert next(left) == expected[0]
    others = [stream(*inputs, **options, tokens_at_a_time=number) for number in (1, 2)]
    received = [[], []]
    for tokens in itertools.zip_longest(*others):
        for row, token in zip(received, tokens, strict=True):
            row.append(token)
    assert received == [expected, expected]
    del left
    assert list(stream(*inputs, **options)) == expected
    np.testing.assert_array_equal(generate(*inputs, **options)["tokens"], whole["tokens"])


def test_weights_that_change_are_seen():
    model = make()
    before = list(stream(model, ONE, max_length=LENGTH))
    model.set_weights(make(seed=5).get_weights())
    after = list(stream(model, ONE, max_length=LENGTH))
    assert before != after
    assert after == behind_the_prompt(generate(model, ONE, max_length=LENGTH), None)


def test_random_numbers_are_not_rounded_to_half_precision():
    """With equal logits a token follows from its random number alone."""
    vocab = 2003
    model = LanguageModel(vocab, 8, num_heads=2, mlp_dim=8, num_layers=1, dtype="mixed_bfloat16")
    model.build((None, None))
    model.set_weights([np.zeros(weight.shape) for weight in model.get_weights()])
    numbers = np.random.default_rng((4, 0)).random((20, 1), "float32")[1:, 0]
    expected = (1 + np.floor(numbers * np.float32(vocab - 1))).astype("int32")  # no padding
    arguments = {"prompt": [[5]], "search": Sampling(seed=4), "max_length": 20}
    found = generate(model, **arguments)["tokens"][0, 1:]
    assert np.abs(found - expected).max() <= 1
    assert list(stream(model, **arguments)) == found.tolist()


DRAFT = Transformer(VOCAB, hidden_dim=8, num_heads=2, mlp_dim=8, num_layers=1)
LISTED = Shortlist.learn([[5, 7]], [[4, 6]], VOCAB, VOCAB, shared=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": BeamSearch(3)}, "to stream, `search` must be .* Received: BeamSearch of 3"),
        ({"search": Sampling(num_samples=2)}, "`search` must be .* Received: Sampling of 2"),
        ({"search": Speculative(DRAFT)}, "`search` must be .* Received: Speculative of 1"),
        ({"search": Shortlisted(LISTED)}, "`search` must be .* Received: Shortlisted of 1"),
        ({"source": SOURCE}, r"must have one sequence, shape \(1, length\).* Received: 3"),
        ({"source": ONE[0]}, "`source` must be integer ids"),
        ({"prompt": [[VOCAB]]}, "ids of `prompt` must be from 0 to 12"),
        ({"end_id": 0}, "`end_id` must be from 0 to 12 and not padding"),
        ({"max_length": 0}, "`max_length` must be an integer of at least 1"),
        ({"cache_dtype": "int7"}, "`cache_dtype` must be None or one of"),
        ({"phrases": [[[END]]]}, "`phrases` must have no END"),
        ({"start_id": None}, "with `start_id`=None, every prompt must have a token"),
        ({"tokens_at_a_time": 0}, "`tokens_at_a_time` must be None or an integer of at least 1"),
        ({"tokens_at_a_time": 2.5}, "`tokens_at_a_time` must be .* Received: 2.5"),
    ],
)
def test_impossible_streams_are_refused_before_the_first_token(options, message):
    with pytest.raises(ValueError, match=f"^stream: .*{message}"):
        stream(shared_model(), **{"source": ONE, **options})


def test_a_language_model_needs_a_prompt_and_a_limit():
    with pytest.raises(ValueError, match="stream: without `source`, give `prompt` and `max_le"):
        stream(model_of("language model"), prompt=[[4]])


def test_logits_that_are_no_numbers_raise_an_error():
    model = make()
    model.set_weights([np.full(w.shape, np.nan, "float32") for w in model.get_weights()])
    with pytest.raises(ValueError, match="stream: the model's logits must be numbers"):
        next(stream(model, ONE, max_length=LENGTH))
