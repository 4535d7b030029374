"""Shakespeare's works: whole, by scene, and as passages labelled with their play."""

import collections
import gzip
import re

from keras_transformers.text import TextCorpus

from .data_sets import find_embedded

FILE = "shakespeare.txt.gz"
# The title stands above its author, and a scene begins with one of these words.
TITLE = re.compile(r"^(\S.*\S)\n+by William Shakespeare$", re.MULTILINE)
SCENE = re.compile(r"^\s*(?:ACT|SCENE|Scene|PROLOGUE|EPILOGUE|CHORUS|INDUCTION)\b.*$", re.MULTILINE)
# Who speaks stands alone above what is said, or in capitals; what is done stands in brackets.
SPEAKER = re.compile(r"(?<=\n\n)(?:[A-Z][^\n]{0,40}\.|[A-Z][A-Z' ]+)\n(?=\S)|\b[A-Z]{3,}\.(?=\s)")
DIRECTION = re.compile(r"\[[^\]]*\]")
SHARES = ("train",) * 8 + ("valid", "test")  # of ten scenes
# Held out whole: a tragedy to watch training by; a tragedy, a history and a comedy for the test.
HELD_OUT = {"MACBETH": "valid", "JULIUS CAESAR": "test", "KING JOHN": "test", "THE TEMPEST": "test"}


def works(folder=None):
    """Returns all 42 works: dict of title -> text without title and author.

    Args:
        folder: Of the file, see `data_sets.find_embedded`.
    """
    path = find_embedded("shakespeare", FILE, folder)
    text = gzip.decompress(path.read_bytes()).decode("utf-8").replace("\r\n", "\n")
    titles = list(TITLE.finditer(text))
    ends = [title.start() for title in titles[1:]] + [len(text)]
    return {
        title[1]: text[title.end() : end].strip() + "\n"
        for title, end in zip(titles, ends, strict=True)
    }


def by_work(folder=None):
    """Returns whole works, four of them held out: dict of split -> `TextCorpus` without labels."""
    texts = collections.defaultdict(list)
    for title, text in works(folder).items():
        texts[HELD_OUT.get(title, "train")].append(text)
    return {
        split: TextCorpus(f"Shakespeare's works, {split}", texts[split])
        for split in ("train", "valid", "test")
    }


def by_scene(folder=None):
    """Returns the spoken text of each scene: dict of split -> `TextCorpus`, labelled by play.

    Of every ten scenes of a play eight are for training, one for validation and one for the test.
    Speakers' names and stage directions are left out; names that are spoken stay. Poems, which have
    no scenes, are left out.
    """
    pairs_of_splits, classes = {split: [] for split in ("train", "valid", "test")}, []
    for title, text in works(folder).items():
        scenes = [scene for scene in map(_spoken, SCENE.split(text)[1:]) if scene]
        if len(scenes) < len(SHARES):
            continue
        for number, scene in enumerate(scenes):
            pairs_of_splits[SHARES[number % len(SHARES)]].append((scene, len(classes)))
        classes.append(title)
    return {
        split: _corpus(f"scenes, {split}", pairs, classes)
        for split, pairs in pairs_of_splits.items()
    }


def passages(words=40, folder=None):
    """Returns passages labelled with their play; no scene is in two splits.

    Args:
        words: Length of a passage. What is left over at the end of a scene is left out.
        folder: Of the file, see `data_sets.find_embedded`.

    Returns:
        Dict of split -> `TextCorpus` with labels.

    Raises:
        ValueError: If `words` is not positive.
    """
    if words < 1:
        raise ValueError(f"shakespeare.passages: `words` must be positive. Received: {words}")
    corpora = {}
    for split, scenes in by_scene(folder).items():
        pairs = []
        for text, label in zip(scenes.texts, scenes.labels, strict=True):
            scene = text.split()
            for start in range(0, len(scene) - words + 1, words):
                pairs.append((" ".join(scene[start : start + words]), label))
        corpora[split] = _corpus(f"passages, {split}", pairs, scenes.classes)
    return corpora


def _corpus(name, pairs, classes):
    return TextCorpus(name, [text for text, _ in pairs], [label for _, label in pairs], classes)


def _spoken(scene):
    """Returns the spoken text of a scene, with single spaces."""
    return " ".join(DIRECTION.sub("", SPEAKER.sub("", "\n\n" + scene)).split())
