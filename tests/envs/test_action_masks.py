"""Action masks from each source, through runs whose environment refuses a forbidden action."""

import base64
import json
import re
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import recollect
from recollect.common.errors import EnvDataError, EnvFailedError, UsageError
from recollect.envs import EnvConfig, make, reports_mask
from recollect.envs.minigrid_state import effective_actions
from recollect.envs.spaces import ACTION_MASK
from recollect.run import bench, film
from recollect.run.evaluate import evaluate, with_reported_mask

from ..helpers import StopAt, assert_same_end, branch, registered, run_quietly, small_config

SIZES = (4, 3)
SMALL = {
    "env.action_mask": True,
    "env.num_envs": 4,
    "ppo.num_steps": 16,
    "actor": "gru",
    "rollouts": 6,
    "val_check_interval": 3,
    "val_episodes": 2,
}


class Gates(gym.Env):
    """Choices that open and close at random; a closed one raises. In the final observation none is open.

    source  where the mask is: info, dict, method, or nowhere
    blocks  the step at which the mask allows nothing although the episode goes on
    """

    def __init__(self, source="info", joint=False, blocks=None):
        self.source, self.joint, self.blocks = source, joint, blocks
        self.action_space = spaces.MultiDiscrete(SIZES) if joint else spaces.Discrete(4)
        self.sizes = SIZES if joint else (4,)
        self.observation_space = spaces.Box(-1, 1, (3,))
        if source == "dict":
            mask = spaces.MultiBinary(sum(self.sizes))
            self.observation_space = spaces.Dict({"view": self.observation_space, ACTION_MASK: mask})

    def _result(self, final=False):
        nothing = final or self.steps == self.blocks
        self.open = [np.zeros(n, np.int8) if nothing else self._gates(n) for n in self.sizes]
        view = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        flat = np.concatenate(self.open)
        info = {ACTION_MASK: tuple(self.open) if self.joint else flat} if self.source == "info" else {}
        return {"view": view, ACTION_MASK: flat} if self.source == "dict" else view, info

    def _gates(self, size):
        gates = self.np_random.integers(0, 2, size, dtype=np.int8)
        gates[self.np_random.integers(size)] = 1
        return gates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._result()

    def step(self, action):
        for gates, taken in zip(self.open, np.atleast_1d(action), strict=True):
            assert gates[taken], f"action {action} is not allowed"
        self.steps += 1
        final = self.steps == 5 or self.np_random.random() < 0.1
        obs, info = self._result(final)
        return obs, float(np.sum(action)), final, False, info


class GatesWithMethod(Gates):
    def __init__(self, **kwargs):
        super().__init__(source="method", **kwargs)

    def action_masks(self):
        assert any(gates.any() for gates in self.open), "called after the end of an episode"
        return np.concatenate(self.open).astype(bool)


class OwnReset(GatesWithMethod):
    """Its reset takes a seed alone."""

    def reset(self, seed=None):
        return super().reset(seed=seed)


class DictWithMethod(Gates):
    """The observation has the mask, so nobody needs the method."""

    def __init__(self):
        super().__init__(source="dict")

    def action_masks(self):
        raise LookupError("not here")


def builder(source, **kwargs):
    return (lambda: GatesWithMethod(**kwargs)) if source == "method" else (lambda: Gates(source, **kwargs))


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("source", ["info", "dict", "method"])
def test_no_forbidden_action_is_taken_in_training_validation_or_evaluation(source, joint, tmp_path):
    trained = recollect.train(builder(source, joint=joint), options=SMALL, out=tmp_path, quiet=True)
    assert len(trained.evaluate(6).returns) == len(trained.evaluate(6, deterministic=False).returns) == 6
    again = recollect.load(trained.folder, env=builder(source, joint=joint))
    assert again.evaluate(6).returns == trained.evaluate(6).returns


def test_without_the_option_a_forbidden_action_is_taken(tmp_path):
    options = {**SMALL, "env.action_mask": False}
    with pytest.raises(EnvFailedError, match="is not allowed"):
        recollect.train(builder("info"), options=options, out=tmp_path, quiet=True)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("source", ["info", "dict", "method"])
def test_random_actions_keep_to_the_mask_also_without_the_option(source, joint):
    factory = builder(source, joint=joint)
    with_option = evaluate(None, EnvConfig(id="gates", action_mask=True), 8, factory=factory)
    assert len(with_option.returns) == 8
    assert recollect.evaluate("random", 8, env=factory).returns == with_option.returns


