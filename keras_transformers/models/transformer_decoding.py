"""How the encoder-decoder Transformer decodes: the source once, then token by token."""

from keras import ops

from keras_transformers.layers import padding_mask
from keras_transformers.models.coverage import add_coverage, start_coverage
from keras_transformers.models.decoding import CachedDecoding
from keras_transformers.models.text_inputs import rows_of_table


class TransformerDecoding(CachedDecoding):
    """What `generation` needs of `Transformer`; before `keras.Model`."""

    def start_decoding(self, source, beams, max_length, coverage=False):
        """Encodes the source once, and makes what `decode_step` needs.

        The caches hold `batch * heads * (key_dim + value_dim) * (beams * max_length +
        source_length)` numbers of the compute dtype for each decoder block.

        Args:
            source: Integer ids `(batch, source_length)`.
            beams: Number of sequences to decode for each source.
            max_length: Number of steps there may be.
            coverage: Whether to sum up how much each source token was attended to.

        Returns:
            `(state, shared)`. `state` changes with every step: `cache`, and on request `coverage`
            float32 `(batch, beams, source_length)`, the sums of the last block's cross-attention
            (mean of its heads); 1 at padding. `shared` belongs to the source and never changes.
        """
        context = self.encode(source, training=False)
        mask = padding_mask(source, self.padding_id)
        shared = {
            "source_mask": mask,
            "context": [
                block.cross_attention.project_context(context) for block in self.decoder_blocks
            ],
        }
        batch = ops.shape(source)[0]
        state = {"cache": self._start_caches(batch, beams, max_length)}
        if coverage:
            state["coverage"] = start_coverage(mask, beams)
        return state, shared

    def decode_step(self, ids, index, state, shared, ancestry=None):
        """Scores the next token of every sequence.

        Args:
            ids: Integers `(batch, beams)`, the token at position `index`.
            index: Int or scalar tensor.
            state, shared: From `start_decoding` or the step before.
            ancestry: `generation.Ancestry` of the beams; None where none has moved.

        Returns:
            Logits `(batch, beams, target vocabulary)` and the new `state`.
        """
        x = self.target_embedding.vectors(rows_of_table(self, ids))
        if self.positional_encoding is not None:
            positions = ops.broadcast_to(ops.cast(index, "int32"), ops.shape(ids))
            x = self.positional_encoding(x, positions=positions)
        x, state, weights = self._step_blocks(
            x, index, state, ancestry, shared["context"], shared["source_mask"]
        )
        if "coverage" in state:
            attended = ops.mean(ops.cast(weights, "float32"), axis=1)
            coverage = add_coverage(state["coverage"], attended, ancestry)
            state = {**state, "coverage": coverage}
        x = x if self.decoder_norm is None else self.decoder_norm(x)
        return self._with_bias(self.target_embedding.step_logits(x)), state
