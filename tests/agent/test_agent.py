"""Agents: acting equals learning, the player, policies, statistics and initialisation."""

import copy
from dataclasses import replace
from itertools import cycle, product

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions

from recollect.agent.agent import BranchConfig, build_agent
from recollect.agent.nets import Inputs, Rows, Tanh, layers, one_hot
from recollect.agent.normalize import Normalizer, RewardScale
from recollect.agent.policies import Categorical, Gaussian
from recollect.common import rng, tree
from recollect.common.errors import DisagreementError, UsageError
from recollect.encoder.nature import NatureConfig
from recollect.envs import EnvConfig
from recollect.envs.spaces import read_spaces
from recollect.learn import ppo
from recollect.learn.learner import begin
from recollect.learn.rollout import slice_rows
from recollect.learn.settings import Coefficients, Decay, Plan, PPOConfig
from recollect.testing import check_agent

from ..helpers import (
    MEMORIES,
    REMEMBERING,
    VECTOR,
    L,
    N,
    Scripted,
    T,
    branch,
    chunks_with,
    largest,
    lively,
    prepare,
    relearn,
    roll,
    sampled,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


# Acting equals learning -----------------------------------------------------------------------

# Actor and critic have nothing in common unless they share. So each memory is the actor's beside itself,
# another one, none, and a critic that shares it; and the critic's beside itself, another one and none.
NAMES = list(MEMORIES)
PAIRS = {
    *zip(NAMES, NAMES, strict=True),
    *zip(NAMES, NAMES[1:] + NAMES[:1], strict=True),
    *((name, critic) for name in NAMES for critic in ("mlp", "shared")),
    *(("mlp", name) for name in NAMES),
}


@pytest.mark.parametrize(("actor", "critic"), sorted(PAIRS))
def test_acting_equals_learning(actor, critic):
    see = {"prev_action": True, "prev_reward": True}
    s = prepare(branch(actor, **see), branch(critic, **see), normalize=True)
    for _ in range(2):  # the second rollout begins inside episodes, with statistics learned
        roll(s)
        assert s.rollout.valid[:-1].float().mean() < 0.95, "no tail row was met"
        assert s.rollout.rows.first[1:-1].any(), "no episode opened inside"
        assert largest(relearn(s)) < 1e-12
        s.learner.update_statistics(s.rollout)


@pytest.mark.parametrize(
    "action",
    [spaces.MultiDiscrete([2, 4]), spaces.MultiBinary(3), spaces.Box(-2.0, 4.0, (2,))],
    ids=lambda space: type(space).__name__,
)
def test_acting_equals_learning_for_every_action_space(action):
    observation = spaces.Dict({"place": spaces.Discrete(3), "speed": VECTOR})
    see = {"prev_action": True, "prev_reward": True}
    for name in MEMORIES:
        both = branch(name, **see)
        s = prepare(both, both, Scripted(observation, action), normalize=True)
        roll(s)
        assert largest(relearn(s)) < 1e-12


@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_that_is_added_changes_nothing_at_first_and_agrees_later(name):
    if MEMORIES[name].before_encoder:
        with pytest.raises(UsageError, match=f"memory {name} comes before the layers"):
            branch(name, residual=True)
        return
    s = prepare(branch(name, residual=True), branch(name, residual=True))
    bare = prepare(branch("mlp"), branch("mlp"))
    roll(s)
    known = {key: x for key, x in s.agent.state_dict().items() if key in bare.agent.state_dict()}
    bare.agent.load_state_dict(known)
    torch.nn.init.zeros_(s.agent.actor.add.weight)  # as it begins; `prepare` makes all weights lively
    torch.nn.init.zeros_(s.agent.actor.add.bias)
    rows = slice_rows(s.rollout.normalized(s.agent), slice(0, L))
    state = s.agent.initial_state(N)
    assert rows.obs["obs"].std() > 0.5
    assert torch.equal(s.agent.actor(rows, state.actor)[0], bare.agent.actor(rows, ())[0])
    lively(s.agent)
    roll(s)
    assert largest(relearn(s)) < 1e-12


@pytest.mark.parametrize("name", [name for name in MEMORIES if not MEMORIES[name].before_encoder])
def test_a_step_of_the_weights_moves_what_is_added_no_further_than_one_of_them(name):
    """Else a wide memory throws values about before it says anything."""
    s = prepare(branch(name, residual=True), branch("mlp"))
    actor, said = s.agent.actor, []
    rows = slice_rows(s.rollout.normalized(s.agent), slice(0, L))
    actor.memory.register_forward_hook(lambda module, inputs, out: said.append(out[0]))
    seen = []
    for weight in (0.0, 0.3):
        torch.nn.init.constant_(actor.add.weight, weight)
        seen.append(actor.features(rows, s.agent.initial_state(N).actor)[0])
    assert 0 < (seen[1] - seen[0]).abs().max() <= 0.3 * said[0].abs().max()


@pytest.mark.parametrize(("actor", "critic"), sampled(sorted(PAIRS), *zip(NAMES, NAMES, strict=True)))
def test_an_update_measures_the_agreement(actor, critic):
    plan = Plan(ppo=PPOConfig(num_steps=T, num_minibatches=2), seed=5, rollouts=9)
    s = prepare(branch(actor), branch(critic), plan=plan)
    roll(s)
    before = [p.detach().clone() for p in s.agent.parameters()]
    metrics = ppo.update(s.learner, s.rollout, s.plan, L)
    assert metrics["ratio_error"] < 1e-12
    assert metrics["value_error"] < 1e-12
    moved = [not torch.equal(a, b) for a, b in zip(before, s.agent.parameters(), strict=True)]
    assert all(moved), "some weights did not learn"


def spoiled(x):
    """Numbers moved apart, because what is normalised does not notice if all move alike."""
    waves = 2 * torch.arange(x.numel()).sin().view_as(x)
    return x + waves if x.is_floating_point() else x + 2


@pytest.mark.parametrize("name", REMEMBERING)
@pytest.mark.parametrize("side", ["actor", "critic"])
def test_a_spoiled_stored_state_is_noticed(name, side):
    """The control of the test above: the check at run time does fire."""
    s = prepare(branch(name), branch(name))
    roll(s)
    stored = s.rollout.starts if side == "actor" else s.rollout.critic_starts
    error = "ratio_error" if side == "actor" else "value_error"
    stored[1] = tree.map_leaves(spoiled, stored[1])
    before = copy.deepcopy(s.agent.state_dict())
    with pytest.raises(DisagreementError, match=error):
        ppo.update(s.learner, s.rollout, s.plan, L)
    after = s.agent.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before), "it learned all the same"


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", MEMORIES)
def test_two_rollouts_equal_one_pass_where_nothing_is_learned(name, shared):
    still = PPOConfig(num_steps=T, num_minibatches=1, lr_decay=Decay(final=0.0, horizon=1))
    critic = branch("shared" if shared else name)
    s = prepare(branch(name), critic, plan=Plan(ppo=still, seed=5, rollouts=9))
    s.learner.iteration = 1  # where the learning rate has come to 0
    parts, values = [], []
    for _ in range(2):
        roll(s)
        parts.append(tree.map_leaves(lambda x: x[:T].clone(), tuple(s.rollout.rows)))
        values.append(s.rollout.value.clone())
        ppo.update(s.learner, s.rollout, s.plan, L)
        s.learner.update_statistics(s.rollout)
    whole = Rows(*(join(a, b) for a, b in zip(*parts, strict=True)))
    with torch.no_grad():
        once, _ = s.agent.value(whole, s.agent.initial_state(N))
    torch.testing.assert_close(torch.cat([values[0][:T], values[1][:T]]), once, rtol=0, atol=1e-12)
    # Row T is row 0 of the next rollout.
    torch.testing.assert_close(values[0][T], values[1][0], rtol=0, atol=1e-12)


