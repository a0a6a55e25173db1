"""Rows, chunks and minibatches, against what a reader of their definition writes by hand."""

from typing import Literal

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect import envs as suite
from recollect.agent.agent import Agent, AgentState, BranchConfig, build_agent
from recollect.envs import EnvConfig, Envs, Step, VecEnv
from recollect.learn import learner as learning
from recollect.learn import ppo
from recollect.learn.chunks import Scores
from recollect.learn.episodes import Episodes
from recollect.learn.minibatches import minibatches
from recollect.learn.rollout import Rollout, Row, opening_row
from recollect.learn.settings import Draw, Plan, PPOConfig

from ..helpers import chunks_with

TERMINATED, TRUNCATED = 1, 2


class Script(VecEnv):
    """N environments that end where they are told; they show the step and their own number.

    ends, rewards  (S, N): what comes after each step; 0, TERMINATED or TRUNCATED
    """

    tier: Literal["native", "barrier"] = "barrier"
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Discrete(5)
    time_limit = None

    def __init__(self, ends, rewards=None) -> None:
        self.ends, self.backend = np.array(ends), "own"
        self.rewards = np.zeros(self.ends.shape) if rewards is None else np.array(rewards)
        self.num_envs = self.ends.shape[1]

    def obs(self):
        numbers = np.arange(self.num_envs)
        return np.stack([np.full_like(numbers, self.steps), numbers], -1).astype(np.float32)

    def reset(self, seeds):
        self.steps = 0
        return self.obs()

    def step(self, action):
        end, reward = self.ends[self.steps], self.rewards[self.steps]
        self.steps += 1
        return Step(self.obs(), reward, end == TERMINATED, end == TRUNCATED)


def agent_of(envs: Envs, memory: BranchConfig | None = None, normalize: bool = False) -> Agent:
    branch = memory or BranchConfig(hidden=(8,))
    return build_agent((envs.obs_spec, envs.action_spec), branch, branch, normalize, seed=0)


def opening(envs: Envs, agent: Agent) -> Row:
    dtype = "int64" if agent.policy.discrete else "float32"
    return opening_row(envs.reset([0] * envs.num_envs), agent.policy.width, dtype)


def rollouts(script: Script, num_steps: int, dtype: torch.dtype = torch.float32):
    """One rollout after another, the same buffers filled anew; in step s every action is s % 5."""
    envs = Envs(script)
    agent = agent_of(envs)
    row = opening(envs, agent)
    rollout = Rollout(agent, row, num_steps, dtype)
    for begin in range(0, len(script.ends), num_steps):
        rollout.open(row)
        for t in range(num_steps):
            action = np.full((envs.num_envs, 1), (begin + t) % 5)
            rollout.write(t, action, envs.step(action))
        row = rollout.last_row()
        yield rollout


def ends_of(random: np.random.Generator, steps: int, num_envs: int, often: float) -> np.ndarray:
    """Random ends (S, N), none of them in a tail row."""
    ends = np.zeros((steps, num_envs), dtype=int)
    for s, n in np.ndindex(steps, num_envs):
        in_tail = s > 0 and ends[s - 1, n] > 0
        if not in_tail and random.random() < often:
            ends[s, n] = random.choice([TERMINATED, TRUNCATED])
    return ends


def in_tails(ends: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros_like(ends[:1], dtype=bool), ends[:-1] > 0])


# Rows -----------------------------------------------------------------------------------------

