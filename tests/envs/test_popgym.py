"""POPGym: our tasks are those of the package popgym, step by step."""

import importlib
import itertools
import json
import re
import sys
import types
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import seeding

from recollect import envs as suite
from recollect.common.errors import UsageError
from recollect.envs import EnvConfig, Envs, EnvState
from recollect.envs.suites import popgym
from recollect.envs.suites.popgym import labyrinth
from recollect.envs.suites.popgym.task import Stream

from ..helpers import sampled
from .test_envs import play, random_actions, same, seeds

OURS = list(popgym.listing())
EASY = [name for name in OURS if name.endswith("Easy")]
CARDS = [
    name
    for name in OURS
    if name.startswith(("RepeatPrevious", "RepeatFirst", "Autoencode", "CountRecall", "HigherLower"))
]
RECALL = [name for name in CARDS if name.startswith(("Repeat", "Autoencode"))]
TASKS = [name for name in OURS if name not in CARDS]
WRAPPED = {"prev_action": True, "antialias": True}
LIMIT = 7


def build(name: str, backend: str = "auto", **options) -> Envs:
    if backend in ("gymnasium", "workers"):
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


@pytest.mark.parametrize("name", OURS)
def test_every_id_runs_to_an_end_of_the_right_kind(name):
    """By chance, ends come at the stated bound at the latest, and truncations nowhere else."""
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
        if name in CARDS:
            assert not step.truncated.any()
            assert (step.terminated == (t == bound)).all()
        ended |= step.terminated | step.truncated
    assert ended.all()
    assert envs.adapter.tier == "native" and envs.adapter.backend == "own"


def test_every_registered_id_is_listed_under_both_its_names():
    package = pytest.importorskip("popgym.envs")
    registered = {spec["id"] for spec in package.ALL.values()}
    assert len(registered) >= 42 and registered <= gym.registry.keys()
    missing = {name for name in OURS if f"popgym-{name}-v0" not in registered}
    assert {f"popgym-{name}-v0" for name in OURS} >= registered and len(OURS) == 48
    assert all(name.startswith("Labyrinth") for name in missing)  # the package needs mazelib for these
    for env_id in ("popgym-HigherLowerEasy-v0", "VelocityOnlyCartPoleEasy", "VelocityOnlyCartpoleEasy"):
        build(env_id).reset(seeds(3))
        build(env_id, "gymnasium").reset(seeds(3))


def test_worker_processes_play_the_same():
    envs, workers = build("CountRecallEasy", "gymnasium"), build("CountRecallEasy", "workers")
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
            envs, theirs = (build(name, backend, kwargs={key: True}) for backend in ("own", "gymnasium"))
            check(envs, envs.reset(seeds(3)))
            assert envs.adapter.observation_space == theirs.adapter.observation_space
            sizes[key, name] = [leaf.sizes for leaf in envs.obs_spec.leaves.values()]
    assert sizes["prev_action", "AutoencodeEasy"] == [(2,), (4,), (4,)]
    assert sizes["antialias", "AutoencodeEasy"] == [(2,), (4,), (2,)]
    assert sizes["prev_action", "BattleshipEasy"] == [(2,), (8, 8)]
    assert sizes["antialias", "BattleshipEasy"] == [(2,), (2,)]


@pytest.mark.parametrize("backend", ["own", "gymnasium"])
def test_keyword_arguments_reach_the_tasks(backend):
    envs = build("PositionOnlyPendulumEasy", backend, kwargs={"max_episode_length": 9})
    assert envs.adapter.time_limit == 9
    envs = build("CountRecallEasy", backend, kwargs={"num_decks": 2, "deck_type": "suits"})
    assert envs.adapter.time_limit == 103 and envs.action_spec.sizes == (27,)


def test_keyword_arguments_reach_popgym():
    envs = build("RepeatPreviousEasy", "gymnasium", kwargs={"num_decks": 2})
    assert envs.adapter.time_limit == 103 and envs.adapter.backend == "gymnasium"


# Equality with the package --------------------------------------------------------------------

GAMES = [(name, {}) for name in CARDS]
GAMES += [(name, WRAPPED) for name in CARDS if name.endswith("Easy")]
GAMES += [
    ("RepeatPreviousEasy", {"k": 1}),
    ("RepeatPreviousEasy", {"num_decks": 2, "k": 60}),
    ("AutoencodeEasy", {"num_decks": 4}),
    ("CountRecallEasy", {"deck_type": "ranks"}),
]


