"""What stands for an environment: ids, functions, classes, instances; and what does not."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import recollect
from recollect.common.errors import UsageError
from recollect.envs.given import resolve_environment

OPTIONS = {"env.num_envs": 4, "ppo.num_steps": 16, "ppo.num_minibatches": 2, "rollouts": 2, "steps": None}


class Corridor(gymnasium.Env):
    """Walk to the right end."""

    observation_space = spaces.Box(0, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length=4):
        self.length, self.place, self.steps = length, 0, 0

    def look(self):
        return np.array([self.place], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.steps = 0
        return self.look(), {}

    def step(self, action):
        self.place, self.steps = max(0, self.place + 2 * int(action) - 1), self.steps + 1
        ended = self.place == self.length
        return self.look(), float(ended), ended, self.steps == 20, {}


class Uncopied(Corridor):
    def __deepcopy__(self, memo):
        raise TypeError("holds a socket")


def train(env, out, **kwargs):
    return recollect.train(env, options=OPTIONS, out=out, quiet=True, **kwargs)


@pytest.mark.parametrize("env", [Corridor, lambda: Corridor(), Corridor(), Corridor(length=4)])
def test_classes_functions_and_instances_train_alike(env, tmp_path):
    ours, theirs = train(env, tmp_path / "a", seed=2), train(Corridor, tmp_path / "b", seed=2)
    assert ours.evaluate(4).returns == theirs.evaluate(4).returns
    for p, q in zip(ours.agent.parameters(), theirs.agent.parameters(), strict=True):
        assert p.equal(q)
    again = recollect.load(ours.folder, env=env)
    assert again.evaluate(4).returns == ours.evaluate(4).returns
    assert recollect.resume(ours.folder, env=env, quiet=True).summary["status"] == "finished"


def test_an_instance_is_copied_and_stays_as_it_is(tmp_path):
    env = Corridor()
    env.reset(seed=0)
    env.step(1)
    train(env, tmp_path)
    assert (env.place, env.steps) == (1, 1)


def test_an_instance_of_an_id_is_that_id(tmp_path):
    assert resolve_environment(gymnasium.make("CartPole-v1")) == ("CartPole-v1", None)
    assert resolve_environment(gymnasium.make("CartPole-v1", render_mode="rgb_array")) == (
        "CartPole-v1",
        None,
    )
    assert train(gymnasium.make("CartPole-v1"), tmp_path).config.env.id == "CartPole-v1"


@pytest.mark.parametrize(
    "env",
    [
        lambda: gymnasium.make("CartPole-v1", max_episode_steps=7),
        lambda: gymnasium.make("Pendulum-v1", g=5.0),
        lambda: gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), -1, 1),
    ],
)
def test_an_instance_that_was_changed_is_built_with_the_changes(env, tmp_path):
    _, factory = resolve_environment(env())
    built, given = factory(), env()
    assert built.spec.max_episode_steps == given.spec.max_episode_steps
    assert built.action_space == given.action_space
    assert getattr(built.unwrapped, "g", None) == getattr(given.unwrapped, "g", None)


def test_an_instance_that_cannot_be_copied_is_refused(tmp_path):
    message = r"Uncopied cannot be copied \(holds a socket\).*lambda: Uncopied\(\.\.\.\)"
    with pytest.raises(UsageError, match=message):
        train(Uncopied(), tmp_path)


def test_a_function_that_repeats_an_environment_is_refused(tmp_path):
    env = Corridor()
    with pytest.raises(UsageError, match="returned the same Corridor again"):
        train(lambda: env, tmp_path)
    # Wrappers around the same environment do not make it another one.
    with pytest.raises(UsageError, match="returned the same Corridor again"):
        train(lambda: gymnasium.wrappers.TimeLimit(env, 5), tmp_path)


@pytest.mark.parametrize("env", [3, None, ["CartPole-v1"]])
def test_anything_else_is_named(env, tmp_path):
    with pytest.raises(UsageError, match="an environment is an id, a function or class that builds one"):
        train(env, tmp_path)
