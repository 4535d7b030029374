"""A training epoch from end to end: packed rows against padding, and Hugging Face's trainer.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.epoch

Everyone trains the same network (3+3 layers, width 192, one table of 2,500) on the 30,858 pairs of
ui.en-de, 83 a batch, with Adam, dropout 0.1 and smoothing 0.1, for two epochs; Hugging Face's
trainer, which compiles nothing, for one. Counted are real target tokens, END included, per second
of the last one.

- packed: ours, as the translation recipe does it: 16 rows of 64 positions, XLA;
- padded to the longest of the data: ours, one shape, XLA;
- padded to the longest of the batch: ours, a new shape nearly every batch, so without XLA;
- Seq2SeqTrainer: Hugging Face's, MarianMT, padded to the longest of the batch, as it comes.
"""

import argparse
import json
import tempfile
import time

import numpy as np

from benchmarks import alternating
from benchmarks.report import heading, table, write

EPOCHS, PAIRS, POSITIONS, ROWS, VOCAB = 2, 83, 64, 16, 2500
NAMES = (
    "packed",
    "packed, mixed_bfloat16 without XLA",
    "padded to the longest of the data",
    "padded to the longest of the batch",
    "Seq2SeqTrainer",
)


def pairs():
    """The encoded pairs, as a dataset and as a list of (source ids, target ids START to END)."""
    from keras_transformers.text import SentencePieceTokenizer, encode_pairs
    from recipes.data.translation import load

    data = load("ui.en-de").train
    tokenizer = SentencePieceTokenizer.train(data.sources + data.targets, VOCAB)
    data = data.without_long(tokenizer, 56, POSITIONS)
    dataset = encode_pairs(data.sources, data.targets, tokenizer, shuffle_seed=1)
    return dataset, [(pair["source"].numpy(), pair["target"].numpy()) for pair in dataset]


def for_trainer():
    """The encoded pairs as a list, and the settings of the model."""
    from benchmarks.keywords import transformer_keywords
    from keras_transformers.models import Transformer

    model = Transformer.from_variant("mini", VOCAB)
    model.build({"source": (None, None), "target": (None, None)})
    return pairs()[1], transformer_keywords(model)


def padded_batches(pairs, whole):
    """Shuffled batches of `PAIRS` pairs, padded to the longest of all or of the batch."""
    order = np.random.default_rng(1).permutation(len(pairs))
    limit = [max(len(pair[side]) for pair in pairs) for side in (0, 1)]
    batches = []
    for start in range(0, len(order) - PAIRS + 1, PAIRS):
        chosen = [pairs[i] for i in order[start : start + PAIRS]]
        sides = []
        for side in (0, 1):
            longest = limit[side] if whole else max(len(pair[side]) for pair in chosen)
            ids = np.zeros((PAIRS, longest), "int32")
            for row, pair in zip(ids, chosen, strict=True):
                row[: len(pair[side])] = pair[side]
            sides.append(ids)
        source, target = sides
        batches.append(({"source": source, "target": target[:, :-1]}, target[:, 1:]))
    return batches


def ours(name):
    """Seconds of each epoch of `fit`, and the real target tokens of one."""
    import keras
    import tensorflow as tf

    from keras_transformers.models import Transformer
    from keras_transformers.text import balanced_lengths, packed
    from keras_transformers.training import SmoothedCrossEntropy, keep_freed_memory

    keep_freed_memory()
    if "bfloat16" in name:
        keras.config.set_dtype_policy("mixed_bfloat16")
    keras.utils.set_random_seed(1)
    dataset, examples = pairs()
    model = Transformer.from_variant("mini", VOCAB, norm_first=True)
    xla = name != NAMES[3] and "without XLA" not in name
    model.compile(keras.optimizers.Adam(1e-3, beta_2=0.98), SmoothedCrossEntropy(), jit_compile=xla)
    model.build({"source": (None, None), "target": (None, None)})
    model.optimizer.build(model.trainable_variables)
    if name.startswith("packed"):
        batches = packed(dataset, *balanced_lengths(dataset, POSITIONS), ROWS)
        epoch = list(batches)
    else:
        epoch = padded_batches(examples, whole=name == NAMES[2])
        ids = tf.TensorSpec([PAIRS, None], tf.int32)
        batches = tf.data.Dataset.from_generator(
            lambda: iter(epoch), output_signature=({"source": ids, "target": ids}, ids)
        )
        if name == NAMES[2]:  # says its shapes, or XLA has none to compile
            shapes = [{key: value.shape for key, value in epoch[0][0].items()}, epoch[0][1].shape]
            batches = batches.map(
                lambda x, y: (
                    {key: tf.ensure_shape(value, shapes[0][key]) for key, value in x.items()},
                    tf.ensure_shape(y, shapes[1]),
                )
            )
        batches = batches.prefetch(2)
    steps, tokens = len(epoch), sum(np.count_nonzero(labels) for _, labels in epoch)
    batches = batches.repeat()
    marks = [time.perf_counter()]
    mark = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: marks.append(time.perf_counter())
    )
    history = model.fit(
        batches, steps_per_epoch=steps, epochs=EPOCHS, callbacks=[mark], verbose=0, shuffle=False
    ).history
    return np.diff(marks).tolist(), int(tokens), history["loss"]


