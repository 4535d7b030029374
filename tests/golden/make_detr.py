"""Makes detr.npz: what DETR of transformers finds in images of three sizes, and its loss.

    pip install torch==2.13.0 transformers scipy
    python tests/golden/make_detr.py

Written by torch 2.13.0 and transformers 5.23.0. Neither weights nor images are in the file:
`tests.published` makes them from names, shapes and sizes.

With `auxiliary_loss` that version hands the normed output of a decoder layer to the next one,
which the authors' code does not; so here the heads read the layers' own outputs, as there.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.published import random_images, random_weights

SIZE = (96, 160)
SIZES = ((96, 130), (65, 160), (50, 70))  # of the images in their frames
NUMBERS = (3, 0, 2)  # of boxes in each
SHARPER = ("q_proj.weight", "k_proj.weight", "query_position_embeddings.weight")


def make_model():
    """A small DETR with weights made from their names, and the weights' shapes."""
    backbone = transformers.ResNetConfig(
        embedding_size=4,
        hidden_sizes=[16, 32, 64, 128],
        depths=[1, 2, 1, 1],
        out_features=["stage4"],
    )
    config = transformers.DetrConfig(
        backbone_config=backbone,
        num_labels=5,
        num_queries=7,
        d_model=24,
        encoder_layers=2,
        encoder_attention_heads=3,
        encoder_ffn_dim=20,
        decoder_layers=2,
        decoder_attention_heads=3,
        decoder_ffn_dim=20,
    )
    model = transformers.DetrForObjectDetection(config).eval()
    shapes = {
        key: list(value.shape)
        for key, value in model.state_dict().items()
        if "num_batches_tracked" not in key
    }
    weights = random_weights(shapes)
    for key in weights:  # or every query would find the same in every image
        weights[key] *= 3 if key.endswith(SHARPER) else 1
    model.load_state_dict({key: torch.tensor(value) for key, value in weights.items()}, False)
    return model, shapes


def make_images():
    """Images of three sizes in frames of one, and which pixels are real."""
    mask = np.zeros((len(SIZES), *SIZE), bool)
    for one, (height, width) in zip(mask, SIZES, strict=True):
        one[:height, :width] = True
    return 5 * random_images(SIZE, len(SIZES)) * mask[..., None], mask


def make_targets():
    """Labels and boxes, -1 and 0 where an image has fewer."""
    rng = np.random.default_rng(5)
    labels = np.full((len(SIZES), max(NUMBERS)), -1)
    boxes = np.zeros((*labels.shape, 4), "float32")
    for i, number in enumerate(NUMBERS):
        labels[i, :number] = rng.integers(0, 5, number)
        boxes[i, :number] = rng.uniform(0.2, 0.5, (number, 4))
    return labels, boxes


def losses_and_outputs(model, images, mask, labels, true_boxes):
    """Arrays of the golden file, by name."""
    targets = [
        {"class_labels": torch.tensor(own[:number]), "boxes": torch.tensor(boxes[:number])}
        for own, boxes, number in zip(labels, true_boxes, NUMBERS, strict=True)
    ]
    outputs = []
    for layer in model.model.decoder.layers:
        layer.register_forward_hook(lambda _, __, output: outputs.append(output))
    result = model(images, mask)
    normed = [model.model.decoder.layernorm(output) for output in outputs]
    logits = torch.stack([model.class_labels_classifier(y) for y in normed])
    boxes = torch.stack([model.bbox_predictor(y).sigmoid() for y in normed])
    model.config.auxiliary_loss = True
    loss, _, auxiliary = ForObjectDetectionLoss(
        result.logits, targets, "cpu", result.pred_boxes, model.config, logits, boxes
    )
    model.config.auxiliary_loss = False
    alone = model(images)  # every pixel being real
    assert len(auxiliary) == 1 and torch.equal(logits[-1], result.logits)
    return {
        "logits": result.logits.numpy(),
        "boxes": result.pred_boxes.numpy(),
        "auxiliary_logits": logits[:-1].movedim(0, 1).numpy(),
        "auxiliary_boxes": boxes[:-1].movedim(0, 1).numpy(),
        "loss": loss.numpy(),
        "unmasked_logits": alone.logits.numpy(),
        "unmasked_boxes": alone.pred_boxes.numpy(),
    }


def main():
    model, shapes = make_model()
    images, mask = make_images()
    labels, true_boxes = make_targets()
    with torch.no_grad():
        found = losses_and_outputs(
            model,
            torch.tensor(images).permute(0, 3, 1, 2),
            torch.tensor(mask).long(),
            labels,
            true_boxes,
        )
    np.savez_compressed(
        pathlib.Path(__file__).with_name("detr.npz"),
        sizes=np.array(SIZES),
        labels=labels,
        true_boxes=true_boxes,
        shapes=np.array(json.dumps(shapes)),
        **found,
    )


if __name__ == "__main__":
    main()
