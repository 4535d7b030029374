"""Claims about folders that are broken, or meant to harm: refused at once, in a sentence."""

import json
import pickle
import struct

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_transformers import pretrained
from keras_transformers.layers import GridRelativeBias, SelfAttention
from keras_transformers.models import MAE, LanguageModel, Swin, ViT


@pytest.fixture
def folder(tmp_path):
    """A small GPT-2."""
    model = LanguageModel.from_variant(
        "small", 31, hidden_dim=12, num_heads=3, mlp_dim=20, num_layers=1, padding_id=-1
    )
    model.build((None, None))
    return pretrained.save(model, tmp_path / "gpt2")


def edit(folder, **changes):
    """Changes `config.json`; None leaves a setting out."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "`model_type` must be one of marian, .*Received: 'mamba'"),
        ({"architectures": ["GPT2ForQuestions"]}, "`architectures` must have one of"),
        ({"n_embd": -3}, "`n_embd` must be a positive integer. Received: -3"),
        ({"n_embd": 10**9}, "n_embd=1000000000, the tensor transformer.wte.weight must have shape"),
        ({"n_layer": 5000}, "n_layer=5000 must be the number of layers"),
        ({"activation_function": "abs"}, "`activation_function` must be one of gelu"),
        ({"scale_attn_by_inverse_layer_idx": True}, "must be False for models of type gpt2"),
        (
            {"quantization_config": {"bits": 4}},
            "`quantization_config` must have as `quant_method` one of gptq, awq, .*Received: None",
        ),
        ({"n_head": 5}, "`num_heads` must divide `hidden_dim`=12"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_by_name(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(ValueError, match=message):
        pretrained.load(folder)


STAGES = {"image_size": 8, "patch_size": 2, "hidden_dim": 4, "num_layers": (1, 1, 1, 1)}
STAGES |= {"num_heads": (1, 1, 1, 1)}
SIZES = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 8, "num_layers": 1}


def picture_models():
    """A small ViT, autoencoder and Swin, which `save` knows."""
    vit = ViT(3, 8, 4, **SIZES)
    encoder = ViT(None, 8, 4, **SIZES)
    mae = MAE(encoder, decoder_dim=8, decoder_heads=2, decoder_layers=1)
    swin = Swin.from_variant("T", 3, **STAGES, window_size=2, mask_padding=False)
    for model in (vit, mae, swin):
        model.build((None, 8, 8, 3))
    return {"vit": vit, "mae": mae, "swin": swin}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("vit", {"image_size": 4 * 10**6}),
        ("vit", {"id2label": None, "num_labels": 10**6}),
        ("mae", {"decoder_hidden_size": 10**9}),
        ("mae", {"decoder_intermediate_size": 10**9}),
        ("swin", {"mlp_ratio": 1e8}),
    ],
)
def test_a_configuration_that_asks_for_all_memory_is_refused(name, changes, tmp_path):
    folder = pretrained.save(picture_models()[name], tmp_path / name)
    edit(folder, **changes)
    with pytest.raises(ValueError, match="a model larger than the file of its weights"):
        pretrained.load(folder)
    layer = keras.layers.Dense(2)  # the next model may be larger
    assert layer(np.zeros((1, 1000), "float32")).shape == (1, 2)


def test_windows_and_classes_have_limits(tmp_path):
    swin = pretrained.save(picture_models()["swin"], tmp_path)
    edit(swin, image_size=10**6, window_size=10**5)  # whose pairs of positions alone would fill it
    with pytest.raises(ValueError, match="`window_size` must be an integer from 1 to 64"):
        pretrained.load(swin)
    edit(swin, image_size=8, window_size=2, id2label=None, num_labels=10**9)
    with pytest.raises(ValueError, match="`num_labels` must be from 1 to 1048576"):
        pretrained.load(swin)


def beit():
    """A BEiT with relative positions, made by hand."""
    biases = ("query", "value", "output")
    mixer = SelfAttention(2, use_bias=biases, position=GridRelativeBias((2, 2), 1))
    options = {"positions": None, "pooling": "mean", "class_token": True, "layer_scale": 0.1}
    sizes = {"image_size": 8, "hidden_dim": 8, "mlp_dim": 8, "num_layers": 1, "num_heads": 2}
    model = ViT.from_variant("B/4", 3, **sizes, mixer=mixer, **options, norm_epsilon=1e-12)
    model.build((None, 8, 8, 3))
    return model


def test_a_grid_whose_pairs_are_numbered_has_a_limit(tmp_path):
    folder = pretrained.save(beit(), tmp_path)
    assert pretrained.load(folder).count_params() == beit().count_params()
    for side, message in ((10**7, "at most 64 patches. Received: 2500000"), ([8, 12], "a square")):
        edit(folder, image_size=side)
        with pytest.raises(ValueError, match=f"`image_size` must be .*{message}"):
            pretrained.load(folder)


def test_other_tasks_than_the_familys_are_refused(folder):
    with pytest.raises(ValueError, match="`task` must be None or one of language_model"):
        pretrained.load(folder, task="detection")


def test_a_folder_without_files_is_refused(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match="There is no file config.json"):
        pretrained.load(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="There is no file model.safetensors"):
        pretrained.load(folder)


class Harm:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_pickle_is_refused_and_never_executed(folder, name):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Harm()))
    with pytest.raises(ValueError, match="can execute|could execute"):
        pretrained.load(folder)


@pytest.mark.parametrize("kept", [0, 4, 8, 100, 1000, -1])
def test_a_cut_file_is_refused(folder, kept):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        pretrained.load(folder)


def header(entries, size=0):
    """A file of this header and `size` bytes behind it."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<Q", 1 << 60) + b"{}",
        header({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}),
        header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}, 8),
        header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}, 8),
        header({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, 8),
        header({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, 8),
        b"\x10\x00\x00\x00\x00\x00\x00\x00not JSON at all..",
    ],
)
def test_a_header_that_lies_is_refused(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        pretrained.load(folder)


@pytest.mark.parametrize(
    "file", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "b.bin", 3]
)
def test_a_shard_elsewhere_is_refused(folder, file):
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"transformer.wte.weight": file}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="must lie in a .safetensors file of the same folder"):
        pretrained.load(folder)


