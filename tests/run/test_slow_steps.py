"""Who trains with slow environments in one process is told of worker processes; nobody else is."""

import time
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from recollect.envs.gym import GymEnv
from recollect.envs.turns import TurnsEnv
from recollect.run import api
from recollect.run.slow_steps import SLOW, slow_steps

from ..helpers import StopAt


class Slow(gymnasium.Env):
    """Sleeps in each step."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(self.seconds)
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Measured:
    """What the advice reads of environments: 100 steps of `num_envs`."""

    def __init__(self, seconds: float, backend: str = "gymnasium", num_envs: int = 4, kind=GymEnv) -> None:
        self.adapter = kind.__new__(kind)
        self.adapter.backend = backend
        self.num_envs, self.steps, self.seconds = num_envs, 100, seconds


@pytest.mark.parametrize(
    ("envs", "elapsed", "cores", "advised"),
    [
        (Measured(seconds=8.0), 10.0, 2, True),
        (Measured(seconds=8.0), 10.0, 1, False),  # no core is idle
        (Measured(seconds=8.0), 17.0, 2, False),  # learning takes most of the time
        (Measured(seconds=0.5), 0.6, 2, False),  # messages to processes would take as long as the steps
        (Measured(seconds=8.0, backend="workers"), 10.0, 2, False),
        (Measured(seconds=8.0, backend="envpool"), 10.0, 2, False),
        (Measured(seconds=8.0, num_envs=1), 10.0, 2, False),
        (Measured(seconds=8.0, kind=TurnsEnv), 10.0, 2, False),  # games cannot have workers
    ],
)
def test_only_where_processes_help(envs, elapsed, cores, advised) -> None:
    line = slow_steps(envs, elapsed, cores=cores)
    assert bool(line) is advised
    if advised:
        assert "80% of the time (50 steps/s); --env.backend workers" in line
        assert not slow_steps(envs, elapsed, processes=2, cores=cores)  # each has one core


@pytest.mark.parametrize("seconds", [10 / SLOW, 0.0])
def test_a_run_says_it_once(seconds, tmp_path, monkeypatch) -> None:
    screen = StopAt()
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: screen)
    monkeypatch.setattr("recollect.run.session.slow_steps", partial(slow_steps, cores=2))
    options = {"env.num_envs": 2, "ppo.num_steps": 16, "env.time_limit": 5, "threads": 1}
    api.train(partial(Slow, seconds), steps=64, options=options, out=tmp_path)
    assert sum("--env.backend workers" in line for line in screen.said) == (seconds > 0)
