"""The contract of environments, held by every adapter."""

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from recollect import envs as suite
from recollect.common import rng
from recollect.common.errors import EnvDataError, UsageError
from recollect.envs import EnvConfig, Envs, EnvState
from recollect.envs import gym as gym_suite
from recollect.envs.make import EVALUATION_LIMIT
from recollect.envs.suites import probe

# No other leaf or action hides the randomness of these: they have none.
FIXED = {f"probe:{name}" for name in ("constant", "delay", "choice", "forever", "countdown")}
LIMIT = 7  # steps after which every case cuts its episodes, so that there are many ends


def case(env_id: str, backend: str = "auto", **options) -> EnvConfig:
    return EnvConfig(id=env_id, backend=backend, **{"num_envs": 3, "time_limit": LIMIT} | options)


CLASSIC = [
    case("CartPole-v1", "gymnasium"),
    case("CartPole-v1", "gymnasium", kwargs={"sutton_barto_reward": True}),
    case("Acrobot-v1", "gymnasium"),
    case("MountainCar-v0", "gymnasium"),
    case("MountainCarContinuous-v0", "gymnasium"),
    case("Pendulum-v1", "gymnasium"),
]
NATIVE = [case(f"probe:{name}") for name in probe.listing()] + [case("tmaze"), *CLASSIC]
ENVPOOL = [
    case("CartPole-v1", "envpool", threads=1),
    case("LunarLander-v3", "envpool", threads=1),
    case("BipedalWalker-v3", "envpool", threads=1),
]
CASES = [
    *NATIVE,
    case("LunarLander-v3", "gymnasium"),
    case("LunarLander-v3", "gymnasium", kwargs={"continuous": True}),
    case("CartPole-v1", "workers", num_envs=2),
    *ENVPOOL,
    case("atari:Pong", num_envs=2),
]
RANDOM = [config for config in CASES if config.id not in FIXED]


def name_of(config: EnvConfig) -> str:
    return "-".join([config.id, config.backend, *config.kwargs])


def build(config: EnvConfig) -> Envs:
    for package, needed in (("envpool", config.backend == "envpool"), ("ale_py", "atari" in config.id)):
        if needed:
            pytest.importorskip(package, reason=f"{package} is not installed")
    return suite.make(config)


@pytest.fixture
def envs(request) -> Iterator[Envs]:
    made = build(request.param)
    yield made
    made.adapter.close()


def each(configs: list[EnvConfig]):
    return pytest.mark.parametrize("envs", configs, ids=name_of, indirect=True)


def seeds(count: int, run: int = 0) -> list[int]:
    return rng.env_seeds(run, rng.Purpose.ENV, 0, count)


def random_actions(envs: Envs, steps: int, key: int = 0) -> np.ndarray:
    """Actions (T, N, K) as a policy draws them."""
    random, spec = np.random.default_rng(key), envs.action_spec
    shape = steps, envs.num_envs, spec.width
    if spec.kind == "categorical":
        return random.integers(0, spec.sizes, shape)
    return random.normal(size=shape).astype(np.float32)


