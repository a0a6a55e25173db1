"""Environments that raise, crash, hang, print, repeat themselves or give other data than they promise."""

import importlib.util
import itertools
import multiprocessing
import os
import re
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from recollect.common.errors import EnvDataError, EnvFailedError, UsageError
from recollect.envs import EnvConfig, make, make_for_evaluation
from recollect.envs.failures import MAX_RESTARTS, join_info
from recollect.envs.spaces import read_spaces
from recollect.probing.open_loop import number_episodes
from recollect.run import film
from recollect.run.evaluate import evaluate
from recollect.run.recording import record_deterministic
from recollect.run.teaching import record_episodes
from recollect.watching.episodes import watch

from ..helpers import metrics_of, registered, run_quietly, small_config

BACKENDS = ("gymnasium", "workers")
needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is an extra")


class Counter(gymnasium.Env):
    """Counts to 6; the observation is the seed's draw of this episode and the count."""

    observation_space = spaces.Box(-100, 100, (2,), np.float32)
    action_space = spaces.Discrete(2)
    length = 6

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.draw, self.count = self.np_random.uniform(), 0
        return self.look(), {}

    def look(self):
        return np.array([self.draw, self.count], np.float32)

    def step(self, action):
        self.count += 1
        self.misbehave()
        return self.look(), 1.0, self.count >= self.length, False, {}

    def misbehave(self):
        """What a subclass does wrong."""


class OnceIn(Counter):
    """Misbehaves in the third step of one episode in three."""

    def misbehave(self):
        if self.count == 3 and self.draw < 1 / 3:
            self.fail()


class Raises(OnceIn):
    def fail(self):
        raise ZeroDivisionError("no wind")


class MaskRaises(Counter):
    """As `Raises`, in the mask after the step."""

    def action_masks(self):
        if self.count == 3 and self.draw < 1 / 3:
            raise LookupError("no mask now")
        return np.ones(2, dtype=bool)


class Drawn(Raises):
    metadata: ClassVar = {"render_modes": ["rgb_array"]}

    def render(self):
        return np.full((8, 8, 3), self.count, np.uint8)


class Exits(OnceIn):
    def fail(self):
        os._exit(3)


class Killed(OnceIn):
    def fail(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Hangs(OnceIn):
    def fail(self):
        time.sleep(1000)


class AlwaysRaises(Counter):
    def misbehave(self):
        if self.count == 3:
            raise ValueError("broken for good")


class FailsToReset(Counter):
    def reset(self, *, seed=None, options=None):
        raise OSError("no licence")


class CallsExit(OnceIn):
    def fail(self):
        sys.exit(0)


class CallsExitAlways(Counter):
    def misbehave(self):
        sys.exit(0)


class NeedsLicence(Counter):
    def __init__(self):
        raise IndexError("no licence left")


class FailsToRestart(Counter):
    """Its constructor and its third step fail, but not at first."""

    built = 0

    def __init__(self):
        type(self).built += 1
        if self.built > 4:
            raise AttributeError("no licence left")

    def misbehave(self):
        if self.count == 3:
            raise ZeroDivisionError("no wind")


class NoSeed(Counter):
    def reset(self, *, seed=None, options=None):
        if seed is not None and seed > 10:
            raise ValueError("the seed is too large")
        return super().reset(seed=seed)


class Late(Counter):
    """Answers its third step too late."""

    def misbehave(self):
        time.sleep(0.8 * (self.count == 3))


class HangsInReset(Counter):
    def reset(self, *, seed=None, options=None):
        time.sleep(1000)


class NoInfo(Counter):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], None


class OtherInfo(Counter):
    """Legal in Gymnasium for a single environment."""

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, {"place": np.zeros(1 + int(10 * self.draw))}


class NoMask(Counter):
    def action_masks(self):
        raise LookupError("no masks today")