def tensors(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def test_shards_are_read_as_one_file(folder):
    found = tensors(folder)
    expected = pretrained.load(folder).get_weights()
    (folder / "model.safetensors").unlink()
    names = sorted(found)
    parts = {"one.safetensors": names[:5], "two.safetensors": names[5:]}
    for file, part in parts.items():
        save_file({name: found[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in parts.items() for name in part}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    for ours, theirs in zip(pretrained.load(folder).get_weights(), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    index.write_text(json.dumps({"weight_map": {**weight_map, "more": "two.safetensors"}}))
    with pytest.raises(ValueError, match="holds more, which it does not"):
        pretrained.load(folder)


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_other_floating_types_are_read(folder, dtype):
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    found = {name: value.astype(kind) for name, value in tensors(folder).items()}
    save_file(found, folder / "model.safetensors")
    model = pretrained.load(folder)
    table = found["transformer.wte.weight"].astype("float32")
    np.testing.assert_array_equal(model.token_embedding.get_weights()[0], table)


def test_a_missing_and_a_misshapen_tensor_are_named(folder):
    found = tensors(folder)
    name = "transformer.h.0.ln_2.bias"
    lacking = {key: value for key, value in found.items() if key != name}
    save_file(lacking, folder / "model.safetensors")
    with pytest.raises(ValueError, match=f"the tensor {name} is missing"):
        pretrained.load(folder)
    save_file({**found, name: np.zeros(13, "float32")}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=rf"{name} must have shape \(12,\).*Received: \(13,\)"):
        pretrained.load(folder)


def test_what_is_not_used_is_listed_and_tied_tables_must_agree(folder):
    found = tensors(folder)
    more = {"transformer.h.0.attn.bias": np.zeros((1, 1, 4, 4), "uint8")}
    more["lm_head.weight"] = found["transformer.wte.weight"]
    save_file({**found, **more}, folder / "model.safetensors")
    assert pretrained.load(folder).unused_tensors == ("transformer.h.0.attn.bias",)
    more["lm_head.weight"] = 2 * found["transformer.wte.weight"]
    save_file({**found, **more}, folder / "model.safetensors")
    with pytest.raises(ValueError, match="must be the same tensor"):
        pretrained.load(folder)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LanguageModel.from_variant("tiny", 31, padding_id=-1),
        lambda: ViT(3, image_size=8, patch_size=4, **SIZES),
    ],
)
def test_a_model_without_weights_is_not_written(make, tmp_path):
    with pytest.raises(ValueError, match="save: `model` must be built"):
        pretrained.save(make(), tmp_path)


def test_a_model_that_the_published_code_does_not_know_is_not_written(tmp_path):
    sizes = {"hidden_dim": 12, "num_heads": 3, "mlp_dim": 20, "num_layers": 1}
    model = LanguageModel.from_variant("small", 31, **sizes, style="modern")
    model.build((None, None))
    with pytest.raises(ValueError, match="models of type gpt2 must have as max_length a posi"):
        pretrained.save(model, tmp_path, family="gpt2")
