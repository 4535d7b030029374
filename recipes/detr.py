"""From images with boxes to a SavedModel that finds them, with the DETR of Carion et al. 2020.

    python -m recipes.detr                               # tree crowns in aerial photographs
    python -m recipes.detr --train a.json --valid b.json --test c.json --window None
    python -m recipes.detr --dataset tfds:coco/2017 --size R50 --window None --image-size 640

See https://arxiv.org/abs/2005.12872. Own files are in COCO's format, with their images beside
them, or in the folders that `--train-images`, `--valid-images` and `--test-images` name, as in COCO
itself. Large photographs are seen through windows; without `--window` every image is seen whole.
The crowns are learned from two photographs of one forest; a sixth of their tiles is held out, to
watch training by and to choose the score of an answer on, and two photographs of other forests are
the test. Measured after 20 minutes on two cores of an Intel Xeon with AVX-512 (42 epochs): AP50
39.5 +- 4.3 on the held-out tiles, 16.7 +- 3.4 on other forests (seeds 1, 2, 3; `python -m
benchmarks.detection`).
"""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import tensorflow as tf

from keras_transformers.detection import corner_boxes
from keras_transformers.export import Detector
from keras_transformers.inspection import attention_maps
from keras_transformers.models import DETR
from keras_transformers.models.set_detector import SetDetector
from keras_transformers.pretrained import load_preprocessing
from keras_transformers.training import AdamW, Muon, best_threshold, score_boxes
from keras_transformers.vision import (
    BoxAugmentation,
    Preprocessing,
    evaluation_boxes,
    fitted,
    training_boxes,
)
from keras_transformers.visualization import images_with_attention, images_with_boxes

from .data.boxes import load
from .lib import fine_tuning, training
from .lib.options import Run, main

ADAM_FOR = "embedding|stem_0|_head"  # what is no matrix from features to features


@dataclass(frozen=True)
class Data:
    """The images, and how they are cut and changed."""

    dataset: str = "tree-crowns"  # or tfds:NAME
    train: str | None = None  # own files in COCO's format
    valid: str | None = None  # the same, by which the best epoch is chosen
    test: str | None = None  # the same, scored at the end
    train_images: str | None = None  # folders of their images, if those are not beside the files
    valid_images: str | None = None  # the same for --valid
    test_images: str | None = None  # the same for --test
    window: int | None = 200  # side of what is seen at once, in pixels of the photograph
    image_size: int = 208  # side of what the model gets; 13 x 13 positions of 16 pixels
    scale: float = 1.33  # windows are up to so much smaller or larger
    turn: bool | None = None  # by 90 degrees; None: only the aerial photographs, which have no up
    colour: float = 0.3  # of each channel by itself: other light, other forests


@dataclass(frozen=True)
class Architecture:
    """The detector."""

    pretrained: str | None = None  # folder of another run, or published, to go on from its model
    size: Literal["mini", "R50", "R101"] = "mini"  # 1.3 million parameters
    queries: Literal["learned", "anchors", "proposals"] = "proposals"  # the encoder's best
    num_queries: int = 40  # the most boxes in a window are some 30


@dataclass(frozen=True)
class Training:
    """The length and speed of training."""

    minutes: float | None = 20.0  # of training; the learning rate decays to reach 0 then
    epochs: int = 1000  # at most, however quick the machine; without minutes the decay ends there
    steps_per_epoch: int = 100  # windows are drawn without end
    batch_size: int = 8  # windows
    optimizer: Literal["muon", "adamw"] = "muon"  # Muon for what is a matrix, see above
    learning_rate: float = 2e-3  # the peak; 5e-4 suits AdamW
    weight_decay: float = 0.05  # of matrices
    warmup_steps: int = 100  # one epoch
    decay: Literal["linear", "cosine"] = "cosine"  # to 0, over the budget
    clip_norm: float | None = 1.0  # of all gradients together


@dataclass(frozen=True)
class Config:
    """Every number of a run. The defaults suit two photographs and two CPU cores."""

    run: Run = Run("runs/detr")
    data: Data = Data()
    model: Architecture = Architecture()
    training: Training = Training()
    SMOKE: ClassVar = {
        "epochs": 2,
        "minutes": None,
        "steps_per_epoch": 2,
        "batch_size": 2,
        "warmup_steps": 2,
        "image_size": 112,
        "window": 400,
    }
    PUBLISHED: ClassVar = {  # to go on from published weights, which have seen larger things
        "optimizer": "adamw",
        "learning_rate": 1e-4,
        "image_size": 416,
        "batch_size": 4,
    }