# Two rollouts of T = 4. Environment 0 never ends; 1 ends in row T-2, so that row T-1 is a tail row
# and row T opens an episode; 2 ends in row T-1, so that row T, which is row 0 of the next rollout,
# is a tail row; 3 ends wherever it can.
ENDS = [
    [0, 0, 0, 1],
    [0, 0, 0, 0],
    [0, 1, 0, 2],
    [0, 0, 2, 0],
    [0, 0, 0, 1],
    [0, 0, 0, 0],
    [0, 2, 0, 1],
    [0, 0, 1, 0],
]
REWARDS = [
    [1.0, 1.5, 1.25, 9.0],
    [2.0, 2.5, 2.25, 0.0],
    [3.0, 3.5, 3.25, 8.0],
    [4.0, 0.0, 4.25, 0.0],
    [5.0, 5.5, 0.00, 7.0],
    [6.0, 6.5, 6.25, 0.0],
    [7.0, 7.5, 7.25, 6.0],
    [8.0, 0.0, 8.25, 0.0],
]
# Rows 0 to T of both rollouts.
FIRST = [
    [[1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 1]],
    [[0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 1]],
]
VALID = [
    [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 1]],
    [[1, 1, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 1]],
]
# In step s every action is s % 5.
PREV_ACTION = [
    [[0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 2, 2], [3, 0, 3, 0]],
    [[3, 0, 3, 0], [4, 4, 0, 4], [0, 0, 0, 0], [1, 1, 1, 1], [2, 0, 2, 0]],
]
PREV_REWARD = [
    [[0, 0, 0, 0], [1, 1.5, 1.25, 9], [2, 2.5, 2.25, 0], [3, 3.5, 3.25, 8], [4, 0, 4.25, 0]],
    [[4, 0, 4.25, 0], [5, 5.5, 0, 7], [6, 6.5, 6.25, 0], [7, 7.5, 7.25, 6], [8, 0, 8.25, 0]],
]


def test_rows_around_ends_at_every_place():
    for i, rollout in enumerate(rollouts(Script(ENDS, REWARDS), 4)):
        rows = rollout.rows
        np.testing.assert_array_equal(rows.first, np.array(FIRST[i], dtype=bool))
        np.testing.assert_array_equal(rollout.valid, np.array(VALID[i], dtype=bool))
        np.testing.assert_array_equal(rows.prev_action[..., 0], PREV_ACTION[i])
        np.testing.assert_array_equal(rows.prev_reward, PREV_REWARD[i])
        steps = np.arange(4 * i, 4 * i + 5)
        np.testing.assert_array_equal(rows.obs["obs"][..., 0], np.tile(steps[:, None], 4))
        np.testing.assert_array_equal(rows.obs["obs"][..., 1], np.tile(np.arange(4), (5, 1)))
        np.testing.assert_array_equal(rollout.reward, REWARDS[4 * i : 4 * i + 4])
        np.testing.assert_array_equal(rollout.action[..., 0], np.tile(steps[:4, None] % 5, 4))
        ends = np.array(ENDS[4 * i : 4 * i + 4])
        np.testing.assert_array_equal(rollout.terminated, ends == TERMINATED)
        np.testing.assert_array_equal(rollout.truncated, ends == TRUNCATED)


def test_collecting_gives_the_same_rows_and_counts_the_valid_ones():
    envs = Envs(Script(ENDS, REWARDS))
    agent, plan = agent_of(envs), Plan(ppo=PPOConfig(num_steps=4), seed=3)
    learner = learning.begin(envs, agent, plan)
    rollout = Rollout(agent, learner.row, 4)
    for i in range(2):
        ppo.collect(envs, learner, rollout, plan, 1)
        np.testing.assert_array_equal(rollout.rows.first, np.array(FIRST[i], dtype=bool))
        np.testing.assert_array_equal(rollout.valid, np.array(VALID[i], dtype=bool))
        np.testing.assert_array_equal(rollout.rows.prev_reward, PREV_REWARD[i])
        kept = ~rollout.rows.first[1:, :, None]
        np.testing.assert_array_equal(rollout.rows.prev_action[1:], rollout.action * kept)
        learner.update_statistics(rollout)
    assert learner.step == np.array(VALID)[:, :4].sum()


def test_the_previous_action_is_seen_as_the_environment_clips_it():
    envs = suite.make(EnvConfig(id="probe:box", num_envs=2))
    agent = agent_of(envs)
    row = opening(envs, agent)
    rollout = Rollout(agent, row, 2)
    rollout.open(row)
    action = np.array([[3.0], [-0.5]], dtype=np.float32)
    rollout.write(0, action, envs.step(action))
    np.testing.assert_array_equal(rollout.rows.prev_action[1], [[1.0], [-0.5]])
    np.testing.assert_array_equal(rollout.action[0], action)


# Barriers -------------------------------------------------------------------------------------


