"""The layers' equations once more, in NumPy and float64, written for reading and not for speed."""

import numpy as np


def softmax(scores, mask=True):
    """Softmax over the last axis of the scores that are not masked; zeros where all are."""
    scores = np.where(mask, scores, -np.inf)
    top = np.max(scores, axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def project(x, kernel, bias=None):
    """`(batch, length, width)` to `(batch, heads, length, head_dim)`."""
    y = np.einsum("blw,whd->bhld", np.float64(x), np.float64(kernel))
    return y if bias is None else y + np.float64(bias)[None, :, None]


def multi_head_attention(weights, query, value, key=None, mask=True, bias=0.0):
    """Output and weights of multi-head attention.

    `weights` is what `get_weights()` of Keras's layer returns; `mask` and `bias` broadcast against
    `(batch, heads, queries, keys)`.
    """
    key = value if key is None else key
    step = 2 if len(weights) == 8 else 1
    q, k, v = (
        project(x, *weights[position : position + step])
        for position, x in zip((0, step, 2 * step), (query, key, value), strict=True)
    )
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])
    attention = softmax(scores + bias, mask)
    heads = np.einsum("bhqk,bhkd->bhqd", attention, v)
    output = np.einsum("bhqd,hdw->bqw", heads, np.float64(weights[3 * step]))
    return (output if step == 1 else output + np.float64(weights[7])), attention


def layer_norm(x, gamma, beta, epsilon=1e-6):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + epsilon) * np.float64(gamma) + np.float64(beta)


def sinusoids(positions, hidden_dim, max_wavelength=10000.0):
    """Section 3.5 of Vaswani et al. 2017, feature by feature."""
    table = np.zeros((*np.shape(positions), hidden_dim))
    for feature in range(hidden_dim):
        angle = np.float64(positions) / max_wavelength ** (2 * (feature // 2) / hidden_dim)
        table[..., feature] = np.cos(angle) if feature % 2 else np.sin(angle)
    return table
