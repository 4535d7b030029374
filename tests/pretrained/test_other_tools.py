"""Claims that other programs read the folders that we write, and generate the same tokens.

pip install torch transformers ctranslate2
python -m pytest tests/pretrained/test_other_tools.py -m slow
"""

import json

import keras
import numpy as np
import pytest

from keras_transformers import models, pretrained, training
from keras_transformers.generation import Greedy, generate
from tests.pretrained import folders

SENTENCES = ["Open the door", "Save all files of the project", "No"]
NEW_TOKENS = 12


def translator(folder):
    model = folders.marian(folder)
    model.build({"source": (None, None), "target": (None, None)})
    return model


def writer(folder):
    model = folders.gpt2(folder)
    model.build((None, None))
    return model


def llama(folder):
    size = folders.gpt2(folder).embedding.vocab_size
    sizes = {**folders.WIDTHS, "max_length": 80, "padding_id": -1}
    model = models.LanguageModel.from_variant("tiny", size, style="modern", **sizes)
    model.build((None, None))
    return model


MADE = {"marian": translator, "gpt2": writer, "llama": llama}


def with_random_adapter(model):
    """Enlarges the weights, so that the tokens vary, and adds an adapter that changes them.

    The embedding of padding is zero, as published translators have it: CTranslate2 starts with it.
    """
    for weight in model.trainable_weights:
        value = np.array(keras.ops.convert_to_numpy(weight))
        if not weight.path.endswith("token_embedding"):
            weight.assign(4 * value)
        elif model.padding_id >= 0:
            value[model.padding_id] = 0
            weight.assign(value)
    rng = np.random.default_rng(3)
    training.add_lora(model, rank=2)
    for layer in model._flatten_layers():
        if (adapter := getattr(layer, "adapter", None)) is not None:
            arrays = {k: rng.normal(size=v.shape) for k, v in adapter.arrays("default").items()}
            adapter.assign_arrays("default", arrays)


@pytest.fixture(params=MADE)
def tuned(request, tmp_path):
    """`(model, tokenizer, folder)`: a model with an adapter, and the folder it was written to."""
    start = tmp_path / "published"
    start.mkdir()
    model = MADE[request.param](start)
    tokenizer = pretrained.load_tokenizer(start)
    with_random_adapter(model)
    folder = pretrained.save(model, tmp_path / "tuned", tokenizer=tokenizer)
    return model, tokenizer, folder


def our_tokens(model, tokenizer, sentence):
    """The ids that greedy search writes, END left out."""
    ids = tokenizer.tokenize([sentence], end=isinstance(model, models.Transformer))
    ids = ids.to_tensor(0).numpy()
    options = {"search": Greedy(), "end_id": tokenizer.end_id}
    with folders.eagerly():
        if isinstance(model, models.Transformer):
            start = tokenizer.start_id
            result = generate(model, ids, start_id=start, max_length=NEW_TOKENS, **options)
            written = result["tokens"][0]
        else:
            most = ids.shape[1] + NEW_TOKENS
            result = generate(model, prompt=ids, start_id=None, max_length=most, **options)
            written = result["tokens"][0][ids.shape[1] :]
    return until_end(written.tolist(), tokenizer.end_id)


def until_end(ids, end_id):
    return ids[: ids.index(end_id)] if end_id in ids else ids


def test_a_written_folder_says_which_tokens_begin_and_end_a_text(tuned):
    model, tokenizer, folder = tuned
    config = json.loads((folder / "config.json").read_text())
    assert config["eos_token_id"] == tokenizer.end_id
    if isinstance(model, models.Transformer):
        assert config["decoder_start_token_id"] == tokenizer.start_id
    else:
        assert config["bos_token_id"] == tokenizer.start_id
    assert pretrained.load_tokenizer(folder).vocab_size == tokenizer.vocab_size


@pytest.mark.slow
def test_transformers_generates_the_same_tokens(tuned):
    pytest.importorskip("torch")
    hf = pytest.importorskip("transformers")
    model, tokenizer, folder = tuned
    is_translator = isinstance(model, models.Transformer)
    kind = hf.AutoModelForSeq2SeqLM if is_translator else hf.AutoModelForCausalLM
    theirs = kind.from_pretrained(folder).eval()
    pieces = hf.AutoTokenizer.from_pretrained(folder)
    for sentence in SENTENCES:
        inputs = pieces(sentence, return_tensors="pt")
        written = theirs.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)[0]
        start = 1 if is_translator else inputs["input_ids"].shape[1]
        tokens = until_end(written[start:].tolist(), tokenizer.end_id)
        assert tokens == our_tokens(model, tokenizer, sentence)


@pytest.mark.slow
def test_ctranslate2_converts_the_folder_and_generates_the_same_tokens(tuned, tmp_path):
    pytest.importorskip("torch")
    hf = pytest.importorskip("transformers")
    ctranslate2 = pytest.importorskip("ctranslate2")
    model, tokenizer, folder = tuned
    converter = ctranslate2.converters.TransformersConverter(str(folder))
    converted = converter.convert(str(tmp_path / "ctranslate2"))
    pieces = hf.AutoTokenizer.from_pretrained(folder)
    written = []
    for sentence in SENTENCES:
        prompt = pieces.convert_ids_to_tokens(pieces(sentence)["input_ids"])
        if isinstance(model, models.Transformer):
            program = ctranslate2.Translator(converted)
            options = {"beam_size": 1, "max_decoding_length": NEW_TOKENS}
            (result,) = program.translate_batch([prompt], **options)
            tokens = pieces.convert_tokens_to_ids(result.hypotheses[0])
        else:
            program = ctranslate2.Generator(converted)
            options = {"max_length": NEW_TOKENS, "include_prompt_in_result": False}
            (result,) = program.generate_batch([prompt], **options)
            tokens = result.sequences_ids[0]
        assert until_end(tokens, tokenizer.end_id) == our_tokens(model, tokenizer, sentence)
        written.append(tokens)
    assert len({tuple(tokens) for tokens in written}) > 1
