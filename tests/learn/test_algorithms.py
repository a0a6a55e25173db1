"""The classic algorithms: what they compute, beside closed forms and PPO, and that each learns."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, Normal, kl_divergence

from recollect.agent import policies
from recollect.common.errors import UsageError
from recollect.config.assembly import assemble
from recollect.learn import a2c, ppo, reinforce, trpo
from recollect.learn.algorithms import UPDATES
from recollect.learn.settings import Decay, Plan, PPOConfig
from recollect.memory import available
from recollect.run.build import build

from ..helpers import CRITICS, T, branch, chunks_of, prepare, roll, run_quietly, sampled, small_config
from ..run.test_run import stop_and_resume
from .test_probe_envs import learn, play, recalls

OTHERS = [name for name in UPDATES if name != "ppo"]
MOVING = ["mlp", "gru", "lstm", "gpt2", "trxl"]


def ready(name="mlp", critic=None, length=4, **options):
    """A float64 learner after a rollout, in chunks of 4 rows."""
    cfg = PPOConfig(**{"num_steps": T, "num_minibatches": 1} | options)
    s = prepare(branch(name), branch(critic or name), plan=Plan(ppo=cfg, seed=5, rollouts=9))
    roll(s, length)
    return s


def weights(s):
    return [flat.data.clone() for flat in s.learner.optimizer.flats]


# One step -------------------------------------------------------------------------------------


@pytest.mark.parametrize("critic", CRITICS)
def test_a2c_is_ppo_with_one_pass_one_minibatch_and_no_clip(critic):
    actor = "gru" if critic == "shared" else critic
    once = {"update_epochs": 1, "ent_coef": 0.01, "learning_rate": 1e-2}
    one, other = (ready(actor, critic, clip=1e9, **once) for _ in range(2))
    found, wanted = (
        a2c.update(one.learner, one.rollout, one.plan, 4),
        ppo.update(other.learner, other.rollout, other.plan, 4),
    )
    for mine, its in zip(weights(one), weights(other), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-12)
    for name in ("value_loss", "entropy", "explained_variance"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-9), name


def slope(s, goal, along, step=1e-5):
    """How a function of what the actor says changes along a direction in its weights."""
    flat, ends = s.learner.optimizer.flats[0].data, []
    old = flat.clone()
    with torch.no_grad():
        for sign in (1, -1):
            flat.copy_(old + sign * step * along)
            batch = chunks_of(s)
            params = s.agent.actor(batch.rows, batch.state.actor)[0]
            ends.append(goal(s.agent.policy.evaluate(params, batch.action)[0]))
        flat.copy_(old)
    return float(ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("algorithm", ["a2c", "reinforce"])
def test_the_gradient_is_that_of_log_probabilities_times_what_they_earned(algorithm, name):
    s = ready(name, learning_rate=1e-30, max_grad_norm=0.0, normalize_advantage="off")
    cfg, reward = s.plan.ppo, s.rollout.reward
    if algorithm == "a2c":
        earned, counts = ppo.advantages(s.rollout, reward, cfg.gamma, cfg.gae_lambda), s.rollout.valid[:-1]
    else:
        earned, counts = reinforce.returns_to_go(s.rollout, reward, cfg.gamma)

    def cut(x):
        return x.unflatten(0, (-1, 4)).transpose(0, 1).flatten(1, 2)

    weight = cut(counts) / counts.sum()
    UPDATES[algorithm](s.learner, s.rollout, s.plan, 4)
    gradient = s.learner.optimizer.flats[0].grad.clone()
    along = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(0), dtype=gradient.dtype)
    wanted = slope(s, lambda log_prob: -(weight * cut(earned) * log_prob).sum(), along)
    assert float(gradient @ along) == pytest.approx(wanted, rel=1e-5)


# REINFORCE ------------------------------------------------------------------------------------


class Played:
    """What returns are computed from."""

    def __init__(self, kinds):
        """kinds (T, N): 0 goes on, 1 is terminated, 2 is truncated by the environment and 3 by a barrier; the
        row after an end is a tail row."""
        self.terminated, self.truncated, self.cut_short = kinds == 1, kinds >= 2, kinds == 3
        ended = self.terminated | self.truncated
        self.valid = torch.cat([torch.ones_like(ended[:1]), ~ended])


@st.composite
def played(draw):
    steps, envs = draw(st.integers(1, 7)), draw(st.integers(1, 2))
    kinds = torch.zeros(steps, envs, dtype=torch.long)
    for n in range(envs):
        t = 0
        while t < steps:
            kinds[t, n] = draw(st.integers(0, 3))
            t += 1 if kinds[t, n] == 0 else 2  # nobody acts in a tail row
    return Played(kinds)


@settings(max_examples=50)
@given(played(), st.floats(0.0, 1.0))
def test_returns_are_sums_to_the_end_of_an_episode_and_known_where_it_is_reached(rollout, gamma):
    ended, valid = rollout.terminated | rollout.truncated, rollout.valid[:-1]
    reward = torch.arange(1.0, 1 + valid.numel()).view(valid.shape)
    returns, known = reinforce.returns_to_go(rollout, reward, gamma)
    for t, n in torch.ones_like(valid).nonzero().tolist():
        ends = [u for u in range(t, len(valid)) if ended[u, n]]
        # An episode that a barrier cut short has no return.
        assert bool(known[t, n]) == bool(valid[t, n] and ends and not rollout.cut_short[ends[0], n])
        if known[t, n]:
            wanted = sum(gamma ** (u - t) * float(reward[u, n]) for u in range(t, ends[0] + 1))
            assert float(returns[t, n]) == pytest.approx(wanted)


def test_without_an_end_nothing_is_learned():
    s = ready(learning_rate=1e-2)
    s.rollout.terminated[:], s.rollout.truncated[:] = False, False
    before = weights(s)
    found = reinforce.update(s.learner, s.rollout, s.plan, 4)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(s), strict=True))
    assert all(math.isnan(found[name]) for name in ("policy_loss", "entropy"))  # unknown, and not 0


def test_reinforce_leaves_the_critic_alone():
    s = ready(learning_rate=1e-2, optimizer="adamw", weight_decay=0.1)
    before = weights(s)
    reinforce.update(s.learner, s.rollout, s.plan, 4)
    after = weights(s)
    assert not torch.equal(before[0], after[0]) and torch.equal(before[1], after[1])


# TRPO -----------------------------------------------------------------------------------------


def test_the_kl_of_choices_and_of_normals_is_that_of_torch():
    sizes = (2, 4)
    old, new = torch.randn(2, 7, sum(sizes), dtype=torch.float64)
    pairs = zip(old.split(sizes, -1), new.split(sizes, -1), strict=True)
    wanted = sum(kl_divergence(Categorical(logits=a), Categorical(logits=b)) for a, b in pairs)
    torch.testing.assert_close(policies.Categorical(sizes).kl(old, new), wanted)
    old, new = torch.randn(2, 7, 6, dtype=torch.float64)
    a, b = (Normal(x[:, :3], x[:, 3:].exp()) for x in (old, new))
    torch.testing.assert_close(policies.Gaussian(3).kl(old, new), kl_divergence(a, b).sum(-1))


@settings(max_examples=30)
@given(st.integers(1, trpo.CONJUGATE_STEPS), st.integers(0, 1000))
def test_conjugate_gradients_solve_what_they_are_given(size, seed):
    random = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=random, dtype=torch.float64)
    matrix = root @ root.T + torch.eye(size, dtype=torch.float64)
    wanted = torch.randn(size, generator=random, dtype=torch.float64)
    found = trpo.conjugate_gradient(lambda v: matrix @ v, matrix @ wanted)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    assert torch.equal(trpo.conjugate_gradient(lambda v: matrix @ v, 0 * wanted), 0 * wanted)


def test_the_curvature_is_the_second_derivative_of_the_kl(monkeypatch):
    monkeypatch.setattr(trpo, "PERTURBATION", 1e-4)
    s = ready("mlp")
    actor = trpo.Actor(s.learner, chunks_of(s))
    v = torch.randn(actor.flat.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kl = (actor.weight * s.agent.policy.kl(actor.before, actor._forward())).sum()
    first = torch.cat([g.flatten() for g in torch.autograd.grad(kl, actor.weights, create_graph=True)])
    second = torch.autograd.grad((first * v).sum(), actor.weights)
    wanted = torch.cat([g.flatten() for g in second]) + trpo.DAMPING * v
    torch.testing.assert_close(actor.curvature(v), wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("bound", [1e-3, 0.05])
@pytest.mark.parametrize("name", sampled(available(), "mlp", "gru", "mamba", "slstm", "gpt2", "trxl"))
def test_the_policy_moves_and_not_beyond_the_bound(name, bound):
    s = ready(name, target_kl=bound, learning_rate=1e-3)
    actor = trpo.Actor(s.learner, replace_advantage(s))
    start = float(actor.objective(actor.before))
    loss, kl = actor.step(bound)
    now = actor._forward().detach()
    assert 0 < float(kl) <= bound
    assert float((actor.weight * s.agent.policy.kl(actor.before, now)).sum()) == pytest.approx(float(kl))
    assert float(actor.objective(now)) > start == pytest.approx(-float(loss))


def replace_advantage(s):
    reward = s.learner.rewards.scaled(s.rollout.reward)
    advantage = ppo.advantages(s.rollout, reward, s.plan.ppo.gamma, s.plan.ppo.gae_lambda)
    batch = chunks_of(s)
    cut = advantage.unflatten(0, (-1, 4)).transpose(0, 1).flatten(1, 2)
    return batch._replace(advantage=cut * batch.valid)


def test_where_no_step_is_good_enough_none_is_taken(monkeypatch):
    s = ready(target_kl=1e-3)
    actor = trpo.Actor(s.learner, replace_advantage(s))
    monkeypatch.setattr(actor, "objective", lambda params: actor.params.sum() * 0)  # nothing is ever better
    _, kl = actor.step(1e-3)
    assert float(kl) == 0 and torch.equal(actor.flat, actor.old)


@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": False}, {"steps_per_minibatch": 3}, {"clip_value": 1e-3}, {"batch_size": 8}],
    ids=lambda options: next(iter(options), "usual"),
)
def test_the_critic_of_trpo_is_trained_as_that_of_ppo(options):
    common = {"update_epochs": 2, "num_minibatches": None, "batch_size": 16, "learning_rate": 1e-2}
    ends = []
    for update in (trpo.update, ppo.update):
        s = ready("gru", **common | {"vf_coef": 1.0} | options)
        update(s.learner, s.rollout, s.plan, 4)
        ends.append(weights(s)[1])
    torch.testing.assert_close(*ends, rtol=0, atol=1e-12)


def test_the_actor_of_trpo_has_no_learning_rate():
    s = ready("gru", lr_decay=Decay(final=0.0, horizon=1))
    s.learner.iteration = 1
    before = weights(s)
    metrics = trpo.update(s.learner, s.rollout, s.plan, 4)
    after = weights(s)
    assert metrics["kl"] > 0 and not torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])


def test_the_actor_of_trpo_stays_while_the_critic_alone_is_trained():
    s = ready("gru")
    before, plan = weights(s), replace(s.plan, critic_rollouts=1)
    metrics = trpo.update(s.learner, s.rollout, plan, 4)
    after = weights(s)
    assert metrics["kl"] == 0 and math.isfinite(metrics["policy_loss"]) and metrics["entropy"] > 0
    assert torch.equal(before[0], after[0]) and not torch.equal(before[1], after[1])


def test_values_are_not_clipped_in_the_one_step_of_a2c():
    free, clipped = (ready("gru", learning_rate=1e-2, clip_value=clip) for clip in (None, 1e-3))
    for s in (free, clipped):
        a2c.update(s.learner, s.rollout, s.plan, 4)
    assert all(torch.equal(a, b) for a, b in zip(weights(free), weights(clipped), strict=True))


def memory_config(algorithm, **options):
    """A run of 4 environments with a memory: 4 chunks of 16 steps per rollout."""
    config = small_config(actor=branch("gru"), algorithm=algorithm)
    return replace(config, ppo=replace(config.ppo, **options))


@pytest.mark.parametrize("sizes", [{"num_minibatches": 8}, {"num_minibatches": None, "batch_size": 15}])
@pytest.mark.parametrize("algorithm", UPDATES)
def test_sizes_of_minibatches_are_checked_where_there_are_minibatches(algorithm, sizes, tmp_path):
    config = replace(memory_config(algorithm, **sizes), rollouts=1)
    if algorithm in ("a2c", "reinforce"):
        assert run_quietly(config, tmp_path).summary["iteration"] == 1
    else:
        with pytest.raises(UsageError, match=r"4 chunks do not make 8 minibatches|batch_size is 15"):
            build(config)


@pytest.mark.parametrize("algorithm", UPDATES)
def test_chunks_divide_the_rollout_with_every_algorithm(algorithm):
    with pytest.raises(UsageError, match=r"ppo\.bptt is 7, and must divide ppo\.num_steps, 16"):
        build(memory_config(algorithm, bptt=7))


def test_trpo_asks_for_a_critic_of_its_own():
    with pytest.raises(UsageError, match="a shared critic is not supported"):
        assemble(["-e", "poc", "-m", "trpo", "--actor", "gru", "--critic", "shared"])


# All of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MOVING[1:])
@pytest.mark.parametrize("algorithm", OTHERS)
def test_a_spoiled_stored_state_is_noticed(algorithm, name):
    s = ready(name)
    s.rollout.starts[1] = tuple_map(s.rollout.starts[1])
    with pytest.raises(Exception, match="acting and learning disagree"):
        UPDATES[algorithm](s.learner, s.rollout, s.plan, 4)


def tuple_map(state):
    """A state whose numbers are others."""
    if isinstance(state, tuple):
        return tuple(map(tuple_map, state))
    return state + 1 if state.is_floating_point() else state


LEARNERS = [("reinforce", 120), ("a2c", 120), ("trpo", 30)]


@pytest.mark.parametrize(("algorithm", "rollouts"), sampled(LEARNERS, ("trpo", 30)))
def test_actions_follow_observations(algorithm, rollouts):
    learned = learn("match", rollouts, update=UPDATES[algorithm], target_kl=0.02)
    assert play(learned, 50) == pytest.approx(1.0)


@pytest.mark.parametrize(("algorithm", "rollouts"), [("reinforce", 200), ("a2c", 200), ("trpo", 60)])
def test_recall_is_learned_with_a_memory(algorithm, rollouts):
    memory = available()["gru"](width=16)
    options = {"update": UPDATES[algorithm], "target_kl": 0.02, "num_steps": 32, "until": recalls}
    assert recalls(learn("recall", rollouts, memory, **options))


@pytest.mark.parametrize("algorithm", OTHERS)
def test_resuming_equals_never_stopping(algorithm, tmp_path, monkeypatch):
    stop_and_resume(replace(small_config(), algorithm=algorithm), tmp_path, monkeypatch, 5)
