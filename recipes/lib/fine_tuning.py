"""Fine-tuning: runs that start from other weights, adapters, training by depth, and publishing."""

import functools
import json
import math
import pathlib

from keras_transformers import pretrained, saving
from keras_transformers.models.image_model import ImageModel
from keras_transformers.models.set_detector import SetDetector
from keras_transformers.precision import is_quantised
from keras_transformers.pretrained.folder import FAMILIES
from keras_transformers.text import WordPieceTokenizer
from keras_transformers.training import (
    GradualUnfreezing,
    adapters_of,
    add_lora,
    block_depths,
    merge,
    remove_lora,
)


def is_published(folder):
    """Returns True if `--pretrained` names a folder of published weights, False for one of a run.

    Raises:
        FileNotFoundError: If the folder is neither.
    """
    if folder is None or pathlib.Path(folder, "model.keras").is_file():
        return False
    if not pathlib.Path(folder, "config.json").is_file():
        raise FileNotFoundError(
            f"--pretrained: {folder} is neither the folder of a run, with model.keras, nor one of "
            "published weights, with config.json and model.safetensors."
        )
    return True


def positions(folder):
    """Returns the number of positions of the published model in a folder; None without a limit."""
    if not is_published(folder):
        return None
    settings = _config(folder)
    if settings.get("model_type") == "marian":
        return None
    number = settings.get("max_position_embeddings", settings.get("n_positions"))
    return number and number - _fixed(settings).get("first_position", 0)


def pooler_activation(folder):
    """Returns the activation before the classes in published classifiers of the model's type."""
    if not is_published(folder):
        return "tanh"
    return _fixed(_config(folder)).get("pooler_activation", "tanh")


def _config(folder):
    return json.loads(pathlib.Path(folder, "config.json").read_text(encoding="utf-8-sig"))


def _fixed(config):
    """Returns the settings that all models of a published type share, by our names."""
    family = FAMILIES.get(config.get("model_type"))
    return {} if family is None else family.configuration.fixed


def tokenizer_of(folder):
    """Loads the tokenizer of the encoder that `--pretrained` names: published, or of a run."""
    if is_published(folder):
        return pretrained.load_tokenizer(folder)
    if not pathlib.Path(folder, "config.json").is_file():
        raise FileNotFoundError(f"--pretrained: there is no {folder}/config.json")
    vocabulary = pathlib.Path(folder, "vocab.txt")
    return WordPieceTokenizer.load(vocabulary, _config(folder)["lower_case"])


def keep_tokenizer(tokenizer, folder):
    """Writes the tokenizer of an encoder into the folder of a run."""
    if isinstance(tokenizer, WordPieceTokenizer):
        folder.keep("vocab.txt", tokenizer.save)
    else:
        folder.keep(
            "tokenizer_config.json", lambda path: pretrained.save_tokenizer(tokenizer, path.parent)
        )


def start_from(folder, kind, called):
    """Loads the model that `--pretrained` names: of another run, or with published weights.

    Args:
        kind: The expected class.
        called: The name of such models, for the message.

    Raises:
        ValueError: If the model is of another class.
    """
    if is_published(folder):
        model = pretrained.load(folder)
    else:
        model = saving.load_model(pathlib.Path(folder, "model.keras"))
    if not isinstance(model, kind):
        raise ValueError(f"--pretrained: {folder} holds no {called}.")
    return model


def continued(options, channels, settings):
    """Loads the image classifier that `--pretrained` names, for another task; None without it.

    Args:
        options: The group `model` of a configuration: `pretrained`, a folder or None, and `freeze`,
            whether all but pooling and head stay as they are.
        channels: The number of channels of the images.
        settings: Constructor arguments that differ.

    Raises:
        ValueError: If the model takes other channels, or there is none to freeze.
    """
    folder = options.pretrained
    if folder is None:
        if options.freeze:
            raise ValueError("--freeze needs --pretrained: random weights are not worth keeping.")
        return None
    model = start_from(folder, ImageModel, "classifier of images")
    if model.channels != channels:
        raise ValueError(
            f"--pretrained: {folder} has learned from images of {model.channels} channels. "
            f"Received: images of {channels}"
        )
    model = model.transferred(**settings)
    if options.freeze:
        model.freeze()
    return model


