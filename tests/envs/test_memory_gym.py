"""Memory Gym: every task runs, upright, repeatable, and tells its ends apart."""

import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from recollect import envs as suite
from recollect.common.errors import UsageError
from recollect.envs import EnvConfig, Envs
from recollect.envs.suites import memory_gym

from .test_envs import play, random_actions, same, seeds

pytest.importorskip("memory_gym.environment")

IDS = list(memory_gym.listing())
MORTAR = [name for name in IDS if name.startswith("MortarMayhem")]
BOUNDS = {
    "MortarMayhem-v0": 275,
    "MortarMayhem-Grid-v0": 119,
    "MortarMayhemB-v0": 235,
    "MortarMayhemB-Grid-v0": 79,
    "MysteryPath-v0": 512,
    "MysteryPath-Grid-v0": 128,
    "SearingSpotlights-v0": 256,
}
PICTURE = "obs.visual_observation"


def build(name: str, **options) -> Envs:
    return suite.make(EnvConfig(id=f"memory_gym:{name}", **{"num_envs": 2} | options))


def picture(obs: dict[str, np.ndarray]) -> np.ndarray:
    return obs[PICTURE] if PICTURE in obs else obs["obs"]


def nothing(envs: Envs) -> np.ndarray:
    """The action that leaves the agent where it is."""
    return np.zeros((envs.num_envs, envs.action_spec.width), dtype=int)


def inner(envs: Envs) -> list:
    return [env.unwrapped for env in envs.adapter._vec.envs]


# Observations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IDS)
def test_every_id_gives_pictures_of_bytes(name):
    envs = build(name)
    first = envs.reset(seeds(2))
    step = envs.step(random_actions(envs, 1)[0])
    space = envs.adapter.observation_space
    for obs in (first, step.obs):
        assert picture(obs).shape == (2, 84, 84, 3)
        assert np.array_equal(picture(obs), picture(obs).astype(np.uint8)) and picture(obs).max() > 1
        if isinstance(space, gym.spaces.Dict):
            vector = obs["obs.vector_observation"]
            assert vector.shape == (2, 180) and vector.dtype == np.float32
            assert (vector.sum(axis=1) == 10).all() and set(vector.ravel()) == {0.0, 1.0}
    pictures = space["visual_observation"] if isinstance(space, gym.spaces.Dict) else space
    assert pictures == gym.spaces.Box(0, 255, (84, 84, 3), np.uint8)
    assert isinstance(space, gym.spaces.Dict) == name.startswith("MortarMayhemB")
    assert envs.adapter.tier == "barrier" and envs.adapter.backend == "gymnasium"


@pytest.mark.parametrize("name", IDS)
def test_pictures_stand_upright(name):
    """As Memory Gym shows them to people, and told apart from lying ones."""
    envs = build(name, num_envs=1)
    seen = picture(envs.reset(seeds(1)))[0].copy()
    env = inner(envs)[0]
    env.render_mode = "rgb_array"
    shown = env.render()
    np.testing.assert_array_equal(seen, shown)
    assert (seen != shown.transpose(1, 0, 2)).any()


@pytest.mark.parametrize("name", ["MortarMayhem-v0", "Endless-SearingSpotlights-v0"])
def test_environments_that_share_a_screen_do_not_see_each_other(name):
    """Also environments of other tasks, and others that are made and closed in between."""
    envs = build(name)
    actions = random_actions(envs, 40)
    envs.reset(seeds(2))
    rows = play(envs, actions)
    alone = build(name, num_envs=1)
    alone.reset(seeds(1))
    other = build("MysteryPath-Grid-v0")
    other.reset(seeds(2, run=5))
    parts = []
    for t in range(40):
        parts.append(play(alone, actions[t : t + 1, :1]))
        other.step(random_actions(other, 1)[0])
        if t == 20:
            build("Endless-MortarMayhem-v0").adapter.close()
            other.adapter.close()
    same({k: x[:, :1] for k, x in rows.items()}, {k: np.concatenate([p[k] for p in parts]) for k in rows})


def test_an_action_may_be_written_to_afterwards():
    """SearingSpotlights draws the last action into the next picture."""
    pictures = []
    for reused in (True, False):
        envs = build("SearingSpotlights-v0")
        envs.reset(seeds(2))
        action = np.array([[1, 2], [2, 1]])
        envs.step(action)
        if reused:
            action[:] = 0
        pictures.append(envs.step(nothing(envs)).obs["obs"].copy())
    np.testing.assert_array_equal(*pictures)


