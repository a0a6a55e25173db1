"""The proof-of-concept task, against a slow copy of its rules and against published figures."""

import numpy as np
import pytest

from recollect import envs as suite
from recollect.common.errors import UsageError
from recollect.envs import EnvConfig, Envs, EnvState, Step
from recollect.envs.make import suites
from recollect.envs.suites import poc

from ..helpers import sampled
from .test_envs import play, random_actions, round_trip, same, seeds, tails

LEFT, RIGHT = 0, 1
PLACES = np.round(np.arange(-5, 6) * 0.2, 1).astype(np.float32)
OPTIONS = [
    {},
    {"freeze": False},
    {"show_steps": 0},
    {"show_steps": 7, "freeze": False},
    {"show_steps": 5},
]


def build(num_envs: int = 3, time_limit: int | None = None, **kwargs: bool | int) -> Envs:
    return suite.make(EnvConfig(id="poc", num_envs=num_envs, time_limit=time_limit, kwargs=kwargs))


class Line:
    """One episode, in floats and branches; it begins where a first observation says."""

    def __init__(self, first: np.ndarray, limit: int, show_steps: int = 2, freeze: bool = True) -> None:
        self.goals, self.place = (float(first[0]), float(first[2])), float(first[1])
        self.limit, self.show_steps, self.freeze, self.count = limit, show_steps, freeze, 0

    def step(self, action: int) -> tuple[list[float], float, bool, bool, float]:
        """Observation, reward, terminated, truncated, success."""
        shown = self.count < self.show_steps
        self.count += 1
        cut = self.count == self.limit
        goals = self.goals if shown else (0.0, 0.0)
        if shown and self.freeze:
            return [goals[0], self.place, goals[1]], 0.0, False, cut, 0.0 if cut else np.nan
        self.place = round(self.place + (0.2 if action == RIGHT else -0.2), 1)
        obs = [goals[0], self.place, goals[1]]
        for end, goal in ((-1.0, self.goals[0]), (1.0, self.goals[1])):
            if self.place == end:
                return obs, 1.6 * goal, True, False, float(goal > 0)
        return obs, -0.1, False, cut, 0.0 if cut else np.nan


def check_row(step: Step, i: int, expected: tuple) -> None:
    obs, reward, terminated, truncated, success = expected
    np.testing.assert_array_equal(step.obs["obs"][i], np.array(obs, np.float32))
    assert (step.reward[i], step.terminated[i], step.truncated[i]) == (reward, terminated, truncated)
    np.testing.assert_array_equal(step.success[i], success)


@pytest.mark.parametrize("limit", sampled([None, 9], 9))
@pytest.mark.parametrize("kwargs", sampled(OPTIONS, OPTIONS[0], OPTIONS[3]), ids=str)
def test_every_step_is_that_of_the_slow_copy(kwargs, limit):
    envs = build(num_envs=4, time_limit=limit, **kwargs)
    first = envs.reset(seeds(4))["obs"]
    lines: list[Line | None] = [Line(row, limit or 64, **kwargs) for row in first]
    ends, cuts = 0, 0
    for action in random_actions(envs, 2000):
        step = envs.step(action)
        for i, line in enumerate(lines):
            if line is None:  # a tail row: the action is ignored and an episode opens
                obs = step.obs["obs"][i]
                assert set(obs[[0, 2]]) == {-1.0, 1.0} and obs[1] in PLACES[3:8]
                check_row(step, i, (obs, 0.0, False, False, np.nan))
                lines[i] = Line(obs, limit or 64, **kwargs)
            else:
                expected = line.step(int(action[i, 0]))
                check_row(step, i, expected)
                ends, cuts = ends + expected[2], cuts + expected[3]
                lines[i] = None if expected[2] or expected[3] else line
    assert ends > 40
    assert cuts > 100 or limit is None


# Published figures ----------------------------------------------------------------------------


def ten_starts(copies: int = 1, time_limit: int | None = None) -> tuple[Envs, np.ndarray]:
    """All episodes there are, one in each environment; and the way to the good end, -1 or 1."""
    envs = build(10 * copies, time_limit)
    envs.reset(seeds(10 * copies))
    state = envs.adapter.get_state()
    place, good = np.tile(np.arange(-2, 3), 2 * copies), np.tile(np.repeat([-1, 1], 5), copies)
    envs.adapter.set_state(EnvState(state.arrays | {"place": place, "good": good}, state.data))
    return envs, good