def their_side(folder):
    """Returns the side of the images that a published model has learned from."""
    return pretrained.load_preprocessing(folder).image_size[0]


def publishing(folder, model, tokenizer=None, classes=None, preprocessing=None):
    """Returns a function that publishes a model which started from published weights.

    Args:
        folder: The folder of `--pretrained`, from which the model started.

    Returns:
        A function of the path; None if the model cannot be published.
    """
    if not is_published(folder) or is_quantised(model):  # published folders hold none
        return None
    return functools.partial(_publish, model, tokenizer, classes, preprocessing)


def _publish(model, tokenizer, classes, preprocessing, path):
    path = pretrained.save(model, path, classes, tokenizer=tokenizer)
    if preprocessing is not None:
        detection = isinstance(model, SetDetector) and _config(path)["model_type"]
        pretrained.save_preprocessing(preprocessing, path, detection)


def add_adapter(config, model, new=()):
    """Adds the adapter of `--lora` to a built model, and freezes all weights but those and `new`.

    Args:
        new: Parts of paths of weights that are new, and learn beside the adapter.
    """
    rank = config.run.lora
    paths = add_lora(model, rank, targets=config.run.lora_targets, train=new)
    trained = sum(math.prod(weight.shape) for weight in model.trainable_variables)
    print(f"{len(paths)} layers have adapters of rank {rank}; {trained:,} numbers are trained")


def merge_adapter(config, folder, model, name=None):
    """Writes a model's adapter, if it has one, and adds it to the kernels.

    The model that is scored and exported, and `model.keras`, then have no adapter. The model is not
    compiled, because its optimizer belonged to the adapter. An adapter beside quantised kernels
    stays, because their rounding would lose it.
    """
    if not adapters_of(model):
        return
    started_from = config.model.pretrained
    if is_published(started_from):
        with folder.exporting("adapter" if name is None else f"adapter-{name}") as path:
            pretrained.save_adapter(model, path, base=started_from)
    if is_quantised(model):
        return
    merge(model)
    remove_lora(model)
    best = folder / "model.keras"
    if name is None and best.is_file():  # it has the adapter beside the kernels
        model.save(best)


def check_depth_options(config):
    """Raises a ValueError if `layer_decay` or `unfreeze_every` is out of its range."""
    decay, every = _depth_options(config)
    if not 0 < decay <= 1 or (every is not None and every <= 0):
        raise ValueError(
            "--layer-decay must be in (0, 1], and --unfreeze-every positive. "
            f"Received: {decay}, {every}"
        )
    if (decay != 1 or every is not None) and config.model.pretrained is None:
        raise ValueError(
            "--layer-decay and --unfreeze-every need --pretrained: random weights must all learn."
        )
    if every is not None and config.run.lora is not None:
        raise ValueError("--unfreeze-every is for the weights that --lora leaves frozen; give one.")


def set_layer_depths(config, model, optimizer):
    """Sets the depths of layers on an optimizer, for `layer_decay` and `unfreeze_every`."""
    check_depth_options(config)
    decay, every = _depth_options(config)
    if decay != 1 or every is not None:
        optimizer.depths, optimizer.layer_decay = block_depths(model), decay


def unfreezing_callbacks(config, steps):
    """Returns the callbacks for `unfreeze_every`, with a number of batches an epoch."""
    _, every = _depth_options(config)
    if every is None:
        return []
    return [GradualUnfreezing(max(round(every * steps / (config.run.accumulate or 1)), 1))]


def _depth_options(config):
    """Returns `layer_decay` and `unfreeze_every`, which not every recipe has."""
    training = config.training
    return getattr(training, "layer_decay", 1.0), getattr(training, "unfreeze_every", None)
