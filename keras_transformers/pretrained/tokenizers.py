"""The tokenizers of published folders, as ours that run in TensorFlow's graph."""

import pathlib

from keras_transformers.pretrained.files import read_json, write_json

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"


def load_tokenizer(folder):
    """The tokenizer of a published folder; its ids are those of the published one.

    Args:
        folder: Path of the folder. Marian: `source.spm`, `target.spm`, `vocab.json`; BERT and
            DistilBERT: `vocab.txt` or `tokenizer.json`; GPT-2: `vocab.json` and `merges.txt`, or
            `tokenizer.json`.

    Returns:
        A `text.MarianTokenizer` (of the source; `for_targets()` gives the other), a
        `text.WordPieceTokenizer` or a `text.BytePairTokenizer`.

    Raises:
        FileNotFoundError: If the files are missing.
        ValueError: If they are broken, or hold a tokenizer of another kind.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers import pretrained
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]
    >>> _ = (folder / "vocab.txt").write_text("\\n".join(pieces))
    >>> pretrained.load_tokenizer(folder).tokenize(["the cat"], start=True, end=True).to_list()
    [[2, 5, 6, 3]]
    """
    folder = pathlib.Path(folder)
    settings = read_json(folder, SETTINGS) if (folder / SETTINGS).is_file() else {}
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if {"source.spm", "vocab.json"} <= there:
        return _marian(folder, there, settings)
    if "vocab.txt" in there:
        return _word_pieces(folder, settings)
    if {"vocab.json", "merges.txt"} <= there:
        return _byte_pairs(folder, settings)
    if TOKENIZER in there:
        return _of_json(folder, settings)
    raise FileNotFoundError(
        f"{folder} must have a tokenizer: source.spm, target.spm and vocab.json; vocab.txt; "
        f"vocab.json and merges.txt; or {TOKENIZER}. Received: {', '.join(sorted(there)) or 'none'}"
    )


def _marian(folder, there, settings):
    from keras_transformers.text import MarianTokenizer, SentencePieceTokenizer

    apart = settings.get("separate_vocabs", False)
    vocab = _in_order(folder, "vocab.json")
    target_vocab = _in_order(folder, "target_vocab.json") if apart else None
    source, target = (
        SentencePieceTokenizer.read(folder / name)
        for name in ("source.spm", "target.spm" if "target.spm" in there else "source.spm")
    )
    return MarianTokenizer(source, vocab, target, target_vocab)


def _in_order(folder, name):
    """The pieces of a JSON vocabulary in the order of their ids."""
    found = read_json(folder, name)
    numbers = list(found.values())
    if not all(isinstance(number, int) for number in numbers) or sorted(numbers) != list(
        range(len(numbers))
    ):
        raise ValueError(f"{folder / name} must number its pieces 0, 1, 2 ...")
    return sorted(found, key=found.get)


def _word_pieces(folder, settings):
    from keras_transformers.text import WordPieceTokenizer

    return WordPieceTokenizer.load(folder / "vocab.txt", _lower_case(folder, settings))


def _lower_case(folder, settings):
    """Whether text becomes lower case; ValueError for what our tokenizer does otherwise."""
    lower_case = settings.get("do_lower_case", True)
    settled = {
        "do_basic_tokenize": (True,),
        "tokenize_chinese_chars": (True,),
        "strip_accents": (None, lower_case),
        "never_split": (None, []),
    }
    for name, values in settled.items():
        if settings.get(name, values[0]) not in values:
            raise ValueError(
                f"{folder / SETTINGS}: `{name}` must be {values[0]}. Received: {settings[name]!r}"
            )
    return lower_case


def _byte_pairs(folder, settings):
    from keras_transformers.text import BytePairTokenizer

    _check_prefix(folder, settings)
    return BytePairTokenizer.load(folder / "vocab.json", folder / "merges.txt")


def _check_prefix(folder, settings):
    if settings.get("add_prefix_space", False):
        raise ValueError(f"{folder / SETTINGS}: `add_prefix_space` must be false. Received: true")


def _of_json(folder, settings):
    """A tokenizer from the file of Hugging Face's fast ones."""
    from keras_transformers.text import BytePairTokenizer, WordPieceTokenizer

    found = read_json(folder, TOKENIZER)
    model = found.get("model") or {}
    kind, vocab = model.get("type"), model.get("vocab")
    if kind == "WordPiece" and isinstance(vocab, dict):
        normalizer = found.get("normalizer") or {}
        if normalizer.get("type") != "BertNormalizer":
            raise ValueError(f"{folder / TOKENIZER}: the normaliser must be a BertNormalizer.")
        settings = {
            "do_lower_case": normalizer.get("lowercase", True),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
            "strip_accents": normalizer.get("strip_accents"),
        }
        lower_case = _lower_case(folder, settings)
        return WordPieceTokenizer(sorted(vocab, key=vocab.get), lower_case)
    if kind == "BPE" and isinstance(vocab, dict):
        before = found.get("pre_tokenizer") or {}
        plain = before.get("type") == "ByteLevel" and before.get("use_regex", True)
        if not plain or found.get("normalizer"):
            raise ValueError(
                f"{folder / TOKENIZER}: byte pairs must be GPT-2's, of text as it is, cut by its "
                "pattern."
            )
        _check_prefix(folder, before)
        pairs = [
            pair.split(" ") if isinstance(pair, str) else pair for pair in model.get("merges", [])
        ]
        return BytePairTokenizer(vocab, pairs)
    raise ValueError(
        f"{folder / TOKENIZER}: the model must be of type WordPiece or BPE. Received: {kind!r}"
    )


def save_tokenizer(tokenizer, folder):
    """Writes a tokenizer as Hugging Face's `transformers` reads it.

    Args:
        tokenizer: A `text.MarianTokenizer`, `text.WordPieceTokenizer` or `text.BytePairTokenizer`.
        folder: Path of the folder.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        ValueError: If it is of another kind.

    Example:
    >>> import tempfile
    >>> from keras_transformers import pretrained
    >>> from keras_transformers.text import WordPieceTokenizer
    >>> tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"])
    >>> folder = pretrained.save_tokenizer(tokenizer, tempfile.mkdtemp())
    >>> sorted(path.name for path in folder.iterdir())
    ['tokenizer_config.json', 'vocab.txt']
    """
    from keras_transformers.text import BytePairTokenizer, MarianTokenizer, WordPieceTokenizer

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(tokenizer, WordPieceTokenizer):
        tokenizer.save(folder / "vocab.txt")
        settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": tokenizer.lower_case}
    elif isinstance(tokenizer, BytePairTokenizer):
        tokenizer.save(folder / "vocab.json", folder / "merges.txt")
        settings = {"tokenizer_class": "GPT2Tokenizer"}
    elif isinstance(tokenizer, MarianTokenizer):
        targets = tokenizer.for_targets()
        apart = targets.vocab != tokenizer.vocab
        for each, proto, vocab in (
            (tokenizer, "source.spm", "vocab.json"),
            (targets, "target.spm", "target_vocab.json" if apart else None),
        ):
            (folder / proto).write_bytes(each.proto)
            if vocab is not None:
                write_json(folder, vocab, {piece: i for i, piece in enumerate(each.vocab)})
        settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": apart}
    else:
        raise ValueError(
            "save_tokenizer: `tokenizer` must be a MarianTokenizer, WordPieceTokenizer or "
            f"BytePairTokenizer. Received: {type(tokenizer).__name__}"
        )
    write_json(folder, SETTINGS, settings)
    return folder
