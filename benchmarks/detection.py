"""Tree crowns found after the same minutes: ours beside transformers' DETR of the same size.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.detection --minutes 20 --seeds 1 2 3

All learn from the same windows of the recipe's photographs, changed in the same ways, with the same
batches, for the same time on all cores, and are scored alike: the score of an answer is chosen on
the held-out tiles. The peer has as many blocks of the same widths; the frozen batch norms of its
backbone, which mean nothing without pretrained weights, are exchanged for the group norms that ours
has. Every run is a process of its own. Runs that `results/detection.json` has are not run again, so
that they can be spread over days; results say how long each took.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import tempfile
import time

import numpy as np

from benchmarks import alternating
from benchmarks.report import FOLDER, heading, write

OURS, LEARNED, PEER = "recipes.detr", "recipes.detr --queries learned", "transformers' DETR"
PEER_RATE = 1e-4  # of AdamW, as in the paper
SCORES = ("test_ap", "test_ap50", "test_precision", "test_recall")
SCORES += ("held_out_ap50", "held_out_precision", "held_out_recall")


def ours(minutes, seed, rate, **changes):
    """The recipe's metrics."""
    from recipes import detr
    from recipes.lib.options import configure

    with tempfile.TemporaryDirectory() as folder:
        rates = {} if rate is None else {"learning_rate": rate}
        given = {"output": folder, "minutes": minutes, "seed": seed, **rates, **changes}
        return detr.run(configure(detr.Config, **given))


def peer_model(config):
    """transformers' DETR with the sizes of the recipe's, for one class."""
    import torch
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    from keras_transformers.models import DETR

    of = config.model
    same = DETR.from_variant(of.size, 1, num_queries=of.num_queries)
    backbone, block = same.backbone.get_config(), same.encoder_blocks[0]
    widths = [backbone["hidden_dim"] * 2**i for i in range(len(backbone["num_layers"]))]
    model = DetrForObjectDetection(
        DetrConfig(
            use_timm_backbone=False,
            use_pretrained_backbone=False,
            backbone_config=ResNetConfig(
                embedding_size=backbone["hidden_dim"],
                hidden_sizes=widths,
                depths=backbone["num_layers"],
                layer_type="basic",
                out_features=[f"stage{len(widths)}"],
            ),
            num_queries=of.num_queries,
            d_model=same.get_config()["hidden_dim"],
            encoder_layers=len(same.encoder_blocks),
            decoder_layers=len(same.decoder_blocks),
            encoder_attention_heads=block.num_heads,
            decoder_attention_heads=block.num_heads,
            encoder_ffn_dim=block.mlp_dim,
            decoder_ffn_dim=block.mlp_dim,
            dropout=block.dropout,
            auxiliary_loss=True,
            num_labels=1,
        )
    )

    def exchange_norms(module):
        for name, child in module.named_children():
            if type(child).__name__ == "DetrFrozenBatchNorm2d":
                setattr(module, name, torch.nn.GroupNorm(8, len(child.weight)))
            else:
                exchange_norms(child)

    exchange_norms(model)
    return model


def peer(minutes, seed, rate):
    """The same scores of transformers' DETR."""
    import torch

    from keras_transformers.training import best_threshold, score_boxes
    from recipes import detr
    from recipes.lib.options import configure

    config = configure(detr.Config, seed=seed)
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(seed)
    classes, preprocessing, batches, _, valid, test = detr.load_data(config)
    model = peer_model(config)
    warmup_steps = config.training.warmup_steps
    steps, seconds = train_peer(model, batches(0), minutes, rate or PEER_RATE, warmup_steps)
    held_out, test = (predicted_by(model, part, preprocessing) for part in (valid, test))
    threshold = best_threshold(*held_out)
    found = {
        f"{name}_{key}": 100 * value
        for name, part in (("test", test), ("held_out", held_out))
        for key, value in dataclasses.asdict(score_boxes(*part, len(classes), threshold)).items()
    }
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {**found, "parameters": parameters, "steps": steps, "seconds": seconds}


