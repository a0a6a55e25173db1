"""Equivalence of native and torch's kernels: the estimate, and a rule that can fail."""

import numpy as np
import pytest
from benchmarks.equivalence import Difference, Task, average, equivalent, lines


def task(torch, native):
    return Task("CartPole-v1", "ppo", np.array(torch, float), np.array(native, float))


def test_the_difference_is_that_of_welch():
    # Welch's t of 4, 5, 6, 7 and 1, 2, 6: computed by hand.
    difference = task([1, 2, 6], [4, 5, 6, 7]).difference
    assert difference.mean == pytest.approx(2.5)
    assert difference.variance == pytest.approx(7 / 3 + 5 / 12)
    assert difference.freedom == pytest.approx((7 / 3 + 5 / 12) ** 2 / ((7 / 3) ** 2 / 2 + (5 / 12) ** 2 / 3))


def test_the_average_of_equal_tasks_has_a_smaller_variance_and_more_freedom():
    one = Difference(0.1, 0.04, 10)
    mean = average([one] * 4)
    assert mean == pytest.approx((0.1, 0.01, 40))


def test_equal_scores_have_an_interval_without_width():
    assert task([1, 1], [1, 1]).difference.interval(0.9) == (0, 0)


@pytest.mark.parametrize(
    ("means", "passes"),
    [
        ([0, 0, 0], True),
        ([0.06, 0.06, 0.06], False),  # better counts as different too
        ([-0.06, -0.06, -0.06], False),
        ([-0.14, 0.07, 0.07], False),  # equal on average, and one task is worse
    ],
)
def test_the_rule_refuses_what_differs(means, passes):
    assert equivalent([Difference(mean, 1e-5, 38) for mean in means]) is passes


def test_few_noisy_seeds_show_nothing():
    random = np.random.default_rng(0)
    noisy = [task(random.normal(1, 0.5, 3), random.normal(1, 0.5, 3)) for _ in range(3)]
    assert not equivalent([x.difference for x in noisy])
    assert lines(noisy)[-1].endswith("not shown to be equivalent.")
