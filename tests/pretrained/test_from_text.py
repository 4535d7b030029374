"""Claims about models with a `tokenizer.json` from text to answer, beside `transformers`."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import export, pretrained
from keras_transformers.generation import Greedy
from keras_transformers.text import FastTokenizer
from tests.pretrained.folders import eagerly
from tests.slow import slow_except
from tests.text import scripts

hf = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
torch = pytest.importorskip("torch")
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 24, "initializer_range": 0.5}
TEXTS = ["All human beings", "Würde und Rechte 12345,", "人人生而自由", "don't <mask>word  \n"]
# Kind of tokenizer -> type of the model, what the file puts around a text.
DECODERS = {
    "llama 3": ("llama", ("<s>", None)),
    "qwen": ("qwen2", (None, None)),
    "llama 2": ("mistral", ("<s>", None)),
}


def published(kind, around, folder):
    """The tokenizer of a kind as `transformers` writes it."""
    definition = scripts.learnt(kind)
    numbers = {token["content"]: token["id"] for token in definition["added_tokens"]}
    before, after = ([{"SpecialToken": {"id": t, "type_id": 0}}] if t else [] for t in around)
    single = [*before, {"Sequence": {"id": "A", "type_id": 0}}, *after]
    special = {t: {"id": t, "ids": [numbers[t]], "tokens": [t]} for t in around if t}
    template = {"type": "TemplateProcessing", "single": single, "special_tokens": special}
    template["pair"] = [*single, {"Sequence": {"id": "B", "type_id": 0}}, *after]
    definition["post_processor"] = template if special else scripts.LETTERS
    made = tokenizers.Tokenizer.from_str(json.dumps(definition))
    # Named as the beginning by all; Qwen's and SmolLM's files put it before no text.
    roles = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    made = hf.PreTrainedTokenizerFast(tokenizer_object=made, mask_token="<mask>", **roles)
    made.save_pretrained(folder)
    return made


def config_of(name, tokenizer, **settings):
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return hf.AutoConfig.for_model(
        name, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id,
        **ends, **SIZES, **settings,
    )  # fmt: skip


@pytest.mark.parametrize("kind", DECODERS)
def test_what_stands_before_a_prompt_is_what_the_file_puts_there(kind, tmp_path):
    name, around = DECODERS[kind]
    theirs = published(kind, around, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
    ours = pretrained.load_tokenizer(tmp_path)
    assert isinstance(ours, FastTokenizer)
    assert ours.start_id == (theirs.bos_token_id if around[0] else None)
    assert ours.tokenize(TEXTS, **ours.framing).to_list() == theirs(TEXTS)["input_ids"]
    again = pretrained.load_tokenizer(pretrained.save_tokenizer(ours, tmp_path / "ours"))
    assert again.start_id == ours.start_id


@pytest.mark.slow
@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_goes_on_as_the_published_one(kind, tmp_path):
    name, around = DECODERS[kind]
    tokenizer = published(kind, around, tmp_path)
    torch.manual_seed(3)
    config = config_of(name, tokenizer, num_key_value_heads=1)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(tmp_path)
    expected = []
    for text in TEXTS:
        batch = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            tokens = model.generate(**batch, max_new_tokens=8, do_sample=False)[0]
        expected.append(tokenizer.decode(tokens, skip_special_tokens=True))
    words, ours = pretrained.load_tokenizer(tmp_path), pretrained.load(tmp_path)
    search = pretrained.load_search(tmp_path)
    writer = export.TextGenerator(ours, words, search, 8, prompt_lengths=(32,))
    with eagerly():
        found = writer.portable(tf.constant(TEXTS))["text"].numpy()
    assert [text.decode() for text in found] == expected
    served = tf.saved_model.load(str(writer.save(tmp_path / "served")))
    answer = served.signatures["serving_default"](text=tf.constant(TEXTS))["text"].numpy()
    assert [text.decode() for text in answer] == expected


def published_scores(model, ids, first):
    """Log-probabilities of the tokens from `first` on, by transformers in float64; the perplexity.

    The perplexity is that of its own loss, of all tokens but the first.
    """
    ids = torch.tensor([ids])
    with torch.no_grad():
        found = model.double()(ids, labels=ids)
    scores = torch.log_softmax(found.logits[0], -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
    return scores[first - 1 :].numpy(), math.exp(found.loss)


@pytest.mark.parametrize("kind", slow_except([*DECODERS, "gpt2"], "gpt2", "llama 3"))
def test_tokens_have_the_log_probabilities_of_the_published_model(kind, tmp_path):
    name, around = DECODERS.get(kind, ("gpt2", (None, None)))
    tokenizer = published(kind, around, tmp_path)
    torch.manual_seed(3)
    if kind == "gpt2":
        ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
        config = hf.GPT2Config(vocab_size=len(tokenizer), initializer_range=0.5, **sizes, **ends)
    else:
        config = config_of(name, tokenizer, num_key_value_heads=1)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(tmp_path)
    loaded = keras_transformers.load(tmp_path, search=Greedy(), new_tokens=8)
    texts = [*TEXTS, "", "a", "All</s>human", "人</s>"]
    with eagerly():
        written, scored = loaded.predict(texts, scores=True), loaded.score(texts)
    for text, row, other in zip(texts, written, scored, strict=True):
        ids = tokenizer(text)["input_ids"]
        prompt = ids or [tokenizer.eos_token_id]
        with torch.no_grad():
            tokens = model.double().generate(
                torch.tensor([prompt]), max_new_tokens=8, do_sample=False
            )[0]
        expected, _ = published_scores(model, tokens.tolist(), len(prompt))
        pieces, values = zip(*row["tokens"], strict=True)
        assert list(pieces) == loaded.tokenizer.pieces(tokens[len(prompt) :].numpy())
        np.testing.assert_allclose(values, expected, atol=1e-4)
        assert row["log_probability"] == pytest.approx(expected.sum(), abs=1e-3)
        whole = ids if around[0] else [tokenizer.eos_token_id, *ids]
        if len(whole) == 1:
            assert other["tokens"] == [] and other["score"] == 0
            continue
        expected, perplexity = published_scores(model, whole, 1)
        np.testing.assert_allclose([x for _, x in other["tokens"]], expected, atol=1e-4)
        own = math.exp(-other["score"] / len(other["tokens"]))
        assert own == pytest.approx(perplexity, rel=1e-3)


@pytest.mark.slow
def test_modernbert_fills_masks_as_the_published_one(tmp_path):
    tokenizer = published("gpt2", ("<s>", "</s>"), tmp_path)
    torch.manual_seed(3)
    ends = {"cls_token_id": tokenizer.bos_token_id, "sep_token_id": tokenizer.eos_token_id}
    config = config_of("modernbert", tokenizer, reference_compile=False, **ends)
    model = hf.AutoModelForMaskedLM.from_config(config).eval()
    model.save_pretrained(tmp_path)
    texts, expected = ["All <mask> beings", "Würde <mask>, und"], []
    for text in texts:
        batch = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        ids = batch["input_ids"][0]
        with torch.no_grad():
            logits = model(**batch).logits[0]
        logits[:, tokenizer.all_special_ids] = -1e9
        ids = torch.where(ids == tokenizer.mask_token_id, logits.argmax(-1), ids)
        expected.append(tokenizer.decode(ids, skip_special_tokens=True))
    words, ours = pretrained.load_tokenizer(tmp_path), pretrained.load(tmp_path)
    filler = export.MaskFiller(ours, words, lengths=(32,))
    served = tf.saved_model.load(str(filler.save(tmp_path / "served")))
    answer = served.signatures["serving_default"](text=tf.constant(texts))["text"].numpy()
    assert [text.decode() for text in answer] == expected
