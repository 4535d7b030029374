"""Claims about exports that go on with a text."""

import functools
import json
import pathlib
import tempfile

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers.export import MaskFiller, TextGenerator, Translator
from keras_transformers.generation import (
    BeamSearch,
    Constraints,
    Greedy,
    Sampling,
    generate,
    generate_all,
)
from keras_transformers.generation.boundaries import bytes_of_tokens
from keras_transformers.models import LanguageModel, TextEncoder, Transformer
from keras_transformers.predictors import KINDS, TextGeneratorPredictor
from keras_transformers.tasks.rounds import uniform
from keras_transformers.text import WordPieceTokenizer
from tests.pretrained import folders
from tests.pretrained.piece_folders import write
from tests.slow import slow_except
from tests.text import scripts

SIZES = {"hidden_dim": 24, "num_heads": 2, "mlp_dim": 32, "num_layers": 1}
NEW_TOKENS = 6


def random(model):
    model.build((None, None))
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=weight.shape) / 2 for weight in model.get_weights()])
    return model


@functools.cache
def tokenizer_of(kind):
    folder = pathlib.Path(tempfile.mkdtemp())
    if kind == "word pieces":
        return WordPieceTokenizer.train(["the king and the queen, to be or not to be"], 60)
    if kind == "byte pairs":
        folders.gpt2(folder)
        return folders.pretrained.load_tokenizer(folder)
    if kind == "pieces":
        write(folder, "T5Tokenizer")
        return folders.pretrained.load_tokenizer(folder)
    return folders.text.FastTokenizer(scripts.learnt(kind), "<s>", "</s>", "<pad>", "<mask>")


# Kind of tokenizer -> its END as it is written.
COMPILED = [False, pytest.param(True, marks=pytest.mark.slow)]
SLOW_PROMPTS = [
    pytest.param(prompts, marks=pytest.mark.slow) for prompts in ([""], ["t"], ["", "the king"])
]
ENDS = {"word pieces": "[SEP]", "byte pairs": "<|endoftext|>", "pieces": "</s>", "llama 3": "</s>"}


def padding_of(kind):
    return -1 if kind in ("byte pairs", "llama 3") else tokenizer_of(kind).pad_id


@functools.cache
def model_of(kind):
    size = tokenizer_of(kind).vocab_size
    options = {"max_length": 80, "padding_id": padding_of(kind)}
    return random(LanguageModel.from_variant("small", size, **SIZES, **options))


def continued(model, ids, end):
    """Ids that follow, each the most probable one by a whole pass of the model."""
    ids, size = list(ids), len(ids)
    while len(ids) < size + NEW_TOKENS:
        logits = model(np.array([ids], "int32"), training=False).numpy()[0, -1].astype("float64")
        if model.padding_id >= 0:
            logits[model.padding_id] = -np.inf
        ids.append(int(logits.argmax()))
        if ids[-1] == end:
            break
    return ids[size:]


def texts(strings):
    return [string.decode() for string in strings.numpy()]


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("kind", slow_except(ENDS.keys(), "byte pairs"))
def test_a_prompt_with_an_end_in_it_is_gone_on_with(kind, compiled):
    tokenizer, end = tokenizer_of(kind), ENDS[kind]
    model = model_of(kind)
    prompts = ["the king", f"the king{end}and the queen", f"{end}to be", f"to be{end}{end}or{end}"]
    ids = tokenizer.tokenize(prompts).to_list()
    assert [row.count(tokenizer.end_id) for row in ids] == [0, 1, 1, 3]
    before = [] if tokenizer.start_id is None else [tokenizer.start_id]
    expected = [continued(model, before + row, tokenizer.end_id) for row in ids]
    writer = TextGenerator(model, tokenizer, Greedy(), NEW_TOKENS, prompt_lengths=(24,))
    found = (writer if compiled else writer.portable)(tf.constant(prompts))
    shown = []
    for row, rest in zip(ids, expected, strict=True):
        whole = [token for token in row + rest if token != tokenizer.end_id]
        shown.append(tokenizer.detokenize([whole]).numpy()[0].decode())
    assert texts(found["text"]) == shown
    for text, continuation, row in zip(shown, texts(found["continuation"]), ids, strict=True):
        prompt = [token for token in row if token != tokenizer.end_id]
        assert tokenizer.detokenize([prompt]).numpy()[0].decode() + continuation == text
        assert continuation
    finished = [rest[-1] == tokenizer.end_id for rest in expected]
    assert found["finished"].numpy().tolist() == finished
    assert texts(found["text"]) == [writer.write([prompt])[0] for prompt in prompts]