def play(envs: Envs, actions: np.ndarray) -> dict[str, np.ndarray]:
    """Everything that came after each action, (T, N, ...); success is NaN where nothing is reported."""
    rows = []
    for action in actions:
        step = envs.step(action)
        row = {key: np.array(x) for key, x in step.obs.items()}
        row |= {"reward": step.reward, "terminated": step.terminated, "truncated": step.truncated}
        unknown = np.full(envs.num_envs, np.nan)
        rows.append(row | {"success": unknown if step.success is None else step.success})
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def copied(obs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {key: x.copy() for key, x in obs.items()}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    """Equal to the last bit."""
    assert a.keys() == b.keys()
    for key, x in a.items():
        assert x.dtype == b[key].dtype
        np.testing.assert_array_equal(x, b[key], err_msg=key)


def tails(rows: dict[str, np.ndarray]) -> np.ndarray:
    """(T, N): steps taken in a tail row, which are those after a step that ended an episode."""
    ended = rows["terminated"] | rows["truncated"]
    return np.concatenate([np.zeros_like(ended[:1]), ended[:-1]])


# Rows -----------------------------------------------------------------------------------------


@each(CASES)
def test_observations_are_leaves_of_the_stated_shape(envs):
    first = envs.reset(seeds(envs.num_envs))
    step = envs.step(random_actions(envs, 1)[0])
    for obs in (first, step.obs):
        assert obs.keys() == envs.obs_spec.leaves.keys()
        for name, leaf in envs.obs_spec.leaves.items():
            shape = (len(leaf.sizes),) if leaf.kind == "discrete" else leaf.shape
            assert obs[name].shape == (envs.num_envs, *shape)
            kind = {"vector": "f", "discrete": "i", "binary": "i", "picture": "u"}[leaf.kind]
            assert obs[name].dtype == np.float32 if kind == "f" else obs[name].dtype.kind == kind
            if leaf.kind == "discrete":
                assert (obs[name] >= 0).all() and (obs[name] < leaf.sizes).all()
    for array in (step.reward, step.terminated, step.truncated):
        assert array.shape == (envs.num_envs,)
    assert step.terminated.dtype == step.truncated.dtype == bool


@each(CASES)
def test_the_step_after_an_end_opens_an_episode(envs):
    envs.reset(seeds(envs.num_envs))
    actions = random_actions(envs, 40)
    rows = play(envs, actions)
    ended, tail = rows["terminated"] | rows["truncated"], tails(rows)
    assert tail.any()
    assert not (rows["terminated"] & rows["truncated"]).any()
    assert not (ended & tail).any()
    assert (rows["reward"][tail] == 0).all()
    # What was done in a tail row changes nothing.
    other = np.where(tail[..., None], random_actions(envs, 40, key=1), actions)
    assert (other != actions).any() or envs.action_spec.sizes == (1,)
    envs.reset(seeds(envs.num_envs))
    same(rows, play(envs, other))


@each(CASES)
def test_episodes_are_cut_at_the_time_limit(envs):
    envs.reset(seeds(envs.num_envs))
    rows = play(envs, random_actions(envs, 40))
    tail, length = tails(rows), np.zeros(envs.num_envs, dtype=int)
    for t in range(40):
        length = np.where(tail[t], 0, length + 1)
        cut, ended = rows["truncated"][t], rows["terminated"][t]
        assert (length[cut] == LIMIT).all()
        assert (length[~cut & ~ended] < LIMIT).all()


@each(CASES)
def test_the_time_limit_is_stated(envs):
    assert envs.adapter.time_limit == LIMIT


@pytest.mark.parametrize("config", CASES[len(probe.listing()) :], ids=name_of)
def test_without_an_override_the_limit_is_the_environments_own(config):
    known = {"CartPole": 500, "Acrobot": 500, "MountainCar": 200, "MountainCarContinuous": 999}
    known |= {"atari:Pong": 27_000, "tmaze": 24, "Pendulum": 200, "LunarLander": 1000, "BipedalWalker": 1600}
    envs = build(replace(config, time_limit=None))
    assert envs.adapter.time_limit == known[config.id.split("-")[0]]
    envs.adapter.close()


def test_a_termination_at_the_time_limit_is_a_termination():
    envs = suite.make(case("probe:countdown", time_limit=5))
    envs.reset(seeds(3))
    rows = play(envs, random_actions(envs, 5))
    assert rows["terminated"][4].all() and not rows["truncated"].any()

    class Both(Scripted):
        def step(self, action):
            return self.obs(), 1.0, True, True, {}

    envs = suite.make(case("Both", num_envs=1, time_limit=None), factory=Both)
    envs.reset(seeds(1))
    step = envs.step(random_actions(envs, 1)[0])
    assert step.terminated.all() and not step.truncated.any()


# Seeds ----------------------------------------------------------------------------------------


@each(CASES)
def test_reset_begins_anew_as_if_just_made(envs, request):
    """The same seeds give the same stream, also in the middle of others and in another adapter."""
    config = request.node.callspec.params["envs"]
    actions = random_actions(envs, 30)
    first = copied(envs.reset(seeds(envs.num_envs)))
    rows = play(envs, actions)
    play(envs, random_actions(envs, LIMIT, key=5))
    envs.reset(seeds(envs.num_envs, run=9))
    play(envs, random_actions(envs, LIMIT, key=6))
    same(first, copied(envs.reset(seeds(envs.num_envs))))
    same(rows, play(envs, actions))
    fresh = build(config)
    same(first, copied(fresh.reset(seeds(envs.num_envs))))
    same(rows, play(fresh, actions))
    fresh.adapter.close()


@each(RANDOM)
def test_other_seeds_give_other_streams(envs):
    actions = random_actions(envs, 40)
    streams = []
    for run in range(2):
        envs.reset(seeds(envs.num_envs, run))
        streams.append(play(envs, actions))
    leaves = [key for key in streams[0] if key.startswith("obs")]
    assert any((streams[0][key] != streams[1][key]).any() for key in leaves)
    assert any((streams[0][key][:, 0] != streams[0][key][:, 1]).any() for key in leaves)


# Gymnasium's own vector CartPole has one generator for all its environments.
OWN_SEED = [c for c in RANDOM if c.backend != "gymnasium" or c.id != "CartPole-v1" or c.kwargs]


@each(OWN_SEED)
def test_an_environment_depends_on_its_own_seed_only(envs):
    actions, keys = random_actions(envs, 30), seeds(envs.num_envs)
    envs.reset(keys)
    rows = play(envs, actions)
    envs.reset([keys[0], *seeds(envs.num_envs, run=3)[1:]])
    others = play(envs, actions)
    same({k: x[:, 0] for k, x in rows.items()}, {k: x[:, 0] for k, x in others.items()})


def repeated(runs, iterations, count=16) -> set[int]:
    """Environment seeds that are used twice."""
    seen: set[int] = set()
    twice: set[int] = set()
    purposes = rng.Purpose.ENV, rng.Purpose.VALIDATE, rng.Purpose.EVALUATE
    for run, purpose, iteration in itertools.product(runs, purposes, iterations):
        found = rng.env_seeds(run, purpose, iteration, count)
        twice |= seen & set(found)
        seen |= set(found)
    assert len(seen) + len(twice) >= count
    return twice


def test_no_environment_seed_repeats():
    assert not repeated(range(20), range(10))


def test_no_environment_seed_repeats_for_large_run_seeds():
    """A run seed may be above 2**32, where it takes two words of entropy."""
    assert not repeated([5, 5 + 2**32, 5 + 4 * 2**32, 5 + 5 * 2**32], range(8))


def test_the_first_seeds_do_not_depend_on_how_many_are_asked_for():
    assert rng.env_seeds(1, rng.Purpose.ENV, 2, 3) == rng.env_seeds(1, rng.Purpose.ENV, 2, 8)[:3]


# State ----------------------------------------------------------------------------------------


def round_trip(state: EnvState) -> EnvState:
    """As a checkpoint keeps it: arrays as they are, data through JSON."""
    data = json.loads(json.dumps(state.data))
    return EnvState({key: x.copy() for key, x in state.arrays.items()}, data)


@each(NATIVE)
def test_native_state_continues_bit_for_bit(envs, request):
    assert envs.adapter.tier == "native"
    config = request.node.callspec.params["envs"]
    actions = random_actions(envs, 12 + 20)
    fresh = build(config)
    for begin in range(12):  # more than an episode, so some are taken right after an end
        envs.reset(seeds(envs.num_envs))
        for action in actions[:begin]:
            envs.step(action)
        state = round_trip(envs.adapter.get_state())
        following = actions[begin : begin + 20]
        rows = play(envs, following)
        assert tails(rows).any()
        fresh.adapter.set_state(state)
        same(rows, play(fresh, following))
        envs.adapter.set_state(state)  # the state was not touched by what came after it
        same(rows, play(envs, following))
    fresh.adapter.close()


@each(NATIVE)
def test_states_that_processes_saved_together_are_dealt_out_again(envs, request):
    """A checkpoint joins them by environment, whatever else an array counts."""
    config = request.node.callspec.params["envs"]
    parts = [envs, build(config)]
    actions = random_actions(envs, 9)
    for run, part in enumerate(parts):
        part.reset(seeds(part.num_envs, run))
        play(part, actions[: 3 + run])
    states = [part.adapter.get_state() for part in parts]
    rows = [play(part, actions) for part in parts]
    joined = {key: np.concatenate([state.arrays[key] for state in states]) for key in states[0].arrays}
    for rank, (state, wanted) in enumerate(zip(states, rows, strict=True)):
        own = slice(rank * envs.num_envs, (rank + 1) * envs.num_envs)
        fresh = build(config)
        fresh.adapter.set_state(round_trip(EnvState({k: x[own] for k, x in joined.items()}, state.data)))
        same(wanted, play(fresh, actions))
        fresh.adapter.close()
    parts[1].adapter.close()


def test_a_state_is_kept_in_the_precision_that_it_has():
    """Of MountainCarContinuous it has 64 bits until the first step of an episode, and 32 from then on."""
    config = case("MountainCarContinuous-v0", "gymnasium", time_limit=None)
    envs, fresh = build(config), build(config)
    actions = random_actions(envs, 30)
    envs.reset(seeds(3))
    play(envs, actions[:5])
    envs.adapter._vec.envs[0].reset(seed=7)
    state = round_trip(envs.adapter.get_state())
    rows = play(envs, actions[5:])
    fresh.adapter.set_state(state)
    same(rows, play(fresh, actions[5:]))


def stacked_pendulum() -> gym.Env:
    return gym.wrappers.FrameStackObservation(gym.make("Pendulum-v1", max_episode_steps=LIMIT), 3)


def bare_pendulum() -> gym.Env:
    return gym.make("Pendulum-v1").unwrapped


def twice_limited_pendulum() -> gym.Env:
    return gym.wrappers.TimeLimit(gym.make("Pendulum-v1", max_episode_steps=9, disable_env_checker=True), 20)


@pytest.mark.parametrize("factory", [stacked_pendulum, bare_pendulum, twice_limited_pendulum])
def test_who_claims_to_be_native_can_carry_its_state(factory):
    """A wrapper may hold a state of its own, and a bare environment has no time limit."""
    config = case("Pendulum", num_envs=2, time_limit=None)
    envs, fresh = (suite.make(config, factory=factory) for _ in range(2))
    if envs.adapter.tier == "barrier":
        return
    actions = random_actions(envs, 20)
    envs.reset(seeds(2))
    play(envs, actions[:4])
    state = round_trip(envs.adapter.get_state())
    rows = play(envs, actions[4:])
    fresh.adapter.set_state(state)
    same(rows, play(fresh, actions[4:]))


# Making ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_the_old_lunar_lander_runs(backend):
    envs = build(case("LunarLander-v2", backend))
    assert envs.adapter.backend == backend
    envs.reset(seeds(3))
    assert np.isfinite(play(envs, random_actions(envs, 10))["reward"]).all()
    envs.adapter.close()


def test_keyword_arguments_reach_the_environment():
    assert suite.make(case("LunarLander-v3", kwargs={"continuous": True})).action_spec.kind == "gaussian"
    rows = []
    for gravity in (10.0, 1.0):
        envs = suite.make(case("Pendulum-v1", "gymnasium", kwargs={"g": gravity}))
        envs.reset(seeds(3))
        rows.append(play(envs, random_actions(envs, 5)))
    assert (rows[0]["obs"] != rows[1]["obs"]).any()
    short = suite.make(case("probe:recall", kwargs={"delay": 1}))
    short.reset(seeds(3))
    assert play(short, random_actions(short, 2))["terminated"][1].all()


@pytest.mark.parametrize("env_id", ["probe:recall", "probe:sight", "Pendulum-v1", "CartPole-v1"])
@pytest.mark.parametrize("backend", ["auto", "envpool"])
def test_unknown_keyword_arguments_are_refused(env_id, backend):
    with pytest.raises(UsageError, match="weight"):
        build(case(env_id, backend, kwargs={"weight": 3}))


@pytest.mark.parametrize("value", ["3", -1, 1.5, True])
def test_a_keyword_argument_of_a_wrong_kind_is_refused(value):
    with pytest.raises(UsageError, match="delay"):
        suite.make(case("probe:recall", kwargs={"delay": value}))


@pytest.mark.parametrize(
    ("env_id", "backend", "hint"),
    [
        ("CartPol-v1", "auto", "CartPole-v1"),
        ("probe:recal", "auto", "recall"),
        ("probe:", "auto", "known"),
        ("CartPol-v1", "envpool", "gymnasium"),
        ("no_such_module:Thing-v0", "auto", "no_such_module"),
        ("./no_such_module:Thing-v0", "auto", "no_such_module"),
        ("CartPole-v1", "own", "probe"),
    ],
)
def test_unknown_names_are_refused_with_a_hint(env_id, backend, hint):
    with pytest.raises(UsageError, match=hint):
        build(case(env_id, backend))


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [("LunarLander-v3", {"gravity": 5}), ("FrozenLake-v1", {"map_name": "5x5"}), ("Ant-v2", {})],
)
def test_what_an_environment_does_not_take_is_one_line(env_id, kwargs):
    with pytest.raises(UsageError, match="the environment cannot be built: "):
        build(case(env_id, "gymnasium", kwargs=kwargs))