class Grows(Counter):
    def look(self):
        return np.zeros(2 + self.count // 2, np.float32)


class Reshapes(Counter):
    """Its observations could be stretched, turned or rounded to those of its space."""

    def __init__(self, space, obs):
        self.observation_space, self.obs = space, obs

    def look(self):
        return self.obs if self.count else self.observation_space.sample()


class Empty(Counter):
    def __len__(self):
        return 0


class FailsToClose(Counter):
    def close(self):
        raise RuntimeError("already closed")


class Prints(Counter):
    def misbehave(self):
        print("step")


class Endless(Counter):
    length = 10**9


def envs_of(kind, backend="workers", num_envs=4, **options):
    return make(EnvConfig(id=kind.__name__, num_envs=num_envs, backend=backend, **options), kind)


def play(envs, steps=40, seeds=None):
    """Observations, rewards, ends and aborted episodes of some steps."""
    try:
        rows = [(envs.reset(seeds or list(range(envs.num_envs)))["obs"].copy(), None)]
        for _ in range(steps):
            step = envs.step(np.zeros((envs.num_envs, 1), dtype=np.int64))
            rows.append((step.obs["obs"].copy(), step._replace(obs=None)))
    finally:
        envs.adapter.close()
    return rows


FAILURES = [
    (Raises, "gymnasium", {"on_error": "restart"}, "ZeroDivisionError: no wind"),
    (Raises, "workers", {}, "ZeroDivisionError: no wind"),
    (MaskRaises, "gymnasium", {"on_error": "restart", "action_mask": True}, "LookupError: no mask now"),
    (MaskRaises, "workers", {"action_mask": True}, "LookupError: no mask now"),
    (CallsExit, "gymnasium", {"on_error": "restart"}, "SystemExit: 0"),
    (CallsExit, "workers", {}, "SystemExit: 0"),
    (Exits, "workers", {}, "its process ended with exit code 3"),
    (Killed, "workers", {}, "its process ended with SIGKILL"),
    (Hangs, "workers", {"step_timeout": 0.5}, "no answer within 0.5 seconds"),
]


@pytest.mark.parametrize(("kind", "backend", "options", "reason"), FAILURES)
@pytest.mark.filterwarnings("default")
def test_a_failed_environment_is_restarted_and_its_episode_aborted(kind, backend, options, reason, recwarn):
    steps = 20 if kind is Hangs else 40
    envs = envs_of(kind, backend, num_envs=2 if kind is Hangs else 4, **options)
    rows = play(envs, steps)
    aborted = 0
    for (before, previous), (after, step) in itertools.pairwise(rows):
        for i in np.flatnonzero(step.aborted) if step.aborted is not None else ():
            aborted += 1
            assert step.truncated[i] and not step.terminated[i] and step.reward[i] == 0
            np.testing.assert_array_equal(after[i], before[i])  # the last observation that it gave
            assert before[i][1] == 2 and (previous is None or not previous.truncated[i])
    assert envs.adapter.restarts == aborted > 0
    texts = [str(warning.message) for warning in recwarn]
    assert any(f"({kind.__name__}) failed in step" in text and reason in text for text in texts)
    # Every episode has a draw of its own: a restarted environment does not repeat its first episode.
    draws = [obs[i][0] for obs, _ in rows for i in range(envs.num_envs) if obs[i][1] == 0]
    assert len(set(draws)) == len(draws)


@pytest.mark.filterwarnings("ignore")
def test_restarts_repeat_from_the_same_seeds_in_every_backend():
    local, workers, again = (
        play(envs_of(Raises, backend, on_error="restart")) for backend in (*BACKENDS, "workers")
    )
    for (a, _), (b, _), (c, _) in zip(local, workers, again, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(b, c)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore")
def test_restarts_after_a_reset_depend_on_its_seeds_alone(backend):
    """A resumed run resets its environments where the run was stopped, and knows no earlier restart."""
    envs, actions, twice = envs_of(Raises, backend, on_error="restart"), np.zeros((4, 1), dtype=np.int64), []
    try:
        for _ in range(2):
            first = envs.reset([5, 6, 7, 8])["obs"].copy()
            twice.append([first, *(envs.step(actions).obs["obs"].copy() for _ in range(40))])
        restarts = envs.adapter.restarts
    finally:
        envs.adapter.close()
    np.testing.assert_array_equal(*twice)
    assert restarts >= 4 and restarts % 2 == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore")
def test_an_environment_that_always_fails_is_given_up_with_its_traceback(backend):
    with pytest.raises(EnvFailedError, match=f"given up after {MAX_RESTARTS} restarts") as caught:
        play(envs_of(AlwaysRaises, backend, on_error="restart"), 60)
    assert str(caught.value).rstrip().endswith("ValueError: broken for good")
    assert 'raise ValueError("broken for good")' in str(caught.value)
    assert "test_misbehaving.py" in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_with_stop_the_first_failure_ends_the_run(backend):
    message = r"environment 0 \(AlwaysRaises\) failed in step 3 with action 0: ValueError: broken"
    with pytest.raises(EnvFailedError, match=message):
        play(envs_of(AlwaysRaises, backend, on_error="stop"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_never_worked_is_not_restarted(backend):
    for on_error in ("stop", "restart"):
        with pytest.raises(EnvFailedError, match="failed in reset: OSError: no licence") as caught:
            play(envs_of(FailsToReset, backend, on_error=on_error))
        assert "--env.on-error restart would restart it" not in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_observation_of_another_shape_is_named(backend):
    message = r"environment 0 \(Grows\) returned an observation of shape \(3,\) at step 2; its space is Box"
    with pytest.raises(EnvDataError, match=message):
        play(envs_of(Grows, backend))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (gymnasium.spaces.Box(-9, 9, (3,)), np.full(1, 7.5, np.float32)),
        (gymnasium.spaces.Box(-9, 9, (2, 3)), np.zeros((3, 2), np.float32)),
        (gymnasium.spaces.MultiDiscrete([3, 3]), np.array([1.9, 0.2])),
    ],
)
def test_an_observation_is_not_made_to_fit(backend, space, obs):
    with pytest.raises(EnvDataError, match=r"returned an observation of (shape|type)"):
        play(envs_of(Reshapes, backend, kwargs={"space": space, "obs": obs}))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_counts_as_false_is_built_once(backend):
    play(envs_of(Empty, backend))


class Unknown(Counter):
    """Its third observation or its third reward is not a number."""

    def __init__(self, obs, reward):
        self.factors = obs, reward

    def step(self, action):
        obs, reward, *ends = super().step(action)
        if self.count < 3:
            return obs, reward, *ends
        return obs * np.float32(self.factors[0]), reward * self.factors[1], *ends


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ((np.nan, 1.0), r"environment 0 returned obs\[0\] = nan"),
        ((1.0, np.nan), "environment 0 returned reward = nan"),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_not_a_number_ends_the_run_and_restarts_nothing(factors, message, backend):
    envs = make(EnvConfig(id="unknown", num_envs=2, backend=backend), partial(Unknown, *factors))
    with pytest.raises(EnvDataError, match=f"{message} at step 3; .* correct the environment, then resume"):
        play(envs)
    assert envs.adapter.restarts == 0


class Succeeds(Counter):
    """Reports a success of its own kind in every second episode."""

    def __init__(self, success, key="success"):
        self.success, self.key, self.episode = success, key, 0

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        return super().reset(seed=seed)

    def step(self, action):
        *outcome, info = super().step(action)
        return *outcome, {self.key: self.success} if self.episode % 2 == 0 else info


@pytest.mark.parametrize(
    ("success", "message"),
    [
        ("yes", r"success = 'yes' in info, which is of type str"),
        ({"goal": 1}, r"success = .* in info, which is of type dict"),
        (np.array([1, 0]), r"success = array\(\[1, 0\]\) in info, which is of type ndarray of shape \(2,\)"),
        (np.eye(9), r"success = array\(\[\[1., 0., .* in info, which is of type ndarray of shape \(9, 9\)"),
    ],
)
@pytest.mark.parametrize("key", ["success", "is_success"])
def test_a_success_that_is_no_number_is_named(success, message, key):
    for num_envs, backend in ((1, "gymnasium"), (2, "gymnasium"), (2, "workers")):
        envs = make(
            EnvConfig(id="Succeeds", num_envs=num_envs, backend=backend), partial(Succeeds, success, key)
        )
        with pytest.raises(EnvDataError, match=message) as caught:
            play(envs)
        text = str(caught.value)
        assert text.startswith(f"environment 0 (Succeeds) reported {key} = ") and "\n" not in text


@pytest.mark.parametrize("success", [True, 1, np.float32(1), np.bool_(True), np.array(1)])
def test_a_success_is_a_number_of_any_type(success):
    envs = make(EnvConfig(id="Succeeds", num_envs=2, backend="gymnasium"), partial(Succeeds, success))
    envs.reset([1, 2])
    steps = [envs.step(np.zeros((2, 1), dtype=np.int64)).success for _ in range(8)]
    assert all(step is None for step in steps[:7]) and (steps[7] == 1).all()


@pytest.mark.filterwarnings("ignore")
def test_aborted_episodes_are_in_no_statistic(tmp_path):
    config = small_config("Raises", "workers", rollouts=6, barrier=3)
    trained = run_quietly(config, tmp_path, factory=Raises)
    episodes = trained.episodes()
    assert len(episodes) > 10 and {episode.length for episode in episodes} == {6}
    last = metrics_of(trained.folder)[-1]
    assert last["episodes"] == len(episodes) and last["env_restarts"] > 0


@pytest.mark.filterwarnings("ignore:environment 0")
def test_an_answer_that_comes_late_changes_no_observation():
    envs = make(EnvConfig(id="late", num_envs=1, backend="workers", step_timeout=0.4), Late)
    envs.reset([0])
    for _ in range(3):
        step = envs.step(np.zeros((1, 1), np.int64))
    assert step.aborted.all() and step.obs["obs"][0, 1] == 2
    time.sleep(0.8)
    assert step.obs["obs"][0, 1] == 2  # a view of the memory that the processes share
    envs.adapter.close()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore")
def test_evaluations_play_other_episodes_instead_of_aborted_ones(backend):
    config, returns = EnvConfig(id="Raises", backend=backend, on_error="restart"), []
    result = evaluate(None, replace(config, num_envs=3), 12, factory=Raises, on_episode=returns.append)
    assert result.lengths == [6] * 12 and result.returns == returns == [6.0] * 12


@pytest.mark.filterwarnings("ignore")
def test_an_evaluation_ends_where_every_episode_is_aborted():
    with pytest.raises(EnvFailedError, match="given up after 10 restarts without a completed episode"):
        evaluate(None, EnvConfig(id="broken", on_error="restart"), 3, factory=AlwaysRaises)


@pytest.mark.filterwarnings("ignore")
def test_no_aborted_episode_is_recorded(tmp_path):
    config = small_config("Raises", rollouts=1)
    trained = run_quietly(
        replace(config, env=replace(config.env, on_error="restart")), tmp_path, factory=Raises
    )
    data = record_episodes(trained, 12)
    assert [stop - start for start, stop in data.bounds] == [7] * 12 and not data.truncated.any()
    envs = make_for_evaluation(replace(trained.config.env, num_envs=2), Raises)
    scores, record = record_deterministic(trained.agent, envs, 12, 0)
    assert scores.lengths.tolist() == [6] * 12 and not record.truncated.any()
    assert envs.adapter.restarts > 0  # seeds for which some episodes are aborted
    counts = np.unique(number_episodes(record, 12), return_counts=True)[1][1:]
    assert counts.tolist() == [6] * 12
    envs.adapter.close()


@pytest.mark.filterwarnings("ignore")
def test_a_film_has_no_aborted_episode(tmp_path, monkeypatch):
    monkeypatch.setattr(film, "write_film", lambda path, frames, fps: films.append(list(frames)))
    films, config = [], EnvConfig(id=registered(Drawn, monkeypatch), on_error="restart")
    assert film.render(None, config, str(tmp_path / "x.gif"), 12, 0) == [6.0] * 12
    assert [frame[0, 0, 0] for frame in films[0]] == [*range(7)] * 12


@pytest.mark.filterwarnings("ignore")
def test_watch_shows_an_episode_that_was_not_aborted(tmp_path):
    config = small_config("Drawn", rollouts=1)
    trained = run_quietly(
        replace(config, env=replace(config.env, on_error="restart")), tmp_path, factory=Drawn
    )
    for episode in watch(trained, 12, 12, 0, False, np.copy).episodes:
        assert episode.length == len(episode.record.reward) == 6 and len(episode.pictures) == 7
        assert episode.record.terminated[:, 0].tolist() == [False] * 5 + [True]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_of_close_loses_no_run(tmp_path, backend):
    config = small_config("FailsToClose", backend, rollouts=3)
    with pytest.warns(UserWarning, match=r"FailsToClose.close\(\) raised RuntimeError: already closed"):
        trained = run_quietly(config, tmp_path, factory=FailsToClose)
    assert trained.summary["status"] == "finished"
    assert (trained.folder / "checkpoints" / "last.safetensors").exists()


def test_an_environment_that_calls_exit_fails_the_run(tmp_path):
    with pytest.raises(EnvFailedError, match=r"failed in step 1 with action .: SystemExit: 0"):
        run_quietly(small_config("CallsExitAlways"), tmp_path, factory=CallsExitAlways)
    (summary,) = tmp_path.rglob("summary.json")
    assert '"status": "failed"' in summary.read_text()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_of_the_constructor_is_shown_with_its_place(backend):
    with pytest.raises(UsageError, match="cannot be built: IndexError: no licence left") as caught:
        envs_of(NeedsLicence, backend)
    assert "test_misbehaving.py" in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_an_error_of_the_constructor_in_a_restart_is_given_up(monkeypatch):
    monkeypatch.setattr(FailsToRestart, "built", 0)
    with pytest.raises(EnvFailedError, match="AttributeError: no licence left; given up after"):
        play(envs_of(FailsToRestart, "gymnasium", on_error="restart"))


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        (NoSeed, {}, "ValueError: the seed is too large"),
        (HangsInReset, {"step_timeout": 0.5}, "no answer within 0.5 seconds"),
    ],
)
def test_the_test_of_a_seed_ends_with_a_message(kind, options, reason):
    envs = envs_of(kind, "workers", num_envs=1, **options)
    try:
        with pytest.raises(EnvFailedError, match=rf"\({kind.__name__}\) failed in reset: {reason}"):
            envs.adapter.check_seed(99)
    finally:
        envs.adapter.close()