def dealt(theirs: Envs) -> np.ndarray:
    """The symbols of the cards that popgym's environments deal in an episode: (P C, N)."""
    columns = []
    for env in (env.unwrapped for env in theirs.adapter._vec.envs):
        if hasattr(env, "value_deck"):
            piles, symbols = (env.value_deck, env.query_deck), env.deck_idx_type
        else:
            piles = (env.deck,)
            symbols = env.deck.ranks_idx if "HigherLower" in type(env).__name__ else env.deck.suits_idx
        columns.append(np.concatenate([symbols[pile.idx[::-1]] for pile in piles]))
    return np.stack(columns, axis=1)


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
        if name.startswith("CountRecall"):  # small counts, so that some are right by chance
            actions %= 4
        same(play(ours, actions), rows := play(theirs, actions))
        assert rows["terminated"][-1].all() and set(np.sign(rows["reward"]).ravel()) >= {-1.0, 1.0}
        tails = [envs.step(actions[0]) for envs in (ours, theirs)]
        for tail in tails:
            assert not (tail.reward.any() or tail.terminated.any() or tail.truncated.any())
        assert tails[0].obs.keys() == tails[1].obs.keys()
        for key in ("obs.1", "obs.2") if kwargs == WRAPPED and name != "AutoencodeEasy" else ():
            np.testing.assert_array_equal(tails[0].obs[key], tails[1].obs[key])


class Script:
    """A stream of given values: one for each step, for each environment."""

    def __init__(self, count: int) -> None:
        self.script, self.t = [np.empty(0)] * count, -1

    def take(self, envs: np.ndarray) -> np.ndarray:
        self.t += 1
        return np.stack([values[self.t] for values in self.script])


@pytest.fixture
def package(monkeypatch):
    """Name -> class of popgym; its mazes come from a stand-in of mazelib, which shows ours."""
    pytest.importorskip("popgym.envs")

    mazes = map(np.random.default_rng, itertools.count())

    class Maze:
        def generate(self):
            maze = self.generator
            self.start, self.end = (tuple(np.argwhere(maze == kind)[0].tolist()) for kind in (2, 3))
            self.grid = np.where(maze == 0, 0, 1).astype(np.int8)

        def generate_entrances(self, start_outer):
            assert start_outer

    def generator(*cells):
        return labyrinth.carve(next(mazes), 2 * cells[0] + 1)

    modules = {name: types.ModuleType(name) for name in ("mazelib", "mazelib.generate")}
    modules["mazelib.generate.HuntAndKill"] = types.ModuleType("HuntAndKill")
    modules["mazelib"].Maze = Maze
    modules["mazelib.generate.HuntAndKill"].HuntAndKill = generator
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("core.maze", "envs.labyrinth_escape", "envs.labyrinth_explore"):
        monkeypatch.delitem(sys.modules, f"popgym.{name}", raising=False)
    classes = {}
    for name in ("labyrinth_escape", "labyrinth_explore"):
        classes |= vars(importlib.import_module(f"popgym.envs.{name}"))
    registered = sys.modules["popgym.envs"].ALL
    by_id = {spec["id"].split("-")[1]: env_class for env_class, spec in registered.items()}
    return classes | by_id


def share_deal(task, env, i, luck):
    task.cards[i] = env.deck_idx_type[env.deck.idx]


def share_board(task, env, i, luck):
    task.ships[i] = env.board.ravel()


def share_field(task, env, i, luck):
    task.mines[i], task.around[i] = env.hidden_grid.ravel() == 1, env.neighbor_grid.ravel()


def share_arms(task, env, i, luck):
    task.arms[i] = luck.random(env.num_bandits, dtype=np.float32)
    task.stream["luck"].script[i] = luck.random(env.max_episode_length)


def share_maze(task, env, i, luck):
    maze = env.maze.grid
    task.maze[i], task.place[i], task.visited[i] = maze, env.position, maze == 2
    task.left[i], task.bonus[i] = (maze == 0).sum(), 1 / (maze == 0).sum()


def share_start(task, env, i, luck):
    high = [0.05] * 4 if len(task.state[i]) == 4 else [np.pi, 1]
    task.state[i] = luck.uniform(np.negative(high), high)
    if "noise" in task.stream:
        noise = luck.normal(0, env.noise_sigma, (env.max_episode_length + 1, 2)).astype(np.float32)
        task.noise[i], task.stream["noise"].script[i] = noise[0], noise[1:]


SHARE = {f.__name__.split("_")[1]: f for f in (share_deal, share_board, share_field, share_arms, share_maze)}
SHARE["start"] = share_start


