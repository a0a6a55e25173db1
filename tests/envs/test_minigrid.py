"""The MiniGrid suite, against MiniGrid's own wrappers and its own rule of sight."""

import importlib.util
import sys
import warnings
from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import pytest

from recollect import envs as suite
from recollect.common.errors import UsageError
from recollect.envs import EnvConfig, Envs
from recollect.envs.suites import envpool as envpool_suite
from recollect.envs.suites import minigrid

from ..helpers import sampled
from .test_envs import copied, play, random_actions, same, seeds, tails

S7, S9 = "minigrid:MiniGrid-MemoryS7-v0", "minigrid:MiniGrid-MemoryS9-v0"
DOORS, OPEN_FIELD = "minigrid:MiniGrid-DoorKey-5x5-v0", "minigrid:MiniGrid-Empty-5x5-v0"
LEFT, RIGHT, FORWARD = 0, 1, 2
BACKENDS = ["gymnasium", "envpool"]
NEEDS = {"gymnasium": "minigrid", "workers": "minigrid", "envpool": "envpool"}


def build(
    env_id: str, backend: str = "auto", num_envs: int = 4, limit: int | None = None, **kwargs: object
) -> Envs:
    if backend in NEEDS:
        pytest.importorskip(NEEDS[backend])
    if kwargs.get("pictures"):
        pytest.importorskip("minigrid")
    threads = 1 if backend == "envpool" else 0
    options = {"num_envs": num_envs, "backend": backend, "time_limit": limit, "threads": threads}
    return suite.make(EnvConfig(id=env_id, kwargs=kwargs, **options))


@pytest.fixture
def envs(request) -> Iterator[Envs]:
    env_id, backend, options = request.param
    made = build(env_id, backend, **options)
    yield made
    made.adapter.close()


def each(*cases: tuple[str, dict[str, object]]):
    """Cases of an id and options, for both backends."""
    params = [(env_id, backend, options) for env_id, options in cases for backend in BACKENDS]
    ids = [f"{i.split('-')[1]}-{b}-{'-'.join(f'{k}{v}' for k, v in o.items())}" for i, b, o in params]
    return pytest.mark.parametrize("envs", params, ids=ids, indirect=True)


def lone(env_id: str, **options: object) -> gym.Env:
    """MiniGrid itself."""
    pytest.importorskip("minigrid")
    import minigrid as package  # noqa: F401 (registers its ids)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that an id has a successor
        return gym.make(env_id.partition(":")[2], disable_env_checker=True, **options)


# What is seen ---------------------------------------------------------------------------------


class Stream:
    """What one wrapped environment of MiniGrid shows, with the reset a step late."""

    def __init__(self, env: gym.Env, seed: int) -> None:
        self.env, self.ended = env, False
        self.image = env.reset(seed=seed)[0]["image"]

    def step(self, action: int) -> np.ndarray:
        if self.ended:
            obs, self.ended = self.env.reset()[0], False
        else:
            obs, _, terminated, truncated, _ = self.env.step(action)
            self.ended = terminated or truncated
        self.image = obs["image"]
        return self.image


def wrapped(env_id: str, view: int, tile: int | None) -> gym.Env:
    """The window as MiniGrid's wrappers give it, as a picture if there is a size of tiles."""
    from minigrid.wrappers import RGBImgPartialObsWrapper, ViewSizeWrapper

    if tile is None:
        return ViewSizeWrapper(lone(env_id), view)
    # The picture does not heed ViewSizeWrapper: it has the view that the environment was made with.
    return RGBImgPartialObsWrapper(lone(env_id, agent_view_size=view), tile)


