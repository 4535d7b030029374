"""Claims about how figures look: one style, colours that all can tell apart, no text over text."""

import itertools
import warnings

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from keras_transformers import visualization
from keras_transformers.visualization import style
from keras_transformers.visualization.style import label_ends, one_panel, spread

RNG = np.random.default_rng(0)
WORDS = ["▁Select", "▁dis", "c", "o", "ver", "ed", "▁ONVIF", "▁device", "</s>"]
LONG = {f"a_rather_long_name_{i}": {"score": 0.7 + i / 900, "cost": 9e4 + i} for i in range(18)}
BOXES = np.concatenate([corner := RNG.integers(0, 80, (9, 2)), corner + 24], axis=1)
CURVES = {"loss": [3.0, 2.0, 1.0], "val_loss": [3.1, 2.5, 2.7], "val_bleu": [np.nan, 7.0, 9.0]}

# A figure of every function, with what is apt to collide.
DRAWINGS = {
    "attention_heat_map": (RNG.random((9, 9)), WORDS, WORDS),
    "comparison": (LONG, "PATH", ["score", "cost"], {"score": "cost"}, ["cost"], "Eighteen names"),
    "confusion_matrix": (RNG.integers(0, 9999, (5, 5)), [f"a class {i}" for i in range(5)]),
    "grid_position_similarity": (RNG.normal(size=(12, 5)), (3, 4)),
    "grouped_bars": (
        {
            "chrF by words of the source": {
                name: {"1-2": 60.11, "3-5": 51.0, "6-10": 40.0} for name in ("old", "new", "third")
            },
            "kept, in %": {"old": {"number": 81.0}},
        },
    ),
    "images_side_by_side": ({"original": np.ones((2, 4, 4, 1)), "drawn": np.ones((2, 4, 4, 1))},),
    "images_with_attention": (
        RNG.random((3, 8, 8, 1)),
        {"attention roll-out": RNG.random((3, 2, 2)), "relevance": RNG.random((3, 2, 2))},
        ["Ankle boot\n-> Sneaker, 90%"] * 3,
        "PATH",
        2,
        "True class -> predicted class",
        [[1, 1, 5, 6]] * 3,
    ),
    "images_with_boxes": ([np.zeros((100, 120, 3))], [(BOXES, np.linspace(0.2, 1, 9))], [BOXES]),
    "learning_rate_range": (
        np.geomspace(1e-6, 1, 30),
        RNG.random(30) + 2,
        "PATH",
        np.linspace(2.5, 2, 30),
        3.4e-3,
    ),
    "patch_filters": (RNG.normal(size=(4, 4, 1, 9)),),
    "position_bias": (RNG.normal(size=(6, 33)), np.arange(-16, 17)),
    "position_similarity": (RNG.normal(size=(5, 7)),),
    "training_curves": (CURVES,),
}


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """A function that draws by name and gives the figure."""
    figures = []
    write = Figure.savefig

    def savefig(figure, path, **options):
        figures.append(figure)
        write(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)

    def draw(name, *arguments):
        path = tmp_path / "figure.png"
        named = [isinstance(each, str) and each == "PATH" for each in arguments]
        given = [path if is_path else each for each, is_path in zip(arguments, named, strict=True)]
        getattr(visualization, name)(*given, *([] if any(named) else [path]))
        return figures[-1]

    return draw


def texts(figure):
    """What is written in a figure and seen: its text and its extent in pixels."""
    figure.draw_without_rendering()
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not (axes.axison and low - 1e-9 <= tick.get_loc() <= high + 1e-9):
                    hidden |= {tick.label1, tick.label2}
            hidden |= set() if axes.axison else {axis.label}
    found = figure.findobj(Text)
    seen = [each for each in found if each.get_visible() and each not in hidden]
    return [(each.get_text(), each.get_window_extent()) for each in seen if each.get_text().strip()]