def join(a, b):
    if isinstance(a, dict):
        return {key: torch.cat([a[key], b[key]]) for key in a}
    return torch.cat([a, b])


def test_the_critic_does_not_see_what_the_actor_does_next():
    """V[t] may depend on the action of row t-1, as an input, and on none after it."""
    s = prepare(branch("lstm"), branch("gru", prev_action=True, prev_reward=True))
    roll(s)
    before = s.rollout.value.clone()
    s.rollout.action.zero_()
    s.rollout.log_prob.zero_()
    s.rollout.reward.zero_()
    begun = s.learner.state._replace(critic=s.rollout.critic_starts[0])
    s.learner.state, s.rollout.critic_starts = begun, []
    ppo.value(s.learner, s.rollout, L)
    assert torch.equal(s.rollout.value, before)
    s.rollout.rows.prev_action[5] = 2 - s.rollout.rows.prev_action[5]
    s.learner.state, s.rollout.critic_starts = begun, []
    ppo.value(s.learner, s.rollout, L)
    changed = (s.rollout.value != before).any(1)
    assert changed[5] and not changed[:5].any()


def test_check_agent_accepts_every_memory_and_space():
    observation = spaces.Dict({"place": spaces.Discrete(3), "speed": VECTOR})
    for (name, shared), action in zip(product(MEMORIES, (False, True)), cycle([spaces.Discrete(2), VECTOR])):
        actor = branch(name, prev_action=True, prev_reward=True)
        critic = branch("shared") if shared else actor
        agent = build_agent(read_spaces(observation, action), actor, critic, True, seed=0)
        before = copy.deepcopy(agent.state_dict())
        check_agent(agent, length=5)
        after = agent.state_dict()
        assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("side", ["actor", "critic"])
