"""What the tests of this folder run in processes of their own, with several devices.

    python -m tests.distribution.program masks data=4 -- compare vit clipped 0.3 data=8

Each command prints its answer as a line of JSON.
"""

import json
import os
import sys

import keras
import numpy as np

from keras_transformers import distribution

ROWS, BATCH, STEPS = 64, 16, 20
SIZES = {"hidden_dim": 32, "num_heads": 4, "mlp_dim": 64, "num_layers": 1}


def arrays(name):
    """Random images or padded ids, and labels."""
    rng = np.random.default_rng(7)
    if name == "vit":
        return rng.normal(size=(ROWS, 8, 8, 3)).astype("float32"), rng.integers(0, 8, ROWS)
    ids = rng.integers(1, 48, (ROWS, 8))
    ids = np.where(np.arange(8) < rng.integers(2, 9, ROWS)[:, None], ids, 0).astype("int32")
    if name == "transformer":
        return {"source": ids, "target": ids[::-1]}, ids
    if name == "text_encoder":
        return {"ids": ids}, rng.integers(0, 8, ROWS)
    return ids, ids


def dataset(name, steps=STEPS, size=BATCH):
    """The first `steps` batches, over and over the rows."""
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices(arrays(name)).repeat()
    return rows.batch(size, drop_remainder=True).take(steps)


def model(name, dropout):
    """A tiny one."""
    from keras_transformers import models

    rate = {"dropout": dropout}
    if name == "vit":
        return models.ViT.from_variant("B/4", 8, image_size=8, **SIZES, **rate)
    if name == "transformer":
        return models.Transformer(48, **SIZES, **rate)
    if name == "text_encoder":
        sizes = {**SIZES, "head": "classification", "num_classes": 8, "max_length": 8}
        return models.TextEncoder.from_variant("base", 48, **sizes, **rate)
    # 47 rows in its table, which no number of devices divides, and fewer key heads than devices.
    sizes = {**SIZES, "style": "modern", "num_key_value_heads": 1}
    return models.LanguageModel.from_variant("small", 48 - 1 + 2, **sizes, **rate)


def loss(name):
    from keras_transformers.training import SmoothedCrossEntropy

    if name in ("vit", "text_encoder"):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return SmoothedCrossEntropy(0.1)


def optimizer(name):
    from keras_transformers.training import AdamW, Muon

    def adamw(**options):
        # Epsilon above the rounding of a gradient that is zero: that of the keys' bias.
        return AdamW(1e-3, epsilon=1e-5, **options)

    return {
        "adamw": adamw,
        "clipped": lambda: adamw(global_clipnorm=0.1),
        "clipnorm": lambda: adamw(clipnorm=0.1),
        "clipvalue": lambda: adamw(clipvalue=0.01),
        "accumulated": lambda: adamw(gradient_accumulation_steps=2),
        "average": lambda: adamw(use_ema=True),
        "overwritten": lambda: adamw(use_ema=True, ema_overwrite_frequency=5),
        "scaled": lambda: keras.optimizers.LossScaleOptimizer(adamw()),
        "muon": lambda: Muon(1e-3, epsilon=1e-5),
    }[name]()


def compiled(name, optimizer_name, dropout, **options):
    keras.utils.set_random_seed(3)
    made = name if isinstance(name, keras.Model) else model(name, dropout)
    made.build(keras.tree.map_structure(lambda x: (None, *x.shape[1:]), arrays(name)[0]))
    jit = keras.backend.backend() == "jax"
    made.compile(optimizer(optimizer_name), loss(name), **{"jit_compile": jit, **options})
    return made


def train(
    name, devices, optimizer_name, dropout=0.0, guarded=True, data=None, saved=None, **options
):
    """A trained model, and what is to be known of it."""
    with distribution.distribute(None if devices == "one" else devices):
        made = compiled(name, optimizer_name, dropout, **options)
        callbacks = [distribution.Guard()] if guarded else []
        made.fit(data or dataset(name), verbose=0, callbacks=callbacks)
        sizes = distribution.bytes_per_device(made)
        if saved is not None:
            distribution.save(made, saved)
    return made, sizes


