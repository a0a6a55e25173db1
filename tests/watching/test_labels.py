"""Names of actions and observations: given, of the environment, of the documentation, or numbers."""

import re
from typing import ClassVar

import pytest

from recollect.common.errors import UsageError
from recollect.envs import EnvConfig
from recollect.run.film import make_single_env
from recollect.watching.episodes import watch
from recollect.watching.labels import name_actions, name_observations, parse_labels

from .test_watch import Counting, Reaching, trained


class Named(Counting):
    """An environment with names of its own."""

    action_names: ClassVar = ["few", "some", "many"]
    observation_names: ClassVar = ["count", "one"]


@pytest.mark.parametrize(
    ("env", "labels", "actions", "observations"),
    [
        (Counting, [], ["action 0", "action 1", "action 2"], ["obs[0]", "obs[1]"]),
        (Named, [], ["few", "some", "many"], ["count", "one"]),
        (Named, ["actions=a, b,c"], ["a", "b", "c"], ["count", "one"]),
        (Reaching, ["observations=n,m"], ["action 0", "action 1"], ["n", "m"]),
    ],
)
def test_names_are_given_or_of_the_environment_or_numbers(env, labels, actions, observations) -> None:
    it = trained(env=env)
    names = watch(it, 1, 1, 0, False, None).names
    given = parse_labels(labels)
    assert name_actions(it.agent.action_spec, "counting", given, names) == actions
    assert name_observations(it.agent.obs_spec, "counting", given, names) == observations


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("actions", "write actions=NAME,NAME or observations=NAME,NAME"),
        ("moves=a,b", "write actions=NAME,NAME"),
        ("actions=a,b", "2 names for 3 actions (action 0, action 1, action 2)"),
    ],
)
def test_wrong_labels_are_named(labels, message) -> None:
    it = trained()
    with pytest.raises(UsageError, match=re.escape(message)):
        name_actions(it.agent.action_spec, "counting", parse_labels([labels]), {})


@pytest.mark.parametrize(
    ("env", "actions", "observations"),
    [
        ("poc", ["left", "right"], ["left end", "position", "right end"]),
        ("minigrid:MiniGrid-MemoryS7-v0", ["left", "right", "forward"], []),
        ("CartPole-v1", ["push left", "push right"], ["cart position", "cart velocity"]),
        ("CartPoleMasked", ["push left", "push right"], ["cart position", "cart velocity"]),
        ("Pendulum-v1", ["torque"], ["cos angle", "sin angle", "angular velocity"]),
        ("FrozenLake-v1", ["action 0", "action 1", "action 2", "action 3"], ["obs"]),
        ("popgym:RepeatPreviousEasy", ["action 0", "action 1", "action 2", "action 3"], ["obs"]),
    ],
)
def test_environments_have_names(env, actions, observations) -> None:
    """Those of the environment, or of Gymnasium's documentation."""
    envs = make_single_env(EnvConfig(id=env, num_envs=1))
    found = envs.adapter.names()
    envs.adapter.close()
    assert name_actions(envs.action_spec, env, {}, found) == actions
    assert name_observations(envs.obs_spec, env, {}, found)[: len(observations)] == observations