def share(ours: Envs, theirs: list, run: int) -> None:
    """Give our environments the start and the luck of popgym's, which were just reset from seeds."""
    task = ours.adapter
    for key in {"noise", "luck"} & task.stream.keys():
        task.stream[key] = Script(len(theirs))
    for i, (env, seed) in enumerate(zip(theirs, seeds(len(theirs), run), strict=True)):
        SHARE[next(iter(task.stream))](task, env, i, seeding.np_random(seed)[0])


def informed(task, live: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Actions (N, K) that mostly do well, so that all kinds of ends and rewards occur."""
    kind = next(iter(task.stream))
    if kind == "maze":
        return np.array([[way(task, i) if live[i] else 0] for i in range(task.num_envs)])
    if kind == "arms":
        return random.integers(0, task.arms.shape[1], (task.num_envs, 1))
    if kind == "start":
        balance = task.state @ [0.1, 0.3, 1.0, 0.5][: task.state.shape[1]]
        return (balance > 0 if task.state.shape[1] == 4 else balance)[:, None]
    if kind == "deal":
        up = task.up | (np.arange(task.up.shape[1]) == task.turned[:, None])
        wanted = np.take_along_axis(task.cards, task.turned[:, None].clip(0), 1)
        good = ~up & ((task.cards == wanted) | (task.turned < 0)[:, None])
    else:
        good = task.ships & ~task.shot if kind == "board" else ~(task.mines | task.uncovered)
    place = (good + random.random(good.shape)).argmax(1)
    return place[:, None] if kind == "deal" else np.stack(np.divmod(place, task._size), 1)


def way(task, i: int) -> int:
    """The first move of a shortest way to an exit or a new tile."""
    maze, visited = task.maze[i].tolist(), task.visited[i].tolist()
    start = tuple(task.place[i].tolist())
    seen, queue = {start}, [(start, -1)]
    for (row, column), first in queue:
        if first >= 0 and (maze[row][column] == 3 or (task._explore and not visited[row][column])):
            break
        for move, (down, right) in enumerate(labyrinth.MOVES.tolist()):
            near = row + down, column + right
            if near not in seen and min(near) >= 0 and max(near) < len(maze) and maze[near[0]][near[1]] != 1:
                seen.add(near)
                queue.append((near, move if first < 0 else first))
    return first


def equal(name, step, expected, live) -> None:
    """Two steps, where episodes are live."""
    for key, x in step.obs.items():
        np.testing.assert_array_equal(x[live], expected.obs[key][live])
    # Python squares a number otherwise than numpy squares an array, by one bit.
    close = 1e-12 if "Pendulum" in name else 0.0
    np.testing.assert_allclose(step.reward[live], expected.reward[live], rtol=0, atol=close)
    for ours, theirs in zip(step[2:4], expected[2:4], strict=True):
        np.testing.assert_array_equal(ours[live], theirs[live])


# A labyrinth takes as long as ten other tasks, and its levels differ in the size of the maze alone.
LARGER_MAZES = re.compile("Labyrinth.*(Medium|Hard)")


@pytest.mark.parametrize("name", sampled(TASKS, *(name for name in TASKS if not LARGER_MAZES.match(name))))
def test_our_tasks_are_popgyms(name, package):
    """From the same starts, with the same luck and actions, to the first end of each environment."""

    def factory():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return package[name]()

    random, ends = np.random.default_rng(0), np.zeros(2, dtype=int)
    ours = build(name)
    theirs = suite.make(EnvConfig(id=name, num_envs=3), factory)
    assert ours.adapter.observation_space == theirs.adapter.observation_space
    assert ours.adapter.action_space == theirs.adapter.action_space
    for run in range(2):
        ours.reset(seeds(3, run))
        # popgym seeds numpy's global generator for mazes, which takes no larger seeds.
        shown = theirs.reset([seed % 2**32 if "Lab" in name else seed for seed in seeds(3, run)])
        share(ours, [env.unwrapped for env in theirs.adapter._vec.envs], run)
        ours.adapter.start = lambda envs: None  # nothing is compared after an end
        if hasattr(ours.adapter, "seen"):
            ours.adapter.seen[:] = ours.adapter._hidden
        same(ours.obs_spec.split(ours.adapter.view()), shown)
        live = np.ones(3, dtype=bool)
        for action in random_actions(ours, ours.adapter.time_limit, key=run):
            # The first run does well, the second one acts at random.
            if run == 0:
                clever = random.random((3, 1)) < 0.95
                action = np.where(clever, informed(ours.adapter, live, random), action).astype(action.dtype)
            step, expected = ours.step(action), theirs.step(action)
            equal(name, step, expected, live)
            ends += [step.terminated[live].sum(), step.truncated[live].sum()]
            live &= ~(step.terminated | step.truncated)
            if not live.any():
                break
        assert not live.any()
        del ours.adapter.start
    if not name.startswith(("Multiarmed", "Noisy", "PositionOnlyPendulum")):
        assert ends.all()


# Our own --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECALL)
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


@pytest.mark.parametrize("name", [*EASY, "RepeatFirstHard", "AutoencodeMedium"])
def test_state_continues_bit_for_bit(name):
    """Also where the decks that were drawn together run out, and right after an end."""
    envs = build(name, kwargs=WRAPPED, time_limit=LIMIT)
    fresh = build(name, kwargs=WRAPPED, time_limit=LIMIT)
    actions = random_actions(envs, 70)
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


@pytest.mark.parametrize("name", EASY)
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


def test_a_stream_continues_where_its_blocks_end():
    """Each environment uses up its blocks at its own pace."""
    draw, keys = lambda random: random.random((4, 2)), [5, 6, 7]
    stream, copy = Stream(draw, keys, 0), Stream(draw, [0, 0, 0], 1)
    expected = [np.concatenate([draw(random) for _ in range(20)]) for random in map(generator, keys)]
    counts = np.zeros(3, dtype=int)
    random = np.random.default_rng(0)
    for _ in range(40):
        envs = random.permutation(3)[: random.integers(1, 4)]
        copy.restore(json.loads(json.dumps(stream.before)), stream.used)
        values = stream.take(envs)
        np.testing.assert_array_equal(values, [expected[env][counts[env]] for env in envs])
        np.testing.assert_array_equal(values, copy.take(envs))
        counts[envs] += 1
    assert counts.min() > 8


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng((seed, 0))


@pytest.mark.parametrize("size", [11, 19])
def test_a_maze_is_a_tree_with_an_entrance_and_an_exit_on_opposite_sides(size):
    random, edges = np.random.default_rng(0), set()
    for _ in range(30):
        maze = labyrinth.carve(random, size)
        cells = (size // 2) ** 2
        assert (maze == 0).sum() == 2 * cells - 1  # every cell, and a passage for each but one
        ((row, column),), ((end_row, end_column),) = (np.argwhere(maze == kind).tolist() for kind in (2, 3))
        assert {abs(row - end_row), abs(column - end_column)} & {size - 1}
        edges.add((row in (0, size - 1), row + column >= size))
        reached, waiting = {(row, column)}, [(row, column)]
        for place in waiting:
            near = {tuple(np.add(place, move).tolist()) for move in labyrinth.MOVES}
            inside = {p for p in near if min(p) >= 0 and max(p) < size and maze[p] != 1} - reached
            reached |= inside
            waiting += inside
        assert len(reached) == 2 * cells + 1
    assert len(edges) >= 3


def test_ships_lie_in_all_places_equally_often():
    envs = build("BattleshipEasy", num_envs=600)
    envs.reset(seeds(600))
    boards = envs.adapter.stream["board"]._values
    assert (boards.sum(-1) == 12).all()
    board = boards.mean((0, 1)).reshape(8, 8)
    for other in (board.T, board[::-1], board[:, ::-1]):  # 19200 boards: within 5 deviations
        assert np.abs(board - other).max() < 5 * np.sqrt(2 * 0.25 / 19200)


# Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "backend", "kwargs", "hint"),
    [
        ("RepeatPreviousEasi", "auto", {}, "RepeatPreviousEasy"),
        ("", "auto", {}, "known"),
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
        ("CountRecallEasy", "auto", {"deck_type": "dogs"}, "colors or suits or ranks"),
        ("CountRecallEasy", "gymnasium", {"deck_type": "dogs"}, "dogs"),
        ("BattleshipEasy", "auto", {"board_size": 9}, "board_size"),
        ("PositionOnlyCartPoleEasy", "auto", {"max_episode_length": 0}, "above 0"),
        ("CountRecallHard", "gymnasium", {"num_decks": 3}, "num_decks"),
        ("PositionOnlyCartPoleHard", "gymnasium", {"max_episode_length": 3}, "max_episode_length"),
        ("RepeatPreviousEasy", "gymnasium", {"k": 99}, "99"),
        ("RepeatPreviousMedium", "gymnasium", {"k": 9}, "no keyword argument k"),
        ("LabyrinthEscapeEasy", "gymnasium", {}, "env.backend own"),
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
    for name, backend in (("CountRecallEasy", "workers"), ("RepeatPreviousEasy", "gymnasium")):
        with pytest.raises(UsageError, match=r"pip install 'recollect-rl\[popgym\]'"):
            suite.make(EnvConfig(id=f"popgym:{name}", backend=backend))