def test_a_barrier_truncates_the_episodes_that_go_on():
    ends = [[0, 0, 0, 0], [0, 0, 0, TERMINATED], [0, TERMINATED, TRUNCATED, 0]]
    (rollout,) = rollouts(Script(ends, np.ones((3, 4))), 3, torch.float64)
    rollout.truncate()
    np.testing.assert_array_equal(rollout.terminated[-1], [False, True, False, False])
    np.testing.assert_array_equal(rollout.truncated[-1], [True, False, True, False])
    np.testing.assert_array_equal(rollout.valid[2], [True, True, True, False])
    np.testing.assert_array_equal(rollout.valid[3], [False, False, False, True])
    rollout.value[:] = torch.tensor([0.0, 0.0, 0.0, 10.0])[:, None]
    advantage = ppo.advantages(rollout, rollout.reward, 0.5, 0.0)
    np.testing.assert_array_equal(advantage[-1], [1 + 0.5 * 10, 1, 1 + 0.5 * 10, 0])


def test_a_cut_episode_enters_no_statistic():
    ends = [[0, 0], [0, TERMINATED], [0, 0], [0, TRUNCATED]]
    (rollout,) = rollouts(Script(ends, [[1, 1], [1, 1], [1, 0], [1, 1]]), 4)
    episodes = Episodes.begin(2)
    rollout.truncate()
    episodes.add(rollout)
    assert episodes.finished == 2
    (rollout,) = rollouts(Script([[TERMINATED, TERMINATED], [0, 0]], [[5, 7], [0, 0]]), 2)
    for _ in range(50):
        episodes.add(rollout)
    # The last 100 episodes are those after the barrier, and none took in what came before it.
    assert episodes.finished == 102
    assert episodes.means() == {"return": 6.0, "length": 1.0, "success": None}


def test_a_barrier_resets_the_environments_and_carries_an_opening_row():
    envs = Envs(Script(np.zeros((8, 3), dtype=int)))
    agent = agent_of(envs)
    plan = Plan(ppo=PPOConfig(num_steps=4), seed=0, barrier=2)
    learner = learning.begin(envs, agent, plan)
    rollout = Rollout(agent, learner.row, 4)
    for iteration, cut in enumerate([False, True, False]):
        ppo.collect(envs, learner, rollout, plan, 1)
        assert rollout.truncated.any() == cut
        learner.update_statistics(rollout)
        if cut:
            learner.state = AgentState((torch.ones(3, 1),), (torch.ones(3, 1),))
            learner.restart(envs, plan.seed)
            assert learner.state == agent.initial_state(3)
        assert learner.row.first.all() == cut and learner.row.valid.all()
        # What is carried is the first look after the reset, not the row that was cut.
        assert (learner.row.obs["obs"][:, 0] == [4, 0, 4][iteration]).all()
        assert (rollout.rows.obs["obs"][-1, :, 0] == [4, 8, 4][iteration]).all()


# Advantages -----------------------------------------------------------------------------------


def quadratic(rollout: Rollout, gamma: float, gae_lambda: float) -> np.ndarray:
    """The definition, one sum for each row: A[t] = sum over k of (gamma lambda)^(k-t) delta[k]."""
    value, reward = rollout.value.double().numpy(), rollout.reward.double().numpy()
    terminated, truncated = rollout.terminated.numpy(), rollout.truncated.numpy()
    out = np.zeros(reward.shape)
    for t, n in np.ndindex(*reward.shape):
        if not rollout.valid[t, n]:
            continue
        for k in range(t, len(reward)):
            future = 0.0 if terminated[k, n] else value[k + 1, n]
            delta = reward[k, n] + gamma * future - value[k, n]
            out[t, n] += (gamma * gae_lambda) ** (k - t) * delta
            if terminated[k, n] or truncated[k, n]:
                break
    return out


