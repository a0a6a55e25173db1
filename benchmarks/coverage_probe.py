"""Simulated studies of the intervals over episodes: of `recollect eval` and `recollect probe`.

Shapes.  E episodes, C controls.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from recollect.common.intervals import (
    Floats,
    Interval,
    mean_interval,
    mean_weights,
    one_factor,
    quantiles,
    resamples,
    stretched,
)
from recollect.probing.ablate import average, compare
from recollect.probing.controls import Controls, compare_controls
from recollect.probing.memory_length import measure_length
from recollect.probing.open_loop import average_steps
from recollect.run.recording import EpisodeScores

from .coverage_kinds import BOTH, Generator, Row, Study, held
from .intervals import SHAPES

EPISODES = (5, 10, 20, 100)
PLAYED = (10, 20, 100)  # of a probe, which plays at least 10
STEPS = 10  # of an episode
OF_CONTROLS = 50  # episodes of each control


def scores_of(successes: Floats) -> EpisodeScores:
    """The scores of episodes whose returns are their successes."""
    return EpisodeScores(successes, np.ones(len(successes)), successes)


# Scores ---------------------------------------------------------------------------------------


def returns(shape: str) -> Study:
    """The mean return of an evaluation, and that of a probe."""
    truth = 0.0 if shape == "bell" else 0.9

    def study(random: Generator, episodes: int) -> dict[str, float]:
        drawn = SHAPES[shape](random, (episodes,))
        ends = mean_interval(drawn), average(scores_of(drawn), "return").interval
        return dict(zip(RETURNS, (held(one, truth) for one in ends), strict=True))

    return study


def paired_returns(shape: str) -> Study:
    """The loss of return with an altered memory: of one deviation, or by 1 in one of ten episodes."""
    truth = 1.0 if shape == "bell" else 0.1

    def study(random: Generator, episodes: int) -> dict[str, float]:
        hard = random.normal(size=episodes)
        lost = random.normal(1, 1, episodes) if shape == "bell" else random.random(episodes) < 0.1
        whole, altered = (average(scores_of(x), "return") for x in (hard, hard - lost))
        return {"loss of return": held(compare(whole, altered, "return").interval, truth)}

    return study


def success(probability: float) -> Study:
    """The share of successes."""

    def study(random: Generator, episodes: int) -> dict[str, float]:
        drawn = scores_of((random.random(episodes) < probability).astype(float))
        return {"success rate": held(average(drawn, "success").interval, probability)}

    return study


def paired_success(lost: float, won: float) -> Study:
    """The loss of success: shares of episodes that are lost and won."""

    def study(random: Generator, episodes: int) -> dict[str, float]:
        outcome = random.random(episodes)
        whole = (outcome < 0.9 * (1 - won)).astype(float)
        altered = np.where(outcome < lost, 0.0, np.where(outcome > 1 - won, 1.0, whole))
        whole[outcome < lost], whole[outcome > 1 - won] = 1.0, 0.0
        one, other = (average(scores_of(x), "success") for x in (whole, altered))
        return {"loss of success": held(compare(one, other, "success").interval, lost - won)}

    return study


def controls(shape: str) -> Study:
    """An agent minus the mean of runs without a memory, over runs and episodes."""
    truth = 1.0 if shape == "bell" else 0.1

    def study(random: Generator, runs: int) -> dict[str, float]:
        hard = random.normal(0, 0.3, OF_CONTROLS)
        levels = random.normal(size=runs) if shape == "bell" else 1 - (random.random(runs) < 0.1)
        noise = random.normal(0, 0.3, (runs, OF_CONTROLS))
        scores = [average(scores_of(x), "return") for x in levels[:, None] + hard + noise]
        whole = average(scores_of(1.0 + hard), "return")
        between = compare_controls(whole, [""] * runs, scores, "return")
        assert between is not None
        return {CONTROLS: held(between.above.interval, truth)}

    return study


def next_run(shape: str) -> Study:
    """Whether one more run without a memory is within what controls say that it may reach."""

    def study(random: Generator, runs: int) -> dict[str, float]:
        levels = random.normal(size=runs + 1) if shape == "bell" else 1.0 - (random.random(runs + 1) < 0.1)
        one, *others = levels + random.normal(0, 0.3 / np.sqrt(OF_CONTROLS), runs + 1)
        scored: list[Any] = [SimpleNamespace(score=SimpleNamespace(mean=x)) for x in others]
        above: Any = SimpleNamespace(by=one - np.mean(others))
        return {NEXT_RUN: float(not Controls(scored, float(np.mean(others)), above).exceeded)}

    return study


# Steps of memory ------------------------------------------------------------------------------


def closed_loop(lost: float) -> Study:
    """The steps that keep the score: three, as two fail in a share of the episodes."""

    def study(random: Generator, episodes: int) -> dict[str, float]:
        chance = random.random(episodes)
        losses: dict[int, Floats] = {
            1: (chance < 0.4) * 1.0,
            2: (chance < lost) * 1.0,
            3: np.zeros(episodes),
        }
        if not losses[1].any():  # without a loss the page has no length
            return {LENGTHS[0]: 1.0}
        return {LENGTHS[0]: held(measure_length(losses, None).interval, 3)}

    return study


def open_loop(skewed: bool) -> Study:
    """The steps that keep the policy: three, as with two a tenth of the divergence is left, in all episodes
    or in one of ten."""

    def study(random: Generator, episodes: int) -> dict[str, float]:
        whole: Floats = random.lognormal(0, 0.5, episodes)
        left = 1.0 * (random.random(episodes) < 0.1) if skewed else np.full(episodes, 0.1)
        less: Floats = left * random.lognormal(0, 0.5, episodes)
        losses = {1: whole, 2: less, 3: 0.001 * whole}
        return {LENGTHS[1]: held(measure_length(losses, None).interval, 3)}

    return study


# Means over steps -----------------------------------------------------------------------------

# Of the divergence of the policy in an episode, each with the mean 1.
LEVELS = {
    "bell": lambda random, n: np.abs(random.normal(1, 0.3, n)),
    "exponential": lambda random, n: random.exponential(1, n),
    "lognormal, deviation 1.5": lambda random, n: random.lognormal(-1.125, 1.5, n),
    "one in ten differs": lambda random, n: (
        (0.05 + 8.1 * (random.random(n) < 0.1)) * random.exponential(1, n)
    ),
}


def divergence(shape: str) -> Study:
    """A mean divergence over the steps of episodes, and what percentiles with the factor for few give."""
    truth = float(LEVELS[shape](np.random.default_rng(0), 4_000_000).mean())

    def study(random: Generator, episodes: int) -> dict[str, float]:
        counts = random.integers(STEPS // 2, 2 * STEPS, episodes)
        episode = np.repeat(np.arange(episodes), counts)
        x = LEVELS[shape](random, episodes)[episode]
        interval = average_steps(x, np.ones(len(x), bool), episode).interval
        old = percentile_ratio(np.bincount(episode, x).astype(np.float64), counts.astype(np.float64))
        return dict(zip(DIVERGENCES, (held(interval, truth), held(old, truth)), strict=True))

    return study


def percentile_ratio(sums: Floats, counts: Floats) -> Interval:
    """The interval that average_steps had before the bootstrap-t."""
    drawn, times = resamples(tuple(mean_weights(len(sums))))
    ends = quantiles((drawn @ sums) / (drawn @ counts), times)
    low, high = stretched(np.array(sums.sum() / counts.sum()), *ends, one_factor(len(sums)))
    return Interval(max(float(low), 0.0), float(high))


def share(shape: str) -> Study:
    """A share of steps: in each episode half of them on average, or all of them in one of ten."""
    truth = 0.5 if shape == "bell" else 0.1

    def study(random: Generator, episodes: int) -> dict[str, float]:
        each = random.beta(4, 4, episodes) if shape == "bell" else (random.random(episodes) < 0.1) * 1.0
        episode = np.repeat(np.arange(episodes), STEPS)
        x = random.random(len(episode)) < each[episode]
        interval = average_steps(x, np.ones(len(x), bool), episode, is_share=True).interval
        return {"share of steps": held(interval, truth)}

    return study


RETURNS = ("mean return, eval", "mean return, probe")
LENGTHS = ("steps of memory, score", "steps of memory, policy")
DIVERGENCES = ("KL", "KL, before the bootstrap-t")
CONTROLS = "agent minus controls, by the number of controls"
NEXT_RUN = "one more control, from above, by the number of controls"

ROWS = (
    Row((CONTROLS,), "bell", partial(controls, "bell"), (3, 5, 10, 20), studies=200),
    Row((CONTROLS,), "one in ten fails", partial(controls, "one in ten fails"), (3, 5, 10, 20), studies=200),
    *(Row((NEXT_RUN,), shape, partial(next_run, shape), (3, 5, 10, 20), studies=1000) for shape in BOTH),
    *(Row(RETURNS, shape, partial(returns, shape), EPISODES, "episodes") for shape in BOTH),
    *(
        Row(("loss of return",), shape, partial(paired_returns, shape), PLAYED, "episodes")
        for shape in ("bell", "one in ten loses")
    ),
    *(
        Row(("success rate",), f"{name} fail", partial(success, p), PLAYED, "episodes", 4000)
        for name, p in (("half", 0.5), ("one in ten", 0.9))
    ),
    *(
        Row(("loss of success",), name, partial(paired_success, *p), PLAYED, "episodes", 2000)
        for name, p in (
            ("a third loses, one in twenty gains", (1 / 3, 0.05)),
            ("one in ten loses", (0.1, 0.0)),
        )
    ),
    *(
        Row((LENGTHS[0],), f"{name} lose with a step less", partial(closed_loop, p), PLAYED, "episodes")
        for name, p in (("20 %", 0.2), ("10 %", 0.1), ("3 %", 0.03))
    ),
    Row((LENGTHS[1],), "all differ with a step less", partial(open_loop, False), PLAYED, "episodes"),
    Row((LENGTHS[1],), "one in ten differs with a step less", partial(open_loop, True), PLAYED, "episodes"),
    *(Row(DIVERGENCES, shape, partial(divergence, shape), EPISODES, "episodes") for shape in LEVELS),
    *(
        Row(("share of steps",), shape, partial(share, shape), EPISODES, "episodes")
        for shape in ("bell", "one in ten differs")
    ),
)
