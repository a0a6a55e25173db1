"""POPGym: all it registers runs, and our own card games are its games."""

import json
import sys

import gymnasium as gym
import numpy as np
import pytest

from recollect import envs as suite
from recollect.common.errors import UsageError
from recollect.envs import EnvConfig, Envs, EnvState, popgym

from .test_envs import play, random_actions, same, seeds

LEVELS = ("Easy", "Medium", "Hard")
OURS = [family + level for family in ("RepeatPrevious", "RepeatFirst", "Autoencode") for level in LEVELS]
THEIRS = [name for name in popgym.listing() if name not in OURS]
WRAPPED = {"prev_action": True, "antialias": True}
# Card games end where their cards do; the others are cut after a number of steps.
ENDED = ("RepeatPrevious", "RepeatFirst", "Autoencode", "CountRecall", "HigherLower")
LIMIT = 7


def build(name: str, backend: str = "auto", **options) -> Envs:
    if name not in OURS or backend in ("gymnasium", "workers"):
        pytest.importorskip("popgym")
    return suite.make(EnvConfig(id=f"popgym:{name}", backend=backend, **{"num_envs": 3} | options))


def check(envs: Envs, obs: dict[str, np.ndarray]) -> None:
    assert obs.keys() == envs.obs_spec.leaves.keys()
    for name, leaf in envs.obs_spec.leaves.items():
        shape = (len(leaf.sizes),) if leaf.kind == "discrete" else leaf.shape
        assert obs[name].shape == (envs.num_envs, *shape)
        if leaf.kind == "discrete":
            assert obs[name].dtype.kind == "i"
            assert (obs[name] >= 0).all() and (obs[name] < leaf.sizes).all()
        else:
            assert obs[name].dtype == np.float32


# All of POPGym --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*OURS, *THEIRS])
def test_every_id_runs_to_an_end_of_the_right_kind(name):
    """By chance, ends come at the stated bound at the latest, and cuts nowhere else."""
    envs = build(name, num_envs=2)
    bound = envs.adapter.time_limit
    check(envs, envs.reset(seeds(2)))
    ended = np.zeros(2, dtype=bool)
    for t, action in enumerate(random_actions(envs, bound), start=1):
        step = envs.step(action)
        check(envs, step.obs)
        assert step.reward.dtype == np.float64
        assert not (step.terminated & step.truncated).any()
        if not ended.any():
            assert step.truncated.sum() == 0 or t == bound
        if name.startswith(ENDED):
            assert not step.truncated.any()
            assert (step.terminated == (t == bound)).all()
        ended |= step.terminated | step.truncated
    assert ended.all()
    assert envs.adapter.tier == ("native" if name in OURS else "barrier")
    envs.adapter.close()


def test_every_registered_id_is_listed_under_both_its_names():
    package = pytest.importorskip("popgym.envs")
    registered = [spec["id"] for spec in package.ALL.values()]
    assert len(registered) >= 42
    assert set(registered) <= gym.registry.keys()
    assert {f"popgym-{name}-v0" for name in popgym.listing()} == set(registered)
    for env_id in ("popgym-HigherLowerEasy-v0", "VelocityOnlyCartPoleEasy", "VelocityOnlyCartpoleEasy"):
        build(env_id).reset(seeds(3))
    assert build("popgym-RepeatFirstHard-v0", "auto").adapter.backend == "own"


@pytest.mark.parametrize("name", ["CountRecallEasy", "MineSweeperEasy", "NoisyPositionOnlyPendulumEasy"])
def test_equal_seeds_give_equal_episodes(name):
    envs = build(name)
    actions = random_actions(envs, 120)
    envs.reset(seeds(3))
    rows = play(envs, actions)
    envs.reset(seeds(3))
    same(rows, play(envs, actions))
    fresh = build(name)
    fresh.reset([seeds(3)[0], *seeds(2, run=1)])
    others = play(fresh, actions)
    same({k: x[:, 0] for k, x in rows.items()}, {k: x[:, 0] for k, x in others.items()})
    assert any((rows[key][:, 1] != others[key][:, 1]).any() for key in rows)


def test_worker_processes_play_the_same():
    envs, workers = build("CountRecallEasy"), build("CountRecallEasy", "workers")
    try:
        assert workers.adapter.time_limit == 51
        same(envs.reset(seeds(3)), workers.reset(seeds(3)))
        actions = random_actions(envs, 60)
        same(play(envs, actions), play(workers, actions))
    finally:
        workers.adapter.close()


