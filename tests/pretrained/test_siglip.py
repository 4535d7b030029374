"""Claims about SigLIP's folders: the tokenizer is the published one, texts fill all positions."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import pretrained, vision
from keras_transformers.pretrained.clip import SIGLIP
from keras_transformers.text import SiglipTokenizer
from tests.pretrained.folders import eagerly
from tests.pretrained.piece_folders import spm
from tests.pretrained.test_bad_folders import edit
from tests.text import scripts

TEXTS = [*scripts.TEXTS, *scripts.fuzzed(50), "A Photo, of a cat's <dog>!", "</s>x", "!! </s> a"]
TEXTS += ["a </s> b", "a<unk> b", "<unk>", "▁a▁B", "<pad> a", "</S> a", "ΣΑΣ Σ ΑΣ.Σ", "a b </s>"]
PICTURE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
LABELS = ["a cat", "Open the door!"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("siglip")
    (folder / "spiece.model").write_bytes(
        spm("unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, character_coverage=0.98)
    )
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "SiglipTokenizer"}')
    pretrained.save_preprocessing(vision.Preprocessing(18, crop=False), folder)
    settings = SIGLIP.configuration.read({"vision_config": {"image_size": 18}}, "config.json")
    sizes = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 32, "num_layers": 1}
    settings["text_encoder"] |= {**sizes, "vocab_size": 300, "max_length": 12, "units": 16}
    settings["image_encoder"] |= sizes
    keras.utils.set_random_seed(1)
    return pretrained.save(SIGLIP.build(settings), folder)


def test_ids_are_those_of_the_published_tokenizer(folder, tmp_path):
    hf = pytest.importorskip("transformers")
    theirs = hf.AutoTokenizer.from_pretrained(folder)
    assert type(theirs).__name__ == "SiglipTokenizer"
    expected = theirs(TEXTS)["input_ids"]
    tokenizer = pretrained.load_tokenizer(folder)
    assert tokenizer.tokenize(TEXTS, end=True).to_list() == expected
    assert tokenizer.tokenize("A cat!", end=True).numpy().tolist() == theirs("A cat!")["input_ids"]
    assert tokenizer.pad_id == theirs.pad_token_id and tokenizer.start_id is None
    in_graph = tf.function(lambda text: tokenizer.tokenize(text, end=True))
    assert in_graph(tf.constant(TEXTS)).to_list() == expected
    pretrained.save_tokenizer(tokenizer, tmp_path)
    assert hf.AutoTokenizer.from_pretrained(tmp_path)(TEXTS)["input_ids"] == expected
    same = SiglipTokenizer.from_config(json.loads(json.dumps(tokenizer.get_config())))
    assert same.tokenize(TEXTS, end=True).to_list() == expected
    with pytest.raises(ValueError, match="`start` must be False"):
        tokenizer.tokenize(TEXTS, start=True)


def test_texts_fill_all_positions_and_every_label_is_judged_by_itself(folder):
    loaded = keras_transformers.load(folder)
    with eagerly():
        found = loaded.predict(PICTURE, labels=LABELS)
    ids = loaded.tokenizer.tokenize(LABELS, end=True).to_tensor(1, shape=(None, 12))
    pixels = loaded.preprocessing.normalize(loaded.preprocessing.resize(tf.constant(PICTURE))[None])
    assert pixels.shape == (1, 18, 18, 3)  # of which a patch of 16 is seen
    model = loaded.model
    expected = np.asarray(model.probabilities(model({"images": pixels, "ids": ids})))[0]
    np.testing.assert_allclose(list(found["probabilities"].values()), expected, atol=1e-6)
    assert found["labels"] == [LABELS[i] for i in range(2) if expected[i] >= 0.5]
    assert json.loads((folder / "config.json").read_text())["vision_config"]["image_size"] == 18


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vision_config": {"vision_use_head": False}}, "`vision_use_head` must be True"),
        ({"vision_config": {"image_size": 9}}, "`image_size` must be at least `patch_size`=16"),
        ({"text_config": {"pad_token_id": -1}}, "`pad_token_id` must be an integer, 0 or more"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(folder, tmp_path, changes, message):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    edit(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        pretrained.load(tmp_path)


def test_a_model_that_siglip_cannot_say_is_not_written(tmp_path):
    from tests.models.test_dual_encoder import by_sigmoid, by_softmax

    with pytest.raises(ValueError, match="a part with `units`. Received: EndPooling in its"):
        pretrained.save(by_softmax(), tmp_path, family="siglip")
    with pytest.raises(ValueError, match="must have as fill_id an integer, 0 or more. Received: N"):
        pretrained.save(by_sigmoid(), tmp_path, family="siglip")
    with pytest.raises(ValueError, match="pooling.kind=AttentionPooling. Received: 'token'"):
        pretrained.save(by_sigmoid(fill_id=1), tmp_path, family="siglip")