def test_check_agent_rejects_layers_that_mix_rows(side):
    class CenterInTime(torch.nn.Module):
        def forward(self, x):
            return x - x.mean(0)

    agent = lively(prepare().agent)
    getattr(agent, side).encoder.append(CenterInTime())
    with pytest.raises(AssertionError, match=f"the outputs of the {side} step by step differ"):
        check_agent(agent)


# One memory for both ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", MEMORIES)
def test_a_shared_critic_remembers_nothing_of_its_own(name):
    s = prepare(branch(name), branch("shared"))
    assert s.agent.initial_state(2).critic == () == s.learner.state.critic
    roll(s)
    assert s.learner.state.critic == () and s.rollout.critic_starts == [()] * (T // L)
    found = dict(s.agent.critic.named_parameters())
    assert found.keys() == {"head.out.weight", "head.out.bias"}


def first_gradients(critic, vf_coef, monkeypatch):
    """Of actor and critic, at the first step of an update."""
    cfg = PPOConfig(num_steps=T, num_minibatches=1, update_epochs=1, vf_coef=vf_coef)
    s = prepare(branch("gru"), critic, plan=Plan(ppo=cfg, seed=5, rollouts=9))
    roll(s)
    optimizer, found = s.learner.optimizer, []
    monkeypatch.setattr(optimizer, "step", lambda _: found.extend(f.grad.clone() for f in optimizer.flats))
    ppo.update(s.learner, s.rollout, s.plan, L)
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_both_losses_teach_what_both_use(shared, monkeypatch):
    """The loss of values has the weight vf_coef in the actor's gradient if they share, else none."""
    critic = branch("shared" if shared else "gru")
    none, once, twice = (first_gradients(critic, weight, monkeypatch) for weight in (0.0, 1.0, 2.0))
    assert none[0].any() and not none[1].any() and once[1].any()
    for group in range(2):
        double = none[group] + 2 * (once[group] - none[group])
        torch.testing.assert_close(twice[group], double, rtol=0, atol=1e-12)
    assert torch.equal(none[0], once[0]) == (not shared)


def test_what_both_use_goes_at_the_actors_rate():
    """The critic's own rate is for its head alone."""
    cfg = PPOConfig(num_steps=T, num_minibatches=1, critic_learning_rate=1e-12)
    s = prepare(branch("gru"), branch("shared"), plan=Plan(ppo=cfg, seed=5, rollouts=9))
    roll(s)
    before = {name: p.detach().clone() for name, p in s.agent.named_parameters()}
    ppo.update(s.learner, s.rollout, s.plan, L)
    away = {name: float((p - before[name]).detach().abs().max()) for name, p in s.agent.named_parameters()}
    assert all((x > 1e-6) == name.startswith("actor.") for name, x in away.items())


# Memories that hear of no episode ---------------------------------------------------------------


@pytest.mark.parametrize("critic", sampled(["gru", "stack", "shared"], "gru", "shared"))
@pytest.mark.parametrize("actor", REMEMBERING)
def test_acting_equals_learning_without_resets(actor, critic):
    see = {"reset": False, "prev_action": True, "prev_reward": True}
    s = prepare(branch(actor, **see), branch(critic, **see), normalize=True)
    for _ in range(2):
        roll(s)
        assert largest(relearn(s)) < 1e-12
        s.learner.update_statistics(s.rollout)


@pytest.mark.parametrize("name", REMEMBERING)
def test_a_memory_without_resets_goes_over_the_ends_of_episodes(name):
    s = prepare(branch(name, reset=False), branch(name, reset=False))
    with_resets = prepare(branch(name), branch(name)).agent
    with_resets.load_state_dict(s.agent.state_dict())
    roll(s)
    rows, start = s.rollout.rows, s.agent.initial_state(N)
    one_episode = rows._replace(first=torch.zeros_like(rows.first))
    for side in ("actor", "critic"):
        state = getattr(start, side)
        said, after = getattr(s.agent, side)(rows, state)
        wanted, end = getattr(with_resets, side)(one_episode, state)
        cleared, _ = getattr(with_resets, side)(rows, state)
        assert torch.equal(said, wanted) and not torch.equal(said, cleared)
        ends = zip(tree.leaves(after).values(), tree.leaves(end).values(), strict=True)
        assert all(torch.equal(a, b) for a, b in ends)


@pytest.mark.parametrize("name", REMEMBERING)
def test_without_resets_nothing_was_done_before_an_episode_either(name):
    s = prepare(branch(name, reset=False, prev_action=True))
    roll(s)
    rows, first = s.rollout.rows, s.rollout.rows.first
    assert first[3:].any() and not first[3:].all()
    state = s.agent.initial_state(N).actor
    said = s.agent.actor(rows, state)[0]
    for where, changes in ((first, False), (~first, True)):
        other = torch.where(where[..., None], 2 - rows.prev_action, rows.prev_action)
        again = s.agent.actor(rows._replace(prev_action=other), state)[0]
        assert torch.equal(said, again) != changes


def test_without_resets_a_run_and_a_barrier_begin_from_nothing():
    cfg = PPOConfig(num_steps=T, num_minibatches=1)
    plan = Plan(ppo=cfg, seed=5, rollouts=4, barrier=2)
    s = prepare(branch("gru", reset=False), branch("lstm", reset=False), plan=plan)
    nothing = [0.0] * 3  # leaves
    remembered = [[float(x.abs().max()) for x in tree.leaves(s.learner.state).values()]]
    for _ in ppo.train(s.envs, s.learner, plan):
        assert s.learner.row.first.all() == (s.learner.iteration % 2 == 0)
        remembered.append([float(x.abs().max()) for x in tree.leaves(s.learner.state).values()])
    assert remembered[0] == remembered[2] == remembered[4] == nothing
    assert all(x > 0.01 for row in (remembered[1], remembered[3]) for x in row)


@pytest.mark.parametrize("name", REMEMBERING)
def test_without_resets_a_player_forgets_only_when_it_is_reset(name):
    # Weak weights, because what is said is clipped.
    agent = prepare(branch(name, reset=False), env=Scripted(action=VECTOR), scale=0.15).agent
    past, now = np.random.default_rng(0).standard_normal((2, N, 4)).astype(np.float32)
    player = agent.player(N)
    fresh = player.act(now)
    player.reset()
    player.act(past)
    assert not np.isclose(player.act(now, first=np.ones(N, dtype=bool)), fresh).all(1).any()
    player.reset()
    np.testing.assert_array_equal(player.act(now), fresh)


# Player ---------------------------------------------------------------------------------------


@pytest.fixture
def silent(monkeypatch):
    """Policies draw no noise: what they sample is the likeliest action."""
    for policy in (Categorical, Gaussian):
        monkeypatch.setattr(policy, "noise", all_zero(policy.noise))


def all_zero(noise):
    return lambda *arguments: np.zeros_like(noise(*arguments))


@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("action", [spaces.Discrete(3, start=5), spaces.Box(-2.0, 4.0, (2,))])
def test_the_player_does_what_collecting_does(silent, name, action):
    see = {"prev_action": True, "prev_reward": True}
    s = prepare(branch(name, **see), env=Scripted(action=action), normalize=True)
    for _ in range(2):  # in the second rollout there are statistics of observations
        s.learner.row, s.learner.state = (
            begin(s.envs, s.agent, s.plan).row,
            s.agent.initial_state(N),
        )
        roll(s)
        rows, player = s.rollout.rows, s.agent.player(N)
        for t in range(T):
            reward = s.rollout.reward[t - 1].numpy() if t else None
            first = rows.first[t].numpy() if t else None
            acted = player.act(rows.obs["obs"][t].numpy(), reward, first)
            collected = s.envs.action_spec.to_env(s.rollout.action[t].numpy())
            live = s.rollout.valid[t].numpy()
            np.testing.assert_allclose(acted[live], collected[live], rtol=1e-6)
        s.learner.update_statistics(s.rollout)


@pytest.mark.parametrize("name", MEMORIES)
def test_a_player_clears_the_rows_it_is_told_to(name):
    agent = prepare(branch(name), env=Scripted(action=VECTOR)).agent
    past, now = np.random.default_rng(0).standard_normal((2, N, 4)).astype(np.float32)
    fresh = agent.player(N).act(now)
    player = agent.player(N)
    player.act(past)
    some = player.act(now, first=np.array([True, False, True]))
    np.testing.assert_allclose(some[[0, 2]], fresh[[0, 2]], rtol=1e-6)
    assert (name in REMEMBERING) == (not np.allclose(some[1], fresh[1]))
    player.act(past)
    player.reset()
    np.testing.assert_allclose(player.act(now), fresh, rtol=1e-6)


def test_a_player_of_one_takes_and_gives_single_ones():
    agent = prepare(env=Scripted(action=spaces.Discrete(3, start=5))).agent
    obs = np.arange(4, dtype=np.float32)
    single, batched = agent.player().act(obs), agent.player().act(obs[None])
    assert np.shape(single) == () and batched.shape == (1,) and single == batched[0]
    assert 5 <= single < 8
    with pytest.raises(UsageError, match="one observation for a player of 2"):
        agent.player(2).act(obs)


def test_a_player_that_samples_is_repeatable_and_varied():
    agent = prepare().agent
    obs = np.zeros((64, 4), dtype=np.float32)

    def played(seed):
        return agent.player(64, deterministic=False, seed=seed).act(obs)

    assert np.array_equal(played(1), played(1))
    assert not np.array_equal(played(1), played(2))
    assert len(set(played(1))) > 1


# Policies -------------------------------------------------------------------------------------


def parted(params, sizes):
    return [distributions.Categorical(logits=x) for x in params.split(sizes, -1)]


@pytest.mark.parametrize("sizes", [(4,), (3, 3), (2, 5, 3)])
def test_categorical_against_torch(sizes):
    policy, params = Categorical(sizes), 2 * torch.randn(7, 2, sum(sizes), dtype=torch.float64)
    ours = policy.sample(params, torch.from_numpy(policy.noise(np.random.default_rng(0), (7, 2))))
    parts = parted(params, sizes)
    log_prob = sum(part.log_prob(ours[..., k]) for k, part in enumerate(parts))
    torch.testing.assert_close(policy.evaluate(params, ours)[0], log_prob)
    torch.testing.assert_close(policy.evaluate(params, ours)[1], sum(part.entropy() for part in parts))
    mode = torch.stack([part.probs.argmax(-1) for part in parts], -1)
    assert torch.equal(policy.mode(params), mode)
    assert policy.num_params == sum(sizes) and policy.width == len(sizes)


def test_gaussian_against_torch():
    policy, params = Gaussian(3), torch.randn(7, 2, 6, dtype=torch.float64)
    theirs = distributions.Normal(params[..., :3], params[..., 3:].exp())
    action = torch.randn(7, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(policy.evaluate(params, action)[0], theirs.log_prob(action).sum(-1))
    torch.testing.assert_close(policy.evaluate(params, action)[1], theirs.entropy().sum(-1))
    assert torch.equal(policy.mode(params), params[..., :3])


def test_sampling_frequencies_of_a_categorical():
    sizes, draws = (2, 5, 3), 40_000
    policy, params = Categorical(sizes), torch.randn(10, dtype=torch.float64)
    noise = torch.from_numpy(policy.noise(np.random.default_rng(1), (draws,)))
    drawn = policy.sample(params.expand(draws, -1), noise)
    for k, part in enumerate(parted(params, sizes)):
        found = torch.bincount(drawn[:, k], minlength=sizes[k]) / draws
        deviation = (part.probs * (1 - part.probs) / draws).sqrt()
        assert ((found - part.probs).abs() < 4.5 * deviation).all()
    pairs = np.corrcoef(drawn.numpy().T)[np.triu_indices(3, 1)]
    assert np.abs(pairs).max() < 4.5 / draws**0.5, "components are not independent"


def test_sampling_of_a_gaussian():
    draws = 40_000
    policy, params = Gaussian(2), torch.tensor([1.0, -2.0, 0.5, -1.0], dtype=torch.float64)
    noise = torch.from_numpy(policy.noise(np.random.default_rng(1), (draws,)))
    drawn = policy.sample(params.expand(draws, -1), noise)
    deviation = params[2:].exp()
    assert ((drawn.mean(0) - params[:2]).abs() < 4.5 * deviation / draws**0.5).all()
    assert ((drawn.std(0) / deviation - 1).abs() < 4.5 / (2 * draws) ** 0.5).all()


# Layers and inputs ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_is_the_hyperbolic_tangent(dtype):
    x = torch.linspace(-12, 12, 5001, dtype=dtype).reshape(3, -1).T  # not contiguous
    torch.testing.assert_close(Tanh()(x), torch.tanh(x))
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    Tanh()(ours).square().sum().backward()
    torch.tanh(theirs).square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_gradient_of_tanh_by_differences():
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Tanh(), x)


def test_one_hot():
    x = torch.tensor([[[1, 0], [0, 2]]])
    hot = one_hot(x, (2, 3), torch.float64)
    assert hot.tolist() == [[[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]]
    assert hot.dtype == torch.float64


def rows(obs, action, reward, first):
    reward = torch.tensor([reward], dtype=torch.float64)
    return Rows(obs, torch.tensor([first]), torch.tensor([action]), reward)


def test_inputs_of_choices_and_numbers_side_by_side():
    parts = {"bits": spaces.MultiBinary(2), "place": spaces.Discrete(3), "speed": VECTOR}
    seen = read_spaces(spaces.Dict(parts), spaces.MultiDiscrete([2, 3]))
    inputs = Inputs(*seen, prev_action=True, prev_reward=True, encoder=NatureConfig())
    obs = {
        "obs.bits": torch.tensor([[[0, 1], [1, 1]]], dtype=torch.int8),
        "obs.place": torch.tensor([[[2], [0]]]),
        "obs.speed": torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]]]).double(),
    }
    features = inputs(rows(obs, [[1, 2], [0, 0]], [30.0, 0.0], [False, True]))
    first = [0, 1, 0, 0, 1, 0.1, 0.2, 0.3, 0.4, 0, 1, 0, 0, 1, 10]
    second = [1, 1, 1, 0, 0, 0.5, 0.6, 0.7, 0.8, 0, 0, 0, 0, 0, 0]  # no action was before it
    assert inputs.out_dim == 15 and features.dtype == torch.float64
    np.testing.assert_allclose(features[0].numpy(), [first, second], rtol=1e-6)