@given(
    st.integers(0, 2**32),
    st.integers(2, 9),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_advantages_equal_their_definition(seed, num_steps, often, gamma, gae_lambda):
    random = np.random.default_rng(seed)
    ends = ends_of(random, 2 * num_steps, 3, often)
    rewards = random.normal(size=ends.shape) * ~in_tails(ends)
    for rollout in rollouts(Script(ends, rewards), num_steps, torch.float64):
        rollout.value[:] = torch.from_numpy(random.normal(size=rollout.value.shape))
        found = ppo.advantages(rollout, rollout.reward, gamma, gae_lambda).numpy()
        np.testing.assert_allclose(found, quadratic(rollout, gamma, gae_lambda), atol=1e-12)
        assert (found[~rollout.valid[:-1].numpy()] == 0).all()


@pytest.mark.parametrize("num_steps", [4, 5, 6, 7, 13])
@pytest.mark.parametrize("name", ["forever", "countdown"])
def test_the_true_values_of_a_chain_leave_no_advantage(name, num_steps):
    """A time limit is bootstrapped, a termination is not, wherever the end falls in a rollout."""
    gamma = 0.9
    envs = suite.make(EnvConfig(id=f"probe:{name}", num_envs=2))
    agent = agent_of(envs)
    row, ends = opening(envs, agent), 0
    rollout = Rollout(agent, row, num_steps, torch.float64)
    for _ in range(6):
        rollout.open(row)
        for t in range(num_steps):
            action = np.zeros((2, 1), dtype=np.int64)
            rollout.write(t, action, envs.step(action))
        row = rollout.last_row()
        left = torch.round(5 * rollout.rows.obs["obs"][..., 0])
        if name == "forever":
            rollout.value[:] = 1 / (1 - gamma)
        else:  # what a critic says about the observation after a termination is used by nobody
            rollout.value[:] = torch.where(left > 0, (1 - gamma**left) / (1 - gamma), 1e3)
        advantage = ppo.advantages(rollout, rollout.reward, gamma, 0.95)
        np.testing.assert_allclose(advantage, 0, atol=1e-12)
        ends += int((~rollout.valid).sum())
        assert (rollout.terminated if name == "forever" else rollout.truncated).sum() == 0
    assert ends > 4


# Episodes -------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(2, 12), st.floats(0.05, 1))
def test_episode_statistics_equal_a_plain_simulation(seed, num_steps, often):
    random = np.random.default_rng(seed)
    ends = ends_of(random, 8 * num_steps, 5, often)
    tail = in_tails(ends)
    # In tail rows an adapter gives 0; whatever else stood there would have to count nothing.
    rewards = np.where(tail, 100.0, random.integers(-8, 8, ends.shape) / 4)
    finished, total, length = [], np.zeros(5), np.zeros(5, dtype=int)
    episodes, logged = Episodes.begin(5), []
    expected, steps = [], (~tail).sum(1).cumsum()
    for i, rollout in enumerate(rollouts(Script(ends, rewards), num_steps)):
        episodes.add(rollout, int(steps[i * num_steps - 1]) if i else 0)
        logged += episodes.latest
        for s, n in np.ndindex(num_steps, 5):
            s += i * num_steps
            if tail[s, n]:
                continue
            total[n], length[n] = total[n] + rewards[s, n], length[n] + 1
            if ends[s, n]:
                finished.append((total[n], length[n]))
                expected.append((steps[s], n, total[n], length[n]))
                total[n], length[n] = 0, 0
        assert [x[:4] for x in logged] == expected
        assert episodes.finished == len(finished)
        means = episodes.means()
        if len(finished) < 100:
            assert means == {"return": None, "length": None, "success": None}
        else:
            mean = np.mean(finished[-100:], axis=0)
            np.testing.assert_allclose([means["return"], means["length"]], mean, atol=1e-9)


def test_success_is_the_mean_over_the_last_episodes():
    envs = suite.make(EnvConfig(id="probe:recall", num_envs=50, kwargs={"delay": 0}))
    agent = agent_of(envs)
    row, episodes = opening(envs, agent), Episodes.begin(50)
    rollout = Rollout(agent, row, 4)
    rollout.open(row)
    right = 0.0
    for t in range(4):
        action = np.ones((50, 1), dtype=np.int64)
        step = envs.step(action)
        right += np.nansum(step.success)
        rollout.write(t, action, step)
    episodes.add(rollout)
    assert episodes.means()["success"] == right / 100
    assert 0 < right < 100


# Chunks and minibatches -----------------------------------------------------------------------


def numbered(num_steps: int, num_envs: int, length: int, often: float = 0.0, seed: int = 0):
    """A rollout in whose every field row t of environment n holds t N + n, cut into chunks."""
    ends = ends_of(np.random.default_rng(seed), num_steps, num_envs, often)
    (rollout,) = rollouts(Script(ends), num_steps, torch.float64)
    number = torch.arange(num_steps * num_envs, dtype=torch.float64).view(num_steps, num_envs)
    rollout.rows.obs["obs"][:-1] = number[..., None]
    rollout.rows.prev_reward[:-1] = number
    rollout.action[:] = number[..., None].long()
    rollout.log_prob[:], rollout.value[:-1] = number, number
    # The memory of environment n before row t is told apart by the same number.
    starts = [(number[t],) for t in range(0, num_steps, length)]
    rollout.starts, rollout.critic_starts = list(starts), [(x, -x) for (x,) in starts]
    return rollout, chunks_with(rollout, number, length)


def drawn(batch, num_envs, size, random, **options):
    """The minibatches of one epoch, advantages as they are."""
    whole = Scores(batch.valid, batch.value, batch.advantage, batch.target)
    counts = whole.mask.sum(0).numpy()
    return minibatches(batch, whole, counts, num_envs, size, random, Draw("off", 1, **options))


@pytest.mark.parametrize("count", [1, 2])
def test_advantages_are_not_normalised_below_two_steps(count):
    _, batch = numbered(4, 1, 1)
    mask = torch.arange(4)[None] < count
    whole = Scores(mask, batch.value, batch.advantage, batch.target)
    draw = Draw("minibatch", 1, shuffle=False)
    (one,) = minibatches(batch, whole, mask.sum(0).numpy(), 1, 4, np.random.default_rng(0), draw)
    assert torch.equal(one.advantage, whole.advantage) == (count == 1)
    assert one.advantage.isfinite().all() and one.weight.sum() == 1


chunked = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 5), st.sampled_from([0.0, 0.4]))


