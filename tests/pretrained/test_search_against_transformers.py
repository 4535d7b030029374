"""Claims that the search of a published folder finds what `generate` of transformers finds.

Small models with random weights, and settings drawn at random from all that are imitated.
"""

import contextlib
import json

import keras
import numpy as np
import pytest

from keras_transformers import pretrained
from keras_transformers.generation import BeamSearch, Greedy, Sampling, StopStrings, generate
from tests.pretrained import folders
from tests.pretrained.folders import eagerly

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="loops run eagerly on TensorFlow"
)
VOCAB, PADDING, WIDTH = 29, 28, 16
QUICK, ALL = 12, 200


def make(kind):
    """A model of transformers whose choices depend on all that it has read."""
    sizes = {"vocab_size": VOCAB, "initializer_range": 0.4, "init_std": 0.4}
    if kind == "gpt2":
        config = hf.GPT2Config(
            **sizes,
            n_embd=WIDTH,
            n_layer=1,
            n_head=2,
            n_positions=32,
            eos_token_id=2,
            bos_token_id=2,
        )
        return hf.GPT2LMHeadModel(config).eval()
    config = hf.MarianConfig(
        **sizes,
        d_model=WIDTH,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        eos_token_id=2,
        pad_token_id=PADDING,
        decoder_start_token_id=PADDING,
        activation_function="relu",
    )
    return hf.MarianMTModel(config).eval()


def drawn(rng, kind):
    """Settings of `generate`, and a limit on the tokens behind the prompt."""

    def sometimes(share, value):
        return value if rng.random() < share else None

    def ids(number):
        return rng.choice(np.arange(3, PADDING), number, replace=False).tolist()

    beams = int(rng.choice([1, 1, 2, 3, 4, 5]))
    settings = {
        "num_beams": beams,
        "eos_token_id": [2, *ids(rng.integers(0, 4))],
        "min_length": sometimes(0.2, int(rng.integers(1, 9))),
        "min_new_tokens": sometimes(0.2, int(rng.integers(1, 6))),
        "no_repeat_ngram_size": sometimes(0.4, int(rng.integers(1, 4))),
        "suppress_tokens": sometimes(0.3, ids(2)),
        "begin_suppress_tokens": sometimes(0.3, [2, *ids(5)]),
        "forced_bos_token_id": sometimes(0.3, int(rng.integers(3, 9))),
        "forced_eos_token_id": sometimes(0.3, 2),
        "renormalize_logits": sometimes(0.3, True),
        "repetition_penalty": sometimes(0.4, float(rng.choice([0.7, 1.05, 1.3, 2.0]))),
    }
    if beams > 1:
        settings |= {
            "early_stopping": [True, False, "never"][rng.integers(3)],
            "length_penalty": float(rng.choice([-1.0, 0.0, 0.5, 1.0, 2.0])),
            "num_return_sequences": int(rng.integers(1, beams + 1)),
        }
    words = [ids(1), ids(2), ids(2)] if rng.random() < 0.4 else []
    if kind == "marian":  # ours never chooses padding
        words.append([PADDING])
    settings["bad_words_ids"] = words or None
    forced = {settings["forced_bos_token_id"]}
    if settings["suppress_tokens"] is not None:
        settings["suppress_tokens"] = sorted(set(settings["suppress_tokens"]) - forced) or None
    settings = {key: value for key, value in settings.items() if value is not None}
    # Where END is forced and may not be first, transformers chooses among nothing, id 0: not here.
    return settings, int(rng.integers(3, 16))


def until_end(row, prompt, ends):
    """A row of tokens up to the first END behind the prompt."""
    for position in range(prompt, len(row)):
        if row[position] in ends:
            return row[: position + 1]
    return row


