"""Claims about the numbers for fine-tuning by the size of the labelled set."""

import pytest

from keras_transformers.training import fine_tuning_numbers
from keras_transformers.training.by_size import MEASURED


@pytest.mark.parametrize("kind", list(MEASURED))
def test_at_sizes_that_were_measured_they_are_what_was_best(kind):
    for size, (epochs, rate) in MEASURED[kind].items():
        found = fine_tuning_numbers(size, kind)
        assert (found.epochs, found.learning_rate) == (epochs, rate)


@pytest.mark.parametrize("kind", list(MEASURED))
def test_more_examples_are_never_seen_more_often_nor_learned_faster(kind):
    sizes = [10**i * j for i in range(7) for j in (1, 2, 5)]
    found = [fine_tuning_numbers(size, kind) for size in sizes]
    for name in ("epochs", "learning_rate"):
        numbers = [getattr(each, name) for each in found]
        assert numbers == sorted(numbers, reverse=True) and numbers[-1] > 0
    assert all(
        each.warmup_steps < each.epochs * size for each, size in zip(found, sizes, strict=True)
    )


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="`examples` must be positive. Received|examples=0"):
        fine_tuning_numbers(0)
    with pytest.raises(ValueError, match="one of text, image. Received: .*'sound'"):
        fine_tuning_numbers(10, "sound")