@pytest.mark.parametrize("kind", ENDS)
def test_bytes_of_tokens_join_to_the_text(kind):
    tokenizer = tokenizer_of(kind)
    of_tokens = bytes_of_tokens(tokenizer)
    for text in ("the king, and the queen", "to be or not to be", "€ 5 鮫 e\u0301"):
        row = tokenizer.tokenize([text]).to_list()[0]
        joined = b"".join(of_tokens[token] for token in row).decode()
        assert joined.strip() == tokenizer.detokenize([row]).numpy()[0].decode().strip()


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("kind", slow_except(ENDS.keys(), "byte pairs"))
def test_a_text_ends_in_front_of_a_stop_string(kind, compiled):
    tokenizer, model = tokenizer_of(kind), model_of(kind)
    prompts = ["the king", "to be", "t", "and the queen"]
    usual = TextGenerator(model, tokenizer, Greedy(), NEW_TOKENS, prompt_lengths=(24,))
    whole = texts((usual if compiled else usual.portable)(tf.constant(prompts))["continuation"])
    strings = sorted({text[2:4] for text in whole[:3] if len(text) > 3 and "\ufffd" not in text})
    assert strings
    writer = TextGenerator(
        model, tokenizer, Greedy(), NEW_TOKENS, prompt_lengths=(24,), stop_strings=strings
    )
    found = (writer if compiled else writer.portable)(tf.constant(prompts))
    ended = usual.portable(tf.constant(prompts))["finished"].numpy()
    rows = zip(prompts, whole, texts(found["text"]), found["finished"].numpy(), ended, strict=True)
    for prompt, text, received, finished, end in rows:
        found_at = [(prompt + text).find(string, len(prompt) - 1) for string in strings]
        first = min((place for place in found_at if place >= 0), default=-1)
        assert finished == (first >= 0 or end)
        if first >= len(prompt):
            assert received == (prompt + text)[:first]
        else:  # none, or one that begins in the prompt, in front of which nothing was written
            assert (prompt + text).startswith(received)


def test_who_asks_says_where_texts_end(tmp_path):
    tokenizer, model = tokenizer_of("byte pairs"), model_of("byte pairs")
    writer = TextGenerator(model, tokenizer, Greedy(), NEW_TOKENS, prompt_lengths=(24,))
    predictor = TextGeneratorPredictor(writer)
    whole = predictor.predict("the king", details=True)["continuation"]
    asked = predictor.predict("the king", details=True, stop_strings=whole[3:5])
    assert asked["continuation"] == whole[: whole.index(whole[3:5])] and asked["finished"]
    none = predictor.predict("the king", stop_strings=(), details=True)
    assert none["continuation"] == whole
    with pytest.raises(ValueError, match="StopStrings: `strings` must be .* Received: \\('',\\)"):
        predictor.predict("the king", stop_strings="")


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("kind", slow_except(ENDS.keys(), "byte pairs"))
@pytest.mark.parametrize("prompts", [["", "t", ""], *SLOW_PROMPTS], ids=str)
def test_a_prompt_of_no_token_or_of_one_is_gone_on_with(prompts, kind, compiled):
    tokenizer, model = tokenizer_of(kind), model_of(kind)
    before = [] if tokenizer.start_id is None else [tokenizer.start_id]
    rows = [before + row or [tokenizer.end_id] for row in tokenizer.tokenize(prompts).to_list()]
    expected = [continued(model, row, tokenizer.end_id) for row in rows]
    for search in (Greedy(), BeamSearch(1)):
        writer = TextGenerator(model, tokenizer, search, NEW_TOKENS, prompt_lengths=(12,))
        found = (writer if compiled else writer.portable)(tf.constant(prompts))
        for text, row, rest in zip(texts(found["text"]), rows, expected, strict=True):
            whole = [token for token in row + rest if token != tokenizer.end_id]
            assert text == tokenizer.detokenize([whole]).numpy()[0].decode()


