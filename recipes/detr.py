"""From pictures with boxes to a SavedModel that finds them, with the DETR of Carion et al. 2020.

    python -m recipes.detr                               # tree crowns in aerial photographs
    python -m recipes.detr --train a.json --valid b.json --test c.json --window None
    python -m recipes.detr --dataset tfds:coco/2017 --size R50 --window None --image-size 640

See https://arxiv.org/abs/2005.12872. Own files are in COCO's format, with their pictures beside
them, or in the folders that `--train-images`, `--valid-images` and `--test-images` name, as in COCO
itself. Large photographs are seen through windows; without `--window` every picture is seen whole.
The crowns are learned from two photographs of one forest; a sixth of their tiles is held out, to
watch training by and to choose the score of an answer on, and two photographs of other forests are
the test. Measured after 20 minutes on two cores of an Intel Xeon with AVX-512 (42 epochs): AP50
39.5 +- 4.3 on the held-out tiles, 16.7 +- 3.4 on other forests (seeds 1, 2, 3; `python -m
benchmarks.detection`).
"""

import dataclasses
import typing

import numpy as np
import tensorflow as tf

from keras_transformers.export import Detector
from keras_transformers.inspection import attention_maps
from keras_transformers.models import DETR
from keras_transformers.pretrained import load_preprocessing
from keras_transformers.training import AdamW, BudgetedDecay, Muon, best_threshold, score_boxes
from keras_transformers.vision import (
    BoxAugmentation,
    Preprocessing,
    evaluation_boxes,
    fitted,
    training_boxes,
)
from keras_transformers.visualization import (
    images_with_attention,
    images_with_boxes,
    training_curves,
)

from .command import RunConfig, begin, is_published, main, publish, start_from
from .data.boxes import load
from .devices import hand_over

ADAM_FOR = "embedding|stem_0|_head"  # what is no matrix from features to features


@dataclasses.dataclass(frozen=True)
class Config(RunConfig):
    """Every number of a run. The defaults suit two photographs and two CPU cores."""

    output: str = "runs/detr"
    pretrained: str | None = None  # folder of another run, or published, to go on from its model
    dataset: str = "tree-crowns"  # or tfds:NAME
    train: str | None = None  # own files in COCO's format
    valid: str | None = None
    test: str | None = None
    train_images: str | None = None  # folders of their pictures, if those are not beside the files
    valid_images: str | None = None
    test_images: str | None = None
    window: int | None = 200  # side of what is seen at once, in pixels of the photograph
    image_size: int = 208  # side of what the model gets; 13 x 13 places of 16 pixels
    size: typing.Literal["mini", "R50", "R101"] = "mini"
    queries: typing.Literal["learned", "anchors", "proposals"] = "proposals"
    num_queries: int = 40  # the most boxes in a window are some 30
    minutes: float | None = 20.0  # of training; the learning rate decays to reach 0 then
    epochs: int = 1000  # at most, however quick the machine; without minutes the decay ends there
    steps_per_epoch: int = 100
    batch_size: int = 8
    scale: float = 1.33  # windows are up to so much smaller or larger
    turn: bool = True  # photographs from above have no up
    colour: float = 0.3  # of each channel by itself: other light, other forests
    optimizer: typing.Literal["muon", "adamw"] = "muon"
    learning_rate: float = 2e-3  # the peak; 5e-4 suits AdamW
    weight_decay: float = 0.05
    warmup_steps: int = 100
    clip_norm: float | None = 1.0


SMOKE = {"epochs": 2, "minutes": None, "steps_per_epoch": 2, "batch_size": 2, "warmup_steps": 2}
SMOKE |= {"image_size": 112, "window": 400}
# What changes where not chosen, to go on from published weights, which have seen larger things.
TUNING = {"optimizer": "adamw", "learning_rate": 1e-4, "image_size": 416, "batch_size": 4}


