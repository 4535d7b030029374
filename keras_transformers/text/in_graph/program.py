"""A whole `tokenizer.json` as ops."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.text.added_tokens import AddedToken, AddedTokens
from keras_transformers.text.in_graph.decoding import Decoder
from keras_transformers.text.in_graph.models import model, unique
from keras_transformers.text.in_graph.normalizing import normalizer
from keras_transformers.text.in_graph.patterns import Inexpressible
from keras_transformers.text.in_graph.splitting import splitter

FLAGS = ("content", "normalized", "lstrip", "rstrip", "special", "single_word")


class Program:
    """Strings to ids and back in a graph.

    Args:
        definition: The content of `tokenizer.json`.
        names: The token of every id.
        special: Ids that vanish when ids are joined to strings.

    Raises:
        Inexpressible: If a part has no ops that give it exactly.
    """

    def __init__(
        self, definition: Mapping[str, Any], names: Sequence[str], special: Sequence[int]
    ) -> None:
        before = definition.get("pre_tokenizer")
        if before is not None and before.get("prepend_scheme") == "first":
            if definition.get("normalizer") is not None:
                raise Inexpressible("the pre-tokenizer Metaspace: behind a normaliser, first only")
        self._split = splitter(before)
        self._model = model(definition["model"], before)
        added = definition.get("added_tokens") or []
        tokens = [AddedToken(**{flag: token[flag] for flag in FLAGS}) for token in added]
        numbers = {token["content"]: token["id"] for token in added}
        self._added = AddedTokens(tokens, numbers, normalizer(definition.get("normalizer")))
        written = [self._added.written.get(name, name) for name in names]
        self._decoder = Decoder(definition.get("decoder"), written, special)

    def ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Ids of valid UTF-8 strings `(n,)`: an int32 RaggedTensor `(n, None)`."""
        return self._added.ids(strings, self._of_text)

    def _of_text(self, text: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
        return unique(self._split(text, first), self._model)

    def texts(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Strings `(n,)` of ragged ids `(n, None)`."""
        return self._decoder(ids)
