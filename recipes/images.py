"""What the recipes that classify images share: numbers, data, training, scores and pictures."""

import dataclasses

import keras
import numpy as np

from keras_transformers.export import ImageClassifier
from keras_transformers.models.image_model import ImageModel
from keras_transformers.pretrained import load_preprocessing
from keras_transformers.training import (
    AdamW,
    BudgetedDecay,
    classification_accuracy,
    classification_loss,
)
from keras_transformers.vision import (
    Augmentation,
    Preprocessing,
    WaitingClock,
    evaluation_batches,
    training_batches,
)

from .command import LabelConfig, RunConfig, begin, is_published, publish, start_from
from .data.images import load
from .devices import hand_over
from .image_figures import draw
from .image_scores import score, write_tables

IN_MEMORY = 2**31  # bytes of pixels; what has more is read from its files in every epoch


@dataclasses.dataclass(frozen=True)
class ImageConfig(RunConfig):
    """The numbers of every run. The defaults suit some 10,000 small pictures and two CPU cores."""

    dataset: str = "fashion-mnist-12k"  # or tfds:NAME, a folder, an .npz file
    minutes: float | None = 10.0  # of training; the learning rate decays to reach 0 then
    epochs: int = 300  # at most, however quick the machine; without minutes the decay ends there
    batch_size: int = 128
    image_size: int = 32  # pictures of 28 pixels are enlarged
    crop: bool = True  # cut the middle out of pictures that are no squares, or squeeze them
    crop_padding: int = 2  # pixels of the random crop
    flip: bool = True
    rand_augment: int = 0  # operations on each picture; costs 25 ms for 128 pictures of 28 pixels
    erasing: float = 0.25  # share of pictures with a rectangle of noise
    mixup: float = 0.0
    cutmix: float = 0.0
    dropout: float = 0.0
    drop_path: float = 0.1
    label_smoothing: float = 0.1
    learning_rate: float = 1e-3  # the peak
    weight_decay: float = 0.05  # of kernels alone
    warmup_steps: int = 100
    clip_norm: float | None = 1.0  # of all gradients together
    ema: float | None = None  # momentum of averaged weights, which are then scored and saved


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(ImageConfig, LabelConfig):
    """The numbers of a run that trains a classifier and nothing else."""

    pretrained: str | None = None  # folder of another run, or published, to go on from its model
    freeze: bool = False  # with --pretrained: train pooling and head only


SMOKE = {"epochs": 2, "batch_size": 32, "warmup_steps": 5}


def tuning(config):
    """What changes where not chosen, to go on from published weights: their pictures' size, too."""
    folder = getattr(config, "pretrained", None)
    if not is_published(folder):
        return None
    side = load_preprocessing(folder).image_size[0]
    return {"image_size": side, "learning_rate": 1e-4, "batch_size": 32, "erasing": 0.0}


def load_data(config):
    """Corpora, the preprocessing measured on them, and batches to train and to watch by."""
    data = load(config.dataset, separator=getattr(config, "separator", None))
    if config.smoke:
        few = {name: getattr(data, name).split(0.03)[1] for name in ("train", "valid", "test")}
        data = dataclasses.replace(data, **few)
    for corpus in (data.train, data.valid, data.test):
        print(corpus.summary())
    check_augmentation(config, data.train)
    batch_size = batch_of(config, data.train)
    folder = getattr(config, "pretrained", None)
    if is_published(folder):  # which takes pictures as it has learned from them
        size = (config.image_size, config.image_size)
        preprocessing = dataclasses.replace(
            load_preprocessing(folder), image_size=size, resized=None, crop=config.crop
        )
    else:
        rough = Preprocessing(config.image_size, data.train.channels, crop=config.crop)
        pixels = data.train.sample(2000).decoded(rough).images
        preprocessing = Preprocessing.measured(pixels, config.image_size, config.crop)
    nbytes = config.image_size**2 * preprocessing.channels
    corpora = {name: getattr(data, name) for name in ("train", "valid", "test")}
    if sum(map(len, corpora.values())) * nbytes < IN_MEMORY:
        corpora = {name: corpus.decoded(preprocessing) for name, corpus in corpora.items()}
        data = dataclasses.replace(data, **corpora)
    augment = augmentation(config, config.seed)

    def batches(epoch):
        return training_batches(
            data.train, preprocessing, batch_size, augment, config.seed, epoch
        )

    return data, preprocessing, batches, evaluation_batches(data.valid, preprocessing, 500)


def batch_of(config, corpus):
    """Images in a batch of training: all of them, where they are fewer than a batch."""
    return min(config.batch_size, len(corpus))


def check_augmentation(config, corpus):
    """ValueError if colours are to be changed where there are none."""
    if config.rand_augment and corpus.channels not in (1, 3):
        raise ValueError(
            f"--rand-augment changes colours, and {corpus.name} has {corpus.channels} channels."
        )


def augmentation(config, seed):
    """What is done to pictures to train by."""
    return Augmentation(
        config.crop_padding,
        config.flip,
        config.rand_augment,
        erasing=config.erasing,
        mixup=config.mixup,
        cutmix=config.cutmix,
        seed=seed,
    )


