"""A modified Kneser-Ney n-gram model of token ids, the baseline of language models."""

import numpy as np


class KneserNey:
    """Interpolated, modified Kneser-Ney smoothing (Chen & Goodman 1999, section 3).

    `p(w | h) = (c(h w) - D(c)) / c(h) + gamma(h) p(w | h')`, with three discounts an order, found
    from the counts of counts; lower orders count in how many contexts an n-gram occurs. The last
    distribution is uniform.

    Args:
        documents: Sequences of ids, all below `vocab_size`; each begins with START, which is never
            predicted.
        vocab_size: Number of ids.
        order: n.
    """

    def __init__(self, documents, vocab_size, order=5):
        if vocab_size**order >= 2**63:
            raise ValueError(f"KneserNey: {order}-grams of {vocab_size} ids do not fit 64 bits")
        self.vocab_size, self.order = vocab_size, order
        self._tables = []
        for n in range(1, order + 1):
            # An n-gram counts as often as it occurs where it is of the highest order, or begins a
            # document, before which nothing stands; else once for each token before it.
            keys = [self._keys(document, n) for document in documents]
            if n == order:
                found = np.concatenate(keys)
            else:
                longer = np.unique(np.concatenate([self._keys(d, n + 1) for d in documents]))
                found = np.concatenate([longer % vocab_size**n, *(key[:1] for key in keys)])
            if n == 1:  # without START
                start = documents[0][0]
                found = found[found != start]
            self._tables.append(self._table(*np.unique(found, return_counts=True)))

    def _keys(self, document, n):
        """A number for each n-gram."""
        document = np.asarray(document, "int64")
        keys = np.zeros(max(len(document) - n + 1, 0), "int64")
        for position in range(n):
            keys = keys * self.vocab_size + document[position : position + len(keys)]
        return keys

    def _table(self, keys, counts):
        """Discounted counts of n-grams, and sums and left-over mass of their contexts."""
        number = np.bincount(np.minimum(counts, 5), minlength=5)[1:5].astype(float)
        y = number[0] / max(number[0] + 2 * number[1], 1)
        discounts = np.zeros(4)
        for i in (1, 2, 3):
            discounts[i] = i - (i + 1) * y * number[i] / max(number[i - 1], 1)
        if np.any(discounts[1:] <= 0) or np.any(discounts > range(4)):
            discounts = np.array([0, 0.5, 1, 1.5])  # as KenLM where counts of counts are odd
        discount = discounts[np.minimum(counts, 3)]
        contexts, position = np.unique(keys // self.vocab_size, return_inverse=True)
        totals = np.bincount(position, counts)
        left_over = np.bincount(position, discount) / totals
        return keys, (counts - discount) / totals[position], contexts, left_over

    def probabilities(self, document):
        """Probability of each token after the first, float64."""
        document = np.asarray(document, "int64")
        found = np.full(len(document) - 1, 1 / self.vocab_size)
        for n, (keys, shares, contexts, left_over) in enumerate(self._tables, 1):
            asked = self._keys(document, n)
            asked, skipped = (asked[1:], 0) if n == 1 else (asked, n - 2)
            known, position = _find(contexts, asked // self.vocab_size)
            lower = found[skipped:]
            backed = np.where(known, left_over[position], 1.0) * lower
            known, position = _find(keys, asked)
            found[skipped:] = backed + np.where(known, shares[position], 0.0)
        return found


def _find(sorted_keys, asked):
    """Whether each is among the keys, and where."""
    position = np.minimum(np.searchsorted(sorted_keys, asked), len(sorted_keys) - 1)
    return sorted_keys[position] == asked, position