def test_inputs_of_a_box_action_and_of_nothing_before():
    seen = read_spaces(VECTOR, spaces.Box(-1.0, 1.0, (2,)))
    obs = {"obs": torch.ones(1, 1, 4, dtype=torch.float64)}
    row = rows(obs, [[0.25, -0.5]], [-30.0], [False])
    both = Inputs(*seen, prev_action=True, prev_reward=True, encoder=NatureConfig())
    assert both(row)[0, 0].tolist() == [1, 1, 1, 1, 0.25, -0.5, -10]
    neither = Inputs(*seen, prev_action=False, prev_reward=False, encoder=NatureConfig())
    assert neither(row)[0, 0].tolist() == [1, 1, 1, 1] and neither.out_dim == 4


def test_inputs_of_a_box_without_axes():
    seen = read_spaces(spaces.Box(-1.0, 1.0, ()), spaces.Discrete(2))
    inputs = Inputs(*seen, prev_action=False, prev_reward=False, encoder=NatureConfig())
    row = rows({"obs": torch.tensor([[0.5, 0.25]]).double()}, [[0], [0]], [0.0, 0.0], [True, True])
    assert inputs.out_dim == 1
    assert inputs(row).tolist() == [[[0.5], [0.25]]]


# Statistics -----------------------------------------------------------------------------------


