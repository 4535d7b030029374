"""Runs that go on from other weights, and publish what comes of them."""

import functools
import json
import pathlib

from keras_transformers import pretrained, saving
from keras_transformers.models.image_model import ImageModel
from keras_transformers.models.set_detector import SetDetector
from keras_transformers.precision import is_quantised
from keras_transformers.pretrained.folder import FAMILIES
from keras_transformers.text import WordPieceTokenizer


def is_published(folder):
    """Whether `--pretrained` names a folder of published weights, and not one of a run.

    Raises:
        FileNotFoundError: If it is neither.
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
    """How many positions the published model in a folder has; None where they have no end."""
    if not is_published(folder):
        return None
    theirs = _config(folder)
    if theirs.get("model_type") == "marian":
        return None
    most = theirs.get("max_position_embeddings", theirs.get("n_positions"))
    return most and most - _fixed(theirs).get("first_position", 0)


def pooler_activation(folder):
    """The activation before the classes that published classifiers of the model's type have."""
    if not is_published(folder):
        return "tanh"
    return _fixed(_config(folder)).get("pooler_activation", "tanh")


def _config(folder):
    return json.loads(pathlib.Path(folder, "config.json").read_text(encoding="utf-8-sig"))


def _fixed(config):
    """What all models of a published type have, by our words."""
    family = FAMILIES.get(config.get("model_type"))
    return {} if family is None else family.configuration.fixed


def tokenizer_of(folder):
    """The tokenizer of the encoder that `--pretrained` names: published, or of a run."""
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
    """The model that `--pretrained` names: of another run, or with published weights.

    Args:
        kind: Its class.
        called: What that is, for the message.

    Raises:
        ValueError: If it is another.
    """
    if is_published(folder):
        model = pretrained.load(folder)
    else:
        model = saving.load_model(pathlib.Path(folder, "model.keras"))
    if not isinstance(model, kind):
        raise ValueError(f"--pretrained: {folder} holds no {called}.")
    return model


def continued(of, channels, settings):
    """The classifier of images that `--pretrained` names, for another task; None without.

    Args:
        of: The group `model` of a configuration: `pretrained`, a folder or None, and `freeze`,
            whether all but pooling and head stay as they are.
        channels: Of the images to learn from.
        settings: Constructor arguments that differ.

    Raises:
        ValueError: If the model takes other channels, or there is none to freeze.
    """
    folder = of.pretrained
    if folder is None:
        if of.freeze:
            raise ValueError("--freeze needs --pretrained: random weights are not worth keeping.")
        return None
    model = start_from(folder, ImageModel, "classifier of images")
    if model.channels != channels:
        raise ValueError(
            f"--pretrained: {folder} has learned from images of {model.channels} channels. "
            f"Received: images of {channels}"
        )
    model = model.transferred(**settings)
    if of.freeze:
        model.freeze()
    return model


def their_side(folder):
    """The side of the images that a published model has learned from."""
    return pretrained.load_preprocessing(folder).image_size[0]


def publishing(folder, model, tokenizer=None, classes=None, preprocessing=None):
    """A function that writes a model which started from published weights as such.

    Args:
        folder: What the model started from, `--pretrained`.

    Returns:
        Function of the path; None where there is nothing to publish, as of quantised weights.
    """
    if not is_published(folder) or is_quantised(model):  # which no such folder holds
        return None
    return functools.partial(_publish, model, tokenizer, classes, preprocessing)


def _publish(model, tokenizer, classes, preprocessing, path):
    path = pretrained.save(model, path, classes, tokenizer=tokenizer)
    if preprocessing is not None:
        detection = isinstance(model, SetDetector) and _config(path)["model_type"]
        pretrained.save_preprocessing(preprocessing, path, detection)
