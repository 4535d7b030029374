"""From the flat settings of a detector's published size to the parts of its constructor."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformers.models.detr_backbone import residual_network
from keras_transformers.models.settings import check_changes, check_choice, refuse_beside, variant


def parts_of_variant(
    owner: str,
    name: str,
    changes: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    options: type,
    flat: Mapping[str, Sequence[str]],
    queries: Mapping[str, Any],
    maps: type,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A published size with changes, as parts but for the blocks.

    Args:
        owner: Name of the model's class.
        name: Of the size.
        changes: Flat settings, or parts.
        variants: The sizes.
        options: The `TypedDict` of the changes that there are.
        flat: Part -> names of the numbers that it takes the place of.
        queries: Name -> function from a number to the queries.
        maps: Class of the part that reads the backbone.

    Returns:
        Constructor arguments, and the numbers that blocks are made of; None where these are given.

    Raises:
        ValueError: If there is no such size or kind of queries, or the changes have both a part and
            numbers that make it.
    """
    check_changes(owner, changes, options)
    settings = variant(owner, name, variants, changes)
    whole = {
        "backbone": isinstance(settings["backbone"], maps | dict),
        "num_layers": settings.get("num_layers") is not None,
        "queries": not isinstance(settings["queries"], str),
        "blocks": settings.get("blocks") is not None,
    }
    numbers = {part: {each: settings.pop(each) for each in names} for part, names in flat.items()}
    for part in (part for part in flat if whole[part]):
        beside = {each: changes.get(each) for each in flat[part]}
        refuse_beside(f"{owner}.from_variant", part, **beside)
    if not whole["backbone"]:
        backbone = settings["backbone"]
        if isinstance(backbone, str):
            backbone = residual_network(backbone, changes.get("dtype"))
        settings["backbone"] = maps(backbone, **numbers["backbone"])
    if not whole["num_layers"]:
        settings["num_layers"] = tuple(numbers["num_layers"].values())
    if not whole["queries"]:
        check_choice(owner, settings, "queries", queries)
        settings["queries"] = queries[settings["queries"]](numbers["queries"]["num_queries"])
    return settings, None if whole["blocks"] else numbers["blocks"]