def test_random_actions_of_trials_and_in_worker_processes_keep_to_the_mask():
    for source in ("info", "method"):
        for options in ({"trial": 2}, {"backend": "workers"}):
            config = with_reported_mask(EnvConfig(id="gates", **options), builder(source))
            assert len(evaluate(None, config, 3, factory=builder(source)).returns) == 3


def test_a_random_baseline_has_the_config_of_the_agents_beside_it():
    with pytest.raises(EnvFailedError, match="is not allowed"):
        evaluate(None, EnvConfig(id="gates"), 3, factory=builder("info"))


def test_a_film_of_random_actions_keeps_to_the_mask(tmp_path, monkeypatch):
    monkeypatch.setattr(film, "write_film", lambda path, frames, fps: list(frames))
    monkeypatch.setattr(film, "_render", lambda envs, env: np.zeros(1))
    for kind in (Gates, GatesWithMethod):
        config = with_reported_mask(EnvConfig(id=registered(kind, monkeypatch)))
        assert len(film.render(None, config, str(tmp_path / "x.gif"), 5, 0)) == 5


class Waves(gym.Env):
    """Its actions are real numbers, so what it calls an action mask is none."""

    observation_space = spaces.Dict({"view": spaces.Box(-1, 1, (3,)), ACTION_MASK: spaces.MultiBinary(2)})
    action_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, True, False, {}


def test_environments_whose_actions_are_all_allowed_report_no_mask():
    assert recollect.evaluate("random", 2, env=Waves).returns == [1.0, 1.0]
    for env_id in ("CartPole-v1", "Acrobot-v1", "poc", "popgym:RepeatPreviousEasy"):
        assert not reports_mask(EnvConfig(id=env_id)), env_id


def test_the_masks_of_minigrid_are_of_recollect_and_forbid_nothing():
    pytest.importorskip("minigrid")
    for backend in ("gymnasium", "auto"):
        config = EnvConfig(id="minigrid:DoorKey-5x5", backend=backend)
        assert not reports_mask(config)
        envs = make(replace(config, num_envs=1, action_mask=True))
        assert not envs.reset([0])[ACTION_MASK].all()
        envs.adapter.close()


@pytest.mark.parametrize("source", ["info", "dict", "method"])
def test_the_speed_of_an_environment_alone_is_measured_with_allowed_actions(source):
    envs = make(EnvConfig(id="gates", num_envs=2, action_mask=True), builder(source, joint=True))
    envs.reset([1, 2])
    assert bench._environment_alone(envs) > 0


def test_worker_processes_have_masks_too():
    config = EnvConfig(id="gates", num_envs=2, backend="workers", action_mask=True)
    envs = make(config, builder("info"))
    try:
        obs = envs.reset([1, 2])
        for _ in range(12):
            assert obs[ACTION_MASK].dtype == bool and obs[ACTION_MASK].any(1).all()
            obs = envs.step(obs[ACTION_MASK].argmax(1)[:, None]).obs
    finally:
        envs.adapter.close()


@pytest.mark.parametrize("kind", [OwnReset, DictWithMethod])
def test_environments_that_are_called_as_little_as_possible(kind):
    envs = make(EnvConfig(id="gates", num_envs=2, action_mask=True), kind)
    obs = envs.reset([1, 2])
    for _ in range(12):
        obs = envs.step(obs[ACTION_MASK].argmax(1)[:, None]).obs
        assert obs[ACTION_MASK].any(1).all()


def test_a_mask_that_allows_nothing_is_an_error_that_names_the_step():
    envs = make(EnvConfig(id="gates", num_envs=2, action_mask=True), builder("info", blocks=1))
    obs = envs.reset([5, 6])
    with pytest.raises(EnvDataError, match=r"mask of environment \d allows no action at step 1: \[0 0 0 0\]"):
        envs.step(obs[ACTION_MASK].argmax(1)[:, None])


class Joint(Gates):
    """The entry of the observation has one array for each component."""

    def __init__(self):
        super().__init__("dict", joint=True)
        parts = spaces.Tuple([spaces.MultiBinary(n) for n in SIZES])
        self.observation_space = spaces.Dict({**self.observation_space.spaces, ACTION_MASK: parts})

    def _result(self, final=False):
        obs, info = super()._result(final)
        return obs | {ACTION_MASK: tuple(self.open)}, info


@pytest.mark.parametrize("num_envs", [1, 2, 3])
def test_a_mask_in_the_observation_may_have_a_part_for_each_component(num_envs):
    envs = make(EnvConfig(action_mask=True, num_envs=num_envs, backend="gymnasium"), Joint)
    masks = envs.reset(list(range(num_envs)))[ACTION_MASK]
    opened = [np.concatenate(env.unwrapped.open) for env in envs.adapter.inner.local_envs]
    np.testing.assert_array_equal(masks, opened)


