"""Cost of streaming: `generation.stream` beside `generation.generate`.

    python -m benchmarks.token_streaming
    python -m benchmarks.token_streaming --models small --prompts 32

Language models of GPT-2's architecture and random weights: "tiny", whose steps are short, so that
what a call costs besides shows, and "small", GPT-2's 124 M parameters with 50,257 tokens. One
prompt, 128 new tokens that never end the text, greedy. Each candidate has a process of its own, and
they take turns. Before anything is timed, the tokens of all must be the same. The column `first
milliseconds` is what a stream takes until it yields its first token.
"""

import argparse
import statistics
import time

import numpy as np

from benchmarks import alternating
from benchmarks.report import heading, measured, table, write

NEW = 128
PACKAGES = ("tensorflow", "keras")
VOCABULARIES = {"tiny": 5000, "small": 50257}
AT_A_TIME = {"stream": None, "stream, 1 at a time": 1, "stream, 8 at a time": 8}
NAMES = ("generate", *AT_A_TIME)


def prepare(name, settings):
    """What is timed, and the tokens with the seconds until the first of them."""
    from keras_transformers.generation import Constraints, Greedy, generate, stream
    from keras_transformers.models import LanguageModel

    size = VOCABULARIES[settings["model"]]
    model = LanguageModel.from_variant(settings["model"], size)
    model.build((None, None))
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape) * 0.06 for w in model.get_weights()])
    prompt = rng.integers(3, size - 1, (1, settings["prompt"])).astype("int32")
    options = {"prompt": prompt, "max_length": settings["prompt"] + NEW, "end_id": size - 1}
    options["search"] = Greedy(Constraints(min_new=NEW))

    def whole():
        return generate(model, **options)["tokens"][0, settings["prompt"] :].tolist()

    def streamed():
        return list(stream(model, **options, tokens_at_a_time=AT_A_TIME[name]))

    def first():
        started = time.perf_counter()
        next(stream(model, **options, tokens_at_a_time=AT_A_TIME[name]))
        return time.perf_counter() - started

    if name == "generate":
        return whole, [whole(), None]
    tokens = streamed()
    return streamed, [tokens, statistics.median(first() for _ in range(5))]


def one(model, prompt, rounds):
    """All candidates on one setting."""
    settings, firsts = {"model": model, "prompt": prompt}, {}

    def check(results):
        tokens = {name: result[0] for name, result in results.items()}
        wrong = [name for name in NAMES if tokens[name] != tokens["generate"]]
        if wrong:
            raise ValueError(f"{wrong} write other tokens than generate.")
        firsts.update({name: result[1] for name, result in results.items()})

    rows = alternating.measure("benchmarks.token_streaming", NAMES, settings, rounds, check)
    for name, row in rows.items():
        if firsts[name] is not None:
            row["first_milliseconds"] = round(1e3 * firsts[name], 2)
        row["times_generate"] = round(row["milliseconds"] / rows["generate"]["milliseconds"], 2)
    return rows


def run_all(rounds, models, prompts):
    """Measures; what an earlier run has measured of other settings stays in the results."""
    texts = measured("token_streaming", "texts")
    what = f"{NEW} new tokens of one text, greedy, random weights; milliseconds a text"
    result = {**heading(*PACKAGES), "what": what, "texts": texts}
    for model in models:
        for prompt in prompts:
            title = f"{model}, prompt {prompt}"
            texts[title] = one(model, prompt, rounds)
            print(title, table(texts[title]), sep="\n", flush=True)
            write("token_streaming", result, texts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=VOCABULARIES, default=list(VOCABULARIES))
    parser.add_argument("--prompts", nargs="+", type=int, default=[32, 512])
    alternating.main(prepare, run_all, parser)