def load_data(config):
    """Corpora, the preprocessing measured on them, and batches to train and to watch by."""
    images = {name: getattr(config, f"{name}_images") for name in ("train", "valid", "test")}
    data = load(config.dataset, config.train, config.valid, config.test, images=images)
    train, valid, test = data.train, data.valid, data.test
    if config.window:
        train = train.tiles(2 * config.window)  # so that windows lie everywhere
    if valid is None:
        train, valid = train.split(1 / 6, seed=0)
    if config.window:
        valid, test = valid.tiles(config.window), test.tiles(config.window)
    for part, corpus in (("train", train), ("held out", valid), ("test", test)):
        pictures = f"{len(corpus):,} {'tiles' if config.window else 'pictures'}"
        print(f"{part}: {corpus.number_of_boxes():,} boxes in {pictures}")
    if is_published(config.pretrained):  # which takes pictures as it has learned from them
        published = load_preprocessing(config.pretrained)
        preprocessing = Preprocessing(config.image_size, 3, published.mean, published.std)
    else:
        some = [fitted(train.pixels(i), config.image_size)[0] for i in range(min(len(train), 200))]
        preprocessing = Preprocessing.measured(np.stack(some), config.image_size)
    augmentation = BoxAugmentation(
        config.window, config.scale, turn=config.turn, colour=config.colour
    )

    def batches(epoch):
        options = (config.batch_size, config.num_queries, augmentation, config.seed, epoch)
        return training_boxes(train, preprocessing, *options)

    watched = evaluation_boxes(valid, preprocessing, config.batch_size, config.num_queries)
    return train.classes, preprocessing, batches, watched, valid, test


def build_model(config, num_classes):
    """The model, from scratch or from other weights, compiled."""
    if config.pretrained is None:
        model = DETR.from_variant(
            config.size, num_classes, queries=config.queries, num_queries=config.num_queries
        )
        model.build((None, config.image_size, config.image_size, 3))
    else:
        model = start_from(config.pretrained)
        if not isinstance(model, DETR):
            raise ValueError(f"--pretrained: {config.pretrained} holds no DETR.")
        model = model.transferred(num_classes=num_classes)
    kind, options = AdamW, {}
    if config.optimizer == "muon":
        kind, options = Muon, {"adam_for": ADAM_FOR, "steps": 4}
    optimizer = config.make_optimizer(kind, global_clipnorm=config.clip_norm, **options)
    model.compile(optimizer, jit_compile=config.jit_compile)
    model.optimizer.build(model.trainable_variables)
    return model


def train(config, folder, model, batches, watched):
    """Fits; returns the history."""
    decay = BudgetedDecay(
        config.learning_rate,
        config.warmup_steps,
        config.epochs * config.steps_per_epoch,
        config.minutes,
        decay="cosine",
    )
    return folder.fit(
        model,
        batches,
        config.steps_per_epoch,
        config.epochs,
        [decay, *folder.callbacks()],
        validation_data=watched,
    )


def predict(served, corpus, batch_size=64):
    """What the served model answers for every picture, and the truth, as `score_boxes` takes them.

    Tiles go in as PNG files, which lose nothing: what is scored is what is exported.
    """
    names = {name.encode(): number for number, name in enumerate(corpus.classes)}
    predicted = []
    for start in range(0, len(corpus), batch_size):
        pictures = [corpus.pixels(i) for i in range(start, min(start + batch_size, len(corpus)))]
        found = served(tf.stack([tf.io.encode_png(each) for each in pictures]))
        found = {name: value.numpy() for name, value in found.items()}
        for i in range(len(pictures)):
            labels = np.array([names[label] for label in found["label"][i]])
            predicted.append(
                {"boxes": found["boxes"][i], "scores": found["score"][i], "labels": labels}
            )
    truths = zip(corpus.boxes, corpus.labels, strict=True)
    return predicted, [{"boxes": boxes, "labels": labels} for boxes, labels in truths]


