"""TensorFlow's own kernels, for programs that run wherever it does."""

import tensorflow as tf

FEW = 8  # rows of one sentence's beams
SPLIT = 1 << 18  # numbers of a kernel from which on two halves are quicker than the whole


class TensorFlowKernels:
    """`layers.portable.Kernels` by operations that every TensorFlow from 2.19 on has.

    The times in the comments are of two cores of an Intel Xeon with AVX-512 and oneDNN.
    """

    def update_slice(self, x, start, new):
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

    def product(self, x, kernel):
        few = x.shape[0] in range(1, FEW + 1)
        if not few or kernel.shape.num_elements() < SPLIT or x.shape[1] % 2:
            return tf.matmul(x, kernel)
        # One row is multiplied by one core, which waits for memory; halves of the kernel, which
        # are no copies, by two: 120 instead of 240 us for 512 x 2,048.
        half = x.shape[1] // 2
        return tf.matmul(x[:, :half], kernel[:half]) + tf.matmul(x[:, half:], kernel[half:])

    def table_product(self, x, table):
        if x.shape[0] == 1:
            return tf.matmul(x, table, transpose_b=True)
        return _transposed(tf.matmul(table, x, transpose_b=True))

    def batch_product(self, x, y, transposed=False):
        if x.shape[2] == 1 and x.dtype == tf.float32:
            # oneDNN has no kernel of this version, whose start takes 25 of 35 us for one row.
            return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype, adj_y=transposed)
        return tf.matmul(x, y, transpose_b=transposed)

    def swap(self, x):
        for axis in (1, 2):
            if x.shape[axis] in range(1, FEW + 1):
                # 20 instead of 80 us for four beams of one sentence: oneDNN's starts again.
                return tf.stack(tf.unstack(x, axis=axis), axis=3 - axis)
        return tf.transpose(x, (0, 2, 1, 3))

    def softmax(self, scores, mask):
        scores = tf.where(mask, scores, -1e38)
        if scores.shape[0] != 1 and scores.shape[2] != 1:
            return tf.where(mask, tf.nn.softmax(scores), 0.0)
        # By hand: 9 instead of 37 us for one row, for the same reason.
        largest = tf.reduce_max(scores, axis=-1, keepdims=True)
        weights = tf.where(mask, tf.exp(scores - largest), 0.0)
        return tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=-1, keepdims=True))


def _transposed(x):
    """The transpose of a matrix; as integers of its bits, which oneDNN leaves alone: it takes 90 us
    to start."""
    if x.dtype != tf.float32:
        return tf.transpose(x)
    return tf.bitcast(tf.transpose(tf.bitcast(x, tf.int32)), tf.float32)
