"""Probe environments: so small that values and best actions are known, for testing learners.

An episode has a secret, which is drawn at its start. Observations and rewards are functions of the secret
and the number of steps so far, so one class implements all probes.

Shapes.  N environments, S numbers in a secret.
"""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...common.errors import UsageError, nearest
from ..base import EnvConfig, Step, VecEnv
from ..probe_tasks import TASKS, Task
from ..seeded import SeededTask
from ..spaces import Array


class Probe(SeededTask):
    """N copies of one task."""

    arrays: ClassVar[Mapping[str, str]] = {"secret": "_secret"}

    def __init__(self, task: Task, num_envs: int, time_limit: int | None) -> None:
        super().__init__(num_envs, time_limit or task.length)
        self.observation_space = task.observation
        self.action_space = task.action
        self._task = task
        self._sizes = np.array(task.secret, dtype=np.int64)

    def _allocate(self) -> None:
        self._secret = np.zeros((self.num_envs, len(self._sizes)), dtype=np.int64)

    def _observe(self) -> Any:
        return self._task.show(self._secret, self._steps)

    def _start_episodes(self) -> None:
        """Where the last episode ended, draw a secret."""
        self._steps[self._ended] = 0
        if len(self._sizes):
            for i in np.flatnonzero(self._ended):
                # Stored as integers, so each number is rounded down to one below its size.
                self._secret[i] = self._random[i].random(len(self._sizes)) * self._sizes

    def step(self, action: Array) -> Step:
        task = self._task
        live = ~self._ended  # in the others this step ignores the action and starts an episode
        # Before a new secret is drawn: the action answers the old one.
        reward = np.where(live, task.earn(self._secret, self._steps, action), 0.0)
        self._steps += live
        self._start_episodes()
        length = task.length if task.lengths is None else task.lengths(self._secret)
        terminated = live & (self._steps >= length) & (not task.endless)
        truncated = live & (self._steps >= self._limit) & ~terminated
        self._ended = terminated | truncated
        success = np.where(self._ended, reward > 0, np.nan) if task.reports else None
        return Step(self._observe(), reward, terminated, truncated, success)

    def hidden(self) -> dict[str, Array]:
        """The numbers of the secret, whether the current observation shows them or not."""
        return {f"secret {i}": numbers.astype(np.float64) for i, numbers in enumerate(self._secret.T)}


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of a probe; config.kwargs are the arguments of its task."""
    if name not in TASKS:
        raise UsageError(f"environment probe:{name} is unknown; {nearest(name, sorted(TASKS))}")
    known = list(inspect.signature(TASKS[name]).parameters)
    for key, value in config.kwargs.items():
        if key not in known:
            hint = nearest(key, known) if known else "it takes none"
            raise UsageError(f"probe:{name} has no keyword argument {key}; {hint}")
        # Every keyword argument of a probe is a number of steps. Not isinstance, because True is an int.
        if type(value) is not int or value < 0:
            raise UsageError(f"probe:{name}: {key} is {value!r}; it must be a number of steps, 0 or more")
    return Probe(TASKS[name](**config.kwargs), config.num_envs, config.time_limit)


def listing() -> dict[str, str]:
    """Id -> one-line description with the value."""
    return {name: inspect.getdoc(task) or "" for name, task in TASKS.items()}