def test_what_envpool_does_not_take_is_one_line():
    pytest.importorskip("envpool")
    with pytest.raises(
        UsageError, match=r"EnvPool cannot build LunarLander-v3 .* or env\.time_limit"
    ) as error:
        build(case("LunarLander-v3", "envpool", time_limit=10**12))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("env_id", "cut"), [("CliffWalking-v1", True), ("CartPole-v1", False)])
@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_episodes_that_have_no_limit_are_cut_where_they_are_played(env_id, cut, backend):
    if backend == "envpool":
        pytest.importorskip("envpool")
    config = case(env_id, backend, time_limit=None)
    limits = []
    for made in (suite.make(config), suite.make_for_evaluation(config)):
        limits.append(made.adapter.time_limit)
        made.adapter.close()
    assert limits == [None, EVALUATION_LIMIT] if cut else limits[0] == limits[1] < 1000


@pytest.mark.parametrize("option", [{"num_envs": 0}, {"time_limit": 0}])
def test_impossible_options_are_refused(option):
    with pytest.raises(UsageError, match=next(iter(option))):
        case("CartPole-v1", **option)


THIRD_PARTY = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv

class Slow(PendulumEnv):
    pass

gymnasium.register("{name}", entry_point=Slow, max_episode_steps=9)
"""


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """A folder of modules from elsewhere; what they register is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gym.envs.registration, "registry", gym.registry)
    before, modules = dict(gym.registry), set(sys.modules)
    yield tmp_path
    gym.registry.clear()
    gym.registry.update(before)
    for name in set(sys.modules) - modules:
        if "thirdparty" in name:
            del sys.modules[name]