@given(chunked, st.integers(0, 2**32))
def test_chunks_are_a_rearrangement_of_the_rollout(sizes, seed):
    chunks_each, num_envs, length, often = sizes
    num_steps = chunks_each * length
    rollout, batch = numbered(num_steps, num_envs, length, often, seed)
    number = batch.rows.obs["obs"][..., 0].long()
    assert number.shape == (length, chunks_each * num_envs)
    assert sorted(number.flatten().tolist()) == list(range(num_steps * num_envs))
    assert (number[1:] - number[:-1] == num_envs).all()  # one environment, one row after the other
    t, n = number // num_envs, number % num_envs
    assert (batch.rows.prev_reward == number).all()
    assert (batch.action[..., 0] == number).all()
    assert (batch.valid == rollout.valid[t, n]).all()
    assert (batch.rows.first == rollout.rows.first[t, n]).all()
    # Whatever stood in a tail row, nothing of it is left to learn from.
    live = number * batch.valid
    for found, expected in [
        (batch.log_prob, live),
        (batch.value, live),
        (batch.advantage, live),
        (batch.target, 2 * live),
    ]:
        assert (found == expected).all()
    # Every chunk starts from what was remembered before its own first row.
    assert (batch.state.actor[0] == number[0]).all()
    assert (batch.state.critic[0] == number[0]).all()
    assert (batch.state.critic[1] == -number[0]).all()


@given(chunked, st.integers(1, 40), st.integers(0, 2**32))
def test_a_pass_takes_every_chunk_exactly_once(sizes, size, seed):
    chunks_each, num_envs, length, _ = sizes
    _, batch = numbered(chunks_each * length, num_envs, length)
    size = min(size, chunks_each * num_envs)
    blocks = np.gcd.reduce([num_envs, size, 8])
    seen = []
    for part in drawn(batch, num_envs, size, np.random.default_rng(seed)):
        number = part.rows.obs["obs"][..., 0].long()
        assert 1 <= number.shape[1] <= size
        assert (number[1:] - number[:-1] == num_envs).all()
        assert (part.state.actor[0] == number[0]).all() and (part.advantage == number).all()
        block = (number[0] % num_envs) // (num_envs // int(blocks))
        share = torch.bincount(block, minlength=int(blocks))
        assert (share == share[0]).all()
        seen += number.flatten().tolist()
    assert sorted(seen) == list(range(chunks_each * length * num_envs))


