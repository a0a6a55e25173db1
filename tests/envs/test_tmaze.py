"""The T-maze, against a slow copy of its rules."""

import numpy as np
import pytest

from recollect import envs as suite
from recollect.common.errors import UsageError
from recollect.envs import EnvConfig, Envs
from recollect.envs.suites import tmaze

from ..helpers import sampled
from .test_envs import random_actions, seeds


def build(num_envs: int = 3, time_limit: int | None = None, **kwargs: int) -> Envs:
    return suite.make(EnvConfig(id="tmaze", num_envs=num_envs, time_limit=time_limit, kwargs=kwargs))


class Maze:
    """One episode, in branches; it begins with the sign of its first observation."""

    def __init__(self, sign, length, limit):
        self.sign, self.length, self.limit, self.place, self.count = sign, length, limit, 0, 0

    def step(self, action):
        """Observation, reward, terminated, truncated, success."""
        self.count += 1
        cut = self.count == self.limit
        if self.place == self.length and action in (tmaze.UP, tmaze.DOWN):
            right = (action == tmaze.UP) == (self.sign == 1)
            return [0.0, 1.0], 1.0 if right else -1.0, True, False, float(right)
        reward = 0.0 if self.place < self.length and action == tmaze.FORWARD else -0.1
        if action == tmaze.FORWARD:
            self.place = min(self.place + 1, self.length)
        if action == tmaze.BACK:
            self.place = max(self.place - 1, 0)
        obs = [self.sign if self.place == 0 else 0.0, float(self.place == self.length)]
        return obs, reward, False, cut, 0.0 if cut else np.nan


@pytest.mark.parametrize(
    ("length", "limit"), sampled([(1, None), (2, None), (3, 7), (3, 40)], (1, None), (3, 7))
)
def test_every_step_is_that_of_the_slow_copy(length, limit):
    envs = build(4, limit, length=length)
    first = envs.reset(seeds(4))["obs"]
    mazes = [Maze(row[0], length, limit or 2 * length + 4) for row in first]
    ends, cuts = 0, 0
    for action in random_actions(envs, 1500):
        step = envs.step(action)
        for i, maze in enumerate(mazes):
            if maze is None:  # a tail row: the action is ignored and an episode opens
                sign = step.obs["obs"][i, 0]
                expected = [sign, 0.0], 0.0, False, False, np.nan
                assert sign in (-1, 1)
                mazes[i] = Maze(sign, length, limit or 2 * length + 4)
            else:
                expected = maze.step(int(action[i, 0]))
                ends, cuts = ends + expected[2], cuts + expected[3]
                mazes[i] = None if expected[2] or expected[3] else maze
            np.testing.assert_array_equal(step.obs["obs"][i], np.array(expected[0], np.float32))
            assert (step.terminated[i], step.truncated[i]) == expected[2:4]
            assert step.reward[i] == pytest.approx(expected[1])
            np.testing.assert_array_equal(step.success[i], expected[4])
    assert ends > 20 and cuts > 20


def test_the_sign_is_shown_at_the_start_and_hidden_after_it():
    envs = build(64, length=10)
    first = envs.reset(seeds(64))["obs"]
    sign = first[:, 0].copy()
    assert 16 < (sign == 1).sum() < 48 and np.isnan(envs.adapter.hidden()["sign"]).all()
    for _ in range(10):
        step = envs.step(np.full((64, 1), tmaze.FORWARD))
        np.testing.assert_array_equal(envs.adapter.hidden()["sign"], sign)
        assert (step.obs["obs"][:, 0] == 0).all() and np.isnan(step.success).all()
    assert (step.obs["obs"][:, 1] == 1).all()
    step = envs.step(np.where(sign == 1, tmaze.UP, tmaze.DOWN)[:, None])
    assert step.terminated.all() and (step.reward == 1).all() and (step.success == 1).all()


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("tmaze:long", {}, "tmaze:long is unknown; the suite has one task, tmaze"),
        ("tmaze", {"lenght": 3}, "tmaze has no keyword argument lenght; did you mean length"),
        ("tmaze", {"length": 0}, "tmaze: length is 0; it must be a number of cells, 1 or more"),
        ("tmaze", {"length": True}, "length is True; it must be a number of cells"),
    ],
)
def test_bad_input_is_refused(env_id, kwargs, message):
    with pytest.raises(UsageError, match=message):
        suite.make(EnvConfig(id=env_id, num_envs=2, kwargs=kwargs))