def test_a_module_from_elsewhere_registers_its_environment(third_party):
    package = third_party / "thirdparty_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "module.py").write_text(THIRD_PARTY.format(name="SlowPendulum-v0"))
    envs = suite.make(EnvConfig(id="thirdparty_package.module:SlowPendulum-v0", num_envs=2))
    assert envs.adapter.time_limit == 9
    envs.reset(seeds(2))
    assert play(envs, random_actions(envs, 9))["truncated"][8].all()


def test_a_suite_wins_over_a_module_of_its_name(third_party):
    (third_party / "probe.py").write_text("raise RuntimeError('imported')")
    assert suite.make(case("probe:match")).adapter.backend == "own"


def test_a_callable_makes_environments():
    envs = suite.make(case("mine", time_limit=4), factory=Scripted)
    assert envs.adapter.time_limit == 4
    envs.reset(seeds(3))
    rows = play(envs, random_actions(envs, 10))
    assert rows["truncated"][3].all() and not rows["truncated"][:3].any()


class Passing(gym.Wrapper):
    """Changes nothing."""


def limited(*limits: int) -> gym.Env:
    """A wrapper around each of several time limits, from the innermost on."""
    env: gym.Env = Scripted()
    for limit in limits:
        env = Passing(gym.wrappers.TimeLimit(env, limit))
    return env


