"""Claims about models with a `tokenizer.json` from text to answer, beside `transformers`."""

import json

import pytest
import tensorflow as tf

from keras_transformers import export, pretrained
from keras_transformers.text import FastTokenizer
from tests.pretrained.folders import eagerly
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