def normalizer(active=True):
    parts = {"place": spaces.Discrete(3), "speed": VECTOR}
    return Normalizer(read_spaces(spaces.Dict(parts), spaces.Discrete(2))[0], active)


def observed(random, length):
    speed = torch.from_numpy(random.normal([1, 2, 30, -4], [1, 5, 0.1, 2], (length, N, 4)))
    return {"obs.place": torch.zeros(length, N, 1, dtype=torch.int64), "obs.speed": speed}


def test_normalizer_against_numpy():
    random, subject, taken = np.random.default_rng(0), normalizer(), []
    for length in (1, 5, 40):
        obs, valid = observed(random, length), torch.from_numpy(random.random((length, N)) < 0.7)
        subject.update(obs, valid)
        taken.append(obs["obs.speed"][valid].numpy())
        x, raw = np.concatenate(taken), observed(random, 4)
        kept = raw["obs.speed"].clone()
        wanted = (kept.numpy() - x.mean(0)) / np.sqrt(x.var(0) + 1e-8)
        seen = subject(raw)
        np.testing.assert_allclose(seen["obs.speed"], wanted.clip(-10, 10), rtol=1e-9)
        assert torch.equal(raw["obs.speed"], kept), "raw rows were changed"
        assert seen["obs.place"] is raw["obs.place"]
    assert int(subject.count) == len(x)


