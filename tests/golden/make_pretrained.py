"""Makes pretrained/: what published implementations compute with weights made from their names.

    pip install torch==2.13.0 transformers sentencepiece
    python tests/golden/make_pretrained.py [--published] [--only roberta]

Written by torch 2.13.0 and transformers 5.23.0, the cases of RoBERTa and of what came later by
5.24.0. For each case: the `config.json` and the names and shapes of the tensors that
`save_pretrained` writes, inputs, logits, losses, and what `generate` writes. A case can have `more`
tensors than those. Weights are not in the files: `tests.published` makes them from names and
shapes; each case has a file. With `--published` it makes pretrained/large/ instead, of the
published sizes; with `--only` it makes just the cases whose names begin so.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers as hf
from safetensors import safe_open
from safetensors.numpy import save_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.pretrained.cases import CASES, LARGE, images, pairs_of, sequences, sharpened, thinned
from tests.published import random_weights

HERE = pathlib.Path(__file__).parent


def published(case, folder):
    """The folder of a case, its weights made from their names, and the model that reads it."""
    config = getattr(hf, case["config_class"])(**case["config"])
    if "backbone_config" in case:
        config.backbone_config = hf.ResNetConfig(**case["backbone_config"])
    kind = getattr(hf, case["class"])
    kind(config).save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "numpy") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    stored |= {name: np.zeros(shape, "float32") for name, shape in case.get("more", {}).items()}
    floating = {k: list(v.shape) for k, v in stored.items() if v.dtype.kind == "f"}
    kept = {k for k in floating if k.endswith(case.get("kept", ()))}
    weights = sharpened(random_weights({k: v for k, v in floating.items() if k not in kept}))
    save_file({**stored, **weights}, folder / "model.safetensors", {"format": "pt"})
    shapes = {k: v for k, v in floating.items() if k not in kept}
    others = {k: v for k, v in stored.items() if k not in shapes}
    del stored, weights  # of large ones they are gigabytes
    model = kind.from_pretrained(folder, attn_implementation="eager").eval()
    # Of the large ones what is right, for a float32 result of theirs is as far from it as ours;
    # but their DETR knows float32 alone.
    double = case in LARGE.values() and case["run"] != "detr"
    return model.double() if double else model, shapes, others


def floats(model, array):
    """The array in the model's precision."""
    return torch.tensor(array, dtype=model.dtype)


def numpy(tensor):
    array = tensor.detach().numpy()
    return array.astype("float32") if array.dtype == "float64" else array


def run_text(model, case):
    ids, mask = sequences(case)
    inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    rng = np.random.default_rng(5)
    kind, found = case["class"], {"ids": ids, "mask": mask}
    if "ForMaskedLM" in kind:
        inputs["labels"] = torch.tensor(np.where(mask, ids, -100))
    if "ForSequence" in kind:
        inputs["labels"] = torch.tensor(rng.integers(0, 3, len(ids)))
        found["labels"] = numpy(inputs["labels"])
    if "ForToken" in kind:
        found["labels"] = rng.integers(0, 3, ids.shape)
        inputs["labels"] = torch.tensor(np.where(mask, found["labels"], -100))
    if "ForPreTraining" in kind:  # which tokens were replaced, one logit each
        found["labels"] = rng.integers(0, 2, ids.shape)
        inputs["labels"] = torch.tensor(found["labels"])
    result = model(**inputs)
    if "ForQuestion" in kind:
        ends = (result.start_logits, result.end_logits)
        return {**found, "logits": numpy(torch.stack(ends, 1))}
    found["logits"] = numpy(getattr(result, "logits", getattr(result, "last_hidden_state", None)))
    if "ForPreTraining" in kind:
        found["logits"] = found["logits"][..., None]
    if "labels" in inputs:
        found["loss"] = numpy(result.loss)
    return found


def run_gpt2(model, case):
    ids, mask = sequences(case)
    result = model(
        torch.tensor(ids),
        attention_mask=torch.tensor(mask),
        labels=torch.tensor(np.where(mask, ids, -100)),
    )
    found = {"ids": ids, "mask": mask, "logits": numpy(result.logits), "loss": numpy(result.loss)}
    if not case.get("generates", True):
        return found
    prompts = ids[:, :4]
    for name, beams in (("greedy", 1), ("beam", 4)):
        found[name] = generated(model, case, torch.tensor(prompts), beams)
    return found


def run_marian(model, case):
    ids, mask = sequences(case)
    targets, target_mask = sequences(case, seed=6)
    labels = torch.tensor(np.where(target_mask, targets, -100))
    start = np.full((len(targets), 1), model.config.decoder_start_token_id)
    shifted = torch.tensor(np.concatenate([start, targets[:, :-1]], axis=1))
    source = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    result = model(**source, decoder_input_ids=shifted, labels=labels)
    found = {"ids": ids, "targets": targets, "target_mask": target_mask}
    found |= {"logits": numpy(result.logits), "loss": numpy(result.loss)}
    for name, beams in (("greedy", 1), ("beam", 4)):
        found[name] = generated(model, case, source["input_ids"], beams, source["attention_mask"])
    return found


