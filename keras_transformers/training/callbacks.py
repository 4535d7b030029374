"""Callbacks of `model.fit`: translation scores during training, and checkpoint averaging."""

import collections
import time

import keras
import numpy as np


class TranslationScores(keras.callbacks.Callback):
    """Translates a validation set after each epoch and scores it with sacreBLEU and chrF.

    Puts `val_bleu` and `val_chrf` into the epoch's logs, where `History`, and `ModelCheckpoint` or
    `EarlyStopping` later in the list of callbacks, find them (BLEU: Papineni et al. 2002;
    Post 2018, https://arxiv.org/abs/1804.08771; chrF: Popović 2015).

    Args:
        translate: Function from a list of source sentences to a list of translations.
        sources, references: Lists of str of one length.
        every: Epochs from one scoring to the next. The epochs between carry the last score on.
        tokenize: sacreBLEU's tokenizer; "13a" for European languages, "zh", "ja-mecab" ...
        samples: Number of translations to print after each scoring.

    Raises:
        ValueError: If the lists differ in length or are empty.

    Example:
    >>> from keras_transformers.training import TranslationScores
    >>> callback = TranslationScores(lambda sources: ["a b c d"], ["x"], ["a b c d"])
    >>> logs = {}
    >>> callback.on_epoch_end(0, logs)
    >>> round(logs["val_bleu"], 1), round(logs["val_chrf"], 1)
    (100.0, 100.0)
    """

    def __init__(self, translate, sources, references, every=1, tokenize="13a", samples=0):
        super().__init__()
        if not sources or len(sources) != len(references):
            raise ValueError(
                "TranslationScores: `sources` and `references` must be as long as each other and "
                f"not empty. Received: {len(sources)} and {len(references)}"
            )
        self.translate = translate
        self.sources = list(sources)
        self.references = list(references)
        self.every = every
        self.tokenize = tokenize
        self.samples = samples
        self.scores = {}

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every == 0 or not self.scores:
            translations = self.translate(self.sources)
            bleu, chrf, _ = score_translations(translations, self.references, self.tokenize)
            self.scores = {"val_bleu": bleu, "val_chrf": chrf}
            for source, translation in list(zip(self.sources, translations, strict=True))[
                : self.samples
            ]:
                print(f"\n  {source}\n  -> {translation}")
        if logs is not None:
            logs.update(self.scores)


def score_translations(translations, references, tokenize="13a"):
    """Corpus BLEU and chrF by sacreBLEU, cased.

    Args:
        translations, references: Lists of str of one length.
        tokenize: sacreBLEU's tokenizer.

    Returns:
        BLEU, chrF (both in percent) and the signature of the BLEU.

    Example:
    >>> from keras_transformers.training import score_translations
    >>> score_translations(["a b c d"], ["a b c d"])[0] > 99.9
    True
    """
    from sacrebleu.metrics import BLEU, CHRF  # only where translations are scored

    metric = BLEU(tokenize=tokenize)
    bleu = metric.corpus_score(translations, [references]).score
    chrf = CHRF().corpus_score(translations, [references]).score
    return bleu, chrf, str(metric.get_signature())


class CheckpointAverage(keras.callbacks.Callback):
    """Sets the model, when training ends, to the mean of its weights after the last epochs.

    Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762, section 6.1) average the last 5
    checkpoints. The copies are kept in memory; the mean is taken in float64 and cast back.

    Args:
        last: Number of epochs to average.
        monitor: Optional name in the logs; then the best `last` epochs count instead of the last.
        mode: "max" or "min", what is best for `monitor`.

    Raises:
        ValueError: If `last` is not positive or `mode` unknown.

    Example:
    >>> import keras, numpy as np
    >>> from keras_transformers.training import CheckpointAverage
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x = np.ones((4, 2), "float32")
    >>> history = model.fit(x, x[:, :1], epochs=3, verbose=0, callbacks=[CheckpointAverage(2)])
    """

    def __init__(self, last=5, monitor=None, mode="max"):
        super().__init__()
        if last < 1 or mode not in ("max", "min"):
            raise ValueError(
                'CheckpointAverage: `last` must be positive and `mode` "max" or "min". '
                f"Received: last={last}, mode={mode!r}"
            )
        self.last = last
        self.monitor = monitor
        self.sign = 1 if mode == "max" else -1
        self.kept = collections.deque()  # of (rank, weights)

    def on_train_begin(self, logs=None):
        self.kept.clear()

    def on_epoch_end(self, epoch, logs=None):
        rank = epoch if self.monitor is None else self.sign * (logs or {})[self.monitor]
        self.kept.append((rank, self.model.get_weights()))
        if len(self.kept) > self.last:
            del self.kept[int(np.argmin([rank for rank, _ in self.kept]))]

    def on_train_end(self, logs=None):
        if self.kept:
            copies = zip(*(weights for _, weights in self.kept), strict=True)
            self.model.set_weights(
                [np.mean(copy, axis=0, dtype="float64").astype(copy[0].dtype) for copy in copies]
            )
            self.kept.clear()


class Throughput(keras.callbacks.Callback):
    """Measures real target tokens per second of training; validation and scoring not counted.

    Puts `tokens_per_second` into the epoch's logs and sums up `seconds` of training. The first
    epoch holds compilation.

    Args:
        tokens_per_epoch: Number of real target tokens in an epoch.

    Example:
    >>> from keras_transformers.training import Throughput
    >>> Throughput(tokens_per_epoch=1000).seconds
    0.0
    """

    def __init__(self, tokens_per_epoch):
        super().__init__()
        self.tokens_per_epoch = tokens_per_epoch
        self.seconds = 0.0
        self.rates = []

    def on_epoch_begin(self, epoch, logs=None):
        self._started = time.perf_counter()
        self._last = self._started

    def on_train_batch_end(self, batch, logs=None):
        self._last = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        spent = self._last - self._started
        self.seconds += spent
        self.rates.append(self.tokens_per_epoch / max(spent, 1e-9))
        if logs is not None:
            logs["tokens_per_second"] = self.rates[-1]