@pytest.mark.slow
def test_an_end_in_a_prompt_ends_no_beam_and_reaches_a_saved_model(tmp_path):
    kind = "byte pairs"
    tokenizer, search = tokenizer_of(kind), BeamSearch(3)
    writer = TextGenerator(model_of(kind), tokenizer, search, NEW_TOKENS, prompt_lengths=(24,))
    prompts = tf.constant(["the king<|endoftext|>and the queen", "to be"])
    found = writer(prompts)
    assert all(len(each) for each in texts(found["continuation"]))
    saved = tf.saved_model.load(str(writer.save(tmp_path)))
    for name in ("serving_default", "xla"):
        answer = saved.signatures[name](text=prompts)
        assert texts(answer["text"]) == texts(found["text"])


def test_padding_that_a_prompt_names_is_left_out():
    kind = "word pieces"
    writer = TextGenerator(model_of(kind), tokenizer_of(kind), Greedy(), NEW_TOKENS, (24,))
    with_padding, without = writer.write(["the king [PAD] and the queen", "the king and the queen"])
    assert with_padding == without


@functools.cache
def seeded(kind):
    """A generator or translator whose samples are almost surely distinct."""
    if kind == "generator":
        model, tokenizer = model_of("byte pairs"), tokenizer_of("byte pairs")
        return TextGenerator(model, tokenizer, Sampling(temperature=9.0, seed=3), 8, (4, 16))
    tokenizer = tokenizer_of("word pieces")
    model = Transformer.from_variant("base", tokenizer.vocab_size, **SIZES)
    model.build({"source": (None, None), "target": (None, None)})
    search = Sampling(temperature=9.0, seed=3)
    return Translator(model, tokenizer, search, (4, 16), new_tokens=8)


def answers(served, prompts, compiled):
    found = (served if compiled else served.portable)(tf.constant(prompts))
    return texts(found["text" if "text" in found else "translation"])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["generator", "translator"])
@pytest.mark.slow
def test_copies_of_a_text_are_drawn_apart_whatever_else_is_asked_for(kind, compiled):
    served = seeded(kind)
    found = answers(served, ["to be"] * 130, compiled)
    assert len(set(found)) >= 125  # a few end at once
    # The number of a row decides, not what stands beside it or in which round it is.
    others = ["to be", "the king and the queen or not to be"] * 65
    assert answers(served, others, compiled)[::2] == found[::2]
    assert answers(served, ["to be"] * 3, compiled) == found[:3]


@pytest.mark.parametrize("kind", ["generator", "translator"])
@pytest.mark.slow
def test_requests_of_any_size_draw_the_same(kind):
    served = seeded(kind)
    found = served.predict(["to be"] * 20)
    assert len(set(found)) == 20
    assert served.predict(["to be"] * 20, batch_size=7) == found
    assert list(served.predict(iter(["to be"] * 20), batch_size=1)) == found
    assert served.predict("to be") == found[0]


def test_numbers_of_a_seed_are_those_of_their_row_and_position():
    rows = np.array([0, 5, 64, 130, 2**20], "int32")
    search = Sampling(num_samples=3, seed=2**40)
    found = uniform(search, 50, tf.constant(rows)).numpy()
    assert found.shape == (5, 50, 3) and found.min() >= 0 and found.max() < 1
    for number, row in enumerate(rows):
        alone = uniform(search, 7, tf.constant([row])).numpy()
        np.testing.assert_array_equal(alone[0], found[number, :7])
    assert len(np.unique(found)) > 0.99 * found.size
    other = uniform(Sampling(num_samples=3, seed=1), 50, tf.constant(rows)).numpy()
    assert (other != found).mean() > 0.99