def ragged():
    """Batches of 16, the last of 2 rows."""
    import tensorflow as tf

    x, y = arrays("vit")
    return tf.data.Dataset.from_tensor_slices((x[:18], y[:18])).batch(BATCH)


def weights(made):
    """Path inside the model -> NumPy array."""
    from keras_transformers.distribution.layouts import _whole

    own = made.trainable_variables
    values = _whole(own) if keras.backend.backend() == "jax" else [v.numpy() for v in own]
    return {v.path.split("/", 1)[1]: x for v, x in zip(own, values, strict=True)}


def differences(a, b):
    """The largest difference of any weight, and of the keys' biases, which change no output.

    A key's bias adds the same to all scores of a query. Its gradient is rounding, which optimizers
    that divide by its size make as large as any other.
    """
    each = {path: float(np.abs(a[path] - b[path]).max()) for path in a}
    keys = [value for path, value in each.items() if path.endswith("key/bias")]
    rest = [value for path, value in each.items() if not path.endswith("key/bias")]
    return {"weights": max(rest), "key_bias": max(keys, default=0.0)}


def compare(name, optimizer_name, dropout, *grids):
    """Each grid against one device, in one process."""
    with distribution.distribute(grids[0]):  # TensorFlow divides its CPU before it computes
        pass
    before = weights(compiled(name, optimizer_name, float(dropout)))
    alone, sizes = train(name, "one", optimizer_name, float(dropout))
    found = {"one": {"moved": differences(before, weights(alone))["weights"], "bytes": sizes}}
    for grid in grids:
        made, sizes = train(name, grid, optimizer_name, float(dropout))
        found[grid] = {**differences(weights(alone), weights(made)), "bytes": sizes}
    return found


def refusals(devices, *names):
    """Case -> what `fit` said and the steps it had taken, for what is not right on TensorFlow."""
    with distribution.distribute(devices):
        pass
    cases = {
        "accumulated": ("vit", "accumulated", {}),
        "clipnorm": ("vit", "clipnorm", {}),
        "clipped": ("vit", "clipped", {}),
        "clipvalue": ("vit", "clipvalue", {}),
        "overwritten": ("vit", "overwritten", {}),
        "scaled": ("vit", "scaled", {}),
        "compiled": ("vit", "adamw", {"jit_compile": True}),
        "tokens": ("language_model", "adamw", {}),
        "ragged": ("vit", "adamw", {"data": ragged()}),
        "indivisible": ("vit", "adamw", {"data": dataset("vit", size=18)}),
    }
    found = {}
    for case in names or cases:
        name, optimizer_name, options = cases[case]
        found[case] = refused(name, devices, optimizer_name, options)
    mesh = keras.distribution.DeviceMesh((1,), ("data",), ["cpu:0"])
    with keras.distribution.DataParallel(device_mesh=mesh).scope():
        found["keras.distribution"] = refused("vit", "one", "adamw", {})
    return found


def refused(name, devices, optimizer_name, options):
    """[error, steps taken] of a fit that must not begin."""
    steps = Steps()
    data = options.get("data") or dataset(name)
    options = {key: value for key, value in options.items() if key != "data"}
    try:
        with distribution.distribute(None if devices == "one" else devices):
            made = compiled(name, optimizer_name, 0.0, **options)
            made.fit(data, verbose=0, callbacks=[distribution.Guard(), steps])
    except ValueError as error:
        return [str(error), steps.taken]
    return [None, steps.taken]


class Steps(keras.callbacks.Callback):
    """Counts them."""

    taken = 0

    def on_train_batch_end(self, batch, logs=None):
        self.taken += 1


def unguarded(devices):
    """Case -> how far from one device it trains, for what `Guard` refuses and TensorFlow runs."""
    with distribution.distribute(devices):
        pass
    found = {}
    for case in ("adamw", "average", "clipnorm", "clipped", "clipvalue", "tokens", "ragged"):
        name, optimizer_name, options = "vit", case, {}
        if case == "tokens":
            name, optimizer_name = "language_model", "adamw"
        if case == "ragged":
            optimizer_name, options = "adamw", {"data": ragged().repeat(10)}
        trained = [
            weights(train(name, where, optimizer_name, guarded=False, **options)[0])
            for where in ("one", devices)
        ]
        found[case] = differences(*trained)["weights"]
    return found


