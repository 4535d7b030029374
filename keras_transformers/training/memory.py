"""Memory of the C library, kept from one training step to the next."""

import ctypes

# Of glibc's mallopt(3).
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> bool:
    """Lets the C library keep the memory that a training step frees, for the next step to use.

    XLA on a CPU takes its temporaries anew in each step, up to gigabytes, and glibc by default
    returns blocks of that size to the system at once, which then clears and maps every page again:
    528,000 page faults and a quarter of the time of each forward and backward pass of ViT-Ti/4 on
    batches of 128 x 65 tokens (docs/benchmarks/memory.md). Call it before the first step; the
    process keeps its peak of memory until it ends. Accelerators have no such fault.

    Returns:
        Whether it took effect: True with glibc, False elsewhere, where nothing is changed.

    Example:
    >>> from keras_transformers.training import keep_freed_memory
    >>> keep_freed_memory() in (True, False)
    True
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    # No block of its own for any allocation, however large; never trimmed; one heap, as only the
    # first can grow past 64 MB.
    settings = {MMAP_MAX: 0, TRIM_THRESHOLD: -1, ARENA_MAX: 1}
    return all([mallopt(name, value) == 1 for name, value in settings.items()])