def overlaps(figure):
    """Pairs of texts of which one lies over the other, by more than a pixel."""
    return [
        (one, other)
        for (one, a), (other, b) in itertools.combinations(texts(figure), 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]


@pytest.mark.parametrize("name", DRAWINGS)
def test_figures_have_one_style_and_no_text_over_text(name, drawn):
    before = dict(matplotlib.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = drawn(name, *DRAWINGS[name])
    assert dict(matplotlib.rcParams) == before
    assert matplotlib.colors.same_color(figure.get_facecolor(), style.PAPER)
    assert overlaps(figure) == []
    sizes = {text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()}
    assert sizes <= {style.TITLE, style.TEXT, style.SMALL, style.SMALL - 1}


def test_every_figure_function_is_tried():
    assert set(visualization.__all__) - {"most_confused"} == set(DRAWINGS)


def test_the_overlap_that_is_looked_for_is_found(drawn):
    figure, axes = one_panel(3, 2)
    axes.text(0.5, 0.5, "one")
    axes.text(0.51, 0.5, "other")
    assert ("one", "other") in overlaps(figure)


def linear(color):
    """A colour as light: sRGB without its curve (IEC 61966-2-1)."""
    coded = np.array(matplotlib.colors.to_rgb(color))
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def lab(light):
    """CIELAB under D65."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.maximum(to_xyz @ np.clip(light, 0, 1), 1e-3) / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


# Machado, Oliveira and Fernandes 2009, table 1: what eyes see that lack a kind of cone.
EYES = {
    "normal": np.eye(3),
    "no red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


@pytest.mark.parametrize("eyes", EYES)
def test_all_eyes_tell_the_colours_of_series_apart(eyes):
    seen = [lab(EYES[eyes] @ linear(color)) for color in style.SERIES]
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)]
    assert min(distances) > 10  # 2.3 is what can just be told apart, side by side


@pytest.mark.parametrize(
    ("color", "least"),
    [*((color, 3) for color in style.SERIES), (style.INK, 7), (style.FAINT, 4.5)],
)
def test_ink_has_the_contrast_with_paper_that_wcag_asks_for(color, least):
    paper, ink = (linear(each) @ [0.2126, 0.7152, 0.0722] for each in (style.PAPER, color))
    assert (paper + 0.05) / (ink + 0.05) >= least


def test_one_epoch_is_a_dot_with_its_value_and_the_best_of_several_has_a_ring(drawn):
    axes = drawn("training_curves", {"loss": [4.785], "val_loss": [3.876]}).axes[0]
    assert [text.get_text() for text in axes.texts] == ["4.79", "3.88"]
    assert [x for x in axes.get_xticks() if 0.5 < x < 1.5] == [1]
    loss, bleu = drawn("training_curves", CURVES).axes[:2]
    assert list(loss.lines[-1].get_xydata()[0]) == [2, 2.5]  # the least
    assert list(bleu.lines[-1].get_xydata()[0]) == [3, 9]  # the most
    assert bleu.get_ylabel() == "BLEU, 0 to 100"
    empty = drawn("training_curves", {"loss": [np.nan]}).axes[0]
    assert [text.get_text() for text in empty.texts] == ["no value"]
    with pytest.raises(ValueError, match="must have values"):
        drawn("training_curves", {})


def test_scores_stand_beside_boxes_and_not_over_one_another(drawn):
    figure = drawn("images_with_boxes", *DRAWINGS["images_with_boxes"])
    written = [text.get_text() for text in figure.axes[0].texts]
    assert sorted(written) == sorted(f"{score:.0%}" for score in np.linspace(0.2, 1, 9))
    frame = figure.axes[0].get_window_extent()
    for _, extent in texts(figure):
        inside = extent.x0 >= frame.x0 - 2 and extent.x1 <= frame.x1 + 2
        assert inside or extent.y0 > frame.y1  # or above it, in the legend


def test_a_box_lies_on_the_image_and_on_each_map(drawn):
    figure = drawn("images_with_attention", *DRAWINGS["images_with_attention"])
    lefts = [patch.get_x() for patch in figure.axes[0].patches]
    np.testing.assert_allclose(lefts, 1 + 1.04 * 8 * np.arange(3))
    with pytest.raises(ValueError, match="3 images, 3, 3 maps, 3 titles, 1 boxes"):
        drawn("images_with_attention", *DRAWINGS["images_with_attention"][:-1], [[1, 1, 5, 6]])


def test_rows_of_a_comparison_are_sorted_by_the_first_column_and_the_middle_is_left_out(drawn):
    rows = {f"n{i}": {"score": (7 * i) % 100} for i in range(100)}
    rows |= {"none": {}}
    axes = drawn("comparison", rows, "PATH", ["score"]).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) == 61 and labels[30] == "…" and labels[-1] == "none"
    assert [rows[label]["score"] for label in labels[:30]] == list(range(99, 69, -1))
    with pytest.raises(ValueError, match="rows and columns. Received: 0 rows"):
        drawn("comparison", {}, "PATH", ["score"])


def test_labels_at_the_ends_of_lines_keep_apart_and_near():
    figure, axes = one_panel(5, 3)
    for i in range(11):
        axes.plot([1, 2], [1, 1 + i / 100], label=f"line {i}")
    label_ends(axes)
    assert overlaps(figure) == []
    assert [text.get_text() for text in axes.texts] == [f"line {i}" for i in range(11)]


def test_spreading_is_the_nearest_that_keeps_the_gap():
    from scipy.optimize import minimize

    values = RNG.random(7)
    found = spread(values, 0.11)
    order = np.argsort(values)
    assert np.diff(found[order]).min() > 0.11 - 1e-9
    rules = {"type": "ineq", "fun": lambda x: np.diff(x[order]) - 0.11}
    best = minimize(lambda x: np.sum((x - values) ** 2), found, constraints=rules, tol=1e-12)
    np.testing.assert_allclose(found, best.x, atol=1e-4)


def test_a_large_figure_is_written_with_few_colours(drawn, tmp_path):
    images = [RNG.random((200, 200, 3))] * 2
    drawn("images_with_boxes", images, [(BOXES, np.linspace(0.2, 1, 9))] * 2, [BOXES] * 2)
    written = tmp_path / "figure.png"
    picture = np.uint8(255 * matplotlib.image.imread(written))
    assert len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0)) <= 256
    assert tuple(picture[0, 0, :3]) == (255, 255, 255)