def test_normalizer_changes_nothing_before_it_learned_or_when_off():
    obs = observed(np.random.default_rng(0), 4)
    assert normalizer()(obs) is obs
    off = normalizer(active=False)
    off.update(obs, torch.ones(4, N, dtype=torch.bool))
    assert off(obs) is obs
    none = normalizer()
    none.update(obs, torch.zeros(4, N, dtype=torch.bool))
    assert none(obs) is obs


def test_normalizer_takes_loaded_statistics():
    random, one, other = np.random.default_rng(0), normalizer(), normalizer()
    valid = torch.ones(8, N, dtype=torch.bool)
    one.update(observed(random, 8), valid)
    other.update(observed(random, 8), valid)
    obs = observed(random, 4)
    one(obs)
    one.load_state_dict(other.state_dict())
    assert torch.equal(one(obs)["obs.speed"], other(obs)["obs.speed"])


def test_normalizer_is_constant_while_an_iteration_runs():
    s = prepare(normalize=True)
    roll(s)
    s.learner.update_statistics(s.rollout)
    before = copy.deepcopy(s.agent.normalizer.state_dict())
    roll(s)
    ppo.update(s.learner, s.rollout, s.plan, L)
    after = s.agent.normalizer.state_dict()
    assert before["count"] > 0 and all(torch.equal(before[k], after[k]) for k in before)
    s.learner.update_statistics(s.rollout)
    assert s.agent.normalizer.count == before["count"] + s.rollout.valid[:-1].sum()