def collate(rows):
    """A padded batch for Hugging Face's trainer."""
    import torch

    def pad(key, value):
        ids = [torch.tensor(row[key]) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=value)

    source, labels = pad("input_ids", 0), pad("labels", -100)
    return {
        "input_ids": source,
        "attention_mask": source != 0,
        "decoder_input_ids": torch.nn.functional.pad(labels[:, :-1].clamp(min=0), (1, 0), value=1),
        "labels": labels,
    }


def recorder(marks, losses):
    """A callback that notes when epochs begin and end, and their losses."""
    import transformers

    class Recorder(transformers.TrainerCallback):
        def on_epoch_begin(self, *arguments, **others):
            if not marks:
                marks.append(time.perf_counter())

        def on_epoch_end(self, *arguments, **others):
            marks.append(time.perf_counter())

        def on_log(self, arguments, state, control, logs=None, **others):
            losses.extend([logs["loss"]] if "loss" in logs else [])

    return Recorder()


def seq2seq_trainer(name):
    """The same for `transformers.Seq2SeqTrainer`."""
    import torch
    import transformers

    from benchmarks.marian import marian

    torch.manual_seed(1)
    examples, settings = alternating.apart(for_trainer)
    rows = [
        {"input_ids": source.tolist(), "labels": target[1:].tolist()} for source, target in examples
    ]
    marks, losses = [], []
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.Seq2SeqTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=PAIRS,
            num_train_epochs=1,
            learning_rate=1e-3,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=200,
            label_smoothing_factor=0.1,
            logging_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_drop_last=True,
        )
        transformers.Seq2SeqTrainer(
            model=marian(settings, None),
            args=arguments,
            train_dataset=rows,
            data_collator=collate,
            callbacks=[recorder(marks, losses)],
        ).train()
    tokens = sum(len(row["labels"]) for row in rows)
    return np.diff(marks).tolist(), tokens, losses


def main():
    rows = {}
    for name in NAMES:
        seconds, tokens, losses = alternating.fresh("benchmarks.epoch", "--candidate", name)
        rows[name] = {
            "first_epoch_seconds": round(seconds[0], 1),
            "last_epoch_seconds": round(seconds[-1], 1),
            "real_target_tokens_per_second": round(tokens / seconds[-1]),
            **{f"loss_{i}": round(loss, 3) for i, loss in enumerate(losses[:EPOCHS], 1)},
        }
        print(table({name: rows[name]}), flush=True)
    ours = rows[NAMES[0]]["real_target_tokens_per_second"]
    for row in rows.values():
        row["packed_times_this"] = round(ours / row["real_target_tokens_per_second"], 2)
    packages = ("tensorflow", "keras", "torch", "transformers", "accelerate")
    write("epoch", {**heading(*packages), "rows": rows}, {"An epoch of ui.en-de": rows})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidate", choices=NAMES, help="used by the benchmark itself")
    candidate = parser.parse_args().candidate
    if candidate:
        run = seq2seq_trainer if candidate == NAMES[-1] else ours
        print(json.dumps(run(candidate)))
    else:
        main()