@pytest.mark.parametrize(
    "limits, option, first",
    [((4,), None, 4), ((4, 9), None, 4), ((4,), 9, 9), ((9,), 4, 4), ((4, 9), 7, 7)],
)
def test_of_several_time_limits_the_shortest_is_stated_unless_the_option_replaces_them(limits, option, first):
    envs = suite.make(case("mine", time_limit=option), factory=lambda: limited(*limits))
    assert envs.adapter.time_limit == first
    envs.reset(seeds(3))
    rows = play(envs, random_actions(envs, 10))
    assert rows["truncated"][first - 1].all() and not rows["truncated"][: first - 1].any()


def test_masked_entries_read_zero():
    config = case("CartPole-v1", "gymnasium")
    seen, blind = suite.make(config), suite.make(replace(config, mask=(1, 3)))
    actions = random_actions(seen, 20)
    for open_eyes, masked in [
        (seen.reset(seeds(3))["obs"][None], blind.reset(seeds(3))["obs"][None]),
        (play(seen, actions)["obs"], play(blind, actions)["obs"]),
    ]:
        assert (masked[..., [1, 3]] == 0).all() and (open_eyes[..., [1, 3]] != 0).any()
        np.testing.assert_array_equal(masked[..., [0, 2]], open_eyes[..., [0, 2]])