def slow_deviation(rollouts, gamma):
    """The deviation of all discounted returns so far, one environment and row at a time."""
    found = []
    for n in range(N):
        running = 0.0
        for reward, valid, ended in rollouts:
            for t in range(len(reward)):
                if not valid[t, n]:
                    continue
                running = gamma * running + float(reward[t, n])
                found.append(running)
                if ended[t, n]:
                    running = 0.0
    return np.std(found)


def test_reward_scale_against_a_slow_reference():
    random, scale, taken = np.random.default_rng(0), RewardScale(N, 0.9, True), []
    assert scale.divisor == 1
    for _ in range(3):
        ended = random.random((T, N)) < 0.2
        ended[0] = False
        ended[1:] &= ~ended[:-1]
        valid = np.ones((T, N), dtype=bool)
        valid[1:] = ~ended[:-1]
        taken.append((random.normal(3, 2, (T, N)), valid, ended))
        reward, *flags = map(torch.from_numpy, taken[-1])
        scale.update(reward, *flags)
        assert scale.divisor == pytest.approx(slow_deviation(taken, 0.9), rel=1e-7)
    wanted = (reward / scale.divisor).clamp(-10, 10)
    assert torch.equal(scale.scaled(reward), wanted)
    assert scale.scaled(torch.tensor([1e6])).item() == 10
    loaded = RewardScale(N, 0.9, True)
    loaded.load(scale.tensors())
    assert loaded.divisor == scale.divisor and torch.equal(loaded.running, scale.running)


def test_normalised_rewards_are_clipped_also_before_there_is_a_divisor():
    scale, reward = RewardScale(1, 0.9, True), torch.tensor([[1e5], [-3e4], [0.5]])
    assert scale.scaled(reward).flatten().tolist() == [10.0, -10.0, 0.5]
    scale.update(torch.zeros(3, 1), reward != 0, reward == 0)  # nothing has varied so far
    assert scale.divisor == 1 and scale.scaled(reward).flatten().tolist() == [10.0, -10.0, 0.5]


def test_a_constant_reward_scale_multiplies_and_excludes_the_learned_one():
    reward = torch.tensor([[2.0, -300.0]])
    scaled = RewardScale(2, 0.9, False, scale=0.01).scaled(reward)
    assert scaled[0].tolist() == pytest.approx([0.02, -3.0])
    assert RewardScale(2, 0.9, False, scale=0.01).divisor == pytest.approx(100)
    with pytest.raises(UsageError, match="normalize-reward False"):
        EnvConfig(reward_scale=0.01, normalize_reward=True)


def test_reward_scale_off_changes_nothing():
    scale, reward = RewardScale(N, 0.9, False), torch.full((T, N), 100.0)
    scale.update(reward, reward > 0, reward < 0)
    assert scale.divisor == 1 and scale.scaled(reward) is reward


# Initialisation -------------------------------------------------------------------------------


def assert_orthogonal(weight, gain):
    small = weight if len(weight) <= weight.shape[1] else weight.T
    wanted = gain**2 * torch.eye(len(small))
    torch.testing.assert_close(small @ small.T, wanted, rtol=0, atol=1e-4 * gain**2)


def test_layers_begin_orthogonal_without_bias():
    stacked, width = layers(5, (16, 8), "tanh")
    linear = [part for part in stacked if isinstance(part, torch.nn.Linear)]
    assert width == 8 and [part.out_features for part in linear] == [16, 8]
    for part in linear:
        assert_orthogonal(part.weight.detach(), 2**0.5)
        assert not part.bias.any()


