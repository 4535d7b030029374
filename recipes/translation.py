"""Translation from text files to a SavedModel, with the Transformer of Vaswani et al. 2017.

    python -m recipes.translation                          # English-German user interfaces
    python -m recipes.translation --dataset bible.en-es
    python -m recipes.translation --train a.tsv            # or with --valid b.tsv --test c.tsv
    python -m recipes.translation --train "shards/*.tsv" ...  # a stream, larger than memory
    python -m recipes.translation --train en-de=a.tsv en-es=b.tsv  # one model of several directions
    python -m recipes.translation --train a.tsv --context 2  # reads two sentences before each
    python -m recipes.translation --reverse                # the other way round
    python -m recipes.translation --extra pairs.tsv.gz     # see recipes.back_translate
    python -m recipes.translation --pretrained opus-mt-en-de  # published weights, in that folder

See https://arxiv.org/abs/1706.03762; positions are relative, as in https://arxiv.org/abs/1910.10683.
Measured on the 1,000 test pairs of the first data set with beam 4, on two cores of an AMD EPYC with
AVX-512 at 8,000 target tokens a second: 39.3 BLEU and 65.7 chrF in 10.9 minutes, training and
evaluation (seed 1); 33.4 and 61.7 with `--positions sinusoidal --sample-until 1 --learning-rate
5e-3`.
sacreBLEU nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from keras_transformers.data.streams import each_row_twice, first_or_second
from keras_transformers.export import Translator
from keras_transformers.generation import BeamSearch
from keras_transformers.layers import sinusoidal_encoding
from keras_transformers.models import Transformer
from keras_transformers.pretrained import load_tokenizer
from keras_transformers.text import balanced_lengths, encoder_of_pairs, packed, word_dropout
from keras_transformers.training import AdamW, Muon
from keras_transformers.visualization import position_bias, position_similarity

from .data.joined_corpora import JoinedCorpus
from .data.translation import both, encode, load, train_tokenizer
from .lib import fine_tuning, training, translating
from .lib.batches import LastPart, open_stream
from .lib.options import Run, main
from .lib.pace import FewSteps

MOST_SHOWN = 16  # the longest distance in the picture of positions


@dataclass(frozen=True)
class Data:
    """The sentence pairs, and how they are cut into rows."""

    dataset: str | tuple[str, ...] = "ui.en-de"  # or bible.en-es, or tfds:NAME; or several
    train: str | tuple[str, ...] | None = None  # own file, or en-de=FILE ...; a pattern: a stream
    valid: str | tuple[str, ...] | None = None  # the same, to stop in time; else from --train
    test: str | tuple[str, ...] | None = None  # the same, scored at the end; else from --train
    temperature: float = 5.0  # of several directions: 1 shows each pair once, more evens them out
    columns: tuple[str, ...] = ()  # of source and target: their names, or numbers from 1
    extra: tuple[str, ...] = ()  # files of more pairs to learn from, as of `recipes.back_translate`
    upsample: float = 1.0  # how often other pairs are shown for each time that those are
    reverse: bool = False  # translate targets to sources, as the model that back-translates does
    context: int = 0  # previous sources that are read before each; own files, in document order
    vocab_size: int | Literal["auto"] = 2500  # of both languages; or by `train_of_fitting_size`
    pieces: Literal["unigram", "bpe"] = "unigram"  # how they are learned and drawn
    byte_fallback: bool = False  # unknown characters as bytes, for which 256 ids are set aside
    normalization: Literal["none", "nmt_nfkc", "nfkc"] | None = None  # by the script
    sample: float | None = 0.5  # subword regularisation by the seed; of bpe 0.1, its dropout
    sample_until: float = 0.7  # share of the run; then best splits, as translating will have them
    word_dropout: float = 0.0  # share of the words that encoder and decoder do not see
    row_length: int = 64  # positions in a row; a longer pair is left out of training, and counted
    guided_alignment: str | None = None  # links of the training pairs' words: a file, or "eflomal"
    join: float = 0.0  # share of training pairs made one longer pair of two: see `packed`


@dataclass(frozen=True)
class Architecture:
    """The Transformer."""

    pretrained: str | None = None  # folder of published Marian weights, to go on from
    variant: Literal["tiny", "mini", "small", "base", "big"] = "mini"  # 192 wide, 3 + 3 blocks
    num_layers: int | None = None  # blocks of the encoder, and of the decoder; those of the variant
    dropout: float = 0.0  # a few epochs are regularised enough by `sample`; 0.2 for an hour
    positions: Literal["relative", "sinusoidal"] = "relative"  # as T5 has them, or as the paper


@dataclass(frozen=True)
class Training:
    """The length and speed of training."""

    minutes: float | None = 10.0  # of training; the learning rate decays to reach 0 then
    epochs: int = 60  # at most, however quick the machine; without minutes the decay ends there
    steps_per_epoch: int = 1000  # of a stream of shards, which has no other epochs
    batch_size: int = 1024  # positions for target pieces in a batch
    label_smoothing: float = 0.1  # as in section 5.4 of the paper
    r_drop: float = 0.0  # weight of R-Drop: with dropout, each row passes twice; 1 for an hour
    learning_rate: float = 6e-3  # the peak, for matrices and embeddings alike
    weight_decay: float = 0.05  # of matrices and embeddings
    warmup_steps: int = 100  # to the peak
    decay: Literal["linear", "cosine"] = "linear"  # to 0, over the budget
    score_every: int | None = None  # epochs from one BLEU to the next; or a tenth of the time
    score_pairs: int = 400  # of the validation set that are translated while training, at most
    patience: int = 5  # scorings without a better one before training stops


@dataclass(frozen=True)
class Decoding:
    """The search for translations, and their scores."""

    beam_size: int = 4  # as in section 6.1 of the paper
    length_penalty: float = 1.5  # on the validation set 1.6 did better than 1 and than 2.5
    shortlist: int | None = None  # pieces that each source piece may become; None allows all
    bleu_tokenizer: str | None = None  # sacreBLEU's; by default by the script of the references


@dataclass(frozen=True)
class Config:
    """Every number of a run. The defaults suit some 30,000 pairs and two CPU cores."""

    run: Run = Run("runs/translation")
    data: Data = Data()
    model: Architecture = Architecture()
    training: Training = Training()
    decoding: Decoding = Decoding()
    DOCUMENTED_STEPS: ClassVar = 4_100  # of the scores above
    # In the time of 4 epochs of "mini", "tiny" trains 12 and scores 35.6 BLEU on the validation set
    # (seed 1); 3 epochs of "mini" score 19.9, 5.2 score 31.0.
    FEW_STEPS: ClassVar = (
        FewSteps(2_600, {"variant": "tiny"}, "a step of it takes about a third of the time"),
    )
    SMOKE: ClassVar = {
        "epochs": 1,
        "steps_per_epoch": 4,
        "batch_size": 512,
        "vocab_size": 600,
        "variant": "tiny",
        "num_layers": 1,  # each takes seconds to compile and to export
        "warmup_steps": 5,
    }
    PUBLISHED: ClassVar = {  # to go on from published weights
        "learning_rate": 1e-4,
        "sample": None,
        "length_penalty": 1.0,
        "batch_size": 2048,
        "score_every": 1,
    }


def load_data(config, folder=None):
    """Returns pairs, their tokenizer, packed rows for training and validation, and callbacks."""
    options = config.data
    if options.context and (options.join or options.guided_alignment or config.model.pretrained):
        raise ValueError("--context must be 0 with --join, --guided-alignment and --pretrained.")
    data = load(
        options.dataset,
        options.train,
        options.valid,
        options.test,
        columns=options.columns,
        temperature=options.temperature,
        extra=options.extra,
        upsample=options.upsample,
        reverse=options.reverse,
        context=options.context,
    )
    if config.run.smoke:
        data = data.head(train=400, valid=64, test=64)
    if config.model.pretrained is None:
        kind = (options.vocab_size, options.normalization, options.pieces, options.byte_fallback)
        tokenizer = train_tokenizer(data, *kind)
    elif isinstance(data.test, JoinedCorpus):
        raise ValueError("--pretrained: published translators go on in one direction alone.")
    else:
        tokenizer = load_tokenizer(config.model.pretrained)
    tokenizers = both(tokenizer)  # now, for in a pipeline's graph they cannot be made
    encoded = partial(encode, tokenizers=tokenizers, batch_size=8192)
    lengths = balanced_lengths(encoded(data.train), options.row_length * (1 + options.context))
    train, valid = (
        corpus.without_long(tokenizers, *lengths) for corpus in (data.train, data.valid)
    )
    for corpus in (train, valid, data.test):
        print(corpus.summary())
    rows, seed = config.training.batch_size // options.row_length, config.run.seed
    twice = each_row_twice if config.training.r_drop else lambda batches: batches
    rows = max(rows // 2, 1) if config.training.r_drop else rows
    padding = {"padding_id": tokenizer.pad_id}
    last, hidden = LastPart(config, folder, options.sample_until), words_hidden(config, tokenizer)

    def arrange(pairs, epoch):
        filled = twice(packed(pairs, *lengths, rows, seed, options.join, epoch=epoch, **padding))
        return hidden(filled, epoch)

    def batches(epoch):
        shuffled = {"shuffle_seed": seed, "epoch": epoch}
        best = arrange(encoded(train, **shuffled), epoch)
        if options.sample is None:
            return best
        drawn = encoded(train, sample=options.sample, longest=lengths, **shuffled)
        return first_or_second(last.has(epoch), best, arrange(drawn, epoch))

    if data.shards is not None:
        source, target = both(tokenizer)
        to_ids = encoder_of_pairs(source, lengths, target, options.sample, seed)
        batches = open_stream(config, data.shards, to_ids, arrange)
    watched = twice(packed(encoded(valid), *lengths, rows, **padding))
    return data, tokenizer, batches, watched, [last]


def words_hidden(config, tokenizer):
    """Returns a function of batches and an epoch that hides `--word-dropout` of the words."""
    rate = config.data.word_dropout
    if not rate:
        return lambda batches, epoch: batches
    ids = tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id
    marks = {**getattr(tokenizer, "language_marks", {}), **getattr(tokenizer, "tags", {})}
    special = {*ids, *marks.values()}
    words = {"starts_word": tokenizer.starts_word, "seed": config.run.seed}
    hidden = partial(
        word_dropout, rate=rate, hidden_id=tokenizer.unknown_id, special_ids=special, **words
    )
    return lambda batches, epoch: hidden(batches, epoch=epoch)


def build_model(config, vocab_size):
    """Builds and compiles the pre-norm Transformer with one shared table, or the published one."""
    options = config.model
    if options.pretrained is not None:
        model = fine_tuning.start_from(options.pretrained, Transformer, "translator")
        optimizer = training.make_optimizer(config, AdamW, global_clipnorm=1.0)
    else:
        blocks = {} if options.num_layers is None else {"num_layers": options.num_layers}
        model = Transformer.from_variant(
            options.variant,
            vocab_size,
            dropout=options.dropout,
            norm_first=True,
            positions=options.positions,
            **blocks,
        )
        optimizer = training.make_optimizer(config, Muon)
    learned = training.token_loss_and_metrics(
        model, config.training.label_smoothing, config.training.r_drop
    )
    shape = {"source": (None, None), "target": (None, None)}
    return training.compile_model(config, model, optimizer, shape, **learned)


def draw_positions(model, path):
    """Draws the encoder's bias for each distance, or the similarity of sinusoidal positions."""
    if hasattr(model.source_positions, "bias"):
        query, keys = np.array([MOST_SHOWN]), np.arange(2 * MOST_SHOWN + 1)
        biases = model.source_positions.bias(None, query, keys)
        position_bias(np.asarray(biases)[:, 0], keys - MOST_SHOWN, path)
    else:
        positions = sinusoidal_encoding(np.arange(64), model.target_embedding.hidden_dim)
        position_similarity(positions, path)


