"""Memory of writing: a prompt of 8,192 tokens, and caches of 2,048 positions in fewer bits.

    python -m benchmarks.writing_memory

A Llama of 100 M (12 blocks of width 768, 4 heads of keys for 12 of queries, vocabulary 32,000) with
random weights takes in prompts and writes 16 tokens, greedy, XLA on TensorFlow. Each way has a
process of its own, which runs once to compile; of the second run its time and the peak of the
resident memory above what the process held before.
"""

import argparse
import ctypes
import json
import time

from benchmarks import alternating
from benchmarks.report import heading, holding, resident_mebibytes, table, write

VOCAB, NEW = 32000, 16
WAYS = {  # title -> rows, positions, `cache_dtype`, `prompt_scores`
    "1 x 8,192": (1, 8192, None, False),
    "1 x 8,192, with the prompt's scores": (1, 8192, None, True),
    "8 x 2,048": (8, 2048, None, False),
    "8 x 2,048, bfloat16": (8, 2048, "bfloat16", False),
    "8 x 2,048, int8": (8, 2048, "int8", False),
}


def written(rows, positions, cache_dtype, prompt_scores):
    """Figures of one way, in this process."""
    import numpy as np

    from keras_transformers.generation import generate
    from keras_transformers.models import LanguageModel

    sizes = {"mlp_dim": 2048, "num_key_value_heads": 4, "padding_id": -1}
    model = LanguageModel.from_variant("small", VOCAB, style="modern", **sizes)
    model.build((None, None))
    prompt = np.random.default_rng(0).integers(3, VOCAB, (rows, positions - NEW)).astype("int32")
    options = {"max_length": positions, "cache_dtype": cache_dtype, "prompt_scores": prompt_scores}
    generate(model, prompt=prompt, **options)
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before, started = holding(), time.perf_counter()
    generate(model, prompt=prompt, **options)
    seconds = time.perf_counter() - started
    return {"MiB": round(resident_mebibytes() - before), "seconds": round(seconds, 2)}


def main(way):
    if way:
        print(json.dumps(written(*WAYS[way])))
        return
    rows = {title: alternating.fresh("benchmarks.writing_memory", "--way", title) for title in WAYS}
    print(table(rows))
    result = {**heading("tensorflow", "keras"), "rows": rows}
    write("writing_memory", result, {f"Prompts, and {NEW} tokens written": rows})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=WAYS, help="used by the benchmark itself")
    main(**vars(parser.parse_args()))
