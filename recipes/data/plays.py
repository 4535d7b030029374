"""Passages of Shakespeare's plays, labelled with the play they come from."""

import dataclasses
import gzip
import pathlib
import re

FILE = pathlib.Path(__file__).with_name("shakespeare.txt.gz")
# The title stands above its author, and a scene begins with one of these words.
TITLE = re.compile(r"^(\S.*\S)\n+by William Shakespeare$", re.MULTILINE)
SCENE = re.compile(r"^\s*(?:ACT|SCENE|Scene|PROLOGUE|EPILOGUE|CHORUS|INDUCTION)\b.*$", re.MULTILINE)
# Who speaks stands alone above what is said, or in capitals; what is done stands in brackets.
SPEAKER = re.compile(
    r"(?<=\n\n)(?:[A-Z][^\n]{0,40}\.|[A-Z][A-Z' ]+)\n(?=\S)|\b[A-Z]{3,}\.(?=\s)"
)
DIRECTION = re.compile(r"\[[^\]]*\]")
SHARES = ("train",) * 8 + ("valid", "test")  # of ten scenes


@dataclasses.dataclass(frozen=True)
class LabelledTexts:
    """Texts, the number of the class of each, and the names of the classes."""

    name: str
    texts: list[str]
    labels: list[int]
    classes: list[str]

    def __len__(self):
        return len(self.texts)

    def summary(self):
        words = sum(len(text.split()) for text in self.texts)
        return f"{self.name}: {len(self):,} passages of {len(self.classes)} plays, {words:,} words"


@dataclasses.dataclass(frozen=True)
class PlayData:
    """Passages to learn from, to watch training by, and to score on."""

    train: LabelledTexts
    valid: LabelledTexts
    test: LabelledTexts


def load(words=40):
    """Which play is a passage from? Split by scene, so that no dialogue is in two sets.

    Speakers' names and stage directions are left out; names that are spoken stay. Of every ten
    scenes of a play eight are for training, one for validation and one for the test. Poems, which
    have no scenes, are left out.

    Args:
        words: Length of a passage. What is left over at the end of a scene is left out.

    Returns:
        A `PlayData`.

    Raises:
        ValueError: If `words` is not positive.
    """
    if words < 1:
        raise ValueError(f"plays.load: `words` must be positive. Received: {words}")
    text = gzip.decompress(FILE.read_bytes()).decode("utf-8").replace("\r\n", "\n")
    titles = list(TITLE.finditer(text))
    ends = [title.start() for title in titles[1:]] + [len(text)]
    passages, classes = {"train": [], "valid": [], "test": []}, []
    for title, end in zip(titles, ends, strict=True):
        scenes = SCENE.split(text[title.end() : end])[1:]
        scenes = [scene for scene in map(_spoken, scenes) if len(scene) >= words]
        if len(scenes) < len(SHARES):
            continue
        for number, scene in enumerate(scenes):
            found = passages[SHARES[number % len(SHARES)]]
            for start in range(0, len(scene) - words + 1, words):
                found.append((" ".join(scene[start : start + words]), len(classes)))
        classes.append(title[1])
    return PlayData(
        *(
            LabelledTexts(name, [text for text, _ in pairs], [label for _, label in pairs], classes)
            for name, pairs in passages.items()
        )
    )


def _spoken(scene):
    """Words of a scene that are said."""
    return DIRECTION.sub("", SPEAKER.sub("", "\n\n" + scene)).split()