def host(port, number, index, name, devices, folder):
    """One process of several: trains and saves; the first also writes the weights it sees."""
    distribution.initialize(f"127.0.0.1:{port}", int(number), int(index))
    made, sizes = train(name, devices, "clipped", 0.3, saved=os.path.join(folder, "model.keras"))
    whole = weights(made)
    if distribution.is_first_host():
        np.savez(os.path.join(folder, "weights.npz"), **whole)
    return {"bytes": sizes, "devices": len(keras.distribution.list_devices())}


def alone(name, folder):
    """How far the weights that hosts wrote, and the model they saved, are from one device's."""
    made, _ = train(name, "one", "clipped", 0.3)
    found = differences(weights(made), dict(np.load(os.path.join(folder, "weights.npz"))))
    saved = keras.models.load_model(os.path.join(folder, "model.keras"))
    state = zip(made.optimizer.variables, saved.optimizer.variables, strict=True)
    off = [np.abs(np.asarray(a.value) - np.asarray(b.value)).max() for a, b in state]
    return {
        **found,
        "saved": differences(weights(made), weights(saved))["weights"],
        "optimizer": float(max(off)),
    }


def masks(devices):
    """Rows that our dropout keeps on each device, and on one device for the whole batch."""
    from keras_transformers.layers import Dropout

    ones = np.ones((BATCH, 32), "float32")
    with distribution.distribute(devices) as spread:
        layer = Dropout(0.5, seed=1)
        if keras.backend.backend() == "jax":
            import jax

            state = [variable.value for variable in layer.non_trainable_variables]
            whole = keras.distribution.distribute_tensor(ones, spread.get_data_layout(ones.shape))
            kept = jax.jit(lambda x: layer.stateless_call([], state, x, training=True)[0])(whole)
            shards = {shard.index[0].start or 0: shard.data for shard in kept.addressable_shards}
            pieces = [np.asarray(shards[start]) for start in sorted(shards)]
        else:
            share = ones[: BATCH // spread.num_replicas_in_sync]
            kept = spread.run(lambda: layer(share, training=True))
            pieces = [piece.numpy() for piece in spread.experimental_local_results(kept)]
    together = np.concatenate(pieces)
    alone = keras.ops.convert_to_numpy(Dropout(0.5, seed=1)(ones, training=True))
    return {
        "devices": len(pieces),
        "different": len({piece.tobytes() for piece in pieces}),
        "as_one_device": bool(np.array_equal(together, alone)),
    }


def evaluations(devices):
    """The loss of a data set whose last batch is smaller, and its predictions, as on one device."""
    found = []
    with distribution.distribute(devices):
        pass
    for where in ("one", devices):
        made, _ = train("vit", where, "adamw", 0.0, data=dataset("vit", 2))
        with distribution.distribute(None if where == "one" else where):
            guard = {"callbacks": [distribution.Guard()], "verbose": 0}
            made.fit(dataset("vit", 2), validation_data=ragged(), epochs=2, **guard)
            history = made.history.history["val_loss"]
            found.append(
                [
                    *history,
                    made.evaluate(ragged(), **guard),
                    np.mean(made.predict(ragged(), **guard) ** 2),
                ]
            )
    return np.abs(np.subtract(*found)).max().item()


COMMANDS = {"compare": compare, "refusals": refusals, "unguarded": unguarded, "masks": masks}
COMMANDS["evaluations"] = evaluations
COMMANDS |= {"host": host, "alone": alone}


def main(arguments):
    while arguments:
        end = arguments.index("--") if "--" in arguments else len(arguments)
        (command, *rest), arguments = arguments[:end], arguments[end + 1 :]
        print(json.dumps(COMMANDS[command](*rest)), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(sys.argv[1:])