@pytest.mark.slow
def test_a_longer_source_changes_no_sample_of_the_others():
    model = seeded("translator").model
    search = Sampling(temperature=9.0, seed=3)
    sources = [[5, 6, 3], [7, 3], [5, 6, 3]]
    found = generate_all(model, sources, search, verbose=0)["tokens"]
    longer = generate_all(model, [*sources, [5] * 60], search, verbose=0)["tokens"]
    for row, again in zip(found, longer, strict=False):
        np.testing.assert_array_equal(row[row != 0], again[again != 0])
    assert found[0].tolist() != found[2].tolist()
    one = np.array([[5, 6, 3], [7, 3, 0]])
    short = generate(model, one, search=search, max_length=9)["tokens"]
    long = generate(model, one, search=search, max_length=20)["tokens"][:, :9]
    np.testing.assert_array_equal(short, long)


def test_masks_behind_an_end_are_filled():
    tokenizer = tokenizer_of("word pieces")
    model = random(
        TextEncoder.from_variant("base", tokenizer.vocab_size, head="masked_language", **SIZES)
    )
    filler = MaskFiller(model, tokenizer, (16,))
    sentence = "the king [SEP] and [MASK] queen"
    ids = tokenizer.tokenize([sentence], start=True, end=True).to_tensor().numpy()
    logits = model(ids, training=False).numpy()[0]
    logits[:, list(tokenizer.special_ids)] = -np.inf
    filled = np.where(ids[0] == tokenizer.mask_id, logits.argmax(-1), ids[0])
    filled = filled[filled != tokenizer.end_id]
    expected = tokenizer.detokenize([filled]).numpy()[0].decode()
    assert filler.fill([sentence]) == [expected]
    assert expected.endswith("queen")


# ------------------------------------------------------------------------------------- settings


@functools.cache
def predictor(kind):
    """A generator or translator as a folder of published weights is loaded."""
    served = seeded(kind)
    own = Greedy(Constraints(banned=(9,)))
    number = 5
    if kind == "generator":
        served = TextGenerator(served.model, served.tokenizer, own, number, (4, 16))
    else:
        served = Translator(served.model, served.tokenizer, own, (4, 16), new_tokens=number)
    return KINDS[served.kind](served)


def alone(kind, search, number):
    """An export made with a search and a length."""
    served = predictor(kind)._run
    if kind == "generator":
        return TextGenerator(served.model, served.tokenizer, search, number, (4, 16))
    return Translator(served.model, served.tokenizer, search, (4, 16), new_tokens=number)


PROMPTS = ["to be", "the king and the queen", "or"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_except(["generator", "translator"], "translator"))
def test_a_request_chooses_its_search_length_seed_and_number(kind):
    ours, banned = predictor(kind), Constraints(banned=(9,))
    beams = BeamSearch(3, n_best=3, constraints=banned)
    found = ours.predict(PROMPTS, new_tokens=7, search=BeamSearch(2), n_best=3)
    answer = alone(kind, beams, 7)(tf.constant(PROMPTS))
    name = "texts" if kind == "generator" else "translations"
    expected = [texts(tf.constant(row)) for row in answer[name].numpy()]
    assert found == expected and all(len(set(row)) == 3 for row in found)
    assert ours.predict(PROMPTS[0], new_tokens=7, search=BeamSearch(2), n_best=3) == expected[0]
    details = ours.predict(PROMPTS, details=True, new_tokens=7, search=BeamSearch(2), n_best=3)
    assert [row[name] for row in details] == expected
    assert [row[name[:-1]] for row in details] == [row[0] for row in expected]
    if kind == "translator":
        assert all(row["scores"] == sorted(row["scores"], reverse=True) for row in details)
    plain = ours.predict(PROMPTS)
    assert plain == answers(alone(kind, Greedy(banned), 5), PROMPTS, True)
    assert ours.predict(PROMPTS, n_best=1) == [[text] for text in plain]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["generator", "translator"])