def test_every_listed_gymnasium_environment_is_registered():
    listed = gym_suite.listing()
    assert {"CartPole-v1", "LunarLander-v3", "FrozenLake-v1"} <= listed.keys()
    assert all(gym_suite.find_spec(name)[0] == name for name in listed)


def test_discrete_observations_of_a_table_world_count_from_zero():
    envs = suite.make(case("FrozenLake-v1", "gymnasium"))
    assert (envs.reset(seeds(3))["obs"] == 0).all()


# Data -----------------------------------------------------------------------------------------


class Scripted(gym.Env):
    """A counter that can be made to give anything, at step 3, in the environment it is told."""

    observation_space = gym.spaces.Dict(
        {"speed": gym.spaces.Box(-np.inf, np.inf, (2,)), "place": gym.spaces.Discrete(10, start=-2)}
    )
    action_space = gym.spaces.Discrete(2)

    def __init__(self, speed: float = 0.0, reward: float = 0.0, at: int = 3) -> None:
        self.given, self.at, self.count = (speed, reward), at, 0

    def obs(self):
        speed = self.given[0] if self.count == self.at else 0.0
        return {"speed": np.array([0.0, speed], np.float32), "place": 0}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.obs(), {}

    def step(self, action):
        self.count += 1
        return self.obs(), self.given[1] if self.count == self.at else 0.5, False, False, {}


