"""Names for masked tasks: the task behind each name, with zeros and nothing else changed."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from recollect import envs as suite
from recollect.common.errors import UsageError
from recollect.config.assembly import from_dict
from recollect.envs import EnvConfig, Envs
from recollect.envs.make import suites
from recollect.envs.suites import masked

from .test_envs import play, random_actions, round_trip, same, seeds, tails

# Name -> what it stands for, what it hides, its time limit.
TASKS = {
    "CartPoleMasked": ("CartPole-v1", [1, 3], 200),
    "CartPoleNoVel-v1": ("CartPole-v1", [1, 3], 500),
    "PendulumNoVel-v1": ("Pendulum-v1", [2], 200),
    "MountainCarContinuousNoVel-v0": ("MountainCarContinuous-v0", [1], 999),
    "MountainCarNoVel-v0": ("MountainCar-v0", [1], 200),
    "LunarLanderNoVel-v3": ("LunarLander-v3", [2, 3, 5], 1000),
    "LunarLanderNoVel-v2": ("LunarLander-v2", [2, 3, 5], 1000),
}
NATIVE = [name for name in TASKS if not name.startswith("Lunar")]


def build(env_id: str, backend: str = "gymnasium", **options) -> Envs:
    if backend == "envpool":
        pytest.importorskip("envpool")
    return suite.make(EnvConfig(id=env_id, backend=backend, **{"num_envs": 2, "threads": 1} | options))


def test_every_name_is_listed_and_known_here():
    assert "masked" in suites()
    listed = masked.listing()
    assert listed.keys() == TASKS.keys()
    assert all(line and "\n" not in line for line in listed.values())


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
@pytest.mark.parametrize("name", TASKS)
def test_it_is_the_task_behind_it_with_zeros(name, backend):
    inner, hidden, limit = TASKS[name]
    envs, seen = build(name, backend), build(inner, backend, time_limit=limit)
    assert envs.adapter.backend == backend
    assert (envs.adapter.tier, envs.adapter.note) == (seen.adapter.tier, seen.adapter.note)
    assert envs.obs_spec.leaves == seen.obs_spec.leaves and envs.action_spec == seen.action_spec
    first, first_seen = (each.reset(seeds(2))["obs"].copy() for each in (envs, seen))
    actions = random_actions(envs, 150)
    rows, rows_seen = play(envs, actions), play(seen, actions)
    assert tails(rows).any() or limit > 150
    everything = np.concatenate([first_seen[None], rows_seen["obs"]])
    assert (everything[..., hidden] != 0).any((0, 1)).all()
    everything[..., hidden] = 0.0
    same({"obs": np.concatenate([first[None], rows.pop("obs")])}, {"obs": everything})
    rows_seen.pop("obs")
    same(rows, rows_seen)
    envs.adapter.close()
    seen.adapter.close()


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("CartPoleNoVel-v1", [0, 2]),
        ("MountainCarNoVel-v0", [0]),
        ("MountainCarContinuousNoVel-v0", [0]),
        ("LunarLanderNoVel-v3", [0, 1, 4]),
    ],
)
def test_hidden_are_the_velocities_of_what_is_seen(name, places):
    """Places move the way that the hidden entries point, before the step or after it."""
    inner, hidden, _ = TASKS[name]
    env = build(inner, num_envs=16)
    before = env.reset(seeds(16))["obs"].copy()
    after = env.step(random_actions(env, 1)[0]).obs["obs"]
    moved = np.sign(after - before)[:, places]
    assert ((moved == np.sign(before[:, hidden])) | (moved == np.sign(after[:, hidden]))).all()
    env.adapter.close()


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
@pytest.mark.parametrize("name", TASKS)
def test_the_time_limit_is_the_tables_or_the_users(name, backend):
    for option, limit in [(None, TASKS[name][2]), (7, 7), (300, 300)]:
        envs = build(name, backend, time_limit=option)
        assert envs.adapter.time_limit == limit
        envs.adapter.close()


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_masked_cartpole_is_cut_after_200_steps(backend):
    """Positions now and one step ago are enough to balance the pole for 200 steps."""
    envs = build("CartPoleMasked", backend)
    obs = envs.reset(seeds(2))["obs"].copy()
    before = obs.copy()
    for step in range(200):
        speed = obs - before
        before = obs.copy()
        lean = obs[:, 2] + 10 * speed[:, 2] + 0.1 * obs[:, 0] + 2 * speed[:, 0]
        found = envs.step((lean > 0).astype(int)[:, None])
        obs = found.obs["obs"].copy()
        assert not found.terminated.any()
        assert found.truncated.all() == found.truncated.any() == (step == 199)
    envs.adapter.close()


def test_what_the_user_hides_is_hidden_too():
    envs = build("CartPoleNoVel-v1", mask=(0, 1))
    assert envs.obs_spec.mask == (0, 1, 3)
    assert (envs.reset(seeds(2))["obs"][:, [0, 1, 3]] == 0).all()
    with pytest.raises(UsageError, match="mask"):
        build("CartPoleNoVel-v1", mask=(4,))


def test_keyword_arguments_pass_through():
    envs = build("LunarLanderNoVel-v3", "auto", kwargs={"continuous": True})
    assert envs.action_spec.kind == "gaussian" and envs.adapter.backend == "gymnasium"
    with pytest.raises(UsageError, match="weight"):
        build("PendulumNoVel-v1", "auto", kwargs={"weight": 3})


def test_auto_takes_envpool_where_the_task_behind_is_there():
    pytest.importorskip("envpool")
    envs = build("CartPoleNoVel-v1", "auto")
    assert envs.adapter.backend == "envpool"
    envs.adapter.close()


@pytest.mark.parametrize("name", NATIVE)
def test_native_state_continues_bit_for_bit(name):
    envs, fresh = (build(name, time_limit=9) for _ in range(2))
    assert envs.adapter.tier == "native"
    actions = random_actions(envs, 40)
    for begin in (0, 5, 9, 10):
        envs.reset(seeds(2))
        play(envs, actions[: begin + 1])
        state = round_trip(envs.adapter.get_state())
        rows = play(envs, actions[begin + 1 :])
        fresh.adapter.set_state(state)
        same(rows, play(fresh, actions[begin + 1 :]))


# Names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_names_work_with_and_without_the_suite(name):
    config = EnvConfig(id=name, num_envs=2, backend="gymnasium")
    actions, streams = None, []
    for env_id in (name, f"masked:{name}"):
        envs = suite.make(replace(config, id=env_id))
        actions = random_actions(envs, 20) if actions is None else actions
        envs.reset(seeds(2))
        streams.append(play(envs, actions))
        envs.adapter.close()
    same(*streams)


@pytest.mark.parametrize("name", TASKS)
def test_the_settings_of_a_name_keep_the_rest_of_a_config(name):
    config = EnvConfig(id=name, num_envs=5, backend="workers", normalize_obs=True, kwargs={"a": 1})
    found = masked.resolve_alias(config, name)
    inner, hidden, _ = TASKS[name]
    assert (found.id, found.mask) == (inner, tuple(hidden))
    assert replace(found, id=name, mask=(), time_limit=None) == config


def test_which_suite_an_id_belongs_to():
    """A suite before the colon, a suite alone, an id that a suite claims; all else is from outside."""
    for env_id, module, name in [
        ("masked:PendulumNoVel-v1", "masked", "PendulumNoVel-v1"),
        ("masked:other", "masked", "other"),
        ("probe:recall", "probe", "recall"),
        ("poc", "poc", ""),
        ("PendulumNoVel-v1", "masked", "PendulumNoVel-v1"),
    ]:
        found, rest = suite.suite_of(env_id)
        assert (found.__name__.rpartition(".")[2], rest) == (module, name)
    for env_id in ("CartPole-v1", "my.module:PendulumNoVel-v1", "gym:CartPole-v1"):
        assert suite.suite_of(env_id) == (None, env_id)


def test_names_hide_no_environment_of_gymnasium():
    assert not gym.registry.keys() & TASKS.keys()


@pytest.mark.parametrize(
    ("env_id", "backend", "words"),
    [
        ("masked:CartPoleNoVel", "auto", "masked:CartPoleNoVel is unknown; did you mean CartPoleNoVel-v1"),
        ("masked:", "auto", "known: CartPoleMasked"),
        ("masked:CartPole-v1", "auto", "unknown"),
        ("CartPoleNoVel-v1", "own", "CartPole-v1"),
    ],
)
def test_unknown_names_are_refused_in_one_line(env_id, backend, words):
    with pytest.raises(UsageError, match=words) as caught:
        build(env_id, backend)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("env_id", ["poc", "poc:", "CartPoleNoVel-v1", "masked:CartPoleNoVel-v1"])
def test_a_saved_config_may_name_it_without_leave(env_id):
    assert from_dict({"env": {"id": env_id}}).env.id == env_id
