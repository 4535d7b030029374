"""What can be written for other runtimes than TensorFlow's too."""

import pathlib
from collections.abc import Sequence
from typing import Any

from keras_transformers.core.types import StrPath, Tokenizer
from keras_transformers.export.formats import Format, check_format, refuse_other_exports, write
from keras_transformers.export.programs import Program
from keras_transformers.export.served import Saving, Served


class Conversion(Saving, total=False):
    """Arguments of `Convertible.save`, besides the path."""

    format: Format


class Convertible(Served):
    """A `Served` whose arithmetic is also a program of tensors, see `_program`."""

    def _program(self) -> tuple[Program, dict[str, Any], Tokenizer | None]:
        """The program, what `preprocessing.json` says of its input, and the tokenizer if any."""
        raise NotImplementedError

    def save(
        self,
        path: StrPath,
        version: int | None = None,
        warmup: Sequence[Sequence[str | bytes]] = (),
        format: Format = "saved_model",
    ) -> pathlib.Path:
        """Writes a SavedModel, see `Served.save`, or a file for another runtime.

        Args:
            path: Folder to write.
            version, warmup: Of a SavedModel, see `Served.save`.
            format: "saved_model", or "litert" or "onnx": then tensors go in and out; see
                `keras_transformers.export.formats`.

        Returns:
            The folder of what was written, a `pathlib.Path`.
        """
        check_format(self.name, format, version, warmup)
        if format == "saved_model":
            return super().save(path, version, warmup)
        refuse_other_exports(self.name, pathlib.Path(path), format)
        program, settings, tokenizer = self._program()
        return write(program, format, path, settings, tokenizer)