@pytest.mark.parametrize("action", [spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,))])
def test_heads_begin_nearly_uniform_and_values_at_full_size(action):
    seen = read_spaces(VECTOR, action)
    agent = build_agent(seen, BranchConfig(log_std=-0.5), BranchConfig(), False, 0)
    assert_orthogonal(agent.actor.head.out.weight.detach(), 0.01)
    assert_orthogonal(agent.critic.head.out.weight.detach(), 1.0)
    stds = dict(agent.actor.head.named_parameters()).get("log_std", torch.tensor([-0.5]))
    assert (stds == -0.5).all()


@pytest.mark.parametrize("shared", [False, True])
def test_layers_may_begin_as_torch_has_them(shared):
    plain = BranchConfig(hidden=(32,), head_hidden=(16,))
    cfg = replace(plain, init="torch")
    agent = build_agent(read_spaces(VECTOR, spaces.Discrete(3)), cfg, replace(cfg, shared=shared), False, 0)
    for part in agent.modules():
        if isinstance(part, torch.nn.Linear):
            bound = part.in_features**-0.5
            for weight in (part.weight, part.bias):
                assert 0 < weight.abs().max() <= bound
            assert part.weight.abs().max() > 0.5 * bound


def test_the_last_layer_of_an_encoder_may_be_linear():
    stacked, width = layers(5, (16, 8), "relu", linear_output=True)
    assert width == 8 and [type(part).__name__ for part in stacked] == ["Linear", "ReLU", "Linear"]
    assert (stacked(torch.randn(50, 5)) < 0).any()
    assert layers(5, (), "relu", linear_output=True)[1] == 5


def test_an_encoder_that_is_not_trained_keeps_its_weights():
    cfg = BranchConfig(hidden=(6,), head_hidden=(5,), trained_encoder=False)
    s = prepare(cfg, cfg)
    before = copy.deepcopy(s.agent.state_dict())
    roll(s)
    ppo.update(s.learner, s.rollout, s.plan, L)
    still = {name for name, x in s.agent.named_parameters() if torch.equal(x, before[name])}
    assert still == {name for name in before if ".encoder." in name}
    assert len(still) == 4


@pytest.mark.parametrize(
    ("action", "shared"),
    [
        (spaces.Discrete(3), False),
        (spaces.Box(-1.0, 1.0, (2,)), True),
        pytest.param(spaces.Discrete(3), True, marks=pytest.mark.thorough),
        pytest.param(spaces.Box(-1.0, 1.0, (2,)), False, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("name", MEMORIES)
def test_every_parameter_gets_a_gradient_and_is_in_the_optimiser(name, action, shared):
    actor = replace(branch(name, prev_action=True, prev_reward=True), head_hidden=(5,))
    s = prepare(actor, replace(actor, shared=shared), Scripted(action=action))
    roll(s)
    advantage = torch.randn(T, N, dtype=torch.float64)
    batch = chunks_with(s.rollout, advantage)
    now = Coefficients(clip=0.2, entropy=0.1, rates=(0.0, 0.0))
    s.learner.optimizer.zero_grad()
    ppo.loss(s.agent, batch, s.plan.ppo, now).total.backward()
    silent = [k for k, p in s.agent.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent
    flats = s.learner.optimizer.flats
    with torch.no_grad():
        for flat in flats:
            flat.fill_(0.125)
    assert all((p == 0.125).all() for p in s.agent.parameters()), "one is not in the optimiser"
    assert sum(map(len, flats)) == sum(p.numel() for p in s.agent.parameters()), "one is in it twice"


def test_first_weights_are_a_function_of_the_seed_alone():
    seen = read_spaces(VECTOR, spaces.Discrete(3))
    for name in MEMORIES:
        torch.manual_seed(12)
        before = torch.random.get_rng_state()
        one = build_agent(seen, branch(name), branch(name), False, seed=1).state_dict()
        assert torch.equal(torch.random.get_rng_state(), before)
        torch.manual_seed(13)
        again = build_agent(seen, branch(name), branch(name), False, seed=1).state_dict()
        other = build_agent(seen, branch(name), branch(name), False, seed=2).state_dict()
        assert all(torch.equal(one[key], again[key]) for key in one)
        assert any(not torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("width", [64, 256])
def test_first_weights_do_not_follow_the_number_of_threads(width):
    seen, wide = read_spaces(VECTOR, spaces.Discrete(3)), BranchConfig(hidden=(width, width))
    weights = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        weights.append(build_agent(seen, wide, wide, False, seed=1).state_dict())
        assert torch.get_num_threads() == threads
    assert all(torch.equal(x, weights[1][key]) for key, x in weights[0].items())


def test_acting_noise_has_its_own_stream():
    purposes = [rng.generator(1, purpose).random() for purpose in rng.Purpose]
    assert len(set(purposes)) == len(purposes)