@pytest.mark.parametrize("pictures", [False, True], ids=["symbols", "pictures"])
@pytest.mark.parametrize(
    ("env_id", "view", "tile", "steps"),
    sampled(
        [(S9, 3, 28, 500), (S7, 5, 16, 120), (DOORS, 7, 12, 400), (OPEN_FIELD, 3, 6, 60)],
        *((S7, 5, 16, 120), (OPEN_FIELD, 3, 6, 60)),
    ),
)
def test_windows_are_those_of_minigrids_own_wrappers(env_id, view, tile, steps, pictures):
    options = {"pictures": True, "tile": tile} if pictures else {}
    envs = build(env_id, "gymnasium", num_envs=2, view=view, **options)
    first = envs.adapter.reset(seeds(2))
    streams = [Stream(wrapped(env_id, view, tile if pictures else None), seed) for seed in seeds(2)]
    for i, stream in enumerate(streams):
        np.testing.assert_array_equal(first[i], stream.image)
    seen = set()
    for action in random_actions(envs, steps)[..., 0]:
        obs = envs.adapter.step(action).obs
        for i, stream in enumerate(streams):
            np.testing.assert_array_equal(obs[i], stream.step(int(action[i])), strict=True)
            seen.add(stream.image.tobytes())
    assert len(seen) > 10


def rebuilt(env: gym.Env, state: object, view: int) -> np.ndarray:
    """What MiniGrid shows of a world in EnvPool."""
    from minigrid.core.grid import Grid
    from minigrid.core.world_object import WorldObj

    world = env.unwrapped
    cells = np.array(state.grid).reshape(state.width, state.height, 3)
    world.grid = Grid.decode(cells)[0]
    world.agent_pos, world.agent_dir = state.agent_pos, state.agent_dir
    carried = state.carrying_type, state.carrying_color, state.carrying_state
    world.carrying = WorldObj.decode(*carried) if state.has_carrying else None
    grid, seen = world.gen_obs_grid(view)
    return grid.encode(seen)


@pytest.mark.parametrize(
    ("env_id", "view", "steps"),
    [(S9, 3, 200), (S7, 5, 60), (S7, 7, 20), (DOORS, 3, 200), (DOORS, 5, 60), (OPEN_FIELD, 3, 40)],
)
def test_envpool_shows_what_minigrid_shows_of_the_same_world(env_id, view, steps):
    envs, env = build(env_id, "envpool", num_envs=8, view=view), lone(env_id)
    envs.adapter.reset(seeds(8))
    carried = 0
    for action in random_actions(envs, steps)[..., 0]:
        obs = envs.adapter.step(action).obs
        for shown, state in zip(obs, envs.adapter.inner._pool.debug_states(), strict=True):
            np.testing.assert_array_equal(shown, rebuilt(env, state, view), strict=True)
            carried += state.has_carrying
    assert carried or env_id != DOORS