def run(config):
    """Trains, scores on the test set with beam search, exports; returns the metrics."""
    folder = training.start_run(config)
    data, tokenizer, batches, valid, callbacks = load_data(config, folder)
    links = translating.load_links(config.data.guided_alignment, data)
    if config.model.pretrained is None:
        folder.keep("tokenizer.model", tokenizer.save)
    build = partial(build_model, vocab_size=tokenizer.vocab_size)
    config, model = training.build_for_machine(config, folder, build, batches)
    search = BeamSearch(config.decoding.beam_size, config.decoding.length_penalty)
    scored = data.valid.spread(config.training.score_pairs)
    translate = translating.make_translate(model, tokenizer, search, scored)
    history, measured = translating.fit_translations(
        config, folder, model, batches, valid, scored, translate, callbacks
    )
    training.continue_on_tensorflow()
    lists = translating.learn_shortlist(config, folder, data, tokenizer)
    translator = Translator(model, tokenizer, search, shortlist=lists)
    scores, rows = translating.score(folder, data, translator, config.decoding.bleu_tokenizer)
    translating.calibrate(translator, data.valid)
    first_tokenizer = translating.tokenizer_of_first(tokenizer, data.test)
    attention = ("cross_attention", "Cross-attention of the last decoder block, mean of its heads")
    return training.finish(
        folder,
        {**scores, **measured},
        model=model,
        history=history,
        curves=translating.CURVES,
        exports={
            "saved_model": translator.save,
            "alignment.keras": translating.alignment_trainer(model, first_tokenizer, data, links),
            "published": fine_tuning.publishing(config.model.pretrained, model, tokenizer),
        },
        figures={
            "cross_attention": partial(
                translating.draw_attention, model, first_tokenizer, rows, *attention
            ),
            "positions": partial(draw_positions, model),
            "errors": partial(translating.draw_errors, folder),
        },
        use=lambda: translating.show_use(folder, rows, first_tokenizer),
    )


if __name__ == "__main__":
    main(run, Config, __doc__)
