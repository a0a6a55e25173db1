"""Runs without a memory beside an agent with one: whether the task needs a memory.

One run may be unlucky, so that a task needs a memory is judged from several runs. The interval of the
difference is then over runs and episodes.

Shapes.  C control runs, E episodes, R resamples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..common.errors import UsageError
from ..common.intervals import (
    Floats,
    Interval,
    factor,
    mean_weights,
    paired_interval,
    quantiles,
    resamples,
    stretched,
    student,
)
from ..envs import EnvConfig, suite_of
from ..run.evaluate import describe_task
from ..run.recording import has_memory
from ..run.run import Trained
from .ablate import Difference, Score, Source, classify, compare, is_share

FEWEST = 3  # runs, below which no task is said to need a memory


@dataclass(frozen=True)
class Control:
    """A run without a memory."""

    run: str
    score: Score
    above: Difference
    """The score of the agent minus this score; the interval is over episodes."""


@dataclass(frozen=True)
class Controls:
    """Runs without a memory, and their mean."""

    runs: list[Control]
    mean: float
    above: Difference
    """The score of the agent minus the mean score; the interval is over runs and episodes."""

    @property
    def exceeded(self) -> bool:
        """Whether the agent is above the 95 % prediction interval of one more run; False for fewer than 3.

        The agent is a run as well: if runs differ and it is like them, it is often above their mean.
        """
        count = len(self.runs)
        if count < FEWEST:
            return False
        deviation = float(np.std([one.score.mean for one in self.runs], ddof=1))
        return self.above.by > student(count - 1) * deviation * math.sqrt(1 + 1 / count)


def check_controls(controls: Sequence[Trained], trained: Trained) -> None:
    """Raise an error unless the controls are runs of their own, without a memory, in the same environment."""
    for i, control in enumerate(controls):
        if has_memory(control.agent.actor):
            memory = control.config.actor.memory.found_as()
            raise UsageError(f"--control {control.folder} has a memory ({memory}); a control must have none")
        if _task_of(control.config.env) != _task_of(trained.config.env):
            raise UsageError(
                f"--control {control.folder} was trained in {control.config.env.id}, the agent in "
                f"{trained.config.env.id}: both must have the same environment and settings"
            )
        # Equal configs train equal agents, so they would count one run several times.
        twin = next((other for other in controls[:i] if other.config == control.config), None)
        if twin is not None:
            raise UsageError(
                f"--control {twin.folder} and {control.folder} have the same settings and seed: several "
                "controls need different seeds"
            )


def _task_of(env: EnvConfig) -> tuple[object, ...]:
    """The settings that make an environment the task that it is; names of settings are resolved."""
    suite, name = suite_of(env.id)
    if suite is not None and hasattr(suite, "resolve_alias"):
        env = suite.resolve_alias(env, name)
    # Sorted: the order in which entries are masked does not make another task.
    return env.id, {**describe_task(env), "mask": sorted(env.mask)}


def compare_controls(
    whole: Score, folders: Sequence[str], scores: Sequence[Score], by: Source
) -> Controls | None:
    """The agent beside its controls, which played the same episodes; None without controls."""
    pairs = zip(folders, scores, strict=True)
    runs = [Control(folder, score, compare(whole, score, by)) for folder, score in pairs]
    if not runs:
        return None
    mean = float(np.mean([one.score.mean for one in runs]))
    if len(runs) == 1:
        return Controls(runs, mean, runs[0].above)
    return Controls(runs, mean, _compare_mean(whole, runs, mean, by))


def _compare_mean(whole: Score, runs: Sequence[Control], mean: float, by: Source) -> Difference:
    """The difference to the mean of several runs."""
    pairs = whole.scores - np.stack([one.score.scores for one in runs])
    low, high = interval_over_runs(pairs)
    if is_share(by, pairs):
        # Resamples of pairs that never differ have width 0; the interval of shares over episodes has not.
        over_episodes = paired_interval(float((pairs > 0).mean()), float((pairs < 0).mean()), pairs.shape[1])
        low, high = min(low, over_episodes.low), max(high, over_episodes.high)
    if by == "success":
        low, high = max(low, -1.0), min(high, 1.0)
    return classify(float(pairs.mean()), Interval(low, high), max(abs(whole.mean), abs(mean)))


def interval_over_runs(pairs: Floats) -> Interval:
    """The 95 % interval of the mean of pairs (C, E), with runs and episodes resampled."""
    runs, episodes = pairs.shape
    drawn, times = resamples(tuple(mean_weights(episodes)))
    # All runs of a resample get the same episodes, because they share the agent's score in each of them.
    over_episodes = np.repeat(drawn, times.astype(np.int64), axis=0) @ pairs.T  # (R, C)
    random = np.random.Generator(np.random.Philox(0))  # so that equal runs give equal reports
    weights = random.multinomial(runs, mean_weights(runs), size=len(over_episodes)) / runs
    low, high = quantiles((over_episodes * weights).sum(1), np.ones(len(weights)))
    # Few runs vary less in resamples than in truth: the factor depends on their share of the variance.
    strata = [pairs.mean(1), pairs.mean(0)]
    ends = stretched(np.array([pairs.mean()]), np.array([low]), np.array([high]), factor(strata))
    return Interval(float(ends[0][0]), float(ends[1][0]))