class OldReset(Counter):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldStep(Counter):
    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class ListOfRewards(Counter):
    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, np.array([1.0]), *rest


class NoReward(Counter):
    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, None, *rest


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NoInfo, r"reset of environment 0 \(NoInfo\) returned 2 values, the last one of type NoneType"),
        (OldReset, r"reset of environment 0 \(OldReset\) returned a value of type ndarray"),
        (OldStep, r"step of environment 0 \(OldStep\) returned 4 values"),
        (ListOfRewards, r"step of environment 0 \(ListOfRewards\) returned the reward array\(\[1\.\]\)"),
        (NoReward, r"step of environment 0 \(NoReward\) returned the reward None; it must be one number"),
    ],
)
def test_what_reset_and_step_must_return_is_said_and_no_restart_is_tried(kind, message, backend):
    envs = envs_of(kind, backend, num_envs=1, on_error="restart")
    try:
        with pytest.raises(EnvDataError, match=message):
            envs.reset([0])
            envs.step(np.zeros((1, 1), np.int64))
    finally:
        envs.adapter.close()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [OtherInfo])
def test_info_that_cannot_be_joined_names_its_environment(kind, backend):
    with pytest.raises(
        EnvDataError, match=rf"the info of environment . \({kind.__name__}\) cannot be joined"
    ):
        play(envs_of(kind, backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_of_the_first_mask_is_shown_with_its_place(backend):
    with pytest.raises(EnvFailedError, match=r"failed in reset: LookupError: no masks today") as caught:
        play(envs_of(NoMask, backend, action_mask=True))
    assert "environment 0 (NoMask)" in str(caught.value) and "in action_masks" in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_prints_disturbs_nothing(backend, capfd):
    plain, noisy = (play(envs_of(kind, backend), 8) for kind in (Counter, Prints))
    assert "step" in capfd.readouterr().out
    for (a, _), (b, _) in zip(plain, noisy, strict=True):
        np.testing.assert_array_equal(a, b)


class Reports(OnceIn):
    """Its info has the count, its observation is one array that every step overwrites."""

    def __init__(self):
        self.array = np.zeros(2, np.float32)

    def look(self):
        self.array[:] = self.draw, self.count
        return self.array

    def misbehave(self):
        self.array[:] = -1  # written before the failure
        super().misbehave()

    def fail(self):
        raise ZeroDivisionError("no wind")

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"count": np.uint8(0)}

    def step(self, action):
        return *super().step(action)[:4], {"count": np.uint8(self.count)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore:environment")
def test_the_last_row_of_an_aborted_episode_is_the_one_before_it(backend):
    """What the observation shows and what it does not show belong together: a critic values both."""
    envs = envs_of(Reports, backend, hidden=True, on_error="restart")
    try:
        before, aborted = envs.reset(list(range(4))), 0
        for _ in range(40):
            step = envs.step(np.zeros((4, 1), np.int64))
            lost = np.zeros(4, bool) if step.aborted is None else step.aborted
            aborted += lost.sum()
            for name in ("obs", "hidden"):
                np.testing.assert_array_equal(step.obs[name][lost], before[name][lost])
            np.testing.assert_array_equal(step.obs["hidden"][:, 0], step.obs["obs"][:, 1])
            before = {name: x.copy() for name, x in step.obs.items()}
        assert aborted > 3
    finally:
        envs.adapter.close()


@pytest.mark.parametrize(
    "env", [pytest.param("LunarLander-v3", marks=needs_envpool), "poc", "popgym:RepeatPreviousEasy"]
)
def test_a_timeout_is_never_ignored(env):
    with pytest.raises(UsageError, match=r"env\.step_timeout 2 needs --env.backend workers"):
        make(EnvConfig(id=env, num_envs=2, step_timeout=2.0))


@needs_envpool
def test_a_restart_is_never_ignored():
    with pytest.raises(UsageError, match=r"env\.on_error restart needs environments in Python"):
        make(EnvConfig(id="LunarLander-v3", num_envs=2, backend="envpool", on_error="restart"))


@needs_envpool
@pytest.mark.parametrize("env", ["LunarLander-v3", "minigrid:MemoryS7"])
def test_environments_that_may_be_restarted_are_in_python(env):
    envs = make(EnvConfig(id=env, num_envs=2, on_error="restart"))
    envs.adapter.close()
    assert envs.adapter.backend == "gymnasium"


def test_a_timeout_needs_workers():
    with pytest.raises(UsageError, match=r"env\.step_timeout 2 needs --env.backend workers"):
        envs_of(Counter, "gymnasium", step_timeout=2.0)


class StartsSlowly(Counter):
    """Its construction in a worker takes longer than a step may."""

    def __init__(self):
        if multiprocessing.parent_process() is not None:
            time.sleep(1.0)


def test_the_limit_of_a_step_is_not_one_of_the_construction():
    envs = envs_of(StartsSlowly, num_envs=2, step_timeout=0.5)
    assert [step.aborted for _, step in play(envs, 3)[1:]] == [None] * 3
    assert envs.adapter.restarts == 0


def test_a_construction_that_takes_too_long_is_a_failure(monkeypatch):
    monkeypatch.setattr("recollect.envs.workers.BUILD_SECONDS", 0.1)
    envs = envs_of(StartsSlowly, num_envs=1, step_timeout=0.1)
    with pytest.raises(
        EnvFailedError, match=r"\(StartsSlowly\) failed in reset: not built within 0.1 seconds"
    ):
        play(envs, 1)


@pytest.mark.parametrize(
    ("values", "joined"),
    [
        ([0, 0.75], [0.0, 0.75]),
        ([True, 0.5], [1.0, 0.5]),
        ([False, 2], [0, 2]),
        ([np.zeros(2, int), np.full(2, 0.5)], [[0, 0], [0.5, 0.5]]),
        ([0, 2**70], [0, 2**70]),
        ([-(2**70), 1], [-(2**70), 1]),
    ],
)
def test_infos_hold_the_numbers_of_every_environment(values, joined):
    """Whatever type the first has: a 0 at a reset would cut the fractions of the others."""
    vec, infos = gymnasium.vector.VectorEnv(), {}
    vec.num_envs = 2
    for env, value in enumerate(values):
        infos = join_info(vec, infos, {"level": value, "deep": {"level": value}}, env, "name")
    assert infos["level"].tolist() == infos["deep"]["level"].tolist() == joined


class Odd(Counter):
    """One of several, named by a number, whose observation has another shape or type."""

    built: ClassVar[list[int]] = []

    def __init__(self, odd, value):
        self.is_odd = len(Odd.built) == odd
        self.value = value
        Odd.built.append(odd)

    def reset(self, *, seed=None, options=None):
        # Of another type than the space, as many environments have it.
        obs, info = super().reset(seed=seed)
        return (self.value if self.is_odd else obs.astype(np.float64)), info


@pytest.mark.parametrize("value", [np.zeros(3, np.float32), np.zeros(1, complex), None], ids=str)
def test_the_environment_with_the_wrong_observation_is_named(value):
    Odd.built.clear()
    # The first one is an example, of which no observation is read.
    envs = make(EnvConfig(id="odd", num_envs=4, backend="gymnasium"), partial(Odd, 3, value))
    number = [env.unwrapped.is_odd for env in envs.adapter.local_envs].index(True)
    with pytest.raises(EnvDataError, match=rf"environment {number} \(odd\) returned an observation"):
        play(envs)


class Overwrites(gymnasium.Env):
    """Changes its action, and keeps it."""

    observation_space, action_space = spaces.Box(-9, 9, (2,), np.float32), spaces.MultiDiscrete([4, 4])

    def reset(self, *, seed=None, options=None):
        self.last = np.zeros(2)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        seen, self.last = self.last.astype(np.float32), action
        action -= 3
        return seen, 0.0, False, False, {}


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_changes_its_action_changes_no_other(backend):
    envs = make(EnvConfig(id="overwrites", num_envs=2, backend=backend), Overwrites)
    try:
        envs.reset([0, 1])
        for value in (1, 2, 3):
            actions = np.full((2, 2), value)
            step = envs.step(actions)
            assert (actions == value).all()
            np.testing.assert_array_equal(step.obs["obs"], value - 4 if value > 1 else 0)
    finally:
        envs.adapter.close()


@pytest.mark.filterwarnings("ignore:environment")
def test_the_last_row_of_an_episode_with_an_info_that_is_not_sent_is_the_one_before_it():
    class Unsent(Counter):
        def step(self, action):
            obs, *rest, info = super().step(action)
            return obs, *rest, {"f": lambda: 0} if obs[1] == 3 else info

    envs = make(EnvConfig(id="unsent", num_envs=1, backend="workers", on_error="restart"), Unsent)
    rows = play(envs, 6)
    (lost,) = [t for t, (_, step) in enumerate(rows) if step is not None and step.aborted is not None]
    assert rows[lost][0].tolist() == rows[lost - 1][0].tolist()


# The same environment twice -------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_environment_for_training_and_evaluation_is_refused(backend):
    env = Counter()
    config = EnvConfig(id="one", num_envs=1, backend=backend)
    make(config, lambda: env)
    with pytest.raises(UsageError, match="returned the same Counter again"):
        evaluate(None, config, 1, factory=lambda: env)


# Data outside of its space --------------------------------------------------------------------


class Outside(Counter):
    def __init__(self, space, value):
        self.observation_space, self.value = space, value

    def look(self):
        good = self.observation_space.start if hasattr(self.observation_space, "start") else 0
        return good + 0 * self.value if self.count < 2 else self.value


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (spaces.Discrete(4), np.int64(4), r"obs = 4 at step 2; its space has the values 0 to 3"),
        (spaces.Discrete(4, start=2), np.int64(1), r"obs = 1 at step 2; its space has the values 2 to 5"),
        (
            spaces.MultiDiscrete([3, 5]),
            np.array([0, 5]),
            r"obs\[1\] = 5 at step 2; its space has the values 0 to 4",
        ),
        (
            spaces.MultiDiscrete([3, 5]),
            np.array([-1, 0]),
            r"obs\[0\] = -1 at step 2; its space has the values 0 to 2",
        ),
        (
            spaces.MultiBinary((2, 2)),
            np.array([[0, 1], [7, 1]], np.int8),
            r"obs\[1, 0\] = 7 at step 2; its space has the values 0 and 1",
        ),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_discrete_observation_outside_of_its_space_is_named(space, value, message, backend):
    envs = make(EnvConfig(id="outside", num_envs=2, backend=backend), partial(Outside, space, value))
    with pytest.raises(EnvDataError, match=f"environment 0 returned {message}"):
        play(envs)


@pytest.mark.parametrize(
    ("space", "value", "given"),
    [
        (spaces.Box(-100, 100, (2,), np.int8), np.array([300, 0]), "int64 with values from 0 to 300"),
        (
            spaces.Box(0, 255, (2,), np.uint8),
            np.array([300, 0], np.uint16),
            "uint16 with values from 0 to 300",
        ),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([3, 0]), "int64 with values from 0 to 0"),
        (spaces.Box(0, 1, (2,)), np.array([1j, 0]), "complex128"),
        (spaces.MultiDiscrete([5, 5], np.int8), np.array([257, 0]), "int64 with values from 0 to 257"),
        (spaces.MultiBinary(2), np.array([256, 257]), "int64 with values from 256 to 257"),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_type_that_the_space_does_not_hold_is_named(space, value, given, backend):
    """numpy would wrap some around: 300 as an int8 is 44."""
    envs = make(EnvConfig(id="outside", num_envs=2, backend=backend), partial(Outside, space, value))
    with pytest.raises(EnvDataError, match=rf"environment 0 .* an observation of type {given} at step"):
        play(envs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_integers_of_another_type_are_read_where_they_fit(backend):
    space = spaces.Box(-100, 100, (2,), np.int8)
    envs = make(
        EnvConfig(id="fits", num_envs=2, backend=backend), partial(Outside, space, np.array([-100, 7]))
    )
    seen = np.concatenate([obs for obs, _ in play(envs)])
    assert set(seen.ravel()) == {0, -100, 7}


class Paid(Counter):
    def __init__(self, reward):
        self.reward = reward

    def step(self, action):
        obs, _, terminated, truncated, info = super().step(action)
        return obs, self.reward, terminated, truncated, info


class Ends(Counter):
    def __init__(self, end):
        self.end = end

    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, self.end, truncated, info


@pytest.mark.parametrize(
    "end", [None, np.nan, np.float32("nan"), "False", np.array([True, False]), np.array([], bool)], ids=repr
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_end_that_is_unknown_is_refused(end, backend):
    envs = make(EnvConfig(id="ends", num_envs=2, backend=backend), partial(Ends, end))
    with pytest.raises(EnvDataError, match=rf"returned {re.escape(repr(end))} for terminated"):
        play(envs)


@pytest.mark.parametrize("reward", [np.nan, -np.inf])
def test_an_evaluation_has_no_return_of_rewards_that_are_not_finite(reward):
    config = EnvConfig(id="paid", num_envs=2)
    assert evaluate(None, config, 2, factory=partial(Paid, 1.0)).mean > 0
    with pytest.raises(EnvDataError, match=f"the return of an episode is {reward} in environment 0"):
        evaluate(None, config, 2, factory=partial(Paid, reward))


def test_entries_whose_dotted_names_collide_are_refused():
    box = spaces.Box(0, 1, (2,))
    space = spaces.Dict({"a.b": box, "a": spaces.Dict({"b": box})})
    with pytest.raises(UsageError, match=r"two entries of the observation are named a\.b"):
        read_spaces(space, spaces.Discrete(2))
    read_spaces(spaces.Dict({"a.c": box, "a": spaces.Dict({"b": box})}), spaces.Discrete(2))


# Episodes that never end ----------------------------------------------------------------------

LIMITED = [
    *("CartPole-v1", "Acrobot-v1", "CliffWalking-v1", "poc", "probe:recall", "masked:PendulumNoVel-v1"),
    *("popgym:RepeatFirstEasy", "minigrid:MemoryS7"),
]


@pytest.mark.parametrize("env_id", LIMITED)
@pytest.mark.parametrize("backend", ["auto", "gymnasium", pytest.param("envpool", marks=needs_envpool)])
def test_no_episode_is_longer_than_the_time_limit(env_id, backend):
    config = EnvConfig(id=env_id, num_envs=3, backend=backend, time_limit=5)
    try:
        envs = make(config)
    except UsageError:
        pytest.skip("the suite has no such backend")
    assert envs.adapter.time_limit == 5
    envs.reset([1, 2, 3])
    ages = np.zeros(3, dtype=int)
    action = np.zeros(
        (3, envs.action_spec.width), int if envs.action_spec.kind == "categorical" else np.float32
    )
    for _ in range(25):
        step = envs.step(action)
        ages += 1
        ended = step.terminated | step.truncated
        assert (ages <= 5).all() and ended[ages == 5].all()
        ages[ended] = -1  # the next step resets
    envs.adapter.close()


@needs_envpool
def test_envpool_starts_a_new_episode_after_a_limit_that_it_ignores():
    envs = make(EnvConfig(id="CliffWalking-v1", num_envs=2, backend="envpool", time_limit=3, threads=1))
    start = envs.reset([1, 2])["obs"].copy()
    for episode in range(3):
        for t in range(3):
            step = envs.step(np.zeros((2, 1), dtype=np.int64))  # up
            assert step.truncated.tolist() == [t == 2] * 2 and (step.reward == -1).all(), (episode, t)
            assert (step.obs["obs"] == start - 12 * (t + 1)).all()
        step = envs.step(np.zeros((2, 1), dtype=np.int64))
        assert (step.obs["obs"] == start).all() and (step.reward == 0).all() and not step.truncated.any()
    envs.adapter.close()


def test_an_evaluation_cuts_episodes_that_never_end_and_says_so(monkeypatch):
    monkeypatch.setattr(sys.modules["recollect.envs.make"], "EVALUATION_LIMIT", 50)
    with pytest.warns(UserWarning, match=r"3 of 3 episodes were truncated after 50 steps.*env.time-limit"):
        result = evaluate(None, EnvConfig(id="endless"), 3, factory=Endless)
    assert result.lengths == [50, 50, 50]
    with pytest.warns(UserWarning, match="truncated after 50 steps"):
        evaluate(None, replace(EnvConfig(id="endless"), backend="workers"), 1, factory=Endless)


@pytest.mark.filterwarnings("error")
def test_trials_of_episodes_that_end_are_not_said_to_be_cut(monkeypatch):
    """Three episodes of six steps are longer than the limit of one."""
    monkeypatch.setattr(sys.modules["recollect.envs.make"], "EVALUATION_LIMIT", 10)
    assert evaluate(None, EnvConfig(id="counter", trial=3), 2, factory=Counter).lengths == [18, 18]


def test_recordings_and_films_say_which_episodes_were_cut(monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules["recollect.envs.make"], "EVALUATION_LIMIT", 50)
    trained = run_quietly(
        small_config("Endless", rollouts=1, val_check_interval=0), tmp_path, factory=Endless
    )
    with pytest.warns(UserWarning, match="3 of 3 episodes were truncated after 50 steps"):
        record_episodes(trained, 3)
    envs = make_for_evaluation(replace(trained.config.env, num_envs=2), Endless)
    with pytest.warns(UserWarning, match="2 of 2 episodes were truncated after 50 steps"):
        record_deterministic(trained.agent, envs, 2, 0)
    envs.adapter.close()
    monkeypatch.setattr(film, "TIME_LIMIT", 7)
    monkeypatch.setattr(film, "write_film", lambda path, frames, fps: list(frames))
    monkeypatch.setattr(film, "_render", lambda envs, env: np.zeros(1))
    with pytest.warns(UserWarning, match="2 of 2 episodes were truncated after 7 steps"):
        film.render(None, EnvConfig(id=registered(Endless, monkeypatch)), str(tmp_path / "x.gif"), 2, 0)
