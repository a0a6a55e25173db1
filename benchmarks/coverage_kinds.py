"""Simulated studies of the intervals over seeds, one for each kind that reports print.

Shapes.  n seeds.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np

from recollect.common.intervals import (
    Floats,
    Interval,
    iqm_weights,
    mean_weights,
    most_failures,
    stratified,
)
from recollect.common.statistics import iqm
from recollect.reporting.aggregate import (
    aggregate_scores,
    difference_of_means,
    improvement,
    model_difference,
    profiles,
    win_share,
)
from recollect.reporting.curves import summarise_seeds
from recollect.reporting.popgym_iterations import mmer
from recollect.reporting.scores import FinalScores, weighted_mean_interval

from .intervals import SHAPES, rank_study

Generator: TypeAlias = np.random.Generator
# A study of so many seeds or episodes: for each of its intervals the share that contains the true value.
Study: TypeAlias = Callable[[Generator, int], dict[str, float]]

STUDIES = 400
SEEDS = (3, 5, 10, 20)
LARGE = 1_000_000  # scores, from which true values are computed
ENVIRONMENTS = ((0.0, 0.5), (0.5, 1.0), (1.0, 1.0))  # shift and scale of the scores of each
ITERATIONS = 30  # of a run, whose maximum is its MMER
POINTS = 8  # of a curve
RANKED = 20  # studies of ranks, of fourteen intervals each


class Row(NamedTuple):
    """Intervals that are simulated together."""

    names: tuple[str, ...]
    scores: str
    """The distribution of the scores."""
    prepare: Callable[[], Study]
    """Computes the true values, which may take a second."""
    sizes: tuple[int, ...] = SEEDS
    of: str = "seeds"
    studies: int = STUDIES


def held(interval: Interval | None, truth: float) -> float:
    """1 if an interval contains the true value, else 0."""
    return float(interval is not None and interval.low - 1e-9 <= truth <= interval.high + 1e-9)


@lru_cache
def large(shape: str) -> Floats:
    """Many scores of a distribution, in ascending order."""
    return np.sort(SHAPES[shape](np.random.default_rng(0), (LARGE,)))


def final_scores(scores: Floats) -> FinalScores:
    """The final scores of a model, without intervals of its own."""
    seeds = tuple(range(len(scores)))
    mean = float(scores.mean())
    return FinalScores("", "", "return", seeds, scores, mean, iqm(scores), None, None, mean)


# One model ------------------------------------------------------------------------------------


def one_model(shape: str) -> Study:
    """The mean and the interquartile mean of one model."""
    truths = float(large(shape).mean()), iqm(large(shape))

    def study(random: Generator, n: int) -> dict[str, float]:
        scores = SHAPES[shape](random, (n,))
        ends = [weighted_mean_interval(scores, weights(n)) for weights in (mean_weights, iqm_weights)]
        return dict(zip(ONE_MODEL, map(held, ends, truths), strict=True))

    return study


def iterations(shape: str) -> Study:
    """The mean MMER of runs that differ by their level, and whose iterations have noise."""

    def draw(random: Generator, n: int) -> Floats:
        means = SHAPES[shape](random, (n, 1)) + random.normal(0, 0.1, (n, ITERATIONS))
        return np.array([mmer(of_run) for of_run in means])

    truth = float(draw(np.random.default_rng(0), 50_000).mean())

    def study(random: Generator, n: int) -> dict[str, float]:
        return {"MMER": held(weighted_mean_interval(draw(random, n), mean_weights(n)), truth)}

    return study


def curves(shape: str) -> Study:
    """The interquartile mean at each point of a learning curve."""
    truth = iqm(large(shape))

    def study(random: Generator, n: int) -> dict[str, float]:
        curve = summarise_seeds(SHAPES[shape](random, (n, POINTS)))
        assert curve.iqm_low is not None and curve.iqm_high is not None
        return {"band of a curve": float(np.mean((curve.iqm_low <= truth) & (truth <= curve.iqm_high)))}

    return study


def equal_seeds(failures: float | None) -> Study:
    """The bound on further seeds that differ, if all seeds are equal.

    failures  the probability that a run fails; None: the largest that the bound allows, its worst case
    """

    def study(random: Generator, n: int) -> dict[str, float]:
        probability = most_failures(n) + 1e-9 if failures is None else failures
        failed = random.random(n) < probability
        of_others = probability if not failed.any() else 1 - probability
        return {EQUAL[0]: float(0 < failed.sum() < n or of_others <= most_failures(n))}

    return study


# Two models -----------------------------------------------------------------------------------


def second(shape: str, scores: Floats) -> Floats:
    """The scores of the worse of two models: by one standard deviation, or its successes by a fifth."""
    return scores - 1 if shape == "bell" else 0.8 * scores


def two_models(shape: str) -> Study:
    """The differences of two models in one environment, and P(A beats B)."""
    random = np.random.default_rng(1)
    x, y = random.permutation(large(shape)), second(shape, random.permutation(large(shape)))
    truths = float(x.mean() - y.mean()), iqm(x) - iqm(y), float((x > y).mean())

    def study(random: Generator, n: int) -> dict[str, float]:
        draw = SHAPES[shape]
        pair = model_difference(
            final_scores(draw(random, (n,))), final_scores(second(shape, draw(random, (n,))))
        )
        ends = pair.interval, pair.iqm_interval, pair.wins_interval
        return dict(zip(TWO_MODELS, map(held, ends, truths), strict=True))

    return study


def best_of_six(shape: str) -> Study:
    """The difference of the model with the highest mean of six equal ones to another one."""

    def study(random: Generator, n: int) -> dict[str, float]:
        scores = SHAPES[shape](random, (6, n))
        best = int(scores.mean(1).argmax())
        interval = stratified([scores[best], scores[(best + 1) % 6]], difference_of_means)
        return {BEST: held(interval, 0.0)}

    return study


# Several environments -------------------------------------------------------------------------


def environments(shape: str, random: Generator, n: int) -> list[Floats]:
    """The scores (n,) of one model in each environment."""
    return [shift + scale * SHAPES[shape](random, (n,)) for shift, scale in ENVIRONMENTS]


def all_environments(shape: str) -> Study:
    """Mean and interquartile mean over environments, and the profile at five scores."""
    strata = [shift + scale * large(shape) for shift, scale in ENVIRONMENTS]
    mean, middle = float(np.mean(strata)), iqm(np.concatenate(strata))
    grid = np.quantile(np.concatenate(strata), [0.1, 0.3, 0.5, 0.7, 0.9])
    shares = np.mean([[(x > score).mean() for score in grid] for x in strata], axis=0)

    def study(random: Generator, n: int) -> dict[str, float]:
        groups = {"": environments(shape, random, n)}
        (scores,), (profile,) = aggregate_scores(groups), profiles(groups, grid)
        share = float(np.mean((profile.low <= shares) & (shares <= profile.high)))
        ends = held(scores.mean_interval, mean), held(scores.iqm_interval, middle)
        return dict(zip(ALL_ENVIRONMENTS, (*ends, share), strict=True))

    return study


def improved(shape: str) -> Study:
    """P(A beats B) over environments."""

    def draw(random: Generator, n: int) -> list[tuple[Floats, Floats]]:
        scores, others = environments(shape, random, n), environments(shape, random, n)
        # A is as good in the first environment, and better in the others.
        worse = [others[0], *(second(shape, x) for x in others[1:])]
        return list(zip(scores, worse, strict=True))

    truth = float(np.mean([win_share(x, y) for x, y in draw(np.random.default_rng(0), 4000)]))

    def study(random: Generator, n: int) -> dict[str, float]:
        return {IMPROVED: held(improvement(draw(random, n))[1], truth)}

    return study


def ranks(shape: str) -> Study:
    """Mean ranks on the leaderboard of thirteen tasks."""
    failures = 0.0 if shape == "bell" else 0.1

    def study(random: Generator, n: int) -> dict[str, float]:
        return {"mean rank": rank_study(random, 13, n, 0.5, failures, resamples=2000)}

    return study


ONE_MODEL = ("mean", "IQM")
TWO_MODELS = ("difference of means", "difference of IQMs", "P(A beats B)")
ALL_ENVIRONMENTS = ("mean, 3 environments", "IQM, 3 environments", "performance profile")
BEST, IMPROVED = "difference of the best of 6 models to another", "P(A beats B), 3 environments"
EQUAL = ("bound of equal seeds",)
BOTH = ("bell", "one in ten fails")

ROWS = (
    *(Row(ONE_MODEL, shape, partial(one_model, shape), studies=1000) for shape in BOTH),
    *(Row(TWO_MODELS, shape, partial(two_models, shape)) for shape in BOTH),
    *(Row((BEST,), shape, partial(best_of_six, shape)) for shape in BOTH),
    *(Row(ALL_ENVIRONMENTS, shape, partial(all_environments, shape)) for shape in BOTH),
    *(Row((IMPROVED,), shape, partial(improved, shape)) for shape in BOTH),
    *(Row(("mean rank",), shape, partial(ranks, shape), studies=RANKED) for shape in BOTH),
    *(Row(("MMER",), shape, partial(iterations, shape), studies=1000) for shape in BOTH),
    *(Row(("band of a curve",), shape, partial(curves, shape), studies=200) for shape in BOTH),
    Row(EQUAL, "one in ten fails", partial(equal_seeds, 0.1), studies=4000),
    Row(EQUAL, "as many fail as the bound allows", partial(equal_seeds, None), studies=4000),
)
