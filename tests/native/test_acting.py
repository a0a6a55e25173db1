"""Acting and the value pass by the kernels, against torch in float64."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from recollect.agent.agent import AgentState, BranchConfig, build_agent
from recollect.agent.policies import IMPOSSIBLE
from recollect.common import tree
from recollect.envs.spaces import ACTION_MASK, read_spaces
from recollect.learn.engine import TorchEngine
from recollect.learn.optim import FlatAdam
from recollect.learn.rollout import Rollout, opening_row
from recollect.memory.lmu import LmuConfig
from recollect.memory.mlp import MlpConfig
from recollect.memory.rnn import GruConfig, LstmConfig, MinGruConfig
from recollect.memory.stack import LateStackConfig, StackConfig
from recollect.native.engine import NativeEngine

from . import cases
from .cases import ACTIONS, DISCRETE, NOW, config, kernels, make_batch
from .test_gradients import builds

RECURRENT = GruConfig, LstmConfig, MinGruConfig, LmuConfig
MEMORIES = MlpConfig, StackConfig, LateStackConfig, *RECURRENT
VECTOR = spaces.Box(-np.inf, np.inf, (4,))
MIXED = spaces.Dict(
    position=VECTOR,
    single=spaces.Box(-9, 9, ()),
    bits=spaces.MultiBinary(3),
    room=spaces.Discrete(5, start=2),
    keys=spaces.MultiDiscrete([2, 3]),
)


def make_agent(branch, action=DISCRETE, obs=VECTOR, normalize=True, critic=None):
    """An agent with statistics of observations, and weights that are away from 0."""
    agent = build_agent(read_spaces(obs, action), branch, critic or branch, normalize, seed=1)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=random)
    if normalize:
        rows = make_rollout(agent, obs, 20, 10, 0.0).rows
        agent.normalizer.update(rows.obs, torch.ones(21, 10, dtype=torch.bool))
    FlatAdam([agent.actor, agent.critic], config())
    return agent


def make_rollout(agent, obs, steps, num_envs, resets, seed=1):
    """A rollout whose rows are written already."""
    obs.seed(seed)
    random = torch.Generator().manual_seed(seed)

    def sample():
        return agent.obs_spec.split(np_stack([obs.sample() for _ in range(num_envs)]))

    dtype = np.dtype("int64" if agent.policy.discrete else "float32")
    row = opening_row(sample(), agent.policy.width, dtype)
    rollout = Rollout(agent, row, steps)
    for t in range(steps + 1):
        for name, x in sample().items():
            rollout.rows.obs[name][t] = torch.from_numpy(x)
    rollout.rows.first.copy_(torch.rand(steps + 1, num_envs, generator=random) < resets)
    for x in rollout.rows.prev_action.unbind(-1):
        x.copy_(torch.randint(2, x.shape, generator=random))
    rollout.rows.prev_reward.copy_(20 * torch.randn(steps + 1, num_envs, generator=random))
    return rollout


def np_stack(samples):
    """Samples of a space as a batch."""
    if isinstance(samples[0], dict):
        return {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}
    return np.stack(samples)


def random_state(agent, num_envs):
    random = torch.Generator().manual_seed(3)

    def random_leaf(x):
        # Counts are those of a key/value cache: the steps that an episode has had.
        if x.is_floating_point():
            return torch.randn(x.shape, generator=random)
        return torch.randint(0, 9, x.shape, generator=random)

    return AgentState(*(tree.map_leaves(random_leaf, part) for part in agent.initial_state(num_envs)))


def noise_for(agent, rollout):
    drawn = agent.policy.noise(np.random.default_rng(1), (rollout.num_steps, rollout.num_envs))
    return torch.from_numpy(drawn).float()


def act(engine, agent, rollout, state):
    """All steps of a rollout: parameters of the policy, actions, and the state after them."""
    with torch.no_grad():
        acting = engine.acting(rollout, state, noise_for(agent, rollout))
        actions = np.stack([acting.step(t).copy() for t in range(rollout.num_steps)])
        return acting.params(), torch.from_numpy(actions), acting.state


def in_float64(agent):
    """The same agent in float64, and its engine."""
    agent = copy.deepcopy(agent).double()
    return agent, TorchEngine(agent)


def double(part):
    return tree.map_leaves(lambda x: x.double() if x.is_floating_point() else x, part)


def to_float64(rollout, agent, obs, *shape):
    """The same rollout for an agent in float64."""
    other = make_rollout(agent, obs, *shape)
    wide = Rollout(agent, other.last_row(), rollout.num_steps, torch.float64)
    for name, x in rollout.rows.obs.items():
        wide.rows.obs[name].copy_(x)
    for x, y in zip(wide.rows[1:4], rollout.rows[1:4], strict=True):
        x.copy_(y)
    return wide


def assert_close(x, expected, limit=1e-5):
    x, expected = (tree.leaves(part) for part in (x, expected))
    for name in expected:
        torch.testing.assert_close(x[name].double(), expected[name].double(), atol=limit, rtol=limit)


def limit_of(rounded, expected):
    """1e-5, or three times the error of torch in float32: some weights amplify rounding."""
    rounded, expected = (tree.leaves(part) for part in (rounded, expected))
    pairs = [(rounded[name].double(), x.double()) for name, x in expected.items() if x.numel()]
    return max(1e-5, *(3 * ((x - y).abs() / (1 + y.abs())).max().item() for x, y in pairs))


def check(agent, obs, steps, num_envs, resets):
    """Assert that the kernels act and value as torch does in float64."""
    rollout = make_rollout(agent, obs, steps, num_envs, resets)
    state, engine = random_state(agent, num_envs), NativeEngine(kernels(), agent, print)
    params, actions, after = act(engine, agent, rollout, state.actor)
    reference, torch_engine = in_float64(agent)
    wide = to_float64(rollout, reference, obs, steps, num_envs, resets)
    expected, _, expected_after = act(torch_engine, reference, wide, double(state.actor))
    by_torch = TorchEngine(agent)
    rounded = act(by_torch, agent, rollout, state.actor)[::2]
    limit = limit_of(rounded, (expected, expected_after))
    assert_close((params, after), (expected.float(), expected_after), limit)
    # The noise decides, so actions are compared with those of the same parameters.
    assert torch.equal(actions, agent.policy.sample(params, noise_for(agent, rollout)))
    with torch.no_grad():
        values, after = engine.value(rollout.normalized(agent), state)
        wide_state = AgentState(*map(double, state))
        expected, expected_after = torch_engine.value(wide.normalized(reference), wide_state)
        rounded = by_torch.value(rollout.normalized(agent), state)
    assert_close((values, *after), (expected, *expected_after), limit_of(rounded, (expected, expected_after)))


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda m: m.name)
@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_actions_and_values_are_those_of_torch(memory, action):
    branch = BranchConfig(memory=memory(), hidden=(20,), prev_action=True, prev_reward=True)
    check(make_agent(branch, action, MIXED), MIXED, 7, 5, 0.2)


def test_each_branch_sees_its_leaves():
    actor = BranchConfig(hidden=(20,), sees=("position", "room"))
    critic = BranchConfig(hidden=(20,), sees=("bits", "position", "single"))
    check(make_agent(actor, DISCRETE, MIXED, critic=critic), MIXED, 7, 5, 0.2)


@pytest.mark.parametrize("action", ACTIONS[:3], ids=str)
def test_only_allowed_actions_are_taken(action):
    agent = cases.make_agent(BranchConfig(), BranchConfig(), action, masks=True)
    batch = make_batch(agent, 6, 30)
    obs = {name: x[0].numpy() for name, x in batch.rows.obs.items()}
    rollout = Rollout(agent, opening_row(obs, agent.policy.width, np.dtype("int64")), 5)
    for name, x in batch.rows.obs.items():
        rollout.rows.obs[name].copy_(x)
    params, actions, _ = act(NativeEngine(kernels(), agent, print), agent, rollout, ())
    assert_close(params, act(TorchEngine(agent), agent, rollout, ())[0])
    assert torch.equal(params == IMPOSSIBLE, ~rollout.rows.obs[ACTION_MASK][:-1])
    assert torch.equal(actions, agent.policy.sample(params, noise_for(agent, rollout)))


@pytest.mark.parametrize("num_envs", [64, 130])
def test_more_environments_than_rows_of_a_block(num_envs):
    branch = BranchConfig(memory=GruConfig(width=9), hidden=(20,))
    check(make_agent(branch), VECTOR, 3, num_envs, 0.2)


@given(data=st.data())
def test_any_actor_and_critic(data):
    draw = data.draw
    widths = st.integers(1, 40)
    memory = draw(st.sampled_from(MEMORIES))
    options = {}
    if memory in RECURRENT:
        options = {"width": draw(widths), "layers": draw(st.integers(1, 2))}
    elif memory is not MlpConfig:
        options = {"frames": draw(st.integers(1, 5))}
    actor = BranchConfig(
        memory=memory(**options),
        hidden=draw(st.lists(widths, max_size=2).map(tuple)),
        head_hidden=draw(st.lists(widths, max_size=1).map(tuple)),
        residual=draw(st.booleans()) and not memory.before_encoder,
        reset=draw(st.booleans()),
        prev_action=draw(st.booleans()),
    )
    critic = BranchConfig(shared=True) if draw(st.booleans()) else actor
    obs = draw(st.sampled_from([VECTOR, MIXED]))
    agent = make_agent(actor, draw(st.sampled_from(ACTIONS)), obs, draw(st.booleans()), critic)
    check(
        agent, obs, draw(st.integers(1, 6)), draw(st.integers(1, 9)), draw(st.sampled_from([0.0, 0.3, 1.0]))
    )


def check_bits_of_learning(memory):
    """The ratio of a gradient step with unchanged weights is 1 up to the rounding of the log-probability."""
    agent = make_agent(BranchConfig(memory=memory, hidden=(20,)), normalize=False)
    batch = make_batch(agent, 9, 6)
    engine = NativeEngine(kernels(), agent, print)
    rollout = make_rollout(agent, VECTOR, 9, 6, 0.0)
    rollout.rows.obs["obs"][:-1] = batch.rows.obs["obs"]
    rollout.rows.first[:-1] = batch.rows.first
    rollout.rows.prev_action[:-1] = batch.rows.prev_action
    params, _, _ = act(engine, agent, rollout, batch.state.actor)
    values, _ = engine.value(batch.rows, batch.state)
    log_prob, _ = agent.policy.evaluate(params, batch.action)
    terms = engine.run(batch._replace(log_prob=log_prob), config(), NOW)
    assert torch.equal(terms.values, values)
    assert (terms.ratio - 1).abs().max() < 2e-6


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda m: m.name)
def test_acting_and_learning_compute_the_same_bits(memory):
    check_bits_of_learning(memory())


def check_chunks(memory):
    """Values and states of a rollout do not depend on how many steps a call has."""
    agent = make_agent(BranchConfig(memory=memory, hidden=(20,)))
    rows = make_rollout(agent, VECTOR, 11, 5, 0.2).normalized(agent)
    engine, state = NativeEngine(kernels(), agent, print), random_state(agent, 5)
    whole, end = engine.value(rows, state)
    parts = []
    for t in range(12):
        values, state = engine.value(rows.map(lambda x, t=t: x[t : t + 1]), state)
        parts.append(values)
    assert torch.equal(torch.cat(parts), whole)
    for name, x in tree.leaves(end).items():
        assert torch.equal(x, tree.leaves(state)[name])


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda m: m.name)
def test_chunks_of_any_length_have_the_same_values_and_states(memory):
    check_chunks(memory())


def test_a_stored_state_is_not_changed_by_later_steps():
    agent = make_agent(BranchConfig(memory=LstmConfig(width=8)))
    rollout = make_rollout(agent, VECTOR, 4, 3, 0.2)
    acting = NativeEngine(kernels(), agent, print).acting(
        rollout, agent.initial_state(3).actor, noise_for(agent, rollout)
    )
    states = []
    for t in range(4):
        states.append(acting.state)
        acting.step(t)
    first, last = (tree.leaves(x) for x in (states[0], acting.state))
    assert all(not x.any() for x in first.values())
    assert all(x.any() for x in last.values())


def test_new_weights_and_statistics_act_from_the_next_rollout_on():
    agent = make_agent(BranchConfig())
    rollout, engine = make_rollout(agent, VECTOR, 2, 3, 0.2), NativeEngine(kernels(), agent, print)
    before, _, _ = act(engine, agent, rollout, ())
    with torch.no_grad():
        agent.actor.head.out.bias += 1.0
    assert_close(act(engine, agent, rollout, ())[0], before + 1.0)
    agent.normalizer.update({"obs": torch.full((1, 1, 4), 9.0)}, torch.ones(1, 1, dtype=torch.bool))
    check(agent, VECTOR, 2, 3, 0.2)


def test_bits_are_equal_for_all_instruction_sets_and_optimisation_levels():
    for memory in MEMORIES:
        agent = make_agent(BranchConfig(memory=memory(), hidden=(20,)), ACTIONS[-1])
        rollout, state = make_rollout(agent, VECTOR, 5, 7, 0.2), random_state(agent, 7)
        results = set()
        for _, lib in builds():
            engine = NativeEngine(lib, agent, print)
            params, actions, after = act(engine, agent, rollout, state.actor)
            values, _ = engine.value(rollout.normalized(agent), state)
            tensors = params, actions, values, *tree.leaves(after).values()
            results.add(b"".join(x.numpy().tobytes() for x in tensors))
        assert len(results) == 1, memory