def one_episode(envs: Envs, way: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, length and success of walking one way, -1 or 1, to the end."""
    rows = play(envs, np.tile((way > 0)[None, :, None], (12, 1, 1)).astype(int))
    at = rows["terminated"].argmax(0)
    assert rows["terminated"].any(0).all() and not rows["truncated"].any()
    total = [rows["reward"][: end + 1, i].sum() for i, end in enumerate(at)]
    return np.array(total), at + 1, rows["success"][at, np.arange(len(at))]


def test_the_best_policy_earns_what_is_published():
    """10 seeds of MarcoMeter's GRU end at return 1.197, length 7.03, success 1: means of 100 episodes."""
    total, length, success = one_episode(*ten_starts())
    assert (success == 1).all()
    assert total.mean() == pytest.approx(1.2, abs=1e-12) and length.mean() == 7.0
    assert sorted(set(length)) == [5, 6, 7, 8, 9]
    # Return and length of the best policy lie on one line, and the published pair lies on it.
    slope, offset = np.polyfit(length, total, 1)
    assert offset + slope * 7.03 == pytest.approx(1.197, abs=5e-4)


def test_no_sequence_of_actions_earns_more():
    """All 128 sequences of 7 moves on all 10 starts; whoever has not arrived then has lost too much."""
    best, _, _ = one_episode(*ten_starts())
    moves = np.repeat((np.arange(128) >> np.arange(7)[:, None]) & 1, 10, axis=1)
    envs, _ = ten_starts(copies=128)
    rows = play(envs, np.concatenate([moves[:2], moves])[..., None])  # two actions move nothing
    arrived = np.logical_or.accumulate(rows["terminated"])
    counts = np.concatenate([np.ones_like(arrived[:1]), ~arrived[:-1]])
    total = (rows["reward"] * counts).sum(0).reshape(128, 10)
    bound = total + np.where(arrived[-1].reshape(128, 10), 0.0, 1.6)
    np.testing.assert_allclose(bound.max(0), best, atol=1e-12)


def test_without_memory_half_of_all_episodes_succeed():
    for way in (-1, 1):
        envs, good = ten_starts()
        total, length, success = one_episode(envs, np.full(10, way))
        np.testing.assert_array_equal(success, good == way)
        assert success.mean() == 0.5 and length.mean() == 7.0
        assert total.mean() == pytest.approx(-0.4, abs=1e-12)


def test_all_ten_starts_are_equally_likely():
    first = build(num_envs=5000).reset(seeds(5000))["obs"]
    np.testing.assert_array_equal(first[:, 0], -first[:, 2])
    kinds, counts = np.unique(first[:, 1:], axis=0, return_counts=True)
    assert len(kinds) == 10
    np.testing.assert_array_equal(np.unique(kinds[:, 0]), PLACES[3:8])
    assert ((counts - 500) ** 2 / 500).sum() < 27.9  # chi-squared with 9 degrees: one in a thousand


# What is seen ---------------------------------------------------------------------------------


def test_nothing_moves_and_nothing_is_paid_while_the_ends_are_shown():
    envs, good = ten_starts()
    for _ in range(2):
        step = envs.step(np.full((10, 1), RIGHT))
        np.testing.assert_array_equal(step.obs["obs"][:, 1], np.tile(PLACES[3:8], 2))
        np.testing.assert_array_equal(step.obs["obs"][:, 2], good)
        assert (step.reward == 0).all()
    step = envs.step(np.full((10, 1), RIGHT))
    np.testing.assert_array_equal(step.obs["obs"][:, 1], np.tile(PLACES[4:9], 2))


def test_hidden_ends_leave_no_trace():
    """After three actions the same places look the same, whichever end is good."""
    envs, _ = ten_starts()
    actions = np.tile(random_actions(envs, 4)[:, :5], (1, 2, 1))
    obs = play(envs, actions)["obs"]
    assert (obs[:2, :5] != obs[:2, 5:]).any(-1).all()
    np.testing.assert_array_equal(obs[2:, :5], obs[2:, 5:])
    assert (obs[2:][..., [0, 2]] == 0).all()


def test_places_do_not_drift():
    envs = build(num_envs=16)
    envs.reset(seeds(16))
    rows = play(envs, random_actions(envs, 3000))
    assert rows["obs"].dtype == np.float32
    assert set(np.unique(rows["obs"][..., 1])) == set(PLACES)
    assert (np.abs(rows["obs"][..., 1]) == 1).sum() == rows["terminated"].sum()


def test_an_episode_is_cut_at_the_time_limit():
    for limit, own in [(64, None), (16, 16)]:
        envs = build(time_limit=own)
        assert envs.adapter.time_limit == limit
        envs.reset(seeds(3))
        pacing = np.tile(np.array([LEFT, RIGHT])[:, None, None], (limit, 3, 1))
        rows = play(envs, pacing[: limit + 1])
        assert not rows["terminated"].any()
        np.testing.assert_array_equal(np.flatnonzero(rows["truncated"].all(1)), [limit - 1])
        assert (rows["success"][limit - 1] == 0).all() and np.isnan(rows["success"][: limit - 1]).all()
        assert tails(rows)[limit].all() and (rows["reward"][limit] == 0).all()


def test_an_end_reached_at_the_time_limit_is_a_termination():
    envs, good = ten_starts(time_limit=7)
    rows = play(envs, np.tile((good > 0)[None, :, None], (7, 1, 1)).astype(int))
    starts = np.tile(np.arange(-2, 3), 2)
    at_limit, late = starts == 0, starts * good < 0
    assert rows["terminated"][6][at_limit].all() and not rows["truncated"][6][at_limit].any()
    assert rows["truncated"][6][late].all() and (rows["success"][6][late] == 0).all()


# Seeds and state ------------------------------------------------------------------------------


def test_episodes_follow_from_their_seeds():
    actions = random_actions(build(num_envs=8), 200)
    streams = []
    for run in (0, 0, 1):
        envs = build(num_envs=8)
        first = envs.reset(seeds(8, run))["obs"].copy()
        streams.append(play(envs, actions) | {"first": first})
    same(streams[0], streams[1])
    assert (streams[0]["first"] != streams[2]["first"]).any()
    assert (streams[0]["obs"] != streams[2]["obs"]).any()
    # An environment's episodes do not depend on its neighbours.
    alone = build(num_envs=1)
    alone.reset(seeds(8)[5:6])
    np.testing.assert_array_equal(play(alone, actions[:, 5:6])["obs"][:, 0], streams[0]["obs"][:, 5])


def test_actions_in_tail_rows_change_nothing():
    envs = build(num_envs=4, time_limit=6)
    actions = random_actions(envs, 200)
    envs.reset(seeds(4))
    rows = play(envs, actions)
    other = np.where(tails(rows)[..., None], 1 - actions, actions)
    assert (other != actions).any()
    envs.reset(seeds(4))
    same(rows, play(envs, other))


@pytest.mark.parametrize("kwargs", OPTIONS[:2], ids=str)
def test_a_state_continues_bit_for_bit(kwargs):
    envs, fresh = (build(time_limit=8, **kwargs) for _ in range(2))
    assert envs.adapter.tier == "native" and envs.adapter.backend == "own"
    actions = random_actions(envs, 20 + 60)
    after_an_end = 0
    for begin in range(20):
        envs.reset(seeds(3))
        for action in actions[:begin]:
            envs.step(action)
        state = envs.adapter.get_state()
        after_an_end += state.arrays["ended"].any()
        rows = play(envs, actions[begin : begin + 60])
        fresh.adapter.set_state(round_trip(state))
        same(rows, play(fresh, actions[begin : begin + 60]))
        envs.adapter.set_state(state)  # the state was not touched by what came after it
        same(rows, play(envs, actions[begin : begin + 60]))
    assert after_an_end


# Making ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["poc", "poc:"])
def test_it_has_two_names(env_id):
    envs = suite.make(EnvConfig(id=env_id, num_envs=2))
    assert envs.adapter.backend == "own"
    assert envs.action_spec.sizes == (2,) and envs.obs_spec.leaves["obs"].shape == (3,)


def test_it_is_listed_with_what_it_tests():
    assert "poc" in suites()
    (line,) = poc.listing().values()
    assert line and "\n" not in line


@pytest.mark.parametrize(
    ("env_id", "kwargs", "words"),
    [
        ("poc:line", {}, "poc:line is unknown"),
        ("poc", {"weight": 3}, "weight; known: show_steps, freeze"),
        ("poc", {"frieze": True}, "did you mean freeze"),
        ("poc", {"show_steps": True}, "show_steps is True; it must be a number of steps"),
        ("poc", {"show_steps": -1}, "show_steps is -1; it must be"),
        ("poc", {"show_steps": 2.0}, r"show_steps is 2\.0; it must be"),
        ("poc", {"freeze": 1}, "freeze is 1; it must be true or false"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(env_id, kwargs, words):
    with pytest.raises(UsageError, match=words) as caught:
        suite.make(EnvConfig(id=env_id, kwargs=kwargs))
    assert "\n" not in str(caught.value)
