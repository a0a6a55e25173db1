"""Random environments with every memory: acting equals learning, episodes never leak, and resume is exact.

Spaces are nested, of any kind and size, with bounds that are infinite or equal; episodes have any length and
end in any order. `make fuzz` tries hundreds. What cannot be trained is refused in one line.
"""

import copy
import os
import signal
import tempfile
from types import SimpleNamespace
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st

import recollect
from recollect.common.errors import UsageError
from recollect.config.assembly import configure
from recollect.config.data import settings_in
from recollect.learn import ppo
from recollect.learn.rollout import Rollout, slice_rows
from recollect.run.build import build, build_learner

from ..helpers import CRITICS, MEMORIES, assert_same_end, lively

EXAMPLES = max(12, int(os.environ.get("FUZZ_CASES", "300")) // 20)
STEPS, CHUNK = 8, 4
shapes = st.lists(st.integers(0, 3), max_size=2).map(tuple)
bounds = st.sampled_from(
    [(-1.0, 1.0), (0.0, 0.0), (-np.inf, np.inf), (-np.inf, 2.0), (3.0, np.inf), (-5.0, 100.0)]
)


# Environments ---------------------------------------------------------------------------------


def box(ends, shape, kind):
    return spaces.Box(*ends, shape, kind)


boxes = st.builds(box, bounds, shapes, st.sampled_from([np.float32, np.float64])) | st.builds(
    box, st.sampled_from([(0, 1), (3, 100), (7, 7)]), shapes, st.sampled_from([np.int8, np.uint8, np.int64])
)
choices = (
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), st.integers(-3, 3))
    | st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete)
    | st.integers(1, 3).map(spaces.MultiBinary)
)
observations = st.recursive(
    boxes | choices,
    lambda part: (
        st.dictionaries(st.sampled_from(["a", "b", "c.d", ""]), part, min_size=1, max_size=3).map(spaces.Dict)
        | st.lists(part, min_size=1, max_size=2).map(spaces.Tuple)
    ),
    max_leaves=4,
)
actions = choices | st.builds(
    box,
    st.sampled_from([(-1.0, 1.0), (-2.0, 5.0), (-np.inf, np.inf)]),
    st.sampled_from([(1,), (3,), (2, 2), (), (0,)]),
    st.sampled_from([np.float32, np.float64]),
)


class Ending(NamedTuple):
    """The length of an episode, and how it ends."""

    length: int
    terminated: bool


class Drawn(gym.Env):
    """Samples of a space; an action outside of its space is an error."""

    def __init__(self, observation, action, endings):
        # Copies: environments that shared a space would share its generator.
        self.observation_space, self.action_space = copy.deepcopy(observation), copy.deepcopy(action)
        self.endings = endings

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.ending = self.endings[self.np_random.integers(len(self.endings))]
        self.age = 0
        return self.look(), {}

    def look(self):
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def step(self, action):
        # Gymnasium's vector environments pass scalars for actions of shape (), of which `contains` warns.
        assert self.action_space.contains(np.asarray(action)), f"{action!r} is not in {self.action_space}"
        self.age += 1
        over = self.age >= self.ending.length
        terminated = over and self.ending.terminated
        return self.look(), self.np_random.normal(), terminated, over and not terminated, {}


class Case(NamedTuple):
    observation: spaces.Space
    action: spaces.Space
    endings: list[Ending]
    num_envs: int
    actor: str
    critic: str
    normalize: bool

    def build(self):
        return Drawn(self.observation, self.action, self.endings)

    @property
    def options(self):
        return {
            "env.num_envs": self.num_envs,
            "env.normalize_obs": self.normalize,
            "actor": self.actor,
            "actor.hidden": [8],
            "critic": self.critic,
            "critic.hidden": [8],
            "ppo.num_steps": STEPS,
            "ppo.bptt": CHUNK,
            "ppo.num_minibatches": 1,
            "ppo.update_epochs": 1,
            "val_check_interval": 0,
            "kernels": "torch",
            "threads": 1,
        }


cases = st.builds(
    Case,
    observations,
    actions,
    st.lists(st.builds(Ending, st.integers(1, 12), st.booleans()), min_size=1, max_size=4),
    st.integers(1, 17),
    st.sampled_from(sorted(MEMORIES)),
    st.sampled_from(sorted(CRITICS)),
    st.booleans(),
)
drawn = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # Without the phase that explains a failure, which takes minutes here.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


# Contracts ------------------------------------------------------------------------------------