# Seeds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IDS)
def test_equal_seeds_give_equal_episodes(name):
    envs = build(name)
    actions = random_actions(envs, 70)
    keys = [2**63 - 1, 2**63 - 2]
    first = picture(envs.reset(keys)).copy()
    rows = play(envs, actions)
    np.testing.assert_array_equal(first, picture(envs.reset(keys)))
    same(rows, play(envs, actions))
    fresh = build(name)
    fresh.reset([keys[0], *seeds(1)])
    others = play(fresh, actions)
    same({k: x[:, 0] for k, x in rows.items()}, {k: x[:, 0] for k, x in others.items()})
    assert any((rows[key][:, 1] != others[key][:, 1]).any() for key in rows)
    assert any((rows[key][:, 0] != rows[key][:, 1]).any() for key in rows)


def test_worker_processes_play_the_same():
    envs, workers = build("MortarMayhem-Grid-v0"), build("MortarMayhem-Grid-v0", backend="workers")
    try:
        assert workers.adapter.time_limit == 119
        same(envs.reset(seeds(2)), workers.reset(seeds(2)))
        actions = random_actions(envs, 60)
        same(play(envs, actions), play(workers, actions))
    finally:
        workers.adapter.close()


# Ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IDS)
def test_the_time_limit_is_the_tasks_bound(name):
    assert build(name).adapter.time_limit == BOUNDS.get(name)
    assert build(name, time_limit=9).adapter.time_limit == 9


@pytest.mark.parametrize("name", ["MysteryPath-Grid-v0", "SearingSpotlights-v0", "Endless-MysteryPath-v0"])
@pytest.mark.parametrize("option", ["max_steps", "time_limit", "both"])
def test_running_out_of_steps_is_a_cut_and_no_success(name, option):
    options = {"kwargs": {"max_steps": 6 if option == "max_steps" else 9}} if option != "time_limit" else {}
    options |= {"time_limit": 6} if option != "max_steps" else {}
    envs = build(name, **options)
    assert envs.adapter.time_limit == 6
    envs.reset(seeds(2))
    rows = play(envs, np.stack([nothing(envs)] * 14))
    cut = np.arange(14) % 7 == 5  # the seventh step of each round is taken in a tail row
    np.testing.assert_array_equal(rows["truncated"], np.stack([cut, cut], axis=1))
    assert not rows["terminated"].any()
    if name.startswith("Endless"):
        assert np.isnan(rows["success"]).all()
    else:
        assert (rows["success"][cut] == 0).all() and np.isnan(rows["success"][~cut]).all()


def test_an_end_at_the_limit_is_an_end():
    """Who stands still runs out of stamina after as many steps as the limit has."""
    envs = build("Endless-MysteryPath-v0", kwargs={"max_steps": 4, "stamina_level": 4})
    envs.reset(seeds(2))
    rows = play(envs, np.stack([nothing(envs)] * 4))
    assert rows["terminated"][3].all() and not rows["terminated"][:3].any()
    assert not rows["truncated"].any()


@pytest.mark.parametrize("name", MORTAR)
def test_a_failure_at_the_last_command_is_no_success(name):
    """With one command, who does nothing is right where it says to stay, and wrong elsewhere."""
    envs = build(name, num_envs=24, kwargs={"command_count": 1})
    envs.reset(seeds(24))
    stays = np.array([env._commands == ["stay"] for env in inner(envs)])
    assert 0 < stays.sum() < 24
    # The bound counts the picture of a reset where commands are shown.
    length = envs.adapter.time_limit - (not name.startswith("MortarMayhemB"))
    rows = play(envs, np.stack([nothing(envs)] * length))
    assert rows["terminated"][-1].all() and not rows["terminated"][:-1].any()
    assert not rows["truncated"].any()
    np.testing.assert_array_equal(rows["success"][-1], stays)
    np.testing.assert_allclose(rows["reward"].sum(0), 0.1 * stays)
    tail = envs.step(nothing(envs))
    assert not (tail.reward.any() or tail.terminated.any() or tail.truncated.any())


def test_reaching_the_goal_is_a_success():
    path = build("MysteryPath-v0")
    path.reset(seeds(2))
    env = inner(path)[1]
    env.agent.rect.center = tuple(int((place + 0.5) * env.tile_dim) for place in env.end)
    step = path.step(nothing(path))
    np.testing.assert_array_equal(step.terminated, [False, True])
    np.testing.assert_array_equal(step.success, [np.nan, 1.0])
    assert step.reward[1] == 1.0

    lights = build("SearingSpotlights-v0")
    lights.reset(seeds(2))
    env = inner(lights)[0]
    env.agent.rect.center = env.coins[0].location
    assert lights.step(nothing(lights)).reward[0] == 0.25
    env.agent.rect.center = env.exit.location
    step = lights.step(nothing(lights))
    np.testing.assert_array_equal(step.success, [1.0, np.nan])
    np.testing.assert_array_equal(step.terminated, [True, False])


