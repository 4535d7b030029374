"""What a page asks of a predictor, and how it says what it was told."""

import pathlib

CUT = "The text is longer than the model reads: its {} was cut off."


def text_of(text, name="text"):
    """A text that is not empty.

    Raises:
        ValueError: If there is nothing but space.
    """
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"Type a {name} first.")
    return text


def cut(answer, part="end"):
    """A sentence on what of a text was not read, or ""."""
    return CUT.format(part) if answer.get("truncated") else ""


def missing_parts(predictor, *parts):
    """A sentence on what of "model", "tokenizer" and "preprocessing" is not there, or ""."""
    missing = [part for part in parts if part not in predictor.parts]
    if not missing:
        return ""
    named = {"model": "Keras model"}
    return (
        f"needs the {' and the '.join(named.get(part, part) for part in missing)}, which a "
        "SavedModel alone does not have: give the folder of the run."
    )


def most_probable(answer, number=5):
    """Dict of label -> probability of the most probable classes, best first."""
    ranked = sorted(answer["probabilities"].items(), key=lambda pair: -pair[1])
    return dict(ranked[:number])


def loading(folder):
    """A sentence that stands under the title until the model answers."""
    return f"`{pathlib.Path(folder)}`: The model is loading ..."


def described(predictor, folder):
    """What stands under the title: the folder, and the size of the model."""
    number = len(predictor.labels or ())
    classes = f", {number} class{'es' if number > 1 else ''}" if number else ""
    if "model" not in predictor.parts:
        return f"`{pathlib.Path(folder)}`{classes}"
    size = predictor.model.count_params()
    return f"`{pathlib.Path(folder)}`: {type(predictor.model).__name__}, {size:,} weights{classes}"