def prepared(config, num_classes, channels, from_scratch):
    """A model, from scratch or from another run, compiled.

    Args:
        config: A `ClassifierConfig`.
        num_classes, channels: What the data have.
        from_scratch: Function of settings that makes the model where there is no other run.
    """
    settings = {"dropout": config.dropout, "drop_path": config.drop_path}
    settings |= {"num_classes": num_classes, "image_size": config.image_size}
    settings["problem_type"] = config.problem_type
    if config.freeze and config.pretrained is None:
        raise ValueError("--freeze needs --pretrained: random weights are not worth keeping.")
    if config.pretrained is None:
        model = from_scratch(**settings)
        model.build((None, config.image_size, config.image_size, channels))
    else:
        model = start_from(config.pretrained)
        if not isinstance(model, ImageModel):
            raise ValueError(f"--pretrained: {config.pretrained} holds no classifier of pictures.")
        if model.channels != channels:
            raise ValueError(
                f"--pretrained: {config.pretrained} has learned from pictures of {model.channels} "
                f"channels. Received: pictures of {channels}"
            )
        model = model.transferred(**settings)
        if config.freeze:
            model.freeze()
    return classifier(config, model)


def classifier(config, model):
    """Compiles a model for labelled images, and builds it with its optimizer."""
    model.compile(
        config.make_optimizer(
            AdamW,
            beta_2=0.98,
            global_clipnorm=config.clip_norm,
            use_ema=config.ema is not None,
            ema_momentum=config.ema or 0.99,
        ),
        classification_loss(model.problem_type, config.label_smoothing),
        metrics=[classification_accuracy(model.problem_type)],
        jit_compile=config.jit_compile,
    )
    # Now, or Keras makes the optimizer's variables inside the first step and traces it again.
    model.optimizer.build(model.trainable_variables)
    return model


def train(config, folder, data, model, batches, valid):
    """Fits; returns the history and what was measured on the way."""
    clock = WaitingClock()
    batch_size = batch_of(config, data.train)
    steps = len(data.train) // batch_size
    decay = BudgetedDecay(
        config.learning_rate,
        config.warmup_steps,
        config.epochs * steps,
        config.minutes,
        decay="cosine",
    )
    history = folder.fit(
        model,
        batches,
        steps,
        config.epochs,
        [
            decay,
            *([keras.callbacks.SwapEMAWeights()] if config.ema else []),
            *folder.callbacks(),
        ],
        watch=clock.watch,
        validation_data=valid,
    )
    seconds = history["seconds"]
    epoch = np.median(np.diff(seconds)) if len(seconds) > 1 else seconds[0]
    return history, {
        "share_of_time_waiting_for_data": float(clock.seconds.numpy()) / seconds[-1],
        "images_per_second": float(steps * batch_size / epoch),
    }


def run(config, smoke, build_model, attention, draw_more=None):
    """Trains, scores on the test set, exports; returns the metrics.

    Args:
        config: A `ClassifierConfig`.
        smoke: What differs under `--smoke`.
        build_model: Function of the configuration and the numbers of classes and channels.
        attention: See `image_figures.draw`.
        draw_more: Optional function of folder, model and preprocessing.
    """
    config, folder = begin(config, smoke, tuning(config))
    data, preprocessing, batches, valid = load_data(config)
    folder.write_json("preprocessing.json", dataclasses.asdict(preprocessing))
    classes = data.train.classes
    with config.making():
        model = build_model(config, len(classes), preprocessing.channels)
    history, measured = train(config, folder, data, model, batches, valid)
    model.save(folder / "model.keras")
    hand_over()

    served = ImageClassifier(model, classes, preprocessing)
    probabilities = served.probabilities(data.test)
    scores, numbers = score(probabilities, data.test)
    last = history["val_accuracy"][-1]
    metrics = {
        **numbers,
        **({"valid_accuracy": last} if config.several else {"valid_top1": 100 * last}),
        **measured,
        "parameters": model.count_params(),
        "epochs": len(history["loss"]),
        "seconds_training_and_evaluation": folder.seconds(),
    }
    for row in scores.table:
        print("  {class:20} precision {precision:.3f}  recall {recall:.3f}".format(**row))
    folder.write_metrics(metrics)
    write_tables(folder, scores, probabilities, data.test)
    with folder.exporting("saved_model") as path:
        served.save(path)
    if is_published(config.pretrained):
        with folder.exporting("published"):
            publish(folder, model, classes=classes, preprocessing=preprocessing)
    draw(folder, history, model, preprocessing, data.test, probabilities, scores, attention)
    if draw_more:
        draw_more(folder, model, preprocessing)
    folder.end()
    show_use(folder, data.test, preprocessing)
    return metrics


def show_use(folder, corpus, preprocessing):
    """Writes the first picture of a corpus, and prints how its class or labels are asked for."""
    picture = corpus.select([0]).decoded(preprocessing).images[0]
    wanted = "labels" if corpus.several else "label"
    example = folder.write_example(picture)
    folder.show_use(example, f'{{}}["{wanted}"]', lambda answer: answer[wanted])