class Forgets(Gates):
    """Gives no mask at step 2, at times."""

    def _result(self, final=False):
        obs, info = super()._result(final)
        return obs, {} if self.steps == 2 and self.np_random.random() < 0.5 else info


@pytest.mark.parametrize(
    ("num_envs", "message"), [(1, "gave no action mask at"), (8, r"\(or it gave none\)")]
)
def test_a_mask_that_is_missing_once_is_named(num_envs, message):
    envs = make(EnvConfig(action_mask=True, num_envs=num_envs, backend="gymnasium"), Forgets)

    def play():
        obs = envs.reset(list(range(num_envs)))
        for _ in range(100):
            obs = envs.step(obs[ACTION_MASK].argmax(1)[:, None]).obs

    with pytest.raises(EnvDataError, match=message):
        play()


def test_entries_that_do_not_exist_are_named_also_with_hidden_variables():
    with pytest.raises(UsageError, match=r"env\.mask \[10\] does not fit an observation of 4 entries"):
        make(EnvConfig(id="CartPole-v1", mask=(10,), hidden=True))


def test_an_environment_without_masks_is_refused():
    envs = make(EnvConfig(id="CartPole-v1", action_mask=True))
    with pytest.raises(UsageError, match="CartPole-v1 gives no action mask: no entry action_mask"):
        envs.reset(list(range(16)))


def test_a_resumed_run_ends_like_one_without_a_stop(tmp_path, monkeypatch):
    env = EnvConfig(id="callable-gates", num_envs=4, backend="gymnasium", action_mask=True, threads=1)
    config = small_config(env=env, actor=branch("gru"), barrier=2)
    whole = run_quietly(config, tmp_path, "whole", factory=builder("info"))
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    stopped = run_quietly(config, tmp_path, "stopped", factory=builder("info"))
    assert stopped.summary["iteration"] < 10
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="is a run on callable-gates, and is resumed in callable-lambda"):
        resumed = recollect.resume(stopped.folder, env=builder("info"), quiet=True)
    assert_same_end(whole.folder, resumed.folder)


def test_a_watched_episode_shows_which_actions_were_masked(tmp_path):
    trained = recollect.train(builder("info", joint=True), options=SMALL, out=tmp_path, quiet=True)
    page = recollect.watch(trained, tmp_path / "page.html", episodes=2).read_text()
    episode = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])["episodes"][0]
    allowed, policy = (
        np.frombuffer(base64.b64decode(episode[name]["floats"]), "<f4").reshape(episode[name]["shape"])
        for name in ("allowed", "policy")
    )
    assert allowed.shape[1] == sum(SIZES) and 0 < allowed.mean() < 1
    probabilities = np.concatenate([policy[:, i, :n] for i, n in enumerate(SIZES)], 1)
    np.testing.assert_array_equal(probabilities > 0, allowed[: len(policy)] > 0)


def test_a_minigrid_action_that_is_masked_has_no_effect():
    pytest.importorskip("minigrid")
    import minigrid  # noqa: F401

    env = gym.make("MiniGrid-DoorKey-5x5-v0", disable_env_checker=True).unwrapped
    random, forbidden, had = np.random.default_rng(0), 0, np.zeros(7, dtype=int)
    for seed in range(4):
        obs, _ = env.reset(seed=seed)
        for _ in range(60):
            (allowed,) = effective_actions(obs["image"][None], 7)
            had += ~allowed
            for action in np.flatnonzero(~allowed):
                before = world(env)
                _, reward, terminated, *_ = env.step(int(action))
                assert world(env) == before and reward == 0 and not terminated, env.actions(action)
                forbidden += 1
            obs, _, terminated, _, _ = env.step(int(random.choice(np.flatnonzero(allowed))))
            if terminated:
                break
            env.step_count = 0
    assert forbidden > 300 and (had[2:] > 0).all() and (had[:2] == 0).all()


def world(env):
    """Everything that an action may change."""
    carried = env.carrying and env.carrying.encode()
    return env.grid.encode().tobytes(), tuple(env.agent_pos), env.agent_dir, carried


@pytest.mark.parametrize(
    ("source", "masked", "noted"),
    [("method", False, True), ("dict", False, True), ("method", True, False), ("nowhere", False, False)],
)
def test_masks_that_are_not_used_are_noted(source, masked, noted):
    """A baseline of random actions keeps to them, and an agent that does not know them does not."""
    envs = make(EnvConfig(id="gates", num_envs=2, action_mask=masked), builder(source))
    try:
        assert ("--env.action-mask True" in envs.adapter.note) == noted
    finally:
        envs.adapter.close()