def generated(model, case, ids, beams, mask=None):
    """Ids that `generate` writes, as int32."""
    settings = hf.GenerationConfig(
        num_beams=beams,
        max_length=case["max_length"],
        do_sample=False,
        eos_token_id=case["end_id"],
        pad_token_id=model.config.pad_token_id or 0,
        decoder_start_token_id=getattr(model.config, "decoder_start_token_id", None),
    )
    model.generation_config.forced_eos_token_id = None  # it would stand at `max_length` only
    if mask is None:
        mask = torch.ones_like(ids)
    else:
        settings.bad_words_ids = [[model.config.pad_token_id]]
    with torch.no_grad():
        return numpy(model.generate(ids, attention_mask=mask, generation_config=settings)).astype(
            "int32"
        )


def run_images(model, case):
    pictures = images(case)
    x = floats(model, pictures).permute(0, 3, 1, 2)
    kind, found = case["class"], {}
    if "PreTraining" in kind:
        side = model.config.image_size // model.config.patch_size
        noise = np.random.default_rng(7).random((len(pictures), side**2)).astype("float32")
        result = model(x, noise=floats(model, noise))
        return {"noise": noise, "patches": numpy(result.logits), "loss": numpy(result.loss)}
    if "Segmentation" in kind:
        most = min(3, max(model.config.num_labels, 2))  # a single class is there or not
        pixels = np.random.default_rng(9).integers(0, most, (len(x), *x.shape[2:]))
        pixels[:, :9] = model.config.semantic_loss_ignore_index
        found = {"pixels": pixels.astype("uint8")}
        result = model(x, labels=torch.tensor(pixels))
        logits = numpy(result.logits.permute(0, 2, 3, 1))
        return {**found, "loss": numpy(result.loss), "logits": logits}
    if "Classification" in kind and "Teacher" not in kind:
        labels = np.arange(len(pictures)) % 3
        result = model(x, labels=torch.tensor(labels))
        found = {"labels": labels, "loss": numpy(result.loss)}
    else:
        result = model(x)
    if hasattr(result, "logits"):
        return {**found, "logits": numpy(result.logits)}
    if "Segformer" in kind:
        return {"logits": numpy(result.last_hidden_state.mean((2, 3)))}
    if "Swin" in kind or "Beit" in kind:
        return {"logits": numpy(result.pooler_output)}
    return {"logits": numpy(result.last_hidden_state[:, 0])}


def run_pairs(model, case):
    pictures, ids = pairs_of(case)
    x = floats(model, pictures).permute(0, 3, 1, 2)
    result = model(torch.tensor(ids), x)
    pairs = model(torch.tensor(ids[: len(x)]), x, return_loss=True)
    vectors = {"images": numpy(result.image_embeds), "texts": numpy(result.text_embeds)}
    return {**vectors, "logits": numpy(result.logits_per_image), "loss": numpy(pairs.loss)}


def run_detr(model, case):
    pictures = images(case)
    mask = np.ones(pictures.shape[:3], bool)
    mask[1, -17:] = mask[1, :, -20:] = False
    pictures = pictures * mask[..., None]
    rng = np.random.default_rng(8)
    boxes = rng.uniform(0.2, 0.5, (2, 3, 4)).astype("float32")
    labels = np.array([[1, 2, 0], [-1, -1, -1]])  # the second image has none
    targets = [
        {"class_labels": torch.tensor(one[one >= 0]), "boxes": floats(model, at[one >= 0])}
        for one, at in zip(labels, boxes, strict=True)
    ]
    x, real = floats(model, pictures).permute(0, 3, 1, 2), torch.tensor(mask).long()
    result = model(x, real, labels=targets)
    return {
        "mask": mask,
        "labels": labels,
        "true_boxes": boxes,
        "loss": numpy(result.loss),
        "logits": numpy(result.logits),
        "boxes": numpy(result.pred_boxes),
    }


RUN = {"text": run_text, "gpt2": run_gpt2, "marian": run_marian, "images": run_images}
RUN |= {"detr": run_detr, "pairs": run_pairs}


def main(cases, to, only):
    for key in (key for key in cases if key.startswith(only)):
        case, arrays = cases[key], {}
        with tempfile.TemporaryDirectory() as temporary, torch.no_grad():
            folder = pathlib.Path(temporary)
            model, shapes, others = published(case, folder)
            for part, value in RUN[case["run"]](model, case).items():
                arrays[part] = thinned(value)
            for part, value in others.items():
                if case.get("kept") and part.endswith(case["kept"]):
                    arrays[f"kept/{part}"] = value
            arrays["config"] = np.array((folder / "config.json").read_text())
            arrays["shapes"] = np.array(json.dumps(shapes))
            listed = {part: [list(v.shape), str(v.dtype)] for part, v in others.items()}
            arrays["others"] = np.array(json.dumps(listed))
        np.savez_compressed(HERE / to / f"{key}.npz", **arrays)
        print(key, flush=True)


if __name__ == "__main__":
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    if "--published" in sys.argv:
        main(LARGE, "pretrained/large", only)
    else:
        main(CASES, "pretrained", only)
