"""Trimming: a model and its tokenizer without the pieces that some texts never need."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from keras import ops

from keras_transformers.core.types import Array
from keras_transformers.generation import Boundaries, Constraints
from keras_transformers.layers.adapters import is_altered
from keras_transformers.layers.base import has_output_first, output_first
from keras_transformers.models import LanguageModel, RecurrentTranslator, TextEncoder, Transformer
from keras_transformers.saving.untrusted_files import within

if TYPE_CHECKING:
    from keras_transformers.text.trimming import Tokenizer, TrimmedTokenizer

KINDS = (Transformer, RecurrentTranslator, LanguageModel, TextEncoder)
SIZES = ("vocab_size", "target_vocab_size")


@dataclasses.dataclass(frozen=True)
class TrimmedModel:
    """A model with a smaller vocabulary, and its tokenizer.

    Args:
        model, tokenizer: The new ones.
        kept: The ids that their ids had before, int32 `(new vocabulary,)`, increasing.

    Example: see `trim_vocabulary`.
    >>> from keras_transformers import pretrained
    >>> fields = pretrained.TrimmedModel.__dataclass_fields__
    >>> list(fields)
    ['model', 'tokenizer', 'kept']
    """

    model: Any
    tokenizer: Any
    kept: Array

    def search(self, search: Any) -> Any:
        """A search of the old model, `pretrained.load_search`'s for instance, for the new one.

        Ids that are banned and that the new vocabulary lacks are left out.

        Args:
            search: `Greedy`, `BeamSearch` or `Sampling`.

        Returns:
            The same with the ids of its `Constraints` renumbered.

        Raises:
            ValueError: If an id that must occur, or that begins or ends sequences, is not kept, or
                a search names its ids otherwise.

        Example:
        >>> import numpy as np
        >>> from keras_transformers.generation import Constraints, Greedy
        >>> from keras_transformers.pretrained import TrimmedModel
        >>> trimmed = TrimmedModel(None, None, np.array([0, 1, 2, 5]))
        >>> trimmed.search(Greedy(Constraints(banned=(4, 5)))).constraints.banned
        (3,)
        """
        if "constraints" not in getattr(type(search), "__dataclass_fields__", ()):
            raise ValueError(
                "TrimmedModel.search: `search` must be Greedy, BeamSearch or Sampling. "
                f"Received: {type(search).__name__}"
            )
        return dataclasses.replace(search, constraints=self._constraints(search.constraints))

    def _constraints(self, old: Constraints) -> Constraints:
        numbers = {int(each): i for i, each in enumerate(self.kept)}

        def new(name: str, number: int | None) -> Any:
            if number is not None and number not in numbers:
                raise ValueError(
                    f"TrimmedModel.search: `{name}` must be among the ids that are kept; name it "
                    f"in `also` to keep it. Received: {number}"
                )
            return None if number is None else numbers[number]

        sequences = [each if isinstance(each, tuple) else (each,) for each in old.banned]
        sequences = [each for each in sequences if all(token in numbers for token in each)]
        banned = [tuple(numbers[token] for token in each) for each in sequences]
        bounds = old.boundaries
        single = {
            "first": new("first", bounds.first),
            "last": new("last", bounds.last),
            "start": new("start", bounds.start),
        }
        boundaries = Boundaries(
            ends=tuple(new("ends", each) for each in bounds.ends),
            banned_first=tuple(numbers[each] for each in bounds.banned_first if each in numbers),
            **single,
        )
        return dataclasses.replace(
            old,
            banned=tuple(each if len(each) > 1 else each[0] for each in banned),
            required=tuple(new("required", each) for each in old.required),
            boundaries=boundaries,
        )


def trim_vocabulary(
    model: Any,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    targets: Iterable[str] = (),
    also: Iterable[int | str] = (),
    size: int | None = None,
) -> TrimmedModel:
    """A model and its tokenizer with the part of the vocabulary that some texts need.

    Ids of the tokenizer keep their order and get new numbers, and so do the rows of the tables of
    tokens, tied or not, and of biases of the output. Rows behind the tokenizer's ids, with which
    published tables are filled up, go. All other weights are the same.

    Of the same texts the model gets the same vectors, and gives kept ids the same logits. Greedy
    search writes the same wherever what it wrote consists of kept pieces. Log-probabilities are
    higher, since the pieces that are gone have no part in the sum: they are those that
    `Constraints(banned=..., renormalize=True)` makes of the old model. Of two beginnings one can
    gain more by that than the other, so that beams and samples may come out otherwise.

    Args:
        model: A built `Transformer`, `RecurrentTranslator`, `LanguageModel` or `TextEncoder`; it is
            left as it is. Optimizer and metrics are not taken over.
        tokenizer: Its tokenizer, of a kind that `text.trim_tokenizer` takes.
        texts, targets, also, size: As for `text.trim_tokenizer`.

    Returns:
        A `TrimmedModel`. `save`, `save_tokenizer` and exporters take its parts; its method `search`
        renumbers the ids of a search.

    Raises:
        ValueError: If the model is of another kind, quantised, not built, has adapters, or has
            fewer rows than the tokenizer ids; and as `text.trim_tokenizer`.

    Example:
    >>> from keras_transformers import pretrained
    >>> from keras_transformers.models import Transformer
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> lines = ["the cat sat on the mat", "кошка сидела на ковре"] * 20
    >>> tokenizer = SentencePieceTokenizer.train(lines, vocab_size=29)
    >>> model = Transformer.from_variant("tiny", 29)
    >>> model.build({"source": (None, None), "target": (None, None)})
    >>> trimmed = pretrained.trim_vocabulary(model, tokenizer, ["the cat sat"])
    >>> trimmed.model.source_embedding.vocab_size == trimmed.tokenizer.vocab_size < 29
    True
    """
    from keras_transformers.text.trimming import trim_tokenizer  # only who tokenizes needs it

    _check(model, tokenizer)
    trimmed = trim_tokenizer(tokenizer, texts, targets, also, size)
    return TrimmedModel(_smaller(model, trimmed), trimmed.tokenizer, trimmed.kept)


def _check(model: Any, tokenizer: Tokenizer) -> None:
    wrong = None
    if not isinstance(model, KINDS):
        wrong = f"be a {', '.join(kind.__name__ for kind in KINDS)}", type(model).__name__
    elif not model.built:
        wrong = "be built", "one without weights"
    elif any(layer.quantization_mode for layer in model._flatten_layers()):
        wrong = (
            "have weights in floating-point numbers; quantise the trimmed one",
            "a quantised one",
        )
    elif any(is_altered(layer) for layer in model._flatten_layers()):
        wrong = "have no adapters; `training.merge` adds them to its kernels", "one with adapters"
    elif min(_rows(model)) < tokenizer.vocab_size:
        rows = min(_rows(model))
        wrong = f"have a row for each of the {tokenizer.vocab_size} ids of `tokenizer`", f"{rows}"
    if wrong is not None:
        raise ValueError(f"trim_vocabulary: `model` must {wrong[0]}. Received: {wrong[1]}")


def _tables(model: Any) -> Sequence[Any]:
    """The layers that embed ids."""
    if isinstance(model, (LanguageModel, TextEncoder)):
        return (model.embedding,)
    return (model.source_embedding, model.target_embedding)


def _rows(model: Any) -> list[int]:
    return [each.vocab_size for each in _tables(model)]


def _smaller(model: Any, trimmed: TrimmedTokenizer) -> Any:
    """The model with the rows that are kept."""
    padding = model.padding_id
    if padding >= 0:
        (padding,) = trimmed.renumbered([padding])
    config = _resized(model.get_config(), len(trimmed.kept), padding)
    with within(model.count_params(), zeros=True), output_first(has_output_first(model)):
        new = type(model).from_config(config)
        new.build(_input_shape(model))
    for old, weight in zip(model.weights, new.weights, strict=True):
        same = old.shape == weight.shape
        weight.assign(old if same else ops.take(old, trimmed.kept, axis=0))
    new.published_as = getattr(model, "published_as", None)
    return new


def _input_shape(model: Any) -> Any:
    names = getattr(model, "needed_inputs", ())
    return {name: (None, None) for name in names} if len(names) > 1 else (None, None)


def _resized(config: Any, size: int, padding_id: int) -> Any:
    """A model's configuration with another size of the vocabulary and another id of padding."""
    if isinstance(config, (list, tuple)):
        return type(config)(_resized(each, size, padding_id) for each in config)
    if not isinstance(config, dict):
        return config
    changed = {name: _resized(value, size, padding_id) for name, value in config.items()}
    changed |= {name: size for name in SIZES if isinstance(config.get(name), int)}
    if isinstance(config.get("padding_id"), int):
        changed["padding_id"] = padding_id
    return changed