def test_a_seed_draws_the_same_and_compiles_nothing_new(kind):
    ours, hot = predictor(kind), Sampling(temperature=9.0)
    first = ours.predict(PROMPTS, search=hot, seed=1)
    other = ours.predict(PROMPTS, search=hot, seed=2)
    number = len(ours._made["changed"])
    assert ours.predict(PROMPTS, search=hot, seed=1) == first != other
    assert ours.predict(PROMPTS, search=hot, seed=1, batch_size=1) == first
    assert len(ours._made["changed"]) == number
    if kind == "translator":  # also where the answer comes from another function
        options = {"search": hot, "details": True, "scores": True}
        scored = [ours.predict(PROMPTS, seed=seed, **options) for seed in (1, 2)]
        assert [[row["translation"] for row in rows] for rows in scored] == [first, other]
    fixed = Sampling(temperature=9.0, seed=2, constraints=Constraints(banned=(9,)))
    assert answers(alone(kind, fixed, 5), PROMPTS, True) == other


@pytest.mark.parametrize("kind", ["generator", "translator"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": 3}, "`seed` must be None for a search that draws nothing"),
        ({"seed": -1, "search": Sampling()}, "`seed` must be 0 or more. Received: -1"),
        ({"n_best": 2}, "`n_best` must be 1 for `Greedy`"),
        ({"n_best": 0}, "`n_best` must be 1 or more. Received: 0"),
        ({"new_tokens": 0}, "`new_tokens` must be positive"),
    ],
)
def test_impossible_settings_are_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        predictor(kind).predict(PROMPTS, **settings)


@pytest.mark.slow
def test_a_saved_model_has_fixed_settings(tmp_path):
    path = predictor("translator")._run.save(tmp_path)
    loaded = keras_transformers.load(path)
    with pytest.raises(ValueError, match="predict: .* has no model that learns"):
        loaded.predict("to be", n_best=2)
    for settings in ({"search": Greedy()}, {"seed": 1}, {"n_best": 2}, {"new_tokens": 3}):
        with pytest.raises(ValueError, match=f"`{next(iter(settings))}` must be None"):
            keras_transformers.load(path, **settings)


@pytest.mark.slow
def test_a_folder_and_who_loads_it_say_how_texts_are_written(tmp_path):
    model = folders.gpt2(tmp_path)
    model.build((None, None))
    folders.pretrained.save(model, tmp_path)
    asked = {"do_sample": True, "num_return_sequences": 3, "max_new_tokens": 4, "top_k": 0}
    (tmp_path / "generation_config.json").write_text(json.dumps(asked))
    loaded = keras_transformers.load(tmp_path, seed=5)
    details = loaded.predict("to be", details=True)
    assert len(details["texts"]) == len(set(details["texts"])) == 3
    assert details["text"] == details["texts"][0] == loaded.predict("to be")
    again = keras_transformers.load(tmp_path, search=Greedy(), n_best=1)
    search = again._run.search
    assert isinstance(search, Greedy) and again._run.new_tokens == 4
    kept = keras_transformers.load(loaded.save(tmp_path / "saved"))
    assert kept.predict("to be") == loaded.predict("to be")


def test_what_writes_no_text_has_no_search(tmp_path):
    model = folders.bert(tmp_path)
    model.build((None, None))
    folders.pretrained.save(model, tmp_path)
    with pytest.raises(ValueError, match="which generates no text, so `search`, `seed` and"):
        keras_transformers.load(tmp_path, n_best=2)


@pytest.mark.parametrize(("asked", "new_tokens"), [({"max_new_tokens": 3}, 3), ({}, None)])
def test_a_translators_folder_limits_its_translations(tmp_path, asked, new_tokens):
    model = folders.marian(tmp_path)
    model.build({"source": (None, None), "target": (None, None)})
    folders.pretrained.save(model, tmp_path)
    settings = {"num_beams": 2, "num_return_sequences": 2, "max_length": 9, **asked}
    settings["decoder_start_token_id"] = model.padding_id
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    served = keras_transformers.load(tmp_path)._run
    assert served.new_tokens == new_tokens
    assert served.most_tokens(20) == (50 if new_tokens is None else 3)
