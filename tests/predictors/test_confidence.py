"""Claims about the curve from how sure a model is to what may be expected."""

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from keras_transformers.tasks.translation_quality import ConfidenceCurve, isotonic


def test_isotonic_regression_is_scipy_s():
    generator = np.random.default_rng(1)
    for number in (1, 2, 7, 50):
        values = generator.normal(size=number).round(1) + np.linspace(0, 1, number)
        weights = generator.uniform(0.5, 2, number)
        expected = isotonic_regression(values, weights=weights).x
        np.testing.assert_allclose(isotonic(values, weights), expected, atol=1e-12)
        expected = isotonic_regression(values).x
        np.testing.assert_allclose(isotonic(values), expected, atol=1e-12)


def test_a_fitted_curve_gives_the_expected_quality_of_new_answers():
    """Quality is known here: 50 + 20 x and noise; means of many answers are near it."""
    generator = np.random.default_rng(2)
    x = generator.uniform(-2, 0, 4000)
    quality = 50 + 20 * x + generator.normal(0, 10, len(x))
    curve = ConfidenceCurve.fit(x, quality)
    assert curve.rows == 4000 and len(curve.scores) == 20
    inside = np.linspace(-1.9, -0.1, 50)
    np.testing.assert_allclose(curve(inside), 50 + 20 * inside, atol=2.5)
    assert (np.diff(curve(np.linspace(-5, 3, 99))) >= 0).all()
    assert curve([-9.0])[0] == curve.qualities[0] and curve([9.0])[0] == curve.qualities[-1]


def test_equal_scores_have_one_expectation():
    curve = ConfidenceCurve.fit([-1.0] * 40, [0.0] * 20 + [100.0] * 20)
    assert curve.qualities == (50.0,) and curve([-3.0, 0.0]).tolist() == [50.0, 50.0]


def test_wrong_curves_are_refused():
    for scores, qualities in (((), ()), ((1.0, 1.0), (1.0, 2.0)), ((1.0, 2.0), (2.0, 1.0))):
        with pytest.raises(ValueError, match="`scores` must increase and `qualities` never"):
            ConfidenceCurve(scores, qualities)
    for scores, qualities in (([], []), ([1.0], [1.0, 2.0]), ([np.nan], [1.0])):
        with pytest.raises(ValueError, match="ConfidenceCurve.fit: `scores` and `qualities` must"):
            ConfidenceCurve.fit(scores, qualities)