def run(config):
    """Trains, scores on held-out tiles and on the test set, exports; returns the metrics."""
    config, folder = begin(config, SMOKE, TUNING)
    classes, preprocessing, batches, watched, valid, test = load_data(config)
    folder.write_json("preprocessing.json", dataclasses.asdict(preprocessing))
    with config.making():
        model = build_model(config, len(classes))
    history = train(config, folder, model, batches, watched)
    model.save(folder / "model.keras")
    hand_over()

    held_out, of_held_out = predict(Detector(model, classes, preprocessing), valid)
    threshold = best_threshold(held_out, of_held_out)
    served = Detector(model, classes, preprocessing, threshold)
    found, truths = predict(served, test)
    scores = {
        "test": score_boxes(found, truths, len(classes), threshold),
        "held_out": score_boxes(held_out, of_held_out, len(classes), threshold),
    }
    metrics = {
        f"{part}_{name}": 100 * value if name != "threshold" else value
        for part, values in scores.items()
        for name, value in dataclasses.asdict(values).items()
        if (part, name) != ("held_out", "threshold")
    }
    metrics |= {
        "parameters": model.count_params(),
        "epochs": len(history["loss"]),
        "seconds_training_and_evaluation": folder.seconds(),
    }
    folder.write_metrics(metrics)
    with folder.exporting("saved_model") as path:
        served.save(path)
    if is_published(config.pretrained):
        with folder.exporting("published"):
            publish(folder, model, classes=classes, preprocessing=preprocessing)
    with folder.drawing("training_curves") as path:
        training_curves(history, path, ("loss",))
    with folder.drawing("test_boxes") as path:
        draw(path, test, found, threshold)
    with folder.drawing("held_out_boxes") as path:
        draw(path, valid, held_out, threshold)
    with folder.drawing("query_attention") as path:
        draw_attention(path, model, preprocessing, test)
    folder.end()
    folder.show_use(folder.write_example(np.asarray(test.pixels(0))), "len({})", len)
    return metrics


def draw(path, corpus, predicted, threshold):
    """Up to eight pictures with the boxes that were found (orange) and the true ones (blue)."""
    places = range(min(8, len(corpus)))
    sure = [predicted[i]["scores"] >= threshold for i in places]
    images_with_boxes(
        [corpus.pixels(i) for i in places],
        [
            (predicted[i]["boxes"][keep], predicted[i]["scores"][keep])
            for i, keep in zip(places, sure, strict=True)
        ],
        [corpus.boxes[i] for i in places],
        path,
        title="Found (orange, with their scores in percent) and true (blue)",
    )


def draw_attention(path, model, preprocessing, corpus):
    """Where the query that gives the surest box of a picture looks, for up to eight pictures."""
    side = preprocessing.image_size[0]
    fit = [fitted(corpus.pixels(i), side)[:2] for i in range(min(8, len(corpus)))]
    pixels, mask = (np.stack(each) for each in zip(*fit, strict=True))
    images = preprocessing.normalize(pixels) * mask[..., None].astype("float32")
    inputs = {"images": images, "padding_mask": mask}
    last = f"decoder_{model.get_config()['num_decoder_layers'] - 1}/cross_attention"
    (weights,) = attention_maps(model, inputs, match=last).values()
    found = model(inputs, training=False)
    # The last logit is that of "no object" where there is a softmax.
    softmax = model.criterion.classification == "softmax"
    logits = np.asarray(found["logits"])
    sure = -logits[..., -1] if softmax else logits.max(axis=-1)
    best, pictures = sure.argmax(axis=1), np.arange(len(sure))
    heat = weights.mean(axis=1)[pictures, best]  # (pictures, places)
    grid = int(np.sqrt(heat.shape[1]))
    boxes = np.asarray(found["boxes"])[pictures, best] * side
    titles = [f"box around ({x:.0f}, {y:.0f}), {w:.0f} x {h:.0f}" for x, y, w, h in boxes]
    images_with_attention(
        pixels / 255,
        heat.reshape(-1, grid, grid),
        titles,
        path,
        title="Where the query of the surest box looks (cross-attention, mean of the heads)",
    )


if __name__ == "__main__":
    main(run, Config, __doc__)