def load_data(config):
    """Returns classes, preprocessing, batches for training and validation, and corpora to score."""
    options = config.data
    images = {
        "train": options.train_images,
        "valid": options.valid_images,
        "test": options.test_images,
    }
    data = load(options.dataset, options.train, options.valid, options.test, images=images)
    train, valid, test = data.train, data.valid, data.test
    if options.window:
        train = train.tiles(2 * options.window)  # so that windows lie everywhere
    if valid is None:
        train, valid = train.split(1 / 6, seed=0)
    if options.window:
        valid, test = valid.tiles(options.window), test.tiles(options.window)
    for part, corpus in (("train", train), ("held out", valid), ("test", test)):
        number = f"{len(corpus):,} {'tiles' if options.window else 'images'}"
        print(f"{part}: {corpus.number_of_boxes():,} boxes in {number}")
    if fine_tuning.is_published(
        config.model.pretrained
    ):  # it takes images as it has learned from them
        published = load_preprocessing(config.model.pretrained)
        preprocessing = dataclasses.replace(published, image_size=options.image_size, resized=None)
    else:
        some = [fitted(train.pixels(i), options.image_size)[0] for i in range(min(len(train), 200))]
        measured = Preprocessing.measured(np.stack(some), options.image_size)
        preprocessing = dataclasses.replace(measured, fit=True)
    turn = options.turn
    if turn is None:
        turn = options.train is None and options.dataset == "tree-crowns"
    augmentation = BoxAugmentation(options.window, options.scale, turn=turn, colour=options.colour)
    size, most_boxes, seed = config.training.batch_size, config.model.num_queries, config.run.seed

    def batches(epoch):
        return training_boxes(train, preprocessing, size, most_boxes, augmentation, seed, epoch)

    watched = evaluation_boxes(valid, preprocessing, size, most_boxes)
    return train.classes, preprocessing, batches, watched, valid, test


def build_model(config, num_classes):
    """Builds and compiles the model, from random or from other weights."""
    sizes, side = config.model, config.data.image_size
    if sizes.pretrained is None:
        model = DETR.from_variant(
            sizes.size, num_classes, queries=sizes.queries, num_queries=sizes.num_queries
        )
        model.build((None, side, side, 3))
    else:
        model = fine_tuning.start_from(sizes.pretrained, SetDetector, "DETR")
        model = model.transferred(num_classes=num_classes)
    kind, options = AdamW, {"global_clipnorm": config.training.clip_norm}
    if config.training.optimizer == "muon":
        kind, options = Muon, {"adam_for": ADAM_FOR, "steps": 4, **options}
    optimizer = training.make_optimizer(config, kind, **options)
    return training.compile_model(config, model, optimizer, new="heads")


def predict(served, corpus, batch_size=64):
    """Returns the answers of the served model and the true boxes, as `score_boxes` takes them.

    Tiles go in as PNG files, which lose nothing: what is scored is what is exported.
    """
    names = {name.encode(): number for number, name in enumerate(corpus.classes)}
    predicted = []
    for start in range(0, len(corpus), batch_size):
        pictures = [corpus.pixels(i) for i in range(start, min(start + batch_size, len(corpus)))]
        answers = served(tf.stack([tf.io.encode_png(pixels) for pixels in pictures]))
        answers = {name: value.numpy() for name, value in answers.items()}
        for i in range(len(pictures)):
            labels = np.array([names[label] for label in answers["label"][i]])
            predicted.append(
                {"boxes": answers["boxes"][i], "scores": answers["score"][i], "labels": labels}
            )
    return predicted, corpus.truths()