def test_dying_is_no_success():
    envs = build("SearingSpotlights-v0", num_envs=16, kwargs={"agent_health": 1})
    envs.reset(seeds(16))
    rows = play(envs, np.stack([nothing(envs)] * 100))
    assert rows["terminated"].any() and not rows["truncated"].any()
    assert (rows["success"][rows["terminated"]] == 0).all()


def test_the_step_after_an_end_opens_an_episode():
    envs = build("MysteryPath-Grid-v0", time_limit=5)
    envs.reset(seeds(2))
    actions = random_actions(envs, 30)
    rows = play(envs, actions)
    ended = rows["terminated"] | rows["truncated"]
    tail = np.concatenate([np.zeros_like(ended[:1]), ended[:-1]])
    assert tail.sum() >= 8 and (rows["reward"][tail] == 0).all() and not (ended & tail).any()
    envs.reset(seeds(2))
    same(rows, play(envs, np.where(tail[..., None], random_actions(envs, 30, key=1), actions)))


# Parameters and errors ------------------------------------------------------------------------


def test_parameters_reach_every_episode():
    envs = build("MortarMayhem-Grid-v0", kwargs={"command_count": 3, "reward_command_failure": -1})
    assert envs.adapter.time_limit == 12 + 24 - 2 + 1
    envs.reset(seeds(2))
    rows = play(envs, random_actions(envs, 120))
    assert rows["terminated"].sum() >= 4
    assert all(len(env._commands) == 3 for env in inner(envs))
    failed = rows["terminated"] & (rows["success"] == 0)
    assert (rows["reward"][failed] == -1).all() and failed.any()


def test_several_numbers_are_drawn_from():
    envs = build("MortarMayhem-Grid-v0", kwargs={"command_count": "1,4", "explosion_delay": 6})
    lengths = set()
    for i in range(8):
        envs.reset(seeds(2 * i + 2)[-2:])
        lengths |= {len(env._commands) for env in inner(envs)}
    assert lengths == {1, 4}


@pytest.mark.parametrize(
    ("name", "kwargs", "hint"),
    [
        ("MortarMayhem", {}, "MortarMayhem-v0"),
        ("", {}, "known"),
        ("MortarMayhem-v0", {"commands": 3}, "commands; known: agent_scale, .*visual_feedback"),
        ("MortarMayhem-v0", {"max_steps": 3}, "max_steps"),
        ("MortarMayhem-v0", {"command_count": 2.5}, "type int"),
        ("MortarMayhem-v0", {"command_count": True}, "type int"),
        ("MortarMayhem-v0", {"command_count": "1,2.5"}, "command_count is '1,2.5'; it must be of type int"),
        ("MortarMayhem-v0", {"command_count": "1,x"}, "command_count is '1,x'; it must be of type int"),
        ("MortarMayhem-v0", {"command_count": ""}, "cannot start an episode"),
        ("MortarMayhem-v0", {"visual_feedback": 1}, "type bool"),
        ("MysteryPath-v0", {"reward_goal": "much"}, "type float"),
        ("MysteryPath-v0", {"reward_goal": None}, "type float"),
        ("MortarMayhem-v0", {"allowed_commands": 20}, "allowed_commands"),
        ("MortarMayhemB-v0", {"command_count": 21}, "20 commands"),
        ("MortarMayhem-v0", {"command_count": 0}, "command_count"),
        ("SearingSpotlights-v0", {"use_exit": False}, "use_exit"),
    ],
)
def test_mistakes_are_one_line(name, kwargs, hint):
    with pytest.raises(UsageError, match=hint) as caught:
        build(name, kwargs=kwargs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("backend", ["own", "envpool"])
def test_other_backends_are_refused(backend):
    with pytest.raises(UsageError, match=backend):
        build("MysteryPath-v0", backend=backend)


def test_a_missing_package_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "memory_gym"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert memory_gym.listing() == {}
    with pytest.raises(UsageError, match="pip install --no-deps memory-gym"):
        build("MysteryPath-v0")


def test_every_registered_id_is_listed():
    import memory_gym as package

    assert package.__name__ == "memory_gym"
    registered = {name for name, spec in gym.registry.items() if "memory_gym." in str(spec.entry_point)}
    assert registered == set(IDS)


QUIET = """
from recollect import envs
made = envs.make(envs.EnvConfig(id="memory_gym:Endless-MortarMayhem-v0", num_envs=2))
made.reset([1, 2])
assert envs.make(envs.EnvConfig(id="CartPole-v1", num_envs=1)).adapter.time_limit == 500
"""


def test_nothing_is_printed_and_nothing_warns():
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SDL_", "PYGAME_"))}
    command = [sys.executable, "-W", "error", "-c", QUIET]
    ran = subprocess.run(command, capture_output=True, text=True, env=clean)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