def float64_learner(case):
    """A learner of the case in float64, with its rollout."""
    config = configure(settings_in({"env.id": "drawn", "model": "ppo", **case.options}, "options"))
    envs, agent, config = build(config, case.build)
    learner = build_learner(config, envs, agent.double())
    rollout = Rollout(agent, learner.row, STEPS, torch.float64)
    return SimpleNamespace(envs=envs, agent=agent, learner=learner, rollout=rollout, plan=config.plan)


def episodes_of(rollout):
    """The whole episodes of a rollout as (environment, first step, steps), with their tail rows."""
    for env in range(rollout.num_envs):
        starts = [t for t in range(STEPS + 1) if rollout.rows.first[t, env]]
        for start in starts:
            tails = [t for t in range(start, STEPS + 1) if not rollout.valid[t, env]]
            if tails:
                yield env, start, tails[0] - start + 1


@torch.no_grad()
def outputs_alone(s, env, start, steps):
    """Log-probabilities of the actions of one episode, and its values with that of its end, by itself."""
    rows = s.rollout.normalized(s.agent)
    rows = slice_rows(rows, slice(start, start + steps)).map(lambda x: x[:, env : env + 1])
    params, values = s.agent(rows, s.agent.initial_state(1))
    action = s.rollout.action[start : start + steps - 1, env : env + 1]
    return s.agent.policy.evaluate(params[:-1], action)[0][:, 0], values[:, 0]


def is_trained(case):
    """Whether the case can be trained; if not, it is refused in one line."""
    try:
        float64_learner(case)
    except UsageError as error:
        event(f"refused: {str(error)[:50]}")
        assert str(error) and "\n" not in str(error)
        return False
    return True


def assert_separate(s):
    """Two rollouts and updates, in which every whole episode gives by itself what it gave among others."""
    for _ in range(2):  # the second rollout begins within episodes
        ppo.collect(s.envs, s.learner, s.rollout, s.plan, CHUNK)
        ppo.value(s.learner, s.rollout, CHUNK)
        for env, start, steps in episodes_of(s.rollout):
            log_prob, values = outputs_alone(s, env, start, steps)
            acted, valued = (x[start:, env] for x in (s.rollout.log_prob, s.rollout.value))
            torch.testing.assert_close(acted[: steps - 1], log_prob, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(valued[:steps], values, rtol=1e-8, atol=1e-8)
        # Before its first gradient step an update compares acting with learning, on chunks.
        metrics = ppo.learn(s.learner, s.rollout, s.plan, CHUNK, ppo.update)
        assert metrics["ratio_error"] < 1e-8 and metrics["value_error"] < 1e-8
        s.learner.update_statistics(s.rollout)


@drawn
@given(cases)
def test_episodes_never_leak_and_acting_equals_learning(case):
    if is_trained(case):
        assert_separate(float64_learner(case))


def test_a_memory_that_is_not_reset_is_noticed():
    box = spaces.Box(-1.0, 1.0, (3,))
    case = Case(box, spaces.Discrete(2), [Ending(2, True)], 3, "gru", "mlp", False)
    s = float64_learner(case)
    s.agent.actor.resets = False
    lively(s.agent)
    with pytest.raises(AssertionError, match="not close"):
        assert_separate(s)


def stop_after_the_first(update):
    """Send this process a signal in the first iteration."""
    if update.metrics["iteration"] == 1:
        os.kill(os.getpid(), signal.SIGTERM)


SEVEN = spaces.Box(7, 7, (), np.int8)
ONE = spaces.Discrete(1)


@drawn
# All steps have one value, near 0, so the rounding of its parts is all by which steps can differ.
@example(
    Case(
        spaces.Dict({"a": SEVEN, "b": SEVEN}),
        ONE,
        [Ending(2, False)],
        1,
        "deltanet",
        "linear_attention",
        False,
    )
)
@example(Case(spaces.Dict({"a": SEVEN}), ONE, [Ending(1, False)], 1, "deltanet", "deltanet", False))
@example(
    Case(
        spaces.Tuple([SEVEN, spaces.Tuple([SEVEN])]),
        spaces.Discrete(5),
        [Ending(3, False)],
        1,
        "deltanet",
        "linear_attention",
        False,
    )
)
@given(cases)
def test_a_resumed_run_ends_like_an_uninterrupted_one(case):
    if not is_trained(case):
        return
    options = {**case.options, "barrier": 1, "save_interval": 1, "rollouts": 3}
    with tempfile.TemporaryDirectory() as out:

        def train(name, **more):
            return recollect.train(case.build, options=options, out=out, run_id=name, quiet=True, **more)

        straight = train("straight")
        stopped = train("stopped", on_rollout=stop_after_the_first)
        assert stopped.summary["status"] == "SIGTERM"
        resumed = recollect.resume(stopped.folder, env=case.build, quiet=True)
        assert_same_end(straight.folder, resumed.folder)