@pytest.mark.parametrize("name", ["MultiarmedBanditEasy", "RepeatPreviousEasy"])
@pytest.mark.parametrize("backend", ["auto", "gymnasium"])
def test_the_wrappers_add_the_last_action_and_a_flag_at_the_start(name, backend):
    envs = build(name, backend, kwargs=WRAPPED, time_limit=LIMIT)
    first = envs.reset(seeds(3))
    assert list(first) == ["obs.0", "obs.1", "obs.2"]
    assert (first["obs.1"] == 0).all() and (first["obs.2"] == 1).all()
    actions = random_actions(envs, 2 * LIMIT) % 3 + 1
    rows = play(envs, actions)
    # Row LIMIT of the plays is the first of the second episode.
    expected = actions.copy()
    expected[LIMIT] = 0
    np.testing.assert_array_equal(rows["obs.1"], expected)
    assert (rows["obs.2"][:, :, 0] == (np.arange(2 * LIMIT) == LIMIT)[:, None]).all()


def test_one_wrapper_goes_without_the_other():
    sizes = {}
    for key in WRAPPED:
        for name in ("AutoencodeEasy", "BattleshipEasy"):
            envs = build(name, kwargs={key: True})
            check(envs, envs.reset(seeds(3)))
            sizes[key, name] = [leaf.sizes for leaf in envs.obs_spec.leaves.values()]
    assert sizes["prev_action", "AutoencodeEasy"] == [(2,), (4,), (4,)]
    assert sizes["antialias", "AutoencodeEasy"] == [(2,), (4,), (2,)]
    assert sizes["prev_action", "BattleshipEasy"] == [(2,), (8, 8)]
    assert sizes["antialias", "BattleshipEasy"] == [(2,), (2,)]


def test_keyword_arguments_reach_popgym():
    assert build("PositionOnlyPendulumEasy", kwargs={"max_episode_length": 9}).adapter.time_limit == 9
    envs = build("RepeatPreviousEasy", "gymnasium", kwargs={"num_decks": 2})
    assert envs.adapter.time_limit == 103 and envs.adapter.backend == "gymnasium"


# Our own --------------------------------------------------------------------------------------

GAMES = [(name, {}) for name in OURS]
GAMES += [(name, WRAPPED) for name in OURS if name.endswith("Easy")]
GAMES += [
    ("RepeatPreviousEasy", {"k": 1}),
    ("RepeatPreviousEasy", {"num_decks": 2, "k": 60}),
    ("AutoencodeEasy", {"num_decks": 4}),
]


def dealt(theirs: Envs) -> np.ndarray:
    """The suits that popgym's environments deal, from now to the end of the episode: (C, N)."""
    decks = [env.unwrapped.deck for env in theirs.adapter._vec.envs]
    return np.stack([deck.suits_idx[deck.idx[::-1]] for deck in decks], axis=1)


@pytest.mark.parametrize(("name", "kwargs"), GAMES, ids=str)
def test_our_games_are_popgyms(name, kwargs):
    """The same cards and actions give the same observations, rewards and ends, and a tail row after."""
    ours, theirs = build(name, "own", kwargs=kwargs), build(name, "gymnasium", kwargs=kwargs)
    assert ours.adapter.observation_space == theirs.adapter.observation_space
    assert ours.adapter.action_space == theirs.adapter.action_space
    length = ours.adapter.time_limit
    assert theirs.adapter.time_limit == length
    for run in range(2):
        ours.reset(seeds(3, run))
        shown = theirs.reset(seeds(3, run))
        state = ours.adapter.get_state()
        state.arrays["decks"][:, state.data["deck"]] = dealt(theirs).T
        ours.adapter.set_state(state)
        same(ours.obs_spec.split(ours.adapter._observe()), shown)
        actions = random_actions(ours, length, key=run)
        same(play(ours, actions), rows := play(theirs, actions))
        assert rows["terminated"][-1].all() and set(np.sign(rows["reward"]).ravel()) >= {-1.0, 1.0}
        tails = [envs.step(actions[0]) for envs in (ours, theirs)]
        for tail in tails:
            assert not (tail.reward.any() or tail.terminated.any() or tail.truncated.any())
        assert tails[0].obs.keys() == tails[1].obs.keys()
        for key in ("obs.1", "obs.2") if kwargs == WRAPPED and name != "AutoencodeEasy" else ():
            np.testing.assert_array_equal(tails[0].obs[key], tails[1].obs[key])


