"""SentencePiece's file of a model, read and written with fewer pieces."""

from collections.abc import Iterable

from keras_transformers.extras import needed_by
from keras_transformers.text.merge_steps import merge_steps

NORMAL, CONTROL, BYTE, UNKNOWN = 1, 3, 6, 2  # types of pieces in the file
BPE = 2
SPECIAL_IDS = ("unk_id", "bos_id", "eos_id", "pad_id")


class SentencePieceModel:
    """The pieces of a model, and the model without some of them.

    Args:
        proto: The bytes of the file.

    Attributes:
        normal: Dict of piece -> score of those that were learnt; bytes, marks and symbols of the
            user's are none of them.
        extremes: Two of these, of the least and of the greatest score. An unknown character costs
            10 more than the least, and a symbol of the user's is worth the greatest, so that
            without them other pieces would be chosen beside those.
    """

    def __init__(self, proto: bytes) -> None:
        with needed_by("a model of SentencePiece"):
            from sentencepiece import sentencepiece_model_pb2

        self._model = sentencepiece_model_pb2.ModelProto.FromString(proto)  # type: ignore[attr-defined]
        pieces = self._model.pieces
        self.normal: dict[str, float] = {p.piece: p.score for p in pieces if p.type == NORMAL}
        ordered = sorted(self.normal, key=self.normal.__getitem__)
        self.extremes = {*ordered[:1], *ordered[-1:]}
        apart = (UNKNOWN, CONTROL, BYTE)  # symbols of the user's are merged as others are
        self._merged = {p.piece: -p.score for p in pieces if p.type not in apart}

    def steps(self, pieces: Iterable[str]) -> set[str]:
        """What stands between pieces and their characters where pairs are merged; else nothing."""
        if self._model.trainer_spec.model_type != BPE:
            return set()

        def rank(pair: tuple[str, str]) -> float | None:
            return self._merged.get(pair[0] + pair[1])

        made = (merge_steps(piece, rank) for piece in pieces if piece in self.normal)
        return set[str]().union(*made)

    def without(self, dropped: set[str]) -> bytes:
        """The file without those of `dropped` that were learnt; the others keep their order."""
        model = type(self._model)()
        model.CopyFrom(self._model)
        model.DiscardUnknownFields()  # samples of cut texts, which SentencePiece tests itself by
        kept = [
            (i, piece)
            for i, piece in enumerate(self._model.pieces)
            if piece.type != NORMAL or piece.piece not in dropped
        ]
        del model.pieces[:]
        model.pieces.extend(piece for _, piece in kept)
        numbers = {old: new for new, (old, _) in enumerate(kept)}
        spec = model.trainer_spec
        spec.vocab_size = len(kept)
        for name in SPECIAL_IDS:
            if getattr(spec, name) in numbers:
                setattr(spec, name, numbers[getattr(spec, name)])
        return bytes(model.SerializeToString(deterministic=True))
