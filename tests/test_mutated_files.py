"""Claims about files that were changed at random: each ends in an answer or in a sentence.

`python -m tests.faults --only mutations` reads many more.
"""

import pathlib
import random
import shutil

import pytest

from tests.faults import mutations


@pytest.mark.parametrize("kind", ["documents", "tables"])
def test_a_changed_file_ends_in_an_answer_or_in_a_sentence(kind, tmp_path):
    (tmp_path / "originals").mkdir()
    reader = mutations.KINDS[kind](tmp_path / "originals")
    files = sorted(path for path in (tmp_path / "originals").iterdir() if path.is_file())
    for number in range(100):
        rng = random.Random(f"{kind} {number}")
        path = pathlib.Path(shutil.copy(rng.choice(files), tmp_path))
        path.write_bytes(mutations.mutated(path.read_bytes(), rng))
        ended, said = mutations.ended(reader, path)
        assert ended in ("answer", "sentence"), (number, path.name, said)


@pytest.mark.slow
@pytest.mark.parametrize("kind", mutations.KINDS)
def test_many_changed_files_take_little_time_and_memory(kind, tmp_path):
    counts, faults = mutations.tried(kind, tmp_path, seed=5, count=300)
    assert not faults and sum(counts.values()) == 300
