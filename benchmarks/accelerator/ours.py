"""This project's side, on JAX: what `benchmarks.accelerator` runs in processes of its own."""

import functools
import os
import re
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import keras
import numpy as np

from benchmarks.accelerator.cases import NEW, PATCH, SOURCE, product_operations, repeated
from keras_transformers import generation, layers, models, training

# Relative distance of gradients and outputs in bfloat16, whose numbers are 2^-9 from the truth.
MOST = {"gradients": 0.05, "attention": 0.02}
LENGTH = 128  # of the rows that fused and plain attention are compared on


def network(case):
    """The model of a case, built, in the dtype policy that is set."""
    sizes = {"hidden_dim": case.width, "num_heads": case.heads, "mlp_dim": case.mlp}
    sizes |= {"num_layers": case.layers, "dropout": case.dropout}
    if case.kind == "image":
        shape = {"image_size": case.image, **sizes}
        model = models.ViT.from_variant(f"B/{PATCH}", case.vocab, **shape)
        model.build((None, case.image, case.image, 3))
    elif case.kind == "translation":
        model = models.Transformer.from_variant("big", case.vocab, **sizes)
        model.build({"source": (None, None), "target": (None, None)})
    else:
        sizes["attention_dropout"] = 0.0  # of the weights: no fused kernel drops them for all
        sizes["max_length"] = case.length
        model = models.LanguageModel.from_variant("small", case.vocab, **sizes)
        model.build((None, None))
    return model


def batch_of(case, seed=0):
    """Inputs and labels, random, without padding."""
    rng = np.random.default_rng(seed)
    if case.kind == "image":
        images = rng.normal(size=(case.rows, case.image, case.image, 3)).astype("float32")
        return images, rng.integers(0, case.vocab, case.rows).astype("int32")
    shape = (2, case.rows, case.length)
    source, labels = rng.integers(3, case.vocab, shape).astype("int32")
    target = np.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=1)
    return ({"source": source, "target": target} if case.kind == "translation" else target), labels


def loss_of(case):
    if case.kind == "image":
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return training.SmoothedCrossEntropy(0.1 if case.kind == "translation" else 0.0)


def compiled(case):
    """The model in mixed_bfloat16 with its loss and AdamW."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    keras.utils.set_random_seed(0)
    model = network(case)
    model.compile(training.AdamW(1e-4, weight_decay=0.1), loss_of(case), jit_compile=True)
    model.optimizer.build(model.trainable_variables)
    return model


def state_of(model):
    """What a training step of the JAX backend takes and gives."""
    kinds = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    return tuple([variable.value for variable in kind] for kind in kinds)


def lowered_step(case):
    """The training step as JAX hands it to XLA, text; nothing is compiled or computed."""
    model = compiled(case)
    step = jax.jit(model.train_step, donate_argnums=0)
    return step.lower(state_of(model), batch_of(case)).as_text()


def again(batch):
    """The same batch without end, a generator, as `fit` takes it."""
    while True:
        yield batch


def train(case, seconds):
    """Figures of `model.fit`, and of its training step called without it."""
    model, batch = compiled(case), jax.device_put(batch_of(case))

    def fit(steps):
        history = model.fit(again(batch), steps_per_epoch=steps, verbose=0)
        return history.history["loss"][0]

    started = time.perf_counter()
    first = fit(1)
    until_first = time.perf_counter() - started
    started = time.perf_counter()
    fit(2)
    steps = max(2, min(50, int(seconds / 4 / (time.perf_counter() - started) * 2)))
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        last = fit(steps)
        taken.append((time.perf_counter() - started) / steps)
    # The same compiled step without `fit`: what that costs.
    state = [state_of(model)]

    def step():
        state[0] = model.train_function(state[0], again(batch))[1]

    alone, *_ = repeated(step, seconds / 4, wait=lambda: jax.block_until_ready(state[0]))
    return {
        "seconds": sorted(taken)[1],
        "from": min(taken),
        "to": max(taken),
        "without_fit": alone,
        "until_first": until_first,
        "parameters": model.count_params(),
        "losses": [first, last],
        "peak_bytes": peak(),
    }


def peak():
    """Bytes that were in use at most on the device, or None where it does not say."""
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def decode(case, search, seconds):
    """Seconds of `generate` on a batch, by a model in bfloat16."""
    beams, rows = search
    keras.config.set_dtype_policy("bfloat16")
    keras.utils.set_random_seed(0)
    model = network(case)
    source = np.random.default_rng(0).integers(3, case.vocab, (rows, SOURCE)).astype("int32")
    kind = generation.Greedy() if beams == 1 else generation.BeamSearch(beams)

    def run():
        return generation.generate(model, source, search=kind, max_length=NEW)

    started = time.perf_counter()
    found = run()
    until_first = time.perf_counter() - started
    middle, least, most = repeated(run, seconds)
    figures = {"seconds": middle, "from": least, "to": most, "until_first": until_first}
    return {**figures, "tokens": int(found["lengths"].max()), "parameters": model.count_params()}


def products(size, seconds):
    """Operations a second of a product of square matrices in bfloat16, and what computes it."""
    keys = jax.random.split(jax.random.key(0))
    x, y = (jax.random.normal(key, (size, size), "bfloat16") for key in keys)
    product = jax.jit(jnp.matmul)
    last = [product(x, y)]

    def run():
        last[0] = product(x, y)

    _, least, _ = repeated(run, seconds, wait=lambda: last[0].block_until_ready())
    device = jax.local_devices()[0]
    figures = {"rate": product_operations(size) / least, "platform": device.platform}
    return {**figures, "device": device.device_kind, "jax": jax.__version__}


def distance(these, those):
    """Of two trees of arrays: the norm of the difference, divided by the norm of the second."""
    squares = [
        (jnp.sum(jnp.square(f32(a) - f32(b))), jnp.sum(jnp.square(f32(b))))
        for a, b in zip(jax.tree.leaves(these), jax.tree.leaves(those), strict=True)
    ]
    difference, whole = (sum(column) for column in zip(*squares, strict=True))
    return float(jnp.sqrt(difference / whole))


def f32(x):
    return jnp.asarray(x, "float32")


def gradients(case, policy):
    """Of a case's loss, by its weights, under a dtype policy."""
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(0)
    model, (x, y), loss = network(case), batch_of(case), loss_of(case)

    def value(weights):
        outputs, _ = model.stateless_call(weights, frozen, x, training=False)
        return loss(y, outputs)

    frozen = [variable.value for variable in model.non_trainable_variables]
    with jax.default_matmul_precision("highest" if policy == "float32" else "default"):
        return jax.jit(jax.grad(value))([each.value for each in model.trainable_variables])


