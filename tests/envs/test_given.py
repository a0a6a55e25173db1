"""What stands for an environment: ids, functions, classes, instances; and what does not."""

import os
import random
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

import recollect
from recollect.common.errors import UsageError
from recollect.envs import EnvConfig
from recollect.envs.given import resolve_environment
from recollect.envs.make import make

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


class Doubled(gymnasium.ObservationWrapper):
    """A wrapper as users write them: it records no arguments, so no specification builds it."""

    def observation(self, observation):
        return observation * 2


def train(env, out, options=None, **kwargs):
    return recollect.train(env, options={**OPTIONS, **(options or {})}, out=out, quiet=True, **kwargs)


@pytest.mark.parametrize("env", [Corridor, lambda: Corridor(), Corridor(), Corridor(length=4)])
def test_classes_functions_and_instances_train_alike(env, tmp_path):
    ours, theirs = train(env, tmp_path / "a", seed=2), train(Corridor, tmp_path / "b", seed=2)
    assert ours.evaluate(4).returns == theirs.evaluate(4).returns
    for p, q in zip(ours.agent.parameters(), theirs.agent.parameters(), strict=True):
        assert p.equal(q)
    again = recollect.load(ours.folder, env=env)
    assert again.evaluate(4).returns == ours.evaluate(4).returns
    assert recollect.resume(ours.folder, env=env, quiet=True).summary["status"] == "finished"


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("as_instance", [False, True])
def test_a_time_limit_replaces_that_of_an_environment_that_is_given(wrapped, as_instance, tmp_path):
    """Also a shorter one: a second wrapper around it would never be reached."""

    def build():
        env = gymnasium.wrappers.TimeLimit(Corridor(length=100), 5)
        return gymnasium.wrappers.RecordEpisodeStatistics(env) if wrapped else env

    for limit in (8, 3):
        run = train(build() if as_instance else build, tmp_path / str(limit), {"env.time_limit": limit})
        assert run.evaluate(2).lengths == [limit] * 2


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


def test_arguments_of_an_instance_are_refused():
    _, factory = resolve_environment(Corridor())
    with pytest.raises(UsageError, match=r"env.kwargs length: .* takes no arguments; give its class"):
        make(EnvConfig(kwargs={"length": 5}), factory)


def test_an_instance_that_cannot_be_copied_is_refused(tmp_path):
    message = r"Uncopied cannot be copied \(holds a socket\).*lambda: Uncopied\(\.\.\.\)"
    with pytest.raises(UsageError, match=message):
        train(Uncopied(), tmp_path)


@pytest.mark.parametrize("backend", ["gymnasium", "workers"])
def test_an_instance_that_its_specification_cannot_build_is_copied(backend, tmp_path):
    options = {"env.backend": backend}
    given = train(Doubled(gymnasium.make("CartPole-v1")), tmp_path / "a", options)
    built = train(lambda: Doubled(gymnasium.make("CartPole-v1")), tmp_path / "b", options)
    assert given.evaluate(4).returns == built.evaluate(4).returns
    for p, q in zip(given.agent.parameters(), built.agent.parameters(), strict=True):
        assert p.equal(q)


def test_copies_are_independent_also_where_a_wrapper_is_a_class_inside_a_function():
    class Recorded(gymnasium.RewardWrapper, gymnasium.utils.RecordConstructorArgs):
        def __init__(self, env, scale):
            gymnasium.utils.RecordConstructorArgs.__init__(self, scale=scale)
            super().__init__(env)

    env = Recorded(gymnasium.make("CartPole-v1"), 2.0)
    _, factory = resolve_environment(env)
    first, second = factory(), factory()
    assert isinstance(first, Recorded)
    assert len({id(one.unwrapped) for one in (env, first, second)}) == 3


def test_an_instance_that_can_be_neither_built_nor_copied_is_refused(tmp_path):
    gymnasium.register("Uncopied-v0", Uncopied)
    try:
        env = Doubled(gymnasium.make("Uncopied-v0"))
        message = (
            r"Uncopied cannot be built again from its specification \(.*Doubled.*\) nor be copied "
            r"\(holds a socket\); give a function that builds one, with its wrappers: lambda: Uncopied"
        )
        with pytest.raises(UsageError, match=message):
            train(env, tmp_path)
    finally:
        del gymnasium.registry["Uncopied-v0"]


def test_a_function_that_repeats_an_environment_is_refused(tmp_path):
    env = Corridor()
    with pytest.raises(UsageError, match="returned the same Corridor again"):
        train(lambda: env, tmp_path)
    # Wrappers around the same environment do not make it another one.
    with pytest.raises(UsageError, match="returned the same Corridor again"):
        train(lambda: gymnasium.wrappers.TimeLimit(env, 5), tmp_path)


# Names -------------------------------------------------------------------------------------------


def build(*args, **kwargs):
    return Corridor()


@dataclass(frozen=True)
class Builder:
    """A callable object with fields."""

    length: int

    def __call__(self):
        return Corridor(self.length)


class Silent:
    """A callable object that shows nothing of itself."""

    def __call__(self):
        return Corridor()


def limited(env_id, steps=None, **kwargs):
    return gymnasium.make(env_id, max_episode_steps=steps, **kwargs)