@pytest.mark.parametrize("name", OURS)
def test_a_perfect_memory_earns_one(name):
    """Told by what was seen alone, in every episode of several."""
    envs = build(name)
    obs = envs.reset(seeds(3))
    for _ in range(2):
        seen, total = [obs], np.zeros(3)
        for t in range(envs.adapter.time_limit):
            step = envs.step(answer(name, seen, t))
            seen.append(step.obs)
            total += step.reward
        assert step.terminated.all()
        np.testing.assert_allclose(total, 1.0)
        obs = envs.step(random_actions(envs, 1)[0]).obs


def answer(name: str, seen: list[dict[str, np.ndarray]], t: int) -> np.ndarray:
    """The suits (N, 1) that step t asks for, where it asks."""
    if name.startswith("RepeatFirst"):
        return seen[0]["obs"]
    if name.startswith("RepeatPrevious"):
        k = {"Easy": 4, "Medium": 32, "Hard": 64}[name.removeprefix("RepeatPrevious")]
        return seen[max(0, t + 1 - k)]["obs"]
    cards = sum(row["obs.0"][0, 0] for row in seen) + 1
    return seen[min(t, 2 * (cards - 1) - t)]["obs.1"]


def test_a_deck_has_each_suit_as_often_and_in_any_order():
    envs = build("AutoencodeEasy", num_envs=400)
    envs.reset(seeds(400))
    decks = envs.adapter.get_state().arrays["decks"]
    counts = [(decks == suit).sum(axis=-1) for suit in range(4)]
    assert all((count == 13).all() for count in counts)
    # 7600 decks: the first card is each suit in a quarter of them, within 5 deviations.
    shares = np.bincount(decks[:, 0].ravel(), minlength=4) / decks[:, 0].size
    assert (np.abs(shares - 0.25) < 5 * np.sqrt(0.25 * 0.75 / decks[:, 0].size)).all()
    flat = decks.transpose(0, 2, 1).reshape(-1, 52)
    assert len(np.unique(flat, axis=0)) == len(flat)


def test_new_decks_are_drawn_where_they_run_out():
    envs = build("RepeatFirstHard")
    envs.reset(seeds(3))
    episodes = play(envs, random_actions(envs, 2 * 832))["obs"].reshape(2, 832, 3)
    assert (episodes[0, :-1] != episodes[1, :-1]).any(axis=0).all()


def test_a_part_of_the_environments_continues_from_its_part_of_the_state():
    """As where a run of several processes goes on: a state is cut by environment."""
    envs, fresh = build("RepeatPreviousEasy"), build("RepeatPreviousEasy", num_envs=1)
    actions = random_actions(envs, 120)
    envs.reset(seeds(3))
    play(envs, actions[:30])
    state = envs.adapter.get_state()
    rows = play(envs, actions[30:])
    data = state.data | {"random": state.data["random"][1:2]}
    fresh.adapter.set_state(EnvState({key: x[1:2] for key, x in state.arrays.items()}, data))
    part = play(fresh, actions[30:, 1:2])
    same({key: x[:, 1:2] for key, x in rows.items()}, part)


@pytest.mark.parametrize("name", ["RepeatPreviousEasy", "RepeatFirstHard", "AutoencodeMedium"])
def test_state_continues_bit_for_bit(name):
    """Also where the decks that were drawn together run out, and right after an end."""
    envs = build(name, kwargs=WRAPPED, time_limit=LIMIT)
    fresh = build(name, kwargs=WRAPPED, time_limit=LIMIT)
    actions = random_actions(envs, 200)
    for begin in (0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 40):
        envs.reset(seeds(3))
        play(envs, actions[: begin + 1])
        state = envs.adapter.get_state()
        stored = EnvState({k: x.copy() for k, x in state.arrays.items()}, json.loads(json.dumps(state.data)))
        rows = play(envs, actions[begin:])
        fresh.adapter.set_state(stored)
        same(rows, play(fresh, actions[begin:]))
        envs.adapter.set_state(state)  # not touched by what came after it
        same(rows, play(envs, actions[begin:]))


@pytest.mark.parametrize("name", ["RepeatPreviousEasy", "AutoencodeEasy"])
def test_each_environment_of_ours_depends_on_its_own_seed(name):
    envs = build(name)
    actions = random_actions(envs, 150)
    envs.reset(seeds(3))
    rows = play(envs, actions)
    envs.reset(seeds(3))
    same(rows, play(envs, actions))
    envs.reset([seeds(3)[0], *seeds(2, run=1)])
    others = play(envs, actions)
    same({k: x[:, 0] for k, x in rows.items()}, {k: x[:, 0] for k, x in others.items()})
    key = next(reversed(envs.obs_spec.leaves))
    assert (rows[key][:, 0] != rows[key][:, 1]).any() and (rows[key][:, 1] != others[key][:, 1]).any()


