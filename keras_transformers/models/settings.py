"""What models check of their settings, and how one takes over another's weights."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keras import ops

# What the logits of classes are for, as `transformers` calls it.
SINGLE, SEVERAL = "single_label_classification", "multi_label_classification"
PROBLEMS = (None, SINGLE, SEVERAL, "regression")
MULTIPLE = 8  # of which a gated network's width is one


def check_sizes(
    owner: str, settings: Mapping[str, Any], names: Sequence[str], optional: Sequence[str] = ()
) -> None:
    """Raises ValueError unless the settings of these names are positive integers.

    Args:
        owner: Name of the class, for the message.
        settings: Dict of all settings.
        names: Those that must be there.
        optional: Those that may be None.
    """
    for name in (*names, *(name for name in optional if settings[name] is not None)):
        whole = isinstance(settings[name], int) and settings[name] is not True
        if not (whole and settings[name] > 0):
            raise ValueError(
                f"{owner}: `{name}` must be a positive integer. Received: {settings[name]!r}"
            )


def check_divides(owner: str, settings: Mapping[str, Any], name: str, of: str) -> None:
    """Raises ValueError unless one setting divides another."""
    if settings[of] % settings[name]:
        raise ValueError(
            f"{owner}: `{name}` must divide `{of}`={settings[of]}. "
            f"Received: {name}={settings[name]}"
        )


def check_choice(owner: str, settings: Mapping[str, Any], name: str, known: Iterable[Any]) -> None:
    """Raises ValueError unless a setting is one of those known."""
    if settings[name] not in known:
        raise ValueError(
            f"{owner}: `{name}` must be one of {', '.join(map(str, known))}. "
            f"Received: {settings[name]!r}"
        )


def check_problem(owner: str, settings: Mapping[str, Any]) -> None:
    """Raises ValueError unless `problem_type` is known, and has classes enough."""
    check_choice(owner, settings, "problem_type", PROBLEMS)
    if settings["problem_type"] == SINGLE and settings["num_classes"] == 1:
        raise ValueError(
            f"{owner}: `num_classes` must be over 1 for problem_type={SINGLE!r}, which gives one "
            f"class the probability 1; use {SEVERAL!r}. Received: num_classes=1"
        )


def variant(
    owner: str, name: str, variants: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings of a published size, with changes.

    Where `style` is "modern", the gated feed-forward networks, which have three matrices, are two
    thirds as wide: as many parameters as in the paper, almost (Shazeer 2020,
    https://arxiv.org/abs/2002.05202, section 3).

    Raises:
        ValueError: If there is no such variant.
    """
    if name not in variants:
        raise ValueError(
            f"{owner}.from_variant: `name` must be one of {', '.join(variants)}. Received: {name!r}"
        )
    settings = dict(variants[name])
    if changes.get("style") == "modern":
        settings["mlp_dim"] = round(settings["mlp_dim"] * 2 / 3 / MULTIPLE) * MULTIPLE
    return {**settings, **changes}


def take_over(model: Any, source: Any, anew: Iterable[str] = ()) -> None:
    """Gives a built model the weights that another has under the same paths.

    A table of positions that was made for another grid is resized, by the `assign_resized` of the
    layer that has it.

    Args:
        model: The one that gets them.
        source: The one that has them.
        anew: Starts of the paths of weights that may differ in shape, or be missing, and then stay
            as they are.

    Raises:
        ValueError: If `source` is not built, or another weight is missing or of another shape.
    """
    if not source.built:
        raise ValueError(
            f"{type(source).__name__} '{source.name}': `transferred` must be called on a built "
            "model, which has weights: call the model, or `build`, before. Received: one without"
        )
    tables = _tables(source)
    resized = set()
    for path, table in _tables(model).items():
        if path in tables and tables[path].grid != table.grid:
            table.assign_resized(ops.convert_to_numpy(tables[path].weights[0]), tables[path].grid)
            resized.add(f"{path}/{table.weights[0].name}")
    mine = {_path_in(source, weight): weight for weight in source.weights}
    for weight in model.weights:
        path = _path_in(model, weight)
        found = mine.get(path)
        if path in resized:
            continue
        if found is not None and found.shape == weight.shape:
            weight.assign(found)
        elif not path.startswith(tuple(anew)):
            raise ValueError(
                f"{type(source).__name__} '{source.name}': `transferred` cannot take over {path} "
                f"of shape {None if found is None else tuple(found.shape)} as "
                f"{tuple(weight.shape)}"
            )


def _tables(model: Any) -> dict[str, Any]:
    """Path -> layer, of the layers with a table for a grid of positions."""
    layers = model._flatten_layers(include_self=False)
    return {
        _path_in(model, layer): layer
        for layer in layers
        if layer.weights and hasattr(layer, "assign_resized")
    }


def _path_in(model: Any, part: Any) -> str:
    """Path of a weight or a layer inside a model, which may itself be inside another."""
    return part.path.removeprefix(f"{model.path}/")