NAMES = {
    "callable-Corridor": Corridor,
    "callable-build": build,
    "callable-Silent": Silent(),
    "callable-Corridor-length=4": partial(Corridor, length=4),
    "callable-Corridor-8": partial(Corridor, 8),
    "callable-build-1,a=x,b=0.5,c=None": partial(partial(build, 1, b=0.5), c=None, a="x"),
    "callable-build-ALE/Pong-v5": partial(build, "ALE/Pong-v5"),
    "callable-build-Corridor,then=build": partial(build, Corridor, then=build),
    "callable-build-b=2": partial(build, a=object(), b=2, c=[Silent(), object()]),
    "callable-make-CartPole-v1": partial(gymnasium.make, "CartPole-v1"),
    "callable-CartPoleEnv-Doubled": Doubled(CartPoleEnv()),
    "callable-CartPoleEnv-TimeLimit-max_episode_steps=500-Doubled": Doubled(limited("CartPole-v1")),
    "callable-CartPoleEnv-TimeLimit-max_episode_steps=7": limited("CartPole-v1", 7),
    "callable-PendulumEnv-g=5.0-TimeLimit-max_episode_steps=200": limited(
        "Pendulum-v1", g=5.0, render_mode="rgb_array"
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_contains_the_arguments(name):
    assert resolve_environment(NAMES[name])[0] == name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (partial(build, "a:b"), partial(build, "a/b")),
        (partial(build, "long" * 20), partial(build, "long" * 21)),
        (partial(build, [1, 2]), partial(build, [1, 3])),
        (partial(build, goal=np.zeros(3)), partial(build, goal=np.ones(3))),
        (partial(build, {"a": {1, 2}}), partial(build, {"a": {1}})),
        (partial(build, partial(Corridor, 2)), partial(build, partial(Corridor, 3))),
        (partial(build, *range(100)), partial(build, *range(101))),
        (Builder(2), Builder(3)),
        (lambda: Corridor(2),
         lambda: Corridor(3)),
    ],
)  # fmt: skip
def test_names_distinguish_environments_and_are_those_of_a_folder(one, other):
    names = [resolve_environment(env)[0] for env in (one, other)]
    assert names[0] != names[1]
    assert all(len(name) <= 120 and not set(name) & set(":\\<> ") for name in names)


def test_names_are_the_same_in_every_process():
    name = "resolve_environment(partial(build, {'b': {'x', 'y', 'z'}, 'a': 1}, {'u', 'v', 'w'}))[0]"
    code = f"from tests.envs.test_given import *\nprint({name}, ''.join({{*'abcdefgh'}}))"
    order = "".join({*"abcdefgh"})
    for seed in "123":  # until one orders sets in another way than this process
        command, world = [sys.executable, "-c", code], {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=world, capture_output=True, text=True, check=True)
        theirs, others = done.stdout.split()
        assert theirs == eval(name)
        if others != order:
            return
    pytest.fail("sets were in one order in all processes")


def test_the_place_of_a_lambda_distinguishes_it():
    def check(env):
        assert resolve_environment(env)[0] == f"callable-lambda-test_given-{env.__code__.co_firstlineno}"

    check(lambda: Corridor())
    # Nothing else does (docs/environments.md).
    one, other = (lambda length=length: Corridor(length) for length in (2, 3))
    assert resolve_environment(one)[0] == resolve_environment(other)[0]


@pytest.mark.parametrize("env", [3, None, ["CartPole-v1"]])
def test_anything_else_is_named(env, tmp_path):
    with pytest.raises(UsageError, match="an environment is an id, a function or class that builds one"):
        train(env, tmp_path)


class Steady(Corridor):
    """Seven points for each of four steps."""

    def step(self, action):
        self.steps += 1
        return self.look(), 7.0, self.steps == 4, False, {}


@pytest.mark.parametrize("name", ["Snake-v1", "Catch-v0"])
@pytest.mark.parametrize("as_instance", [True, False])
def test_an_id_that_envpool_has_as_well_is_the_environment_that_was_registered(name, as_instance, tmp_path):
    gymnasium.register(name, Steady)
    try:
        run = train(gymnasium.make(name) if as_instance else name, tmp_path)
        assert run.config.env.backend == "gymnasium" and run.evaluate(2).returns == [28.0, 28.0]
    finally:
        del gymnasium.registry[name]


class Noisy(gymnasium.ObservationWrapper):
    """Noise of a generator that reset(seed=...) does not set."""

    def __init__(self, env, generator):
        super().__init__(env)
        self.generator = generator

    def observation(self, observation):
        draw = self.generator.random()
        return observation + np.float32(draw)


@pytest.mark.parametrize(
    "generator",
    [np.random.default_rng(3), np.random.RandomState(3), random.Random(3)],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("backend", ["gymnasium", "workers"])
def test_copies_have_random_generators_of_their_own(generator, backend):
    env = Noisy(Corridor(), generator)
    config = EnvConfig(id="noisy", num_envs=4, backend=backend)
    with pytest.warns(UserWarning, match="Corridor does not repeat from its seed"):
        envs = make(config, resolve_environment(env)[1])
        envs.adapter.check_seed(1)
    try:
        assert len(np.unique(envs.reset([1, 2, 3, 4])["obs"])) == 4
    finally:
        envs.adapter.close()


def test_a_copy_whose_generator_is_seeded_repeats_from_its_seed(recwarn):
    env = gymnasium.make("CartPole-v1").unwrapped
    env.spec = None
    env.reset(seed=5)
    envs = make(EnvConfig(id="copied", num_envs=2), resolve_environment(env)[1])
    envs.adapter.check_seed(1)
    assert not recwarn.list
    np.testing.assert_array_equal(*envs.reset([7, 7])["obs"])