@pytest.mark.parametrize("backend", ["own", "gymnasium"])
def test_episodes_are_cut_at_a_time_limit(backend):
    envs = build("RepeatPreviousEasy", backend, time_limit=LIMIT)
    assert envs.adapter.time_limit == LIMIT
    envs.reset(seeds(3))
    rows = play(envs, random_actions(envs, 3 * (LIMIT + 1)))
    at = np.arange(3 * (LIMIT + 1)) % (LIMIT + 1)
    assert (rows["truncated"] == (at == LIMIT - 1)[:, None]).all() and not rows["terminated"].any()
    assert (rows["reward"][at == LIMIT] == 0).all() and (rows["reward"][at == LIMIT - 1] != 0).all()


@pytest.mark.parametrize("limit", [51, 60])
def test_an_end_at_the_time_limit_or_before_it_is_an_end(limit):
    envs = build("RepeatPreviousEasy", time_limit=limit)
    envs.reset(seeds(3))
    rows = play(envs, random_actions(envs, 51))
    assert rows["terminated"][50].all() and not rows["truncated"].any()


def test_what_was_returned_does_not_change_afterwards():
    envs = build("RepeatPreviousEasy", kwargs={"prev_action": True}, time_limit=1)
    obs = envs.adapter.reset(seeds(3))
    action = np.ones(3, dtype=np.int64)
    seen = envs.adapter.step(action).obs[1]
    action[:] = 3
    assert (seen == 1).all() and (obs[1] == 0).all()


# Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "backend", "kwargs", "hint"),
    [
        ("RepeatPreviousEasi", "auto", {}, "RepeatPreviousEasy"),
        ("", "auto", {}, "known"),
        ("CountRecallEasy", "own", {}, "AutoencodeEasy"),
        ("RepeatPreviousEasy", "envpool", {}, "EnvPool"),
        ("RepeatPreviousEasy", "auto", {"kk": 3}, "kk"),
        ("RepeatFirstEasy", "auto", {"k": 3}, "k;"),
        ("RepeatPreviousEasy", "auto", {"k": 52}, "below 52"),
        ("RepeatPreviousEasy", "auto", {"k": 0}, "above 0"),
        ("RepeatPreviousEasy", "auto", {"k": True}, "above 0"),
        ("AutoencodeEasy", "auto", {"num_decks": 1.5}, "above 0"),
        ("AutoencodeEasy", "auto", {"antialias": 1}, "true or false"),
        ("CountRecallEasy", "auto", {"prev_action": "yes"}, "true or false"),
        ("CountRecallEasy", "auto", {"decks": 3}, "decks"),
        ("CountRecallEasy", "auto", {"deck_type": "dogs"}, "dogs"),
        ("CountRecallHard", "auto", {"num_decks": 3}, "num_decks"),
        ("PositionOnlyCartPoleHard", "auto", {"max_episode_length": 3}, "max_episode_length"),
        ("RepeatPreviousEasy", "gymnasium", {"k": 99}, "99"),
        ("RepeatPreviousMedium", "gymnasium", {"k": 9}, "no keyword argument k"),
    ],
)
def test_mistakes_are_one_line(name, backend, kwargs, hint):
    pytest.importorskip("popgym")
    with pytest.raises(UsageError, match=hint) as caught:
        suite.make(EnvConfig(id=f"popgym:{name}", backend=backend, kwargs=kwargs))
    assert "\n" not in str(caught.value)


def test_our_games_run_without_the_package(monkeypatch):
    for name in ("popgym", "popgym.envs", "popgym.wrappers"):
        monkeypatch.setitem(sys.modules, name, None)
    assert set(popgym.listing()) == set(OURS)
    for name in OURS:
        check(envs := suite.make(EnvConfig(id=f"popgym:{name}")), envs.reset(seeds(16)))
    for name, backend in (("CountRecallEasy", "auto"), ("RepeatPreviousEasy", "gymnasium")):
        with pytest.raises(UsageError, match=r"pip install 'recollect-rl\[popgym\]'"):
            suite.make(EnvConfig(id=f"popgym:{name}", backend=backend))
