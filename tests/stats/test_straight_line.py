"""Whether means lie on a line: the false alarms are as many as stated."""

import numpy as np
import pytest

from trainlab.stats.means import lack_of_fit

X = np.array([0.0, 1.0, 2.0, 4.0])


def test_noise_about_a_line_is_called_a_lack_of_fit_as_rarely_as_stated() -> None:
    rng = np.random.default_rng(1)
    p = [
        lack_of_fit(X, 3 * X[:, np.newaxis] + rng.standard_normal((4, 5)) + rng.standard_normal(5))
        for _ in range(2000)
    ]
    share = np.mean([one is not None and one < 0.05 for one in p])
    assert share == pytest.approx(0.05, abs=0.015)


def test_a_bend_beyond_the_noise_is_found() -> None:
    rng = np.random.default_rng(2)
    bent = (X**2)[:, np.newaxis] + rng.standard_normal((4, 5))
    assert (lack_of_fit(X, bent) or 0) < 0.001


def test_without_noise_a_line_fits_or_does_not() -> None:
    assert lack_of_fit(X, np.outer(X, np.ones(3)) + np.arange(3)) == 1.0
    assert lack_of_fit(X, np.outer(X**2, np.ones(3)) + np.arange(3)) == 0.0


def test_two_places_or_one_seed_cannot_tell() -> None:
    assert lack_of_fit(X[:2], np.ones((2, 5))) is None
    assert lack_of_fit(X, np.ones((4, 1))) is None