def train_peer(model, batches, minutes, peak, warmup_steps):
    """Trains a DETR of transformers for some minutes: steps and seconds."""
    import torch

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, weight_decay=1e-4)
    started, step = time.perf_counter(), 0
    for inputs, targets in batches.as_numpy_iterator():  # an endless epoch
        spent = (time.perf_counter() - started) / (60 * minutes)
        if spent >= 1:
            break
        decayed = (1 + math.cos(math.pi * spent)) / 2
        for group in optimizer.param_groups:
            group["lr"] = peak * min((step + 1) / warmup_steps, decayed)
        loss = model(**_tensors(inputs), labels=_labels(targets)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        step += 1
        if step % 100 == 0:
            print(step, f"{spent:.2f}", f"{float(loss.detach()):.3f}", flush=True)
    model.eval()
    return step, time.perf_counter() - started


def _labels(targets):
    """A batch's true boxes as transformers takes them."""
    import torch

    return [
        {
            "class_labels": torch.tensor(labels[labels >= 0], dtype=torch.long),
            "boxes": torch.tensor(boxes[labels >= 0]),
        }
        for labels, boxes in zip(targets["labels"], targets["boxes"], strict=True)
    ]


def _tensors(inputs):
    import torch

    images = torch.tensor(inputs["images"]).permute(0, 3, 1, 2).contiguous()
    return {"pixel_values": images, "pixel_mask": torch.tensor(inputs["padding_mask"]).long()}


def predicted_by(model, corpus, preprocessing):
    """Answers and truths, as `score_boxes` takes them."""
    import torch

    from keras_transformers.detection import best_answers

    predicted = []
    for position in range(len(corpus)):
        pixels, mask, _ = (x.numpy() for x in preprocessing.frame(corpus.pixels(position)))
        images = np.asarray(preprocessing.normalize(pixels)) * mask[..., None]
        inputs = {"images": images[None].astype("float32"), "padding_mask": mask[None]}
        with torch.no_grad():
            found = model(**_tensors(inputs))
        answers = best_answers(found.logits.numpy(), found.pred_boxes.numpy())
        scale = np.tile(corpus.sizes[position][::-1], 2)
        predicted.append(
            {
                "boxes": np.asarray(answers["boxes"])[0] * scale,
                "scores": np.asarray(answers["scores"])[0],
                "labels": np.asarray(answers["labels"])[0],
            }
        )
    return predicted, corpus.truths()


CANDIDATES = {
    OURS: ours,
    LEARNED: lambda minutes, seed, rate: ours(minutes, seed, rate, queries="learned"),
    PEER: peer,
}


def summary(runs):
    """Mean and standard deviation of each candidate's seeds."""
    rows = {}
    for name, by_seed in runs.items():
        found = list(by_seed.values())
        rows[name] = {"seeds": len(found), "parameters": f"{found[0]['parameters']:,}"}
        for key in SCORES:
            values = [each[key] for each in found]
            spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
            rows[name][key] = f"{np.mean(values):.1f}{spread}"
        rows[name]["seconds"] = f"{np.mean([each['seconds'] for each in found]):,.0f}"
    return rows


def main(minutes, seeds, candidates):
    path = pathlib.Path(FOLDER, "detection.json")
    before = json.loads(path.read_text()) if path.is_file() else {}
    runs = before.get("runs", {}) if before.get("minutes") == minutes else {}
    for seed in seeds:
        for name in candidates:
            if str(seed) in runs.get(name, {}):
                continue
            arguments = ("--only", name, "--minutes", str(minutes), "--seeds", str(seed))
            found = alternating.fresh("benchmarks.detection", *arguments)
            runs.setdefault(name, {})[str(seed)] = found
            versions = heading("keras", "tensorflow", "torch", "transformers", "pycocotools")
            rows = summary(runs)
            write(
                "detection",
                {**versions, "minutes": minutes, "runs": runs},
                {f"{minutes:g} minutes": rows},
            )
            print(name, seed, {key: round(found[key], 1) for key in SCORES}, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--only", choices=CANDIDATES, help="one run, printed as JSON")
    parser.add_argument("--rate", type=float, help="learning rate of the one run")
    arguments = parser.parse_args()
    if arguments.only:
        found = CANDIDATES[arguments.only](arguments.minutes, arguments.seeds[0], arguments.rate)
        print(json.dumps(found))
    else:
        main(arguments.minutes, arguments.seeds, arguments.candidates)