def faulty(**given) -> Envs:
    """Three environments, of which the one with index 1 is faulty."""
    made = itertools.count()
    return suite.make(
        case("faulty", time_limit=None),
        factory=lambda: Scripted(**given) if next(made) == 1 else Scripted(),
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_observation_that_is_not_finite_stops_the_run(value):
    envs = faulty(speed=value)
    envs.reset(seeds(3))
    play(envs, random_actions(envs, 2))
    with pytest.raises(EnvDataError, match=r"environment 1 .*obs\.speed\[1\].* at step 3"):
        envs.step(random_actions(envs, 1)[0])


def test_a_first_observation_that_is_not_finite_stops_the_run():
    with pytest.raises(EnvDataError, match=r"environment 1 .*obs\.speed\[1\] = nan"):
        faulty(speed=np.nan, at=0).reset(seeds(3))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.01e12, -1e300])
def test_a_reward_that_is_not_finite_or_too_large_stops_the_run(value):
    envs = faulty(reward=value)
    envs.reset(seeds(3))
    play(envs, random_actions(envs, 2))
    with pytest.raises(EnvDataError, match=r"environment 1 .*reward.* at step 3"):
        envs.step(random_actions(envs, 1)[0])


def test_large_but_finite_data_passes():
    envs = faulty(speed=1e30, reward=-1e12)
    envs.reset(seeds(3))
    rows = play(envs, random_actions(envs, 3))
    assert rows["obs.speed"].max() == np.float32(1e30) and rows["reward"].min() == -1e12


def test_success_is_what_an_episode_reports():
    class Reports(Scripted):
        def step(self, action):
            obs, reward, *_ = super().step(action)
            return (
                obs,
                reward,
                self.count == 2,
                False,
                {"is_success": True} if self.count == 2 else {},
            )

    envs = suite.make(case("reports", time_limit=None), factory=Reports)
    envs.reset(seeds(3))
    steps = [envs.step(action).success for action in random_actions(envs, 2)]
    assert steps[0] is None or np.isnan(steps[0]).all()
    np.testing.assert_array_equal(steps[1], np.ones(3))


# Probes: the best play earns what the listing says ----------------------------------------------


def best_action(name: str, obs: dict[str, np.ndarray], shown: np.ndarray | None) -> np.ndarray:
    """The best action (N, K) of a policy that sees obs and remembers what was shown first."""
    if name in FIXED or name == "probe:sight":
        return np.full((3, 1), int(name == "probe:choice"))
    if name == "probe:mixed":
        sign = obs["obs.vector"] > 0
        return np.hstack([sign, obs["obs.place"], obs["obs.pair.0"], obs["obs.pair.1"]]).astype(int)
    if name == "probe:bits":
        return obs["obs"].astype(int)
    if name == "probe:loan":
        return (obs["obs"][:, :1] > 0).astype(int)
    if name == "probe:box":  # 1 + 2 obs, from [-2, 4] to units of [-1, 1]
        return (obs["obs"] * 2 + 1 - 1) / 3
    return (shown > 0).astype(int)


ANSWERS = {"forever": 5.0, "countdown": 5.0, "box": 0.0, "loan": 3.2, "mixed": 6.0}


@pytest.mark.parametrize("name", list(probe.listing()))
def test_a_probe_pays_its_known_answer(name):
    envs = suite.make(EnvConfig(id=f"probe:{name}", num_envs=3))
    obs = envs.reset(seeds(3))
    episodes, seen, shown = 0, set(), None
    total, first = np.zeros(3), True
    for _ in range(120):
        if first and "obs" in obs:
            shown = obs["obs"][:, :1].copy()
        step = envs.step(best_action(f"probe:{name}", obs, shown))
        total, obs = total + step.reward, step.obs
        first = False
        if (step.terminated | step.truncated).any():
            assert (step.terminated | step.truncated).all()
            assert step.truncated.all() == (name == "forever")
            assert step.success is None or (step.success == 1).all()
            answer = shown[:, 0] if name == "sight" else ANSWERS.get(name, 1.0)
            np.testing.assert_allclose(total, answer, atol=1e-9)
            episodes += 1
            seen.add(None if shown is None else tuple(shown.ravel()))
            obs, total, first = envs.step(random_actions(envs, 1)[0]).obs, np.zeros(3), True
    assert episodes >= 3
    assert len(seen) > 1 or f"probe:{name}" in FIXED or name == "mixed"


