"""TensorFlow's own kernels, for programs that run wherever it does."""

from typing import Any

import tensorflow as tf

FEW = 8  # rows of one sentence's beams
SPLIT = 1 << 18  # numbers of a kernel from which on two halves are quicker than the whole


class TensorFlowKernels:
    """`layers.portable.Kernels` by operations that every TensorFlow from 2.19 on has.

    The times in the comments are of two cores of an Intel Xeon with AVX-512 and oneDNN.
    """

    def update_slice(self, x: tf.Tensor, start: Any, new: tf.Tensor) -> tf.Tensor:
        stop = start + new.shape[2]
        return tf.raw_ops.TensorStridedSliceUpdate(
            input=x,
            begin=[0, 0, start, 0],
            end=[0, 0, stop, 0],
            strides=[1, 1, 1, 1],
            value=new,
            begin_mask=0b1011,
            end_mask=0b1011,
        )

    def product(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        few = x.shape[0] in range(1, FEW + 1)
        if not few or kernel.shape.num_elements() < SPLIT or x.shape[1] % 2:
            return tf.matmul(x, kernel)
        # One row is multiplied by one core, which waits for memory; halves of the kernel, which
        # are no copies, by two: 120 instead of 240 us for 512 x 2,048.
        half = x.shape[1] // 2
        return tf.matmul(x[:, :half], kernel[:half]) + tf.matmul(x[:, half:], kernel[half:])

    def table_product(self, x: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        if x.shape[0] == 1:
            return tf.matmul(x, table, transpose_b=True)
        y = tf.matmul(table, x, transpose_b=True)
        if x.shape[0] in range(2, FEW + 1):
            return tf.stack(tf.unstack(y, axis=1))  # as in `swap`
        return _transposed(y)

    def batch_product(self, x: tf.Tensor, y: tf.Tensor, transposed: bool = False) -> tf.Tensor:
        few = x.shape[2] == 1 or x.shape[0] == 1 and x.shape[2] in range(2, FEW + 1)
        if few and x.dtype == tf.float32:
            # oneDNN has no kernel of this version, whose start takes 35 us: 5 instead of 40 for
            # four beams of one sentence. (It is slower from some 100 keys of 64 numbers on; to ask
            # at every step costs more than that.)
            return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype, adj_y=transposed)
        return tf.matmul(x, y, transpose_b=transposed)

    def swap(self, x: tf.Tensor) -> tf.Tensor:
        for axis in (1, 2):
            if x.shape[axis] in range(1, FEW + 1):
                # 20 instead of 80 us for four beams of one sentence: oneDNN's starts again.
                return tf.stack(tf.unstack(x, axis=axis), axis=3 - axis)
        return tf.transpose(x, (0, 2, 1, 3))

    def softmax(self, scores: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        # Once for all layers that share a mask: TensorFlow's broadcasting `where` takes 10 us.
        scores = scores + tf.where(mask, tf.constant(0, scores.dtype), -1e38)
        if scores.shape[0] == 1 or scores.shape[2] == 1:
            weights = tf.exp(tf.nn.log_softmax(scores))  # 2 instead of 28 us: oneDNN's starts again
        else:
            weights = tf.nn.softmax(scores)
        something = tf.reduce_any(mask, axis=-1, keepdims=True)
        return weights * tf.cast(something, weights.dtype)


def _transposed(x: tf.Tensor) -> tf.Tensor:
    """The transpose of a matrix, as integers of its bits: oneDNN would take 90 us to start."""
    if x.dtype != tf.float32:
        return tf.transpose(x)
    return tf.bitcast(tf.transpose(tf.bitcast(x, tf.int32)), tf.float32)
