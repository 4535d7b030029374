"""Training speed of a small translation Transformer: ours under XLA against MarianMT in PyTorch.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.translation_training

Both have 3 + 3 layers of width 192 and one shared table, take the same pairs with the same pieces,
Adam, smoothing 0.1, dropout 0.1, and batches of 1,024 places. MarianMT gets its pairs sorted by
length and padded to the longest of the batch; ours are packed. Counted are real target tokens,
END included, per second of training steps, the first ones (compilation) left out.
"""

import time

import keras
import numpy as np
import torch
import transformers

from benchmarks.report import heading, write
from keras_transformers.models import Transformer
from keras_transformers.text import SentencePieceTokenizer, balanced_lengths, encode_pairs, packed
from keras_transformers.training import Muon, SmoothedCrossEntropy
from recipes.data.translation import load

VOCAB, PLACES, ROW_LENGTH, STEPS, WARM = 4000, 1024, 64, 60, 5


def matrix_product_rate(size=2048, repeats=5):
    """GFLOP/s of one float32 matrix product by XLA and by PyTorch: what the machine can do."""
    x = np.random.default_rng(0).normal(size=(size, size)).astype("float32")
    import tensorflow as tf

    product = tf.function(lambda a: a @ a, jit_compile=True)
    rates = {}
    for name, function, argument in (
        ("xla", lambda a: product(a).numpy(), tf.constant(x)),
        ("pytorch", lambda a: a @ a, torch.tensor(x)),
    ):
        function(argument)
        rates[name] = 2 * size**3 / min(_seconds(function, argument) for _ in range(repeats)) / 1e9
    return rates


def _seconds(function, *arguments):
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started


def ours(pairs, optimizer):
    """Real target tokens per second of `train_on_batch`."""
    lengths = balanced_lengths(pairs, ROW_LENGTH)
    batches = packed(pairs, *lengths, PLACES // ROW_LENGTH)
    batches = [batch for batch, _ in zip(batches, range(STEPS), strict=False)]
    model = Transformer.from_variant("mini", VOCAB, norm_first=True)
    model.compile(optimizer, SmoothedCrossEntropy(), jit_compile=True)
    for inputs, labels in batches[:WARM]:
        model.train_on_batch(inputs, labels)
    seconds = [_seconds(model.train_on_batch, *batch) for batch in batches[WARM:]]
    tokens = np.mean([np.count_nonzero(labels) for _, labels in batches[WARM:]])
    return {"tokens_per_second": tokens / np.median(seconds), "parameters": model.count_params()}


def marian(pairs):
    """The same for `transformers.MarianMTModel`, eager, as it comes."""
    config = transformers.MarianConfig(
        vocab_size=VOCAB,
        d_model=192,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=768,
        decoder_ffn_dim=768,
        activation_function="relu",
        dropout=0.1,
        attention_dropout=0.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        forced_eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = transformers.MarianMTModel(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)

    def step(source, target):
        logits = model(
            input_ids=source, attention_mask=source != 0, decoder_input_ids=target[:, :-1]
        ).logits
        optimizer.zero_grad()
        criterion(logits.reshape(-1, VOCAB), target[:, 1:].reshape(-1)).backward()
        optimizer.step()

    batches = _padded(pairs)
    for batch in batches[:WARM]:
        step(*batch)
    chosen = batches[WARM : WARM + 2 * STEPS]
    seconds = sum(_seconds(step, *batch) for batch in chosen)
    tokens = sum(int((target[:, 1:] != 0).sum()) for _, target in chosen)
    return {"tokens_per_second": tokens / seconds, "parameters": model.num_parameters()}


def _padded(pairs):
    """Batches of `PLACES` places on the longer side, of pairs of like length, shuffled."""
    pairs = [tuple(pair[side].numpy() for side in ("source", "target")) for pair in pairs]
    pairs.sort(key=lambda pair: max(map(len, pair)))
    groups, group = [], []
    for pair in pairs:
        if group and (len(group) + 1) * max(map(len, pair)) > PLACES:
            groups.append(group)
            group = []
        group.append(pair)
    order = np.random.default_rng(0).permutation(len(groups))
    pad = torch.nn.utils.rnn.pad_sequence
    batches = [zip(*groups[i], strict=True) for i in order]
    sides = [[list(map(torch.tensor, side)) for side in batch] for batch in batches]
    return [tuple(pad(side, batch_first=True).long() for side in batch) for batch in sides]


def main():
    keras.utils.set_random_seed(1)
    torch.manual_seed(1)
    data = load("ui.en-de").train
    tokenizer = SentencePieceTokenizer.train(data.sources + data.targets, VOCAB)
    data = data.without_long(tokenizer, ROW_LENGTH - 8, ROW_LENGTH)
    pairs = encode_pairs(data.sources, data.targets, tokenizer, shuffle_seed=1)
    result = {
        **heading("keras", "torch", "transformers"),
        "matrix_product_gflops": matrix_product_rate(),
        "MarianMT, Adam": marian(pairs),
        "keras_transformers, Adam": ours(pairs, keras.optimizers.Adam(1e-3, beta_2=0.98)),
        "keras_transformers, Muon": ours(pairs, Muon(5e-3)),
    }
    write("translation_training", result)


if __name__ == "__main__":
    main()
