"""Makes pyramids.npz: what hierarchical models of others make of images.

    pip install torch==2.13.0 transformers timm
    python tests/golden/make_pyramids.py

Written by torch 2.13.0, transformers 5.23.0 and timm 1.0.31. (Where torchvision has no build for
the torch at hand, stand-ins for its modules must be imported before timm.) Neither weights nor
images are in the file: `tests.published` makes them from their names and shapes.
"""

import json
import pathlib
import sys

import numpy as np
import timm.models.mvitv2 as mvitv2
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.published import random_images, random_weights

# Every stage is divided by the windows at the first size, none at the second.
SIZES = {"swin": [(96, 96), (75, 98)], "pvt": [(64, 64), (75, 98)], "mvit": [(64, 64)]}
STAGES = {"embed_dim": 4, "depths": [2, 2, 2, 1], "num_heads": [1, 2, 2, 4], "image_size": 96}


def models():
    head = {"num_labels": 7}
    return {
        "swin": transformers.SwinForImageClassification(
            transformers.SwinConfig(window_size=3, **STAGES, **head)
        ),
        "swin2": transformers.Swinv2ForImageClassification(
            transformers.Swinv2Config(window_size=4, **STAGES, **head)
        ),
        "swin2_pretrained": transformers.Swinv2ForImageClassification(
            transformers.Swinv2Config(
                window_size=4, pretrained_window_sizes=[6, 6, 6, 6], **STAGES, **head
            )
        ),
        "pvt": transformers.PvtV2ForImageClassification(
            transformers.PvtV2Config(
                hidden_sizes=[4, 8, 12, 16],
                depths=[1, 2, 1, 1],
                num_attention_heads=[1, 2, 3, 4],
                mlp_ratios=[3, 3, 2, 2],
                **head,
            )
        ),
        "mvit": mvitv2.MultiScaleVit(
            mvitv2.MultiScaleVitCfg(depths=(1, 2, 2, 1), embed_dim=6, num_heads=1),
            img_size=64,
            num_classes=7,
        ),
    }


def main():
    arrays = {}
    for name, model in models().items():
        shapes = {key: list(value.shape) for key, value in model.named_parameters()}
        weights = random_weights(shapes)
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.copy_(torch.tensor(weights[key]))
            for size in SIZES[name.split("2")[0]]:
                images = torch.tensor(random_images(size)).permute(0, 3, 1, 2)
                result = model.eval()(images)
                logits = getattr(result, "logits", result).numpy()
                arrays[f"{name}/{size[0]}x{size[1]}/logits"] = logits
        arrays[f"{name}/shapes"] = np.array(json.dumps(shapes))
    np.savez_compressed(pathlib.Path(__file__).with_name("pyramids.npz"), **arrays)


if __name__ == "__main__":
    main()
