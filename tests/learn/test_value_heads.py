"""Value heads: known values and gradients, and critics that learn what a plain output cannot."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import recollect
from recollect.agent.agent import BranchConfig, build_agent
from recollect.agent.values import (
    BINS,
    DECAY,
    HEADS,
    LARGEST,
    SPREAD,
    WIDTH,
    CriticOutput,
    HistogramHead,
    PopArtHead,
    ScalarHead,
    SymlogHead,
    TargetStatistics,
    symexp,
    symlog,
    value_loss,
)
from recollect.common.errors import DisagreementError, UsageError
from recollect.config.assembly import assemble
from recollect.config.config import InitConfig
from recollect.config.data import config_hash
from recollect.envs import EnvConfig, make
from recollect.learn import a2c, ppo, trpo
from recollect.learn.learner import begin
from recollect.learn.maths import agreement
from recollect.learn.minibatches import Minibatches
from recollect.learn.optim import FlatAdam
from recollect.learn.settings import Decay, Plan, PPOConfig
from recollect.memory.rnn import GruConfig
from recollect.native.nodes import UnsupportedError
from recollect.native.program import coverage
from recollect.probing import probe
from recollect.run import api
from recollect.run.build import build
from recollect.run.display import SilentDisplay
from recollect.watching.episodes import watch
from recollect.watching.internals import compute_internals

from ..helpers import (
    MEMORIES,
    L,
    StopAt,
    assert_same_end,
    branch,
    largest,
    metrics_of,
    prepare,
    relearn,
    roll,
    run_quietly,
    sampled,
    small_config,
)
from ..native.cases import check, config, make_agent, make_batch
from .test_probe_envs import values

NEW = [kind for kind in HEADS if kind != "scalar"]


def histograms():
    return HistogramHead(3).double()


# Known numbers --------------------------------------------------------------------------------


def test_symlog_has_known_values_and_an_inverse():
    x = torch.tensor([0.0, math.e - 1, 1 - math.e**2, 1e-3, 999.0], dtype=torch.float64)
    known = torch.tensor([0.0, 1.0, -2.0, math.log1p(1e-3), math.log(1000.0)], dtype=torch.float64)
    torch.testing.assert_close(symlog(x), known, rtol=1e-12, atol=0)
    x = torch.cat([x, torch.logspace(-6, 8, 200, dtype=torch.float64)])
    torch.testing.assert_close(symexp(symlog(torch.cat([x, -x]))), torch.cat([x, -x]), rtol=1e-12, atol=0)


def test_a_target_becomes_a_histogram_whose_mean_it_is():
    head = histograms()
    target = symexp(torch.linspace(-19.0, 19.0, 1001, dtype=torch.float64))
    p = head.encode(target)
    assert p.shape == (1001, BINS) and bool((p >= 0).all())
    torch.testing.assert_close(p.sum(-1), torch.ones(1001, dtype=torch.float64), rtol=0, atol=1e-12)
    # 1e-6 beside it, because bins have the rounding of single precision.
    assert float(((p * head.centers).sum(-1) - symlog(target)).abs().max()) < 5e-6 * WIDTH + 1e-6
    torch.testing.assert_close(head.decode(p.log()), target, rtol=1e-5, atol=1e-5)


def test_a_histogram_is_that_of_a_normal_distribution():
    x, sigma = 2.7, SPREAD * WIDTH
    mean = math.log1p(x)
    expected = [
        0.5
        * (
            math.erf((b + WIDTH / 2 - mean) / sigma / 2**0.5)
            - math.erf((b - WIDTH / 2 - mean) / sigma / 2**0.5)
        )
        for b in np.linspace(-LARGEST, LARGEST, BINS)
    ]
    p = histograms().encode(torch.tensor(x, dtype=torch.float64))
    torch.testing.assert_close(p, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-5)


def test_values_beyond_the_bins_are_in_the_last_ones():
    head = histograms()
    p = head.encode(torch.tensor([1e30, -1e30], dtype=torch.float64))
    torch.testing.assert_close(p.sum(-1), torch.ones(2, dtype=torch.float64))
    assert p.argmax(-1).tolist() == [BINS - 1, 0] and bool(head.decode(p.log()).isfinite().all())


def test_a_uniform_histogram_is_exactly_0():
    assert HistogramHead(3).decode(torch.full((5, BINS), 0.3)).tolist() == [0.0] * 5


def test_the_cross_entropy_has_the_gradient_of_central_differences():
    head, generator = histograms(), torch.Generator().manual_seed(0)
    raw = torch.randn(4, BINS, dtype=torch.float64, generator=generator)
    target = torch.tensor([0.0, 3.3, -250.0, 1e6], dtype=torch.float64)

    def cross_entropy(raw):
        """Of each row, summed in Python over bins."""
        log_sums = [math.log(sum(math.exp(y) for y in row)) for row in raw]
        p = head.encode(target).tolist()
        return sum(
            -w * (y - z)
            for ps, ys, z in zip(p, raw, log_sums, strict=True)
            for w, y in zip(ps, ys, strict=True)
        )

    leaf = raw.clone().requires_grad_()
    loss = head.loss(leaf, target, target, None)
    assert loss.shape == (4,)
    loss.sum().backward()
    assert float(loss.detach().sum()) == pytest.approx(cross_entropy(raw.tolist()), rel=1e-12)
    for row, column in [(0, 127), (1, 136), (1, 0), (2, 92), (3, 215), (3, 100)]:
        ends = []
        for sign in (1, -1):
            moved = raw.clone()
            moved[row, column] += sign * 1e-5
            ends.append(cross_entropy(moved.tolist()))
        assert float(leaf.grad[row, column]) == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)


def test_losses_are_squared_errors_of_the_output():
    y, old, target = torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([4.0])
    assert CriticOutput(y, ScalarHead(2)).loss(old, target).tolist() == [1.0]
    assert torch.equal(ScalarHead(2).loss(y, old, target, 0.5), value_loss(y, old, target, 0.5))
    # V = e^3 - 1, and the target is e^2 - 1: an error of 1 in symlog space.
    head, target = SymlogHead(2), torch.tensor([math.e**2 - 1])
    assert head.decode(y).item() == pytest.approx(math.e**3 - 1)
    assert head.loss(y, old, target, None).item() == pytest.approx(1.0)
    # The old output is 2.9: clipped to 2.8 the error would be 0.64, so the larger one counts.
    old = torch.tensor([math.exp(2.9) - 1])
    assert head.loss(torch.tensor([2.5]), old, target, 0.1).item() == pytest.approx(0.64)


@pytest.mark.parametrize(("kind", "factor"), [("scalar", 16.0), ("symlog", 1.0), ("hl-gauss", 1.0)])
def test_squared_errors_of_values_are_shown_in_units_of_the_reward(kind, factor):
    assert HEADS[kind](2).loss_unit(4.0) == factor


# PopArt ---------------------------------------------------------------------------------------


def test_statistics_are_weighted_means_without_an_initial_value():
    statistics = TargetStatistics()
    assert (statistics.scale, statistics.shift) == (1.0, 0.0)
    rollouts = torch.tensor([3.0, 5.0]), torch.tensor([100.0, -20.0, 7.0]), torch.tensor([])
    for targets in rollouts:
        statistics.update(targets)
    # The second rollout has lost one step of decay, the first two; the third has no steps.
    weights = np.array([DECAY**2] * 2 + [DECAY] * 3)
    targets = np.array([3.0, 5.0, 100.0, -20.0, 7.0])
    mean = np.average(targets, weights=weights)
    assert statistics.shift == pytest.approx(mean, rel=1e-12)
    expected = np.average((targets - mean) ** 2, weights=weights) ** 0.5
    assert statistics.scale == pytest.approx(expected, rel=1e-12)


def test_the_first_rollout_counts_fully_and_constant_targets_have_a_scale():
    statistics = TargetStatistics()
    statistics.update(torch.full((4,), 7.0))
    assert (statistics.scale, statistics.shift) == (1e-4, 7.0)


def test_values_are_the_same_function_after_new_statistics():
    head, x = PopArtHead(6).double(), torch.randn(50, 6, dtype=torch.float64)
    head.follow(torch.tensor([-20.0, 50.0]), torch.zeros(2))
    for targets in (torch.tensor([900.0, 1100.0]), torch.tensor([-5.0, 3.0, 2000.0]), torch.tensor([0.1])):
        before, raw = head(x), head.raw(x)
        values, factor = head.follow(targets, before)
        assert values is before
        torch.testing.assert_close(head(x), before, rtol=1e-12, atol=1e-10)
        # The control: without new weights they would be others.
        assert float((head.decode(raw) - before).detach().abs().max()) > 1
        assert factor != 1
        torch.testing.assert_close(head.decode(head.encode(before)), before, rtol=1e-12, atol=1e-10)


def test_a_target_of_the_mean_is_0_and_the_loss_is_in_standard_deviations():
    head = PopArtHead(2)
    values, factor = head.follow(torch.tensor([900.0, 1100.0]), torch.tensor([0.5]))
    # The first outputs stay as they are, in standard deviations.
    assert values.item() == pytest.approx(1050.0) and factor == 1
    target = torch.tensor([1000.0, 1200.0])
    assert head.encode(target).tolist() == pytest.approx([0.0, 2.0], abs=1e-6)
    assert head.loss(torch.tensor([1.0, 1.0]), target, target, None).tolist() == pytest.approx([1.0, 1.0])
    assert head.loss_unit(1.0) == pytest.approx(100.0**2)


def test_moments_are_those_of_gradients_in_the_new_scale():
    """Two steps, with statistics between them, leave the moments of two steps with the second statistics."""
    ends, factor = [], 0.25
    for scales in ((1.0, factor), (factor, factor)):
        module = torch.nn.ModuleDict({"body": torch.nn.Linear(3, 4), "out": torch.nn.Linear(4, 1)}).double()
        optimizer = FlatAdam([torch.nn.Linear(2, 2).double(), module], PPOConfig(max_grad_norm=0.0))
        generator = torch.Generator().manual_seed(0)
        for step, scale in enumerate(scales):
            for name, p in module.named_parameters():
                gradient = torch.randn(p.shape, generator=generator, dtype=torch.float64)
                p.grad.copy_(gradient * (scale if name.startswith("out") else 1.0))
            optimizer.step((0.0, 1e-3))
            if step == 0:
                optimizer.rescale(module["out"], scales[1] / scales[0])
        ends.append(optimizer.tensors())
    for name, x in ends[0].items():
        torch.testing.assert_close(x, ends[1][name], rtol=1e-12, atol=0)


@pytest.mark.parametrize("memory", ["gru", "shared"])
def test_an_update_normalises_its_targets_before_its_first_step(memory):
    s = prepare(branch("gru"), branch(memory, value="popart"))
    statistics, counts = s.agent.value_head.targets, []
    for _ in range(2):
        roll(s)
        minibatches = Minibatches(
            s.learner, s.rollout, s.plan, L, s.plan.ppo.draw, ppo.estimates(s.learner, s.rollout, s.plan.ppo)
        )
        batch = minibatches.batch
        with torch.no_grad():
            values = s.agent(batch.rows, batch.state)[1]
        torch.testing.assert_close(values[batch.valid], batch.value[batch.valid], rtol=1e-12, atol=1e-12)
        targets = minibatches.scores.target[minibatches.scores.mask]
        counts.append(len(targets))
        if len(counts) == 1:
            assert statistics.shift == pytest.approx(float(targets.mean()), rel=1e-12)
            assert statistics.scale == pytest.approx(float(targets.std(correction=0)), rel=1e-12)
    assert float(statistics.count) == pytest.approx(DECAY * counts[0] + counts[1])
    # The second time they are those of the rollout, although the output layer is another one.
    assert largest(relearn(s)) < 1e-12


# Acting and learning --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "memory",
    sampled([*MEMORIES, "shared"], "mlp", "stack", "gru", "lstm", "mamba", "gpt2", "gtrxl", "shared"),
)
@pytest.mark.parametrize("kind", NEW)
def test_acting_equals_learning(memory, kind):
    s = prepare(branch("gru" if memory == "shared" else memory), branch(memory, value=kind))
    for _ in range(2):
        roll(s)
        assert largest(relearn(s)) < 1e-12
    assert float(s.rollout.value.std()) > 1e-3  # the claim is empty for constant values


def test_only_the_head_of_another_kind_has_other_weights():
    plain = make_agent(BranchConfig(), BranchConfig()).state_dict()
    for kind in NEW:
        weights = make_agent(BranchConfig(), BranchConfig(value=kind)).state_dict()
        statistics = {f"critic.head.targets.{name}" for name in ("mean", "var", "count")}
        assert weights.keys() - plain.keys() == (statistics if kind == "popart" else set())
        assert all(torch.equal(weights[name], x) for name, x in plain.items() if name.startswith("actor"))


# Learning -------------------------------------------------------------------------------------


def learned(kind, rollouts, reward_scale=1000.0, update=ppo.update, name="sight", **options):
    """A critic without memory after some updates on a probe; values of `sight` are the observation."""
    envs = make(EnvConfig(id=f"probe:{name}", num_envs=16))
    branch = BranchConfig(hidden=(16,))
    agent = build_agent((envs.obs_spec, envs.action_spec), branch, replace(branch, value=kind), False, seed=1)
    chosen = {"num_steps": 16, "num_minibatches": 2, "learning_rate": 2e-2, "max_grad_norm": 0.0}
    plan = Plan(
        ppo=PPOConfig(**{**chosen, "lr_decay": Decay(final=0.0), **options}), seed=1, rollouts=rollouts
    )
    learner = begin(envs, agent, plan, reward_scale=reward_scale)
    metrics = list(ppo.train(envs, learner, plan, update))
    return SimpleNamespace(agent=agent, envs=envs, metrics=metrics)


@pytest.mark.parametrize("kind", sampled(NEW, NEW[0]))
def test_values_of_1000_are_learned_where_a_plain_output_does_not_reach_them(kind):
    end = learned(kind, 60)
    assert values(end, -1.0, 1.0) == pytest.approx([-1000.0, 1000.0], rel=0.02)
    assert end.metrics[-1]["explained_variance"] > 0.99


def test_a_plain_output_does_not_reach_1000_with_the_same_budget():
    assert abs(values(learned("scalar", 60), 1.0)[0]) < 500


def test_the_first_statistics_lose_no_precision():
    # Initial values near 0, in the rounding of a mean of 3e6, would differ between acting and learning.
    metrics = learned("popart", 10, reward_scale=1e6, name="countdown").metrics
    assert max(row["value_error"] for row in metrics) < 1e-4
    assert metrics[0]["explained_variance"] > -10 and metrics[-1]["explained_variance"] > 0.5


def test_values_near_0_agree_up_to_the_resolution_of_a_histogram():
    # As where no reward was found yet: the spread of values is in the rounding of logits.
    acted, ones = torch.tensor([[1e-6, -1e-6]]), torch.ones(1, 2)
    values = acted + 5e-8
    errors = agreement(ones, values, acted, ones.bool(), resolution=HistogramHead.resolution)
    assert errors["value_error"] < 1e-4
    # A scalar near 0 has the rounding error of the sum that it is.
    assert agreement(ones, values, acted, ones.bool(), resolution=ScalarHead.resolution)["value_error"] < 1e-4
    with pytest.raises(DisagreementError, match="value_error"):
        agreement(ones, acted + 1e-5, acted, ones.bool(), resolution=ScalarHead.resolution)
    with pytest.raises(DisagreementError, match="value_error"):
        agreement(ones, acted.double() + 5e-8, acted.double(), ones.bool())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("update", "rollouts", "kind"),
    [(a2c.update, 100, "popart"), (a2c.update, 150, "hl-gauss"), (trpo.update, 60, "symlog")],
)
def test_a2c_and_trpo_learn_values_of_1000(update, rollouts, kind):
    end = learned(kind, rollouts, update=update, learning_rate=5e-2)
    assert values(end, -1.0, 1.0) == pytest.approx([-1000.0, 1000.0], rel=0.1)


# Engines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["symlog", "popart"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("clip_value", [None, 0.2])
def test_kernels_compute_heads_with_one_output(kind, shared, clip_value):
    critic = BranchConfig(shared=shared, value=kind)
    agent = make_agent(BranchConfig(memory=GruConfig(width=8)), critic)
    assert coverage(agent).complete
    agent.value_head.follow(torch.tensor([3.0, 9.0]), torch.zeros(2))  # only popart does
    check(agent, make_batch(agent, 5, 37), config(clip_value=clip_value, vf_coef=0.7))


def test_torch_computes_a_critic_with_a_histogram():
    agent = make_agent(BranchConfig(), BranchConfig(value="hl-gauss"))
    covered = coverage(agent)
    assert covered.actor and not covered.critic and "a value head HistogramHead" in covered.reason
    check(agent, make_batch(agent, 5, 37), config(vf_coef=0.7))
    with pytest.raises(UnsupportedError, match="HistogramHead"):
        coverage(make_agent(BranchConfig(), BranchConfig(shared=True, value="hl-gauss")))


# Runs -----------------------------------------------------------------------------------------


def with_head(kind, **changes):
    critic = BranchConfig(memory=GruConfig(width=8), hidden=(8,), value=kind)
    # Rewards as they are, which popart needs.
    env = replace(small_config().env, normalize_reward=False)
    return small_config(critic=critic, env=env, **changes)


@pytest.mark.parametrize(
    ("kind", "kernels", "computed_by"),
    [
        ("symlog", "native", ""),
        ("popart", "native", ""),
        ("hl-gauss", "native", ", actor only"),
    ],
)
def test_a_resumed_run_ends_like_an_uninterrupted_one(kind, kernels, computed_by, tmp_path, monkeypatch):
    changed = with_head(kind, kernels=kernels)
    straight = run_quietly(changed, tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    stopped = run_quietly(changed, tmp_path, "stopped")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    assert_same_end(straight.folder, api.resume(stopped.folder).folder)
    assert straight.summary["kernels"].endswith(computed_by)
    assert all(math.isfinite(row["value_loss"]) for row in metrics_of(straight.folder))


@pytest.mark.parametrize("kind", NEW)
def test_a_saved_agent_has_the_values_of_the_run_and_can_be_probed_and_watched(kind, tmp_path):
    run = run_quietly(with_head(kind, rollouts=2), tmp_path)
    run.save(tmp_path / "agent.safetensors")
    loaded = recollect.load(tmp_path / "agent.safetensors")
    obs = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    assert loaded.value(obs[None]) == run.value(obs[None]) and np.isfinite(loaded.value(obs[None])).all()
    assert probe(run, episodes=10).values.by_alteration["as it is"] is not None
    (episode,) = watch(run, 1, 1, 0, False, None).episodes
    internals = compute_internals(run.agent, episode.record, run.config.ppo, None, (None, "gru"))
    assert np.isfinite(internals.value).all()
    memory = internals.memories[-1]  # of the critic
    assert np.isfinite(memory.influence["value"].changes).all()


def test_the_head_is_a_part_of_the_identity_of_a_run_only_where_it_is_chosen():
    plain = config_hash(assemble([]))
    assert config_hash(assemble(["--critic.value", "scalar"])) == plain
    assert config_hash(assemble(["--critic.value", "symlog"])) != plain


# Bad input ------------------------------------------------------------------------------------


def test_a_run_does_not_begin_from_a_head_of_another_kind(tmp_path):
    plain = run_quietly(with_head("scalar", rollouts=1), tmp_path, "plain")
    for kind in NEW:
        init = InitConfig(path=str(plain.folder))
        with pytest.raises(
            UsageError, match=f"has critic.value scalar, here it is {kind}; add --critic.value"
        ):
            run_quietly(with_head(kind, rollouts=1, init=init), tmp_path, kind)
        init = InitConfig(path=str(plain.folder), parts=("actor", "critic.memory"))
        run_quietly(with_head(kind, rollouts=1, init=init), tmp_path, f"{kind} memory")


def test_a_run_begins_with_the_statistics_of_a_critic_that_has_some(tmp_path):
    first = run_quietly(with_head("popart", rollouts=2), tmp_path)
    init = InitConfig(path=str(first.folder), parts=("critic",))
    envs, agent, _ = build(with_head("popart", init=init))
    envs.adapter.close()
    statistics = agent.value_head.targets
    assert statistics.count > 0 and statistics.shift == first.agent.value_head.targets.shift


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--critic.value", "log"], "critic.value"),
        (
            ["--actor.value", "symlog"],
            "actor.value is symlog, but only a critic has values: use critic.value",
        ),
        (
            ["--critic.value", "hl-gauss", "--ppo.clip-value", "0.2"],
            "critic.value hl-gauss is a histogram, which ppo.clip_value 0.2 cannot clip: set ppo.clip_value "
            "to none",
        ),
        (
            ["-m", "reinforce", "--critic.value", "symlog"],
            "algorithm reinforce trains no critic: critic.value symlog needs another algorithm",
        ),
        (
            ["-e", "LunarLander-v3", "--critic.value", "popart"],
            "critic.value popart and env.normalize_reward both scale values: set env.normalize_reward "
            "to False, or critic.value to scalar",
        ),
    ],
)
def test_a_mistake_is_named_in_one_line(flags, message):
    with pytest.raises(UsageError) as caught:
        assemble(flags)
    assert message in str(caught.value) and "\n" not in str(caught.value)
