"""Claims about published folders in few bits, against what their formats say, bit by bit."""

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_transformers import pretrained, saving
from keras_transformers.models import LanguageModel
from tests.contract import assert_close, to_numpy
from tests.pretrained.test_bad_folders import edit
from tests.saving.test_changed_parts import assert_the_same

IDS = np.array([[1, 5, 7, 2, 9, 30], [3, 3, 8, 1, 2, 4]])
SIZE = 8  # inputs of a group
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": SIZE, "desc_act": True, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": SIZE, "version": "gemm", "zero_point": True}
WEIGHTS = {"num_bits": 4, "type": "int", "symmetric": True, "dynamic": False, "actorder": None}
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"]}


def compressed(**weights):
    group = {"weights": {**WEIGHTS, **weights}, "targets": ["Linear"], "input_activations": None}
    return {**PACKED, "config_groups": {"group_0": group}}


def bits(word, position):
    """The four bits at one of eight positions of an int32, the lowest first."""
    return (int(word) >> 4 * position) & 15


def gptq(rng, inputs, outputs, first=True):
    """Random tensors of a layer, and the matrix they stand for, `(outputs, inputs)`."""
    groups = inputs // SIZE
    tensors = {
        "qweight": rng.integers(-(2**31), 2**31, (inputs // 8, outputs), "int64").astype("int32"),
        # Without a stored 15, which the first format has no zero point for.
        "qzeros": (rng.integers(0, 2**28, (groups, outputs // 8)) & 0x77777777).astype("int32"),
        "scales": rng.uniform(0.01, 0.1, (groups, outputs)).astype("float16"),
        "g_idx": rng.permutation(np.arange(inputs) // SIZE).astype("int32"),
    }
    w = np.zeros((outputs, inputs))
    for n, k in np.ndindex(w.shape):
        g = tensors["g_idx"][k]
        zero = bits(tensors["qzeros"][g, n // 8], n % 8) + first
        w[n, k] = (bits(tensors["qweight"][k // 8, n], k % 8) - zero) * float(
            tensors["scales"][g, n]
        )
    return tensors, w


def gptq_v2(rng, inputs, outputs):
    return gptq(rng, inputs, outputs, first=False)


def awq(rng, inputs, outputs):
    groups, place = inputs // SIZE, [0, 4, 1, 5, 2, 6, 3, 7]  # of eight columns, in an int32
    words = [
        rng.integers(-(2**31), 2**31, (rows, outputs // 8), "int64").astype("int32")
        for rows in (inputs, groups)
    ]
    scales = rng.uniform(0.01, 0.1, (groups, outputs)).astype("float16")
    w = np.zeros((outputs, inputs))
    for n, k in np.ndindex(w.shape):
        q, zero = (
            bits(x[i, n // 8], place[n % 8]) for x, i in zip(words, (k, k // SIZE), strict=True)
        )
        w[n, k] = (q - zero) * float(scales[k // SIZE, n])
    return {"qweight": words[0], "qzeros": words[1], "scales": scales}, w


def pack_quantized(rng, inputs, outputs, size=SIZE):
    packed = rng.integers(-(2**31), 2**31, (outputs, inputs // 8), "int64").astype("int32")
    scale = rng.uniform(0.01, 0.1, (outputs, inputs // size)).astype("float32")
    w = np.zeros((outputs, inputs))
    for n, k in np.ndindex(w.shape):
        w[n, k] = (bits(packed[n, k // 8], k % 8) - 8) * float(scale[n, k // size])
    shape = np.array([outputs, inputs])
    return {"weight_packed": packed, "weight_scale": scale, "weight_shape": shape}, w


def by_channel(rng, inputs, outputs):
    return pack_quantized(rng, inputs, outputs, inputs)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    keras.utils.set_random_seed(0)
    sizes = {"hidden_dim": 16, "num_heads": 2, "num_key_value_heads": 1, "mlp_dim": 24}
    model = LanguageModel.from_variant(
        "small", 31, style="modern", num_layers=2, padding_id=-1, **sizes
    )
    model.build((None, None))
    return pretrained.save(model, tmp_path_factory.mktemp("llama"), family="llama")


def folders(llama, tmp_path, kind, config, packing):
    """The folder of a small model in few bits, and that of the same numbers in floats."""
    rng, whole = np.random.default_rng(0), load_file(llama / "model.safetensors")
    packed = {name: value for name, value in whole.items() if "_proj" not in name}
    for name in set(whole) - set(packed):
        found, matrix = packing(rng, *whole[name].shape[::-1])
        whole[name], start = matrix.astype("float32"), name.removesuffix("weight")
        packed |= {start + key: value for key, value in found.items()}
        if kind == "qwen2" and start.endswith(("q_proj.", "k_proj.", "v_proj.")):
            both = {f"{start}bias": rng.normal(size=len(matrix)).astype("float32")}
            whole |= both
            packed |= both
    for name, content in (("few", packed), ("whole", whole)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_bytes((llama / "config.json").read_bytes())
        save_file(content, tmp_path / name / "model.safetensors")
        if kind == "qwen2":
            of_llama = {"attention_bias": None, "mlp_bias": None}
            edit(tmp_path / name, model_type=kind, architectures=["Qwen2ForCausalLM"], **of_llama)
    edit(tmp_path / "few", quantization_config=config)
    return tmp_path / "few", tmp_path / "whole"


@pytest.mark.parametrize(
    ("kind", "config", "packing"),
    [
        ("llama", GPTQ, gptq),
        ("qwen2", {**GPTQ, "checkpoint_format": "gptq_v2"}, gptq_v2),
        ("llama", AWQ, awq),
        ("qwen2", AWQ, awq),
        ("llama", compressed(strategy="group", group_size=SIZE), pack_quantized),
        ("llama", compressed(strategy="channel", group_size=None), by_channel),
    ],
)
def test_four_bits_are_read_as_they_are(kind, config, packing, llama, tmp_path):
    few, whole = folders(llama, tmp_path, kind, config, packing)
    model, expected = pretrained.load(few), pretrained.load(whole)
    assert not model.unused_tensors
    kernels = [each for each in model.weights if each.path.endswith("kernel")]
    assert len(kernels) == 14 and {str(to_numpy(each).dtype) for each in kernels} == {"int8"}
    ours, theirs = to_numpy(model(IDS)), to_numpy(expected(IDS))
    assert_close(ours, theirs, 1e-5 * np.abs(theirs).max())
    if packing is gptq:
        model.save(tmp_path / "model.keras")
        assert_the_same(model, saving.load_model(tmp_path / "model.keras"), IDS)
        with pytest.raises(ValueError, match="save: `model` must have weights in floating-point"):
            pretrained.save(model, tmp_path / "again")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"load_in_4bit": True, "quant_method": "bitsandbytes"}, "one of gptq.*'bitsandbytes'"),
        ({"quant_method": "fp8"}, "floating-point numbers, and load those"),
        ("int4", "must be an object or null. Received: 'int4'"),
        ({**GPTQ, "bits": 3}, "of gptq must have `bits` 4. Received: 3"),
        ({"quant_method": "gptq"}, "must have `bits` 4. Received: None"),
        ({**GPTQ, "group_size": 0}, "`group_size` a positive integer, or -1"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "`checkpoint_format` 'gptq' or 'gptq_v2'"),
        ({**AWQ, "version": "gemv"}, "of awq must have `version` 'gemm'"),
        ({**PACKED, "format": "float-quantized"}, "must have `format` 'pack-quantized'"),
        ({**PACKED, "config_groups": {}}, "one group of `config_groups`"),
        (compressed(symmetric=False), "must have `symmetric` True. Received: False"),
        (compressed(actorder="weight"), "must have `actorder` None"),
        ({**GPTQ, "group_size": 16}, "tensor model.layers.0.mlp.down_proj.scales must be there"),
    ],
)
def test_other_bits_are_refused_by_name(config, message, llama, tmp_path):
    few, _ = folders(llama, tmp_path, "llama", config, gptq)
    with pytest.raises(ValueError, match=message):
        pretrained.load(few)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.layers.0.mlp.up_proj.qzeros", lambda x: x | 15, "zero points of 1 to 15"),
        ("model.layers.1.mlp.up_proj.g_idx", lambda x: x + 1, "numbers of 2 groups"),
        ("model.layers.0.mlp.up_proj.qweight", lambda x: x[:1], "must be there with shape"),
        ("model.layers.0.mlp.up_proj.qweight", lambda x: x.astype("int64"), "must be of int32"),
        ("lm_head.qweight", lambda x: np.zeros((2, 32), "int32"), "lm_head.scales must be there"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(name, change, message, llama, tmp_path):
    few, _ = folders(llama, tmp_path, "llama", GPTQ, gptq)
    tensors = load_file(few / "model.safetensors")
    save_file({**tensors, name: change(tensors.get(name))}, few / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        pretrained.load(few)