@pytest.mark.parametrize("kind", ["gpt2", "marian"])
@pytest.mark.parametrize(
    "seeds",
    [range(QUICK // 2), pytest.param(range(QUICK // 2, ALL // 2), marks=pytest.mark.slow)],
    ids=["a few", "many"],
)
def test_the_search_of_a_folder_finds_the_tokens_of_transformers(kind, seeds, tmp_path):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        theirs = make(kind)
        theirs.save_pretrained(tmp_path)
        theirs.generation_config = hf.GenerationConfig(decoder_start_token_id=PADDING)
        settings, new = drawn(rng, kind)
        (tmp_path / "generation_config.json").write_text(json.dumps(settings))
        search = pretrained.load_search(tmp_path)
        ids = rng.integers(2, PADDING, (1, rng.integers(1, 6)))
        with torch.no_grad():
            found = theirs.generate(
                torch.tensor(ids),
                attention_mask=torch.ones_like(torch.tensor(ids)),
                max_new_tokens=new,
                do_sample=False,
                pad_token_id=PADDING,
                output_scores=True,
                return_dict_in_generate=True,
                **{"num_return_sequences": 1, **settings},
            )
        ours, prompt = pretrained.load(tmp_path), 0
        with eagerly():
            if kind == "gpt2":
                prompt = ids.shape[1]
                result = generate(
                    ours, prompt=ids, search=search, max_length=prompt + new, start_id=None
                )
            else:
                result = generate(ours, ids, search=search, max_length=new, start_id=PADDING)
        expected = found.sequences.numpy()[:, 0 if kind == "gpt2" else 1 :].tolist()
        tokens = result["tokens"].reshape(len(expected), -1).tolist()
        scores = getattr(found, "sequences_scores", None)
        for position, (row, other) in enumerate(zip(tokens, expected, strict=True)):
            if scores is not None and scores[position] < -1e8:
                continue  # fewer sequences are allowed than beams
            row, other = (until_end(r, prompt, settings["eos_token_id"]) for r in (row, other))
            assert row[: len(other)] == other, (seed, position, settings, new)
            if scores is not None:
                score = np.reshape(result["scores"], -1)[position]
                assert score == pytest.approx(float(scores[position]), abs=2e-3), (seed, settings)


@pytest.mark.parametrize("beams", [1, 3])
def test_stop_strings_end_texts_as_in_transformers(beams, tmp_path):
    folders.gpt2(tmp_path)
    words = hf.GPT2Tokenizer.from_pretrained(tmp_path)
    torch.manual_seed(0)
    config = hf.GPT2Config(vocab_size=len(words), n_embd=WIDTH, n_layer=1, n_head=2, n_positions=64)
    theirs = hf.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        theirs.transformer.wte.weight.normal_(0, 0.6)
    theirs.save_pretrained(tmp_path)
    ours, tokenizer = pretrained.load(tmp_path), pretrained.load_tokenizer(tmp_path)
    beam = BeamSearch(3, 1.0, normalization="length", early_stopping=False)
    options = {"num_beams": beams, "do_sample": False, "max_new_tokens": 12, "tokenizer": words}
    options |= {"eos_token_id": tokenizer.end_id, "pad_token_id": tokenizer.end_id}
    stopped = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        ids = rng.integers(0, len(words) - 1, (1, rng.integers(1, 5)))
        given = {"attention_mask": torch.ones(ids.shape, dtype=torch.long)}
        usual = theirs.generate(torch.tensor(ids), **given, **options)[0, ids.shape[1] :]
        text = words.decode(usual)
        starts = rng.integers(0, max(1, len(text) - 3), 3)
        strings = {text[i : i + rng.integers(1, 4)] for i in starts} - {""}
        strings = sorted(string for string in strings if "\ufffd" not in string) or ["never"]
        expected = theirs.generate(torch.tensor(ids), **given, **options, stop_strings=strings)
        expected = expected[0].tolist()
        stopped += len(expected) < ids.shape[1] + 12
        found = generate(
            ours,
            prompt=ids,
            search=Greedy() if beams == 1 else beam,
            max_length=ids.shape[1] + 12,
            start_id=None,
            end_id=tokenizer.end_id,
            stop_strings=StopStrings(tokenizer, strings),
        )
        number = int(found["lengths"][0])
        assert found["tokens"][0, :number].tolist() == expected, (seed, strings)
    assert stopped


# ------------------------------------------------------------------- ragged batches, ten families

BATCHES, ROWS = 10, 3  # batches of each family
SIZES = {"hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 1}
SIZES |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
PAIRS = {"d_model": WIDTH, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 24}
PAIRS |= {"decoder_ffn_dim": 24, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
PAIRS |= {"max_position_embeddings": 64}
WRITERS = {
    "gpt2": {"n_embd": WIDTH, "n_layer": 1, "n_head": 2, "n_positions": 64},
    "llama": SIZES,
    "mistral": {**SIZES, "sliding_window": 4},
    "qwen2": SIZES,
    "gemma2": {**SIZES, "head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8},
}
TRANSLATORS = {  # with the id of padding, and that of START
    "marian": ({**PAIRS, "activation_function": "relu"}, PADDING, PADDING),
    "bart": (PAIRS, 1, 2),
    "mbart": (PAIRS, 1, 2),
    "pegasus": (PAIRS, 0, 0),
    "t5": ({"d_model": WIDTH, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}, 0, 0),
}
MODES = ("eager", "compiled", "portable")


def folder_of(family, tmp_path):
    """A model of transformers with random weights, saved, and ours of its folder."""
    ids = {"vocab_size": VOCAB, "eos_token_id": 2, "bos_token_id": 2, "pad_token_id": None}
    if family in WRITERS:
        settings, kind = WRITERS[family], hf.AutoModelForCausalLM
    else:
        settings, padding, start = TRANSLATORS[family]
        ids |= {"pad_token_id": padding, "decoder_start_token_id": start}
        kind = hf.AutoModelForSeq2SeqLM
    theirs = kind.from_config(hf.AutoConfig.for_model(family, **ids, **settings)).eval()
    with torch.no_grad():  # so large that each choice depends on what was read
        for name, weight in theirs.named_parameters():
            if weight.dim() > 1 and "embed_positions" not in name:
                weight.normal_(0, 0.4)
    theirs.save_pretrained(tmp_path)
    theirs.generation_config = hf.GenerationConfig(
        decoder_start_token_id=ids.get("decoder_start_token_id")
    )
    return theirs, pretrained.load(tmp_path)


def ragged(rng, padding, ends):
    """Rows of ids of several lengths; END may stand in them."""
    allowed = np.setdiff1d(np.arange(1, PADDING), [padding])
    rows = [rng.choice(allowed, rng.integers(1, 7)).tolist() for _ in range(ROWS)]
    for row in rows:
        if rng.random() < 0.4:
            row[rng.integers(len(row))] = int(rng.choice(ends))
    return rows


def padded(rows, padding, width):
    return np.array([row + [padding] * (width - len(row)) for row in rows], "int32")


def searched(mode, model, search, source, request):
    """What a search finds eagerly, compiled by XLA, or by the kernels of an export."""
    import tensorflow as tf

    from keras_transformers.core.backend import portable
    from keras_transformers.generation import Request, decode
    from keras_transformers.tasks.rounds import TensorFlowKernels

    fixed = {name: request.pop(name) for name in ("end_id", "padding_id", "prompt_length")}

    def run(source, request, prompt_length):
        asked = Request(**request, **fixed, prompt_length=prompt_length, prompt_scores=False)
        stages = None if mode == "portable" else 1
        return dict(decode(model, source, search, asked, stages))

    length = fixed.pop("prompt_length")
    request = {name: tf.constant(value) for name, value in request.items()}
    source = tf.constant(source)
    if mode == "portable":
        shapes = {n: tf.TensorSpec([None] * len(x.shape), x.dtype) for n, x in request.items()}
        scalar = tf.TensorSpec((), tf.int32)
        signature = (tf.TensorSpec((None, None), tf.int32), shapes, scalar)
        with portable(TensorFlowKernels()):
            found = tf.function(run, signature).get_concrete_function()(source, request, length)
    else:
        traced = tf.function(lambda x, y: run(x, y, length), jit_compile=mode == "compiled")
        with eagerly() if mode == "eager" else contextlib.nullcontext():
            found = traced(source, request)
    return {name: value.numpy() for name, value in found.items()}


def generated(theirs, ids, prompt, settings, new, padding):
    """What transformers generates from a source, or with the prompt alone as `ids`."""
    with torch.no_grad():
        return theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            **({} if prompt is None else {"decoder_input_ids": prompt}),
            max_new_tokens=new,
            do_sample=False,
            pad_token_id=padding if padding >= 0 else PADDING,
            output_scores=True,
            return_dict_in_generate=True,
            **{"num_return_sequences": 1, **settings},
        )


def check_ragged_batch(family, seed, tmp_path):
    """Compares one batch of random settings with transformers, row by row."""
    rng = np.random.default_rng((3, seed))
    torch.manual_seed(seed)
    theirs, ours = folder_of(family, tmp_path)
    settings, new = drawn(rng, family)
    padding, writes = ours.padding_id, family in WRITERS
    if padding >= 0:  # ours never chooses it
        settings["bad_words_ids"] = [*settings.get("bad_words_ids", []), [padding]]
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    search = pretrained.load_search(tmp_path)
    ends = settings["eos_token_id"]
    prompts = ragged(rng, padding, ends)
    if writes:
        sources, starts = prompts, [row.pop(0) for row in prompts]
    else:
        start = TRANSLATORS[family][2]
        sources, starts = ragged(rng, padding, ends), [start] * ROWS
        prompts = prompts if rng.random() < 0.5 else [[] for _ in prompts]
    sizes = np.array([len(row) for row in prompts], "int32")
    width = int(sizes.max())
    request = {
        "forced": padded(prompts, padding, width + new),
        "start_id": np.array(starts, "int32"),
        "cut_lengths": sizes + new,
        "end_id": 2,
        "padding_id": padding,
        "prompt_length": width if writes else 0,
    }
    fewest, _ = search.constraints.limits(np.zeros(ROWS, "int32"))
    if fewest is not None:
        request["min_lengths"] = keras.ops.convert_to_numpy(fewest)
    source = padded(sources, padding, max(map(len, sources)) + 1)
    results = {mode: searched(mode, ours, search, source, dict(request)) for mode in MODES}
    for row in range(ROWS):
        begun = torch.tensor([[starts[row], *prompts[row]]])
        ids, prompt = (begun, None) if writes else (torch.tensor([sources[row]]), begun)
        found = generated(theirs, ids, prompt, settings, new, padding)
        expected = found.sequences.numpy()[:, 1:].tolist()
        scores = getattr(found, "sequences_scores", None)
        for mode, result in results.items():
            tokens = result["tokens"][row].reshape(len(expected), -1).tolist()
            for position, (mine, other) in enumerate(zip(tokens, expected, strict=True)):
                case = (family, seed, row, position, mode, settings, new)
                if scores is not None and scores[position] < -1e8:
                    continue  # fewer sequences are allowed than beams
                mine, other = (until_end(r, sizes[row], ends) for r in (mine, other))
                assert mine[: len(other)] == other, case
                if scores is not None:
                    score = np.reshape(result["scores"][row], -1)[position]
                    assert score == pytest.approx(float(scores[position]), abs=2e-3), case


def test_a_ragged_batch_is_decoded_as_by_transformers(tmp_path):
    check_ragged_batch("bart", 1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*WRITERS, *TRANSLATORS])
@pytest.mark.parametrize("seed", range(BATCHES))
def test_ragged_batches_of_ten_families_are_decoded_as_by_transformers(family, seed, tmp_path):
    check_ragged_batch(family, seed, tmp_path)


SAMPLED = {
    "as it is": {},
    "temperature": {"temperature": 0.6, "top_k": 0},
    "few": {"top_k": 5, "top_p": 0.9},
    "small ones": {"top_k": 0, "top_p": 0.8, "min_p": 0.1, "temperature": 1.5},
    "suppressed": {"suppress_tokens": [3, 4], "bad_words_ids": [[5], [7, 8]], "top_k": 9},
    "not first": {"begin_suppress_tokens": [6, 2], "min_new_tokens": 2},
    "not again": {"repetition_penalty": 1.7, "top_k": 7},
    "again": {"repetition_penalty": 0.6, "top_k": 0},
}


@pytest.mark.parametrize("settings", SAMPLED.values(), ids=SAMPLED)
def test_samples_are_drawn_from_the_distribution_of_transformers(settings, tmp_path):
    """Numbers spread evenly draw each token as often as it is probable."""
    from keras import ops

    from keras_transformers.generation import Request

    torch.manual_seed(5)
    theirs, number = make("gpt2"), 4000
    config = hf.GenerationConfig(do_sample=True, eos_token_id=2, **{"top_k": 50, **settings})
    prompt = torch.tensor([[9, 7]])
    theirs._prepare_special_tokens(config, device="cpu")
    processors = theirs._get_logits_processor(config, input_ids_seq_length=2, device="cpu")
    with torch.no_grad():
        logits = theirs(prompt).logits[:, -1]
        expected = torch.softmax(processors(prompt, logits.clone()), dim=-1)[0].numpy()
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"do_sample": True, "eos_token_id": 2, **settings})
    )
    found = pretrained.load_search(tmp_path)
    search = Sampling(**{**vars(found), "num_samples": number})

    def step(ids, index, state, shared, back_pointers):
        return ops.broadcast_to(ops.convert_to_tensor(logits.numpy()), (1, number, VOCAB)), state

    # One token of a prompt stands for START, the other is forced.
    forced = ops.convert_to_tensor([[7, -1]], dtype="int32")
    spread = np.tile((np.arange(number, dtype="float32") + 0.5) / number, (1, 2, 1))
    with eagerly():
        request = Request(forced, 9, 2, uniform=ops.convert_to_tensor(spread), padding_id=-1)
        tokens = search(step, {}, request)["tokens"]
    drawn_ids = np.bincount(ops.convert_to_numpy(tokens)[0, :, 1], minlength=VOCAB) / number
    np.testing.assert_allclose(drawn_ids, expected, atol=1.5 / number)