@pytest.mark.parametrize("size", [6, 16], ids=["the last is smaller", "all are equal"])
def test_what_is_drawn_at_once_changes_no_minibatch(size, monkeypatch):
    _, batch = numbered(8, 16, 2)  # 64 chunks

    def tensors() -> list[list[torch.Tensor]]:
        parts = drawn(batch, 16, size, np.random.default_rng(0))
        return [[*part.rows.obs.values(), *part.state.actor, *part[3:-1]] for part in parts]

    together = tensors()
    monkeypatch.setattr("recollect.learn.minibatches.GROUP_BYTES", 1)
    alone = tensors()
    assert len(together) == len(alone) == -(-64 // size)
    for one, other in zip(together, alone, strict=True):
        assert all(x.is_contiguous() and torch.equal(x, y) for x, y in zip(one, other, strict=True))


def test_minibatches_are_shuffled_by_their_generator_alone():
    _, batch = numbered(8, 16, 2)

    def order(seed: int) -> list[float]:
        parts = drawn(batch, 16, 16, np.random.default_rng(seed))
        return [x for part in parts for x in part.rows.obs["obs"][0, :, 0].tolist()]

    assert order(0) == order(0) != order(1)
    assert order(0) != sorted(order(0))


def test_minibatches_in_the_order_of_time_are_drawn_several_times_in_a_row():
    _, batch = numbered(12, 1, 2)  # 6 chunks of 2 rows
    random = np.random.default_rng(0)
    parts = drawn(batch, 1, 2, random, shuffle=False, repeats=3)
    rows = [part.rows.obs["obs"][..., 0].T.flatten().tolist() for part in parts]
    assert rows == 3 * [[0, 1, 2, 3]] + 3 * [[4, 5, 6, 7]] + 3 * [[8, 9, 10, 11]]


def test_in_the_order_of_time_every_minibatch_is_of_one_stretch_of_all_environments():
    _, batch = numbered(8, 4, 2)
    parts = drawn(batch, 4, 8, np.random.default_rng(0), shuffle=False)
    rows = [sorted(part.rows.obs["obs"][..., 0].flatten().tolist()) for part in parts]
    assert rows == [list(range(start, start + 16)) for start in (0, 16)]


# Tail rows teach nothing ------------------------------------------------------------------------


def weights_after(name: str, monkeypatch, poison: bool, normalize: str) -> dict[str, torch.Tensor]:
    """Weights and reward statistics after two updates, with 1e6 in every tail row or not."""
    envs = suite.make(EnvConfig(id=f"probe:{name}", num_envs=4))
    agent = agent_of(envs, normalize=True)
    cfg = PPOConfig(num_steps=8, learning_rate=0.01, normalize_advantage=normalize, ent_coef=0.01, bptt=4)
    plan = Plan(ppo=cfg, seed=0, rollouts=2)
    learner = learning.begin(envs, agent, plan, normalize_reward=True)
    rollout = Rollout(agent, learner.row, 8)
    definition = ppo.advantages

    def poisoned(*args) -> torch.Tensor:
        return definition(*args).masked_fill(~rollout.valid[:-1], 1e6)

    with monkeypatch.context() as patch:
        if poison:
            patch.setattr(ppo, "advantages", poisoned)
        for _ in range(2):
            ppo.collect(envs, learner, rollout, plan, 4)
            ppo.value(learner, rollout, 4)
            tail = ~rollout.valid[:-1]
            assert 0 < tail.sum() < tail.numel()
            if poison:
                rollout.reward[tail] = 1e6
                rollout.log_prob[tail] = 1e6
            ppo.update(learner, rollout, plan, 4)
            learner.update_statistics(rollout)
    state = {key: x.clone() for key, x in agent.state_dict().items()}
    return state | learner.rewards.tensors()


@pytest.mark.parametrize("normalize", ["minibatch", "rollout", "off"])
@pytest.mark.parametrize("name", ["match", "box", "countdown", "mixed"])
def test_what_a_tail_row_holds_changes_no_bit(name, normalize, monkeypatch):
    clean = weights_after(name, monkeypatch, False, normalize)
    poisoned = weights_after(name, monkeypatch, True, normalize)
    for key, x in clean.items():
        assert torch.equal(x, poisoned[key]), key
    before = agent_of(suite.make(EnvConfig(id=f"probe:{name}", num_envs=4))).state_dict()
    assert any(not torch.equal(x, clean[key]) for key, x in before.items() if key in clean)