def test_a_loan_is_shown_once_and_settled_whatever_is_done():
    envs = suite.make(case("probe:loan", kwargs={"steps": 6}, num_envs=64))
    obs, random = envs.adapter.reset(list(range(64))), np.random.default_rng(0)
    owed, total, right = obs[:, 1].copy(), np.zeros(64), np.zeros(64)
    assert set(owed) == {-1, 1}
    for t in range(6):
        assert not t or not obs[:, 1].any()
        np.testing.assert_allclose(obs[:, 2], t / 6, rtol=1e-6)
        action = random.integers(2, size=64)
        matches = action == (obs[:, 0] > 0)
        step = envs.adapter.step(action)
        loan = owed * {0: 5.0, 5: -5.0}.get(t, 0.0)
        np.testing.assert_allclose(step.reward, 0.1 * matches + loan, atol=1e-12)
        obs, total, right = step.obs, total + step.reward, right + matches
    assert step.terminated.all()
    np.testing.assert_allclose(total, 0.1 * right, atol=1e-12)


def test_recall_shows_once_and_tells_when_to_answer():
    envs = suite.make(case("probe:recall", kwargs={"delay": 3}, num_envs=64))
    shown = envs.reset(seeds(64))["obs"].copy()
    assert set(shown[:, 0]) == {-1.0, 1.0}
    rows = play(envs, np.ones((4, 64, 1), dtype=int))
    seen = np.concatenate([shown[None], rows["obs"]])
    assert (seen[1:4, :, 0] == 0).all()
    np.testing.assert_array_equal(seen[:4, 0, 1], [0, 0, 0, 1])
    np.testing.assert_array_equal(rows["reward"][3], shown[:, 0])
    assert (rows["reward"][:3] == 0).all()
    np.testing.assert_array_equal(rows["success"][3], shown[:, 0] > 0)
    assert np.isnan(rows["success"][:3]).all()


def test_signs_before_the_one_to_recall_do_not_count():
    """Nor does where it stands tell which one counts: their number is drawn."""
    envs = suite.make(case("probe:recall", kwargs={"delay": 3, "lead": 2}, num_envs=96))
    shown = envs.reset(seeds(96))["obs"].copy()
    rows = play(envs, np.ones((6, 96, 1), dtype=int))
    seen = np.concatenate([shown[None], rows["obs"]])[:6]
    others = (seen[:3, :, 0] != 0).sum(0) - 1
    assert set(others) == {0, 1, 2} and np.bincount(others).min() > 20
    signs = {tuple(episode) for episode in seen[:3, others == 2, 0].T}
    assert len(signs) == 8  # drawn independently
    for before in range(3):
        episodes, last = others == before, before + 3
        assert (seen[before + 1 : last + 1, episodes, 0] == 0).all()
        assert (seen[: last + 1, episodes, 1] == np.eye(6)[last, : last + 1, None]).all()
        assert (rows["reward"][:last, episodes] == 0).all()
        np.testing.assert_array_equal(rows["reward"][last, episodes], seen[before, episodes, 0])
        assert rows["terminated"][last, episodes].all() and not rows["terminated"][:last, episodes].any()


def test_countdown_tells_how_many_steps_are_left():
    envs = suite.make(EnvConfig(id="probe:countdown", num_envs=1))
    first = envs.reset(seeds(1))["obs"].copy()
    rows = play(envs, random_actions(envs, 5))
    seen = np.concatenate([first[None], rows["obs"]])[:, 0, 0]
    np.testing.assert_allclose(seen, [1.0, 0.8, 0.6, 0.4, 0.2, 0.0])


def test_a_suggested_id_has_the_module_that_registers_it():
    with pytest.raises(
        UsageError, match=r"environment json:CartPole-v2 is unknown; did you mean json:CartPole"
    ):
        suite.make(EnvConfig(id="json:CartPole-v2"))
