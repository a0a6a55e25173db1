"""Action masks: the distribution among the allowed actions, with every memory, and the player."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributions

from recollect.agent.agent import build_agent
from recollect.agent.policies import IMPOSSIBLE, Categorical, masked
from recollect.common.errors import UsageError
from recollect.envs.spaces import ACTION_MASK, Extended, ExtendedObs, read_spaces
from recollect.testing import check_agent

from ..helpers import MEMORIES, branch

SIZES = (4, 2, 3)
VIEW, FOUR = spaces.Box(-1, 1, (3,)), spaces.Discrete(4)


def extended(action, obs=VIEW):
    """The specs of an environment with action masks."""
    return read_spaces(Extended({"obs": obs, ACTION_MASK: spaces.MultiBinary(1)}), action)


@st.composite
def masked_choices(draw, dtype=torch.float32, scales=(0.1, 1.0, 30.0, 1e4)):
    """Sizes of components, two sets of logits (2, 5, P), and a mask (5, P) that allows a choice of each."""
    sizes = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = draw(st.sampled_from(scales)) * random.standard_normal((2, 5, sum(sizes)))
    allowed = random.random((5, sum(sizes))) < draw(st.sampled_from((0.1, 0.5, 0.9)))
    begin = 0
    for size in sizes:
        allowed[np.arange(5), begin + random.integers(size, size=5)] = True
        begin += size
    return sizes, torch.from_numpy(logits).to(dtype), torch.from_numpy(allowed), random


@settings(max_examples=60, deadline=None)
@given(masked_choices())
def test_masked_choices_have_probability_0_and_are_never_taken(case):
    sizes, (logits, _), allowed, random = case
    policy, params = Categorical(sizes), masked(logits, allowed)
    for part, allows in zip(params.split(sizes, -1), allowed.split(sizes, -1), strict=True):
        assert (part.softmax(-1)[~allows] == 0).all()
    noise = torch.from_numpy(policy.noise(random, (200, 5))).float()
    for action in (policy.sample(params.expand(200, 5, -1), noise), policy.mode(params)[None]):
        for taken, allows in zip(action.unbind(-1), allowed.split(sizes, -1), strict=True):
            assert allows.expand(*taken.shape, -1).gather(-1, taken[..., None]).all()


@settings(max_examples=60, deadline=None)
@given(masked_choices(torch.float64, (0.1, 1.0, 10.0)))
def test_log_probability_entropy_and_kl_are_those_among_the_allowed_choices(case):
    sizes, logits, allowed, random = case
    policy, (old, new) = Categorical(sizes), masked(logits, allowed)
    action = policy.sample(new, torch.from_numpy(policy.noise(random, (5,))))
    log_prob, entropy = policy.evaluate(new, action)
    kl = policy.kl(old, new)
    for row in range(5):
        expected = np.zeros(3)
        parts = zip(*(x[row].split(sizes) for x in (logits[0], logits[1], allowed)), action[row], strict=True)
        for before, now, allows, taken in parts:
            was, is_now = (distributions.Categorical(logits=x[allows]) for x in (before, now))
            place = allows[:taken].sum()
            expected += [
                is_now.log_prob(place),
                is_now.entropy(),
                distributions.kl_divergence(was, is_now),
            ]
        got = [log_prob[row], entropy[row], kl[row]]
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@given(masked_choices())
@settings(max_examples=30, deadline=None)
def test_gradients_are_finite_and_0_for_masked_choices(case):
    sizes, (_, logits), allowed, random = case
    policy, logits = Categorical(sizes), logits.requires_grad_()
    params = masked(logits, allowed)
    action = policy.sample(params, torch.from_numpy(policy.noise(random, (5,))))
    log_prob, entropy = policy.evaluate(params, action)
    (log_prob + entropy).sum().backward()
    assert logits.grad.isfinite().all() and (logits.grad[~allowed] == 0).all()


def test_padding_of_components_is_as_impossible_as_a_masked_choice():
    # A component in which nothing is allowed occurs on tail rows only, where the action is ignored.
    policy, nothing = Categorical(SIZES), torch.full((1, sum(SIZES)), IMPOSSIBLE)
    log_prob, entropy = policy.evaluate(nothing, torch.zeros(1, 3, dtype=torch.long))
    assert log_prob.isfinite() and entropy.isfinite()


@pytest.mark.parametrize("memory", MEMORIES)
def test_acting_equals_learning_with_masks(memory):
    see = {"prev_action": True, "prev_reward": True}
    check_agent(
        build_agent(extended(spaces.MultiDiscrete(SIZES)), branch(memory, **see), branch(memory), False, 0)
    )


def test_the_mask_is_no_input():
    agent, plain = (
        build_agent(spec, branch("mlp"), branch("mlp"), True, 0)
        for spec in (extended(FOUR), read_spaces(VIEW, FOUR))
    )
    for (name, x), y in zip(agent.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(x, y), name


# Player ---------------------------------------------------------------------------------------


def player(deterministic=False, num_envs=1, action=FOUR, obs=VIEW):
    agent = build_agent(extended(action, obs), branch("gru"), branch("mlp"), False, 0)
    return agent.player(num_envs, deterministic)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_player_takes_allowed_actions_only(deterministic):
    acting, obs = player(deterministic), np.zeros(3, np.float32)
    for allowed in (0, 1, 2, 3, 3, 0):
        assert acting.act(obs, action_mask=np.arange(4) == allowed) == allowed
    # The control: without a mask all are possible.
    free = player()
    assert {int(free.act(obs, action_mask=np.ones(4, dtype=np.int8))) for _ in range(60)} == {0, 1, 2, 3}


def test_masks_of_components_and_of_several_environments():
    acting = player(action=spaces.MultiDiscrete(SIZES), num_envs=2)
    chosen = np.array([[3, 1, 0], [0, 0, 2]])
    mask = np.concatenate([np.eye(n)[chosen[:, i]] for i, n in enumerate(SIZES)], 1)
    obs = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(acting.act(obs, action_mask=mask), chosen)
    parts = tuple(np.eye(n)[chosen[:, i]] for i, n in enumerate(SIZES))
    np.testing.assert_array_equal(acting.act(obs, action_mask=parts), chosen)
    np.testing.assert_array_equal(acting.act(ExtendedObs({"obs": obs, ACTION_MASK: mask})), chosen)


def test_a_mask_in_a_dict_observation_needs_no_argument():
    acting = player(True, obs=spaces.Dict({"board": spaces.Box(-1, 1, (3,))}))
    obs = {ACTION_MASK: np.array([0, 0, 1, 0]), "board": np.zeros(3, np.float32)}
    assert acting.act(obs) == 2
    assert acting.agent.predict(obs)[0] == 2


def test_a_mask_in_a_dict_observation_may_have_a_part_for_each_component():
    acting = player(True, action=spaces.MultiDiscrete((2, 3)), obs=spaces.Dict({"board": VIEW}))
    parts, board = (np.array([0, 1]), np.array([0, 1, 0])), np.zeros(3, np.float32)
    assert acting.act({"board": board, ACTION_MASK: parts}).tolist() == [1, 1]
    assert acting.agent.predict({"board": board, ACTION_MASK: parts})[0].tolist() == [1, 1]
    both = {"board": np.stack([board] * 2), ACTION_MASK: (np.eye(2), np.eye(3)[[2, 0]])}
    assert acting.agent.player(2, True).act(both).tolist() == [[0, 2], [1, 0]]


@pytest.mark.parametrize(
    "mask",
    [
        (np.array([0, 0, 1, 0]), np.array([0, 1, 0, 0])),  # one of each environment, as Gymnasium's `call`
        np.eye(4)[[2, 1]].T,
    ],
)
def test_masks_that_would_be_mixed_up_between_environments_are_refused(mask):
    with pytest.raises(UsageError, match=r"needed are 4 entries for each of 2 environments.* array \(2, 4\)"):
        player(num_envs=2).act(np.zeros((2, 3), np.float32), action_mask=mask)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (
            (np.ones(3), np.ones(2)),
            r"shape \(3,\), \(2,\), .* a tuple with \[2, 3\] entries",
        ),
        ([np.ones(2), np.ones(3)], "the action mask has parts of different shapes"),
    ],
)
def test_components_of_a_mask_in_another_form_are_refused(mask, message):
    acting = player(action=spaces.MultiDiscrete((2, 3)))
    with pytest.raises(UsageError, match=message):
        acting.act(np.zeros(3, np.float32), action_mask=mask)


def test_predict_takes_masks_as_sb3_contrib():
    agent = player().agent
    action, state = agent.predict(np.zeros((2, 3), np.float32), action_masks=np.eye(4)[[1, 3]])
    assert action.tolist() == [1, 3]
    action, _ = agent.predict(np.zeros((2, 3), np.float32), state, np.ones(2), action_masks=np.eye(4)[[2, 0]])
    assert action.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (None, "trained with action masks: act and predict need"),
        (np.zeros(4), "allows no action at step 1 of this player"),
        (np.ones(3), r"shape \(3,\), but needed are 4 entries"),
        (np.array([0.0, -np.inf, -np.inf, 0.0]), "the action mask has -inf: only 0, 1, True and False are"),
        (np.array([0.5, 0.0, 1.0, 1.0]), "the action mask has 0.5"),
        (np.array([2, 0, 1, 1]), "the action mask has 2"),
    ],
)
def test_a_missing_empty_or_misshapen_mask_is_an_error(mask, message):
    acting, obs = player(), np.zeros(3, np.float32)
    acting.act(obs, action_mask=np.ones(4))
    with pytest.raises(UsageError, match=message):
        acting.act(obs, action_mask=mask)


def test_real_actions_have_no_mask():
    with pytest.raises(UsageError, match="an action mask needs discrete actions"):
        extended(spaces.Box(-1, 1, (2,)))