def by_minigrid(window: np.ndarray, view: int) -> np.ndarray:
    """The smaller window cut out of a window (7, 7, 3), with MiniGrid's rule of sight."""
    from minigrid.core.grid import Grid

    left = (7 - view) // 2
    grid, known = Grid.decode(window[left : left + view, 7 - view :])
    return grid.encode(grid.process_vis((view // 2, view - 1)) & known)


@pytest.mark.parametrize("view", [3, 5])
def test_a_smaller_window_obeys_the_rule_of_sight(view):
    pytest.importorskip("minigrid")
    random = np.random.default_rng(0)
    empty, wall, ball = (1, 0, 0), (2, 5, 0), (6, 1, 0)
    doors = [(4, 2, state) for state in range(3)]
    cells = np.array([empty, empty, empty, wall, wall, ball, *doors], dtype=np.uint8)
    windows = cells[random.integers(0, len(cells), (600, 7, 7))]
    windows[:, 3, 6] = empty
    before = windows.copy()
    cropped = minigrid.crop(windows, view, True)
    np.testing.assert_array_equal(windows, before)
    for window, small in zip(windows, cropped, strict=True):
        np.testing.assert_array_equal(small, by_minigrid(window, view), strict=True)


def test_a_plain_crop_would_show_what_walls_hide():
    """The control: without the rule of sight, windows of real play differ, and with it none does."""
    pytest.importorskip("minigrid")
    envs = build(S9, "envpool", num_envs=16)
    envs.adapter.reset(seeds(16))
    differing = total = 0
    for action in random_actions(envs, 100)[..., 0]:
        windows = envs.adapter.inner.step(action).obs["image"]
        cropped, plain = (minigrid.crop(windows, 3, hides) for hides in (True, False))
        for window, small in zip(windows, cropped, strict=True):
            np.testing.assert_array_equal(small, by_minigrid(window, 3))
        differing += (cropped != plain).any((1, 2, 3)).sum()
        total += len(windows)
    assert 0.01 < differing / total < 0.5


def test_numbers_and_worlds_without_hiding_are_those_of_the_package():
    lone(S7)
    from minigrid.core import constants

    objects, colours, states = constants.OBJECT_TO_IDX, constants.COLOR_TO_IDX, constants.STATE_TO_IDX
    for size, values in zip(minigrid.SIZES, (objects, colours, states), strict=True):
        assert sorted(values.values()) == list(range(size))
    named = objects["unseen"], objects["wall"], objects["door"], states["open"]
    assert named == (minigrid.UNSEEN, minigrid.WALL, minigrid.DOOR, minigrid.OPEN)
    for name in minigrid.listing():
        see_through = lone(f"minigrid:{name}").unwrapped.see_through_walls
        assert see_through == name.startswith(minigrid.SEE_THROUGH), name


# Rows -----------------------------------------------------------------------------------------

LOOKS = [{}, {"pictures": True}, {"view": 5}, {"view": 7, "pictures": True, "actions": 7}]


@each(*((S9, options) for options in LOOKS), (DOORS, {}), (DOORS, {"pictures": True, "tile": 4}))
def test_observations_are_of_their_space(envs):
    space, (leaf,) = envs.adapter.observation_space, envs.obs_spec.leaves.values()
    adapter = envs.adapter
    for obs in (adapter.reset(seeds(4)), *(adapter.step(a[:, 0]).obs for a in random_actions(envs, 20))):
        assert obs.shape == (4, *space.shape) and obs.dtype == space.dtype == np.uint8
        assert all(space.contains(row) for row in obs)
    assert leaf.shape == space.shape


@each(*((S9, options) for options in LOOKS))
def test_a_look_has_its_shape(envs, request):
    _, _, options = request.node.callspec.params["envs"]
    view, space = options.get("view", 3), envs.adapter.observation_space
    if options.get("pictures"):
        assert space == gym.spaces.Box(0, 255, (84, 84, 3), np.uint8)
    else:
        assert space.shape == (view, view, 3)
        assert (space.nvec == [11, 6, 3]).all()
        assert envs.obs_spec.leaves["obs"].width == view * view * 20
    assert envs.action_spec.sizes == (options.get("actions", 3),)


CASES = [(S7, {"limit": 40}), (S7, {"limit": 15, "pictures": True}), (OPEN_FIELD, {"limit": 12})]


@each(*CASES)
def test_the_step_after_an_end_opens_an_episode(envs):
    envs.reset(seeds(4))
    actions = random_actions(envs, 150)
    rows = play(envs, actions)
    ended, tail = rows["terminated"] | rows["truncated"], tails(rows)
    assert rows["terminated"].any() and rows["truncated"].any()
    assert not (rows["terminated"] & rows["truncated"]).any()
    assert not (ended & tail).any() and (rows["reward"][tail] == 0).all()
    # What was done in a tail row changes nothing.
    other = np.where(tail[..., None], random_actions(envs, 150, key=1), actions)
    assert (other != actions).any()
    envs.reset(seeds(4))
    same(rows, play(envs, other))


@each(*CASES)
def test_episodes_are_cut_at_the_time_limit(envs):
    envs.reset(seeds(4))
    rows = play(envs, random_actions(envs, 150))
    limit, tail, length = envs.adapter.time_limit, tails(rows), np.zeros(4, dtype=int)
    for t in range(150):
        length = np.where(tail[t], 0, length + 1)
        cut, ended = rows["truncated"][t], rows["terminated"][t]
        assert (length[cut] == limit).all()
        assert (length[~cut & ~ended] < limit).all()


@each((S7, {"num_envs": 16}))
def test_success_is_a_reward_at_the_end(envs):
    envs.reset(seeds(16))
    rows = play(envs, random_actions(envs, 400))
    ended = rows["terminated"] | rows["truncated"]
    np.testing.assert_array_equal(np.isnan(rows["success"]), ~ended)
    np.testing.assert_array_equal(rows["success"][ended], rows["reward"][ended] > 0)
    assert set(rows["success"][ended]) == {0.0, 1.0}


@each((OPEN_FIELD, {"limit": 5, "num_envs": 2}))
def test_reaching_the_goal_at_the_time_limit_is_a_termination(envs):
    envs.reset(seeds(2))
    goal, aside = [FORWARD, FORWARD, RIGHT, FORWARD, FORWARD], [LEFT] * 5
    rows = play(envs, np.array([goal, aside]).T[..., None])
    np.testing.assert_allclose(rows["reward"][-1], [0.1, 0.0], atol=1e-6)
    np.testing.assert_array_equal(rows["terminated"][-1], [True, False])
    np.testing.assert_array_equal(rows["truncated"][-1], [False, True])
    np.testing.assert_array_equal(rows["success"][-1], [1.0, 0.0])
    assert not (rows["terminated"] | rows["truncated"])[:-1].any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("env_id", "limit"), [(S9, 405), (S7, 245), (DOORS, 250)])
def test_the_time_limit_is_minigrids_own_or_the_configs(env_id, limit, backend):
    assert build(env_id, backend).adapter.time_limit == limit
    assert build(env_id, backend, limit=96).adapter.time_limit == 96


def test_the_first_three_actions_turn_and_walk():
    envs = build(S9, "envpool", num_envs=8)
    envs.adapter.reset(seeds(8))
    pool = envs.adapter.inner._pool
    moved = 0
    for action in random_actions(envs, 60)[..., 0]:
        before = [(s.agent_dir, s.agent_pos) for s in pool.debug_states()]
        step = envs.adapter.step(action)
        if (step.terminated | step.truncated).any():
            break
        for i, (facing, place) in enumerate(before):
            after = pool.debug_states()[i]
            assert after.agent_dir == (facing + {LEFT: -1, RIGHT: 1, FORWARD: 0}[int(action[i])]) % 4
            walk = np.subtract(after.agent_pos, place)
            ahead = [(1, 0), (0, 1), (-1, 0), (0, -1)][facing]
            assert not walk.any() or (action[i] == FORWARD and tuple(walk) == ahead)
            moved += walk.any()
    assert moved > 5


# Seeds ----------------------------------------------------------------------------------------


@each((S7, {"limit": 15}), (S7, {"limit": 15, "pictures": True}))
def test_reset_begins_anew_as_if_just_made(envs, request):
    actions = random_actions(envs, 40)
    first = copied(envs.reset(seeds(4)))
    rows = play(envs, actions)
    envs.reset(seeds(4, run=9))
    other = play(envs, actions)
    assert any((rows["obs"][:, i] != other["obs"][:, i]).any() for i in range(4))
    same(first, copied(envs.reset(seeds(4))))
    same(rows, play(envs, actions))
    env_id, backend, options = request.node.callspec.params["envs"]
    fresh = build(env_id, backend, **options)
    same(first, copied(fresh.reset(seeds(4))))
    same(rows, play(fresh, actions))
    fresh.adapter.close()


@each((S9, {"limit": 15}))
def test_an_environment_depends_on_its_own_seed_only(envs):
    actions, keys = random_actions(envs, 40), seeds(4)
    envs.reset(keys)
    rows = play(envs, actions)
    envs.reset([keys[0], *seeds(4, run=3)[1:]])
    others = play(envs, actions)
    same({k: x[:, 0] for k, x in rows.items()}, {k: x[:, 0] for k, x in others.items()})


def test_worker_processes_show_the_same():
    alone, workers = (build(S7, backend, 2, limit=15) for backend in ("gymnasium", "workers"))
    same(copied(alone.reset(seeds(2))), copied(workers.reset(seeds(2))))
    actions = random_actions(alone, 40)
    same(play(alone, actions), play(workers, actions))
    assert (workers.adapter.backend, workers.adapter.time_limit) == ("workers", 15)
    workers.adapter.close()


# Making ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:environment 1")
def test_an_episode_that_a_failure_ended_is_reported_as_aborted():
    envs = build(S7, "workers", num_envs=2)
    envs.reset([1, 2])
    walk = np.full((2, 1), FORWARD)
    assert envs.step(walk).aborted is None
    process = envs.adapter.inner._vec._processes[1]
    process.kill()
    process.join()
    step = envs.step(walk)
    assert step.aborted.tolist() == step.truncated.tolist() == [False, True]
    assert envs.adapter.restarts == 1
    envs.adapter.close()


@pytest.mark.filterwarnings("ignore:environment")
def test_a_world_that_failed_still_has_hidden_variables(monkeypatch):
    pytest.importorskip("minigrid")
    config = EnvConfig(id=S7, num_envs=2, backend="gymnasium", hidden=True, on_error="restart")
    envs = suite.make(config)
    before = envs.reset([1, 2])["hidden"].copy()
    world = envs.adapter.inner.inner.local_envs[0].unwrapped
    monkeypatch.setattr(type(world), "step", lambda self, action: 1 / 0)
    step = envs.step(np.zeros((2, 1), dtype=np.int64))
    assert step.aborted.all() and np.array_equal(step.obs["hidden"], before)
    envs.adapter.close()


def test_a_world_that_does_not_repeat_from_its_seed_is_reported(monkeypatch):
    envs = build(S7, "gymnasium", num_envs=1)
    from minigrid.minigrid_env import MiniGridEnv

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs.adapter.check_seed(3)
    random = np.random.default_rng(1)
    monkeypatch.setattr(
        MiniGridEnv, "gen_obs", lambda self: {"image": random.integers(0, 9, (3, 3, 3), np.uint8)}
    )
    with pytest.warns(UserWarning, match="MemoryEnv does not repeat from its seed"):
        envs.adapter.check_seed(3)
    envs.adapter.close()


def test_a_memory_task_runs_by_its_id_and_by_its_short_name():
    if not minigrid.listing():
        pytest.skip("neither minigrid nor envpool is installed")
    actions, rows = None, []
    for env_id in (S9, "minigrid:MemoryS9"):
        envs = suite.make(EnvConfig(id=env_id, num_envs=4))
        assert envs.adapter.tier == "barrier" and envs.action_spec.sizes == (3,)
        assert envs.reset(seeds(4))["obs"].shape == (4, 27)
        actions = random_actions(envs, 20) if actions is None else actions
        rows.append(play(envs, actions))
        envs.adapter.close()
    same(*rows)


def test_auto_is_envpool_where_it_has_the_id():
    pytest.importorskip("minigrid")
    pytest.importorskip("envpool")
    assert build(S9).adapter.backend == "envpool"
    assert build(S9, pictures=True).adapter.backend == "envpool"
    assert build("minigrid:MiniGrid-MultiRoom-N4-S5-v1").adapter.backend == "gymnasium"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_with_three_actions_has_no_more(backend):
    envs = build("minigrid:MiniGrid-Dynamic-Obstacles-5x5-v0", backend)
    assert envs.action_spec.sizes == (3,)
    envs.reset(seeds(4))
    assert play(envs, random_actions(envs, 30))["terminated"].any()


def test_an_id_with_a_successor_runs():
    build("minigrid:MiniGrid-MultiRoom-N4-S5-v0", "gymnasium").reset(seeds(4))


def test_the_listing_has_the_memory_tasks_first():
    if importlib.util.find_spec("minigrid") is None and importlib.util.find_spec("envpool") is None:
        assert minigrid.listing() == {}
        return
    names = list(minigrid.listing())
    sizes = ("S7", "S9", "S11", "S13", "S13Random", "S17Random")
    assert names[:6] == [f"MiniGrid-Memory{size}-v0" for size in sizes]
    assert len(names) > 60 and all(name.startswith("MiniGrid-") for name in names)
    assert suite.listing()["minigrid"] == minigrid.listing()


@pytest.mark.parametrize(
    ("kwargs", "hint"),
    [
        ({"picture": True}, "pictures, view, actions, tile"),
        ({"pictures": 1}, "False, True"),
        ({"view": 4}, "3, 5, 7"),
        ({"view": "3"}, "3, 5, 7"),
        ({"view": True}, "3, 5, 7"),
        ({"actions": 5}, "3, 7"),
        ({"pictures": True, "tile": 0}, "1 or more"),
        ({"pictures": True, "tile": 2.5}, "1 or more"),
        ({"tile": 8}, "add pictures"),
        ({"pictures": True, "tile": 5}, "15 x 15 pixels are too small"),
    ],
)
@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_keyword_arguments_that_do_not_fit_are_refused(kwargs, hint, backend):
    with pytest.raises(UsageError, match=hint) as error:
        suite.make(EnvConfig(id=S9, num_envs=2, backend=backend, kwargs=kwargs))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("env_id", "backend", "hint"),
    [
        ("minigrid:MiniGrid-MemoryS8-v0", "auto", "MemoryS9"),
        ("minigrid:MemoryS8", "gymnasium", "MemoryS9"),
        ("minigrid:", "auto", "unknown"),
        ("minigrid:MiniGrid-MultiRoom-N4-S5-v1", "envpool", "gymnasium"),
        (S9, "own", "probe"),
    ],
)
def test_unknown_names_and_backends_are_refused_with_a_hint(env_id, backend, hint):
    if backend != "own":
        pytest.importorskip("minigrid")
    if backend == "envpool":
        pytest.importorskip("envpool")
    with pytest.raises(UsageError, match=hint):
        suite.make(EnvConfig(id=env_id, num_envs=2, backend=backend))


def test_a_world_that_needs_another_package_says_so():
    if importlib.util.find_spec("imageio") is not None:
        pytest.skip("imageio is installed")
    envs = build("minigrid:MiniGrid-WFC-MazeSimple-v0", "gymnasium", num_envs=1)
    with pytest.raises(UsageError, match="imageio"):
        envs.reset(seeds(1))


@pytest.fixture
def no_minigrid(monkeypatch):
    monkeypatch.setitem(sys.modules, "minigrid", None)


@pytest.fixture
def no_envpool(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    monkeypatch.setattr(envpool_suite, "_envpool", lambda: None)


@pytest.mark.parametrize("backend", ["auto", "gymnasium", "workers", "envpool"])
def test_without_both_packages_one_line_says_what_to_install(no_minigrid, no_envpool, backend):
    assert minigrid.listing() == {}
    package = "fast" if backend == "envpool" else "minigrid"
    with pytest.raises(UsageError, match=rf"pip install 'recollect-rl\[{package}\]'"):
        suite.make(EnvConfig(id=S9, num_envs=2, backend=backend))


def test_envpool_alone_gives_numbers_but_no_pictures(no_minigrid):
    pytest.importorskip("envpool")
    assert len(minigrid.listing()) > 60
    envs = suite.make(EnvConfig(id=S9, num_envs=2))
    assert envs.adapter.backend == "envpool"
    envs.reset(seeds(2))
    with pytest.raises(UsageError, match=r"recollect-rl\[minigrid\]"):
        suite.make(EnvConfig(id=S9, num_envs=2, kwargs={"pictures": True}))


def test_minigrid_alone_runs(no_envpool):
    pytest.importorskip("minigrid")
    assert suite.make(EnvConfig(id=S9, num_envs=2)).adapter.backend == "gymnasium"