def attentions(width, heads):
    """Kinds of attention: a layer, and what it is called with beside `x`."""
    masked = np.arange(LENGTH) < np.array([[LENGTH], [LENGTH // 3]])
    return {
        "self": (layers.SelfAttention(heads), {}),
        "self, padding": (layers.SelfAttention(heads), {"mask": masked}),
        "causal, padding": (layers.CausalSelfAttention(heads), {"mask": masked}),
        "causal, grouped": (layers.CausalSelfAttention(heads, num_key_value_heads=1), {}),
    }


def check_attention(layer, options, width):
    """Distance of outputs and gradients with weights asked for, the plain way, and without."""
    layer.build((None, None, width))
    x, aim = jax.random.normal(jax.random.key(0), (2, 2, LENGTH, width), "bfloat16")
    weights = [each.value for each in layer.trainable_variables]

    def run(weights, x, plain):
        y, _ = layer.stateless_call(weights, [], x, return_attention_scores=plain, **options)
        y = y[0] if plain else y
        mask = options.get("mask")
        y = y if mask is None else jnp.where(mask[..., None], y, 0)
        return jnp.sum(f32(y) * aim), y

    both = {}
    for plain in (False, True):
        step = jax.jit(jax.value_and_grad(functools.partial(run, plain=plain), (0, 1), True))
        program = step.lower(weights, x).compile()
        both[plain] = program(weights, x)[0][1], program(weights, x)[1]
        if not plain:
            text = program.as_text()
    fused = re.search(r'custom_call_target="[^"]*(fmha|flash|splash|tpu_custom_call)', text)
    return {"distance": distance(both[False], both[True]), "fused": bool(fused)}


def checks(cases):
    """Distances of gradients in bfloat16 from float32's, and of fused attention from plain."""
    found = {}
    for name, case in cases.items():
        found[f"gradients, {name}"] = distance(
            gradients(case, "mixed_bfloat16"), gradients(case, "float32")
        )
    keras.config.set_dtype_policy("mixed_bfloat16")
    width, heads, fused = 128, 2, []
    for name, (layer, options) in attentions(width, heads).items():
        answer = check_attention(layer, options, width)
        found[f"attention, {name}"] = answer["distance"]
        fused += [name] * answer["fused"]
    wrong = {name: each for name, each in found.items() if not each < MOST[name.split(",")[0]]}
    return {"distances": found, "fused": fused, "wrong": wrong}