def score(model, classes, preprocessing, valid, test):
    """Scores the model on the tiles held out and on the test set.

    Returns:
        Metrics, what is served, with the threshold that is best on the tiles held out, and what was
        found on both sets.
    """
    held_out, of_held_out = predict(Detector(model, classes, preprocessing), valid)
    threshold = best_threshold(held_out, of_held_out)
    served = Detector(model, classes, preprocessing, threshold)
    predicted, truths = predict(served, test)
    scores = {
        "test": score_boxes(predicted, truths, len(classes), threshold),
        "held_out": score_boxes(held_out, of_held_out, len(classes), threshold),
    }
    metrics = {
        f"{part}_{name}": 100 * value if name != "threshold" else value
        for part, values in scores.items()
        for name, value in dataclasses.asdict(values).items()
        if (part, name) != ("held_out", "threshold")
    }
    metrics["test_examples"] = len(test.images)
    return metrics, served, predicted, held_out


def run(config):
    """Trains, scores on held-out tiles and on the test set, exports; returns the metrics."""
    folder = training.start_run(config)
    classes, preprocessing, batches, watched, valid, test = load_data(config)
    folder.write_json("preprocessing.json", dataclasses.asdict(preprocessing))
    with training.model_scope(config):
        model = build_model(config, len(classes))
    steps = config.training.steps_per_epoch
    history = training.fit(config, folder, model, batches, steps, validation_data=watched)
    model.save(folder / "model.keras")
    training.continue_on_tensorflow()
    metrics, served, predicted, held_out = score(model, classes, preprocessing, valid, test)
    threshold = metrics["test_threshold"]
    figures = {
        "test_boxes": partial(draw, test, predicted, threshold),
        "held_out_boxes": partial(draw, valid, held_out, threshold),
    }
    if isinstance(model, DETR):  # whose queries look at all positions of one map
        figures["query_attention"] = partial(draw_attention, model, preprocessing, test)
    return training.finish(
        folder,
        metrics,
        model=model,
        history=history,
        curves=("loss",),
        exports={
            "saved_model": served.save,
            "published": fine_tuning.publishing(
                config.model.pretrained, model, classes=classes, preprocessing=preprocessing
            ),
        },
        figures=figures,
        use=lambda: folder.show_use(
            folder.write_example(np.asarray(test.pixels(0))), "len({})", len
        ),
    )


def draw(corpus, predicted, threshold, path):
    """Draws up to eight images with the predicted boxes (orange) and the true ones (blue)."""
    positions = range(min(8, len(corpus)))
    sure = [predicted[i]["scores"] >= threshold for i in positions]
    images_with_boxes(
        [corpus.pixels(i) for i in positions],
        [
            (predicted[i]["boxes"][keep], predicted[i]["scores"][keep])
            for i, keep in zip(positions, sure, strict=True)
        ],
        [corpus.boxes[i] for i in positions],
        path,
    )


def draw_attention(model, preprocessing, corpus, path):
    """Draws the attention of the query of the surest box, for up to eight images."""
    framed = [preprocessing.frame(corpus.pixels(i)) for i in range(min(8, len(corpus)))]
    pixels, mask, inner = (np.stack(arrays) for arrays in zip(*framed, strict=True))
    images = preprocessing.normalize(pixels) * mask[..., None].astype("float32")
    inputs = {"images": images, "padding_mask": mask}
    last = f"{model.decoder_blocks[-1].name}/cross_attention"
    (weights,) = attention_maps(model, inputs, match=last).values()
    outputs = model(inputs, training=False)
    # The last logit is that of "no object" where there is a softmax.
    logits = outputs["logits"]
    if model.criterion.classification == "softmax":
        sure = 1 - tf.nn.softmax(logits).numpy()[..., -1]
    else:
        sure = tf.sigmoid(logits).numpy().max(axis=-1)
    best, pictures = sure.argmax(axis=1), np.arange(len(sure))
    heat = weights.mean(axis=1)[pictures, best]  # (images, positions)
    grid = int(np.sqrt(heat.shape[1]))
    boxes = np.asarray(corner_boxes(outputs["boxes"]))[pictures, best]
    boxes = boxes * np.tile(inner[:, ::-1], 2)  # in pixels of the frame
    titles = [f"score {score:.0%}" for score in sure[pictures, best]]
    images_with_attention(
        pixels / 255,
        heat.reshape(-1, grid, grid),
        titles,
        path,
        title="The surest box, and where its query looks (cross-attention, mean of the heads)",
        boxes=boxes,
    )


if __name__ == "__main__":
    main(run, Config, __doc__)
