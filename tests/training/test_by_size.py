"""Claims about the numbers for fine-tuning by the size of the labelled set."""

import pytest

from keras_transformers.training import fine_tuning_numbers


@pytest.mark.parametrize(
    "kind, epochs",
    [("text", {50: 8, 200: 8, 2_000: 3, 20_000: 1, 10**6: 1}), ("image", {100: 40, 316: 22})],
)
def test_epochs_lie_on_a_line_between_the_sizes_that_were_measured(kind, epochs):
    assert {size: fine_tuning_numbers(size, kind).epochs for size in epochs} == epochs


@pytest.mark.parametrize("kind", ["text", "image"])
def test_more_examples_are_never_seen_more_often_and_warm_up_takes_a_tenth(kind):
    sizes = [10**i * j for i in range(7) for j in (1, 2, 5)]
    found = [fine_tuning_numbers(size, kind) for size in sizes]
    epochs = [each.epochs for each in found]
    assert epochs == sorted(epochs, reverse=True) and epochs[-1] >= 1
    for size, each in zip(sizes, found, strict=True):
        steps = each.epochs * -(-size // each.batch_size)
        assert each.warmup_steps == steps // 10


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="`examples` must be positive.*examples=0"):
        fine_tuning_numbers(0)
    with pytest.raises(ValueError, match="one of text, image. Received: .*'sound'"):
        fine_tuning_numbers(10, "sound")
