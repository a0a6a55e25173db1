"""Adaptive coefficients: known numbers, bounds, resuming to the bit, bad input, and nothing if off."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from recollect.agent.policies import Categorical, Gaussian
from recollect.common.errors import UsageError
from recollect.config.assembly import assemble
from recollect.config.data import config_hash
from recollect.learn.adaptive import AdaptiveEntropy, AdaptiveRate, adaptations, check_target
from recollect.learn.settings import Coefficients, Decay, PPOConfig
from recollect.run import api, checkpoint
from recollect.run.display import SilentDisplay

from ..helpers import StopAt, assert_same_end, metrics_of, run_quietly, small_config
from .test_probe_envs import learn

NOW = Coefficients(clip=0.2, entropy=0.5, rates=(1e-3, 4e-3))
# Far below the KL of the updates of these short runs, and near their first entropies: both coefficients fall
# in each update, and neither reaches the end of its range.
TARGETS = {"CartPole-v1": 0.65, "Pendulum-v1": 1.35}
ADAPTIVE = {"desired_kl": 1e-9, "target_entropy": 0.65, "learning_rate": 1e-3, "ent_coef": 0.01}
FLAT = ["-e", "CartPole-v1", "--ppo.lr-decay.final", "none"]
SMALL_PPO = PPOConfig(num_steps=16, update_epochs=2, **ADAPTIVE)


def rates(kls, initial=1e-3, desired=0.01):
    """The learning rates after updates with these mean KLs."""
    adaptive = AdaptiveRate(initial, desired)
    values = []
    for kl in kls:
        adaptive.adapt({"kl": kl, "entropy": 0.0})
        values.append(adaptive.value)
    return values


# Known numbers --------------------------------------------------------------------------------


def test_the_rate_falls_above_twice_the_desired_kl_and_rises_below_half_of_it():
    assert rates([0.021]) == [1e-3 / 1.5]
    assert rates([0.0049]) == [1e-3 * 1.5]
    assert rates([0.02, 0.005, 0.01]) == [1e-3] * 3
    assert rates([0.0049, 0.0049, 0.1, 0.01]) == pytest.approx([1.5e-3, 2.25e-3, 1.5e-3, 1.5e-3])


def test_the_rate_stays_in_its_range():
    assert rates([0.1] * 20)[-1] == 1e-5
    assert rates([0.001] * 20)[-1] == 1e-2


@pytest.mark.parametrize(
    "kl", [math.nan, math.inf, -math.inf, 0.0], ids=["not a number", "inf", "-inf", "nothing learned"]
)
def test_a_kl_that_says_nothing_changes_no_rate(kl):
    assert rates([kl]) == [1e-3]


def test_both_rates_are_scaled_and_nothing_else():
    adaptive = AdaptiveRate(1e-3, 0.01)
    assert adaptive.apply(NOW) == NOW
    adaptive.adapt({"kl": 0.001})
    changed = adaptive.apply(NOW)
    assert changed.rates == pytest.approx((1.5e-3, 6e-3))
    assert changed._replace(rates=NOW.rates) == NOW


def coefs(entropies, initial=0.01, target=0.5):
    """The entropy coefficients after updates with these entropies."""
    adaptive = AdaptiveEntropy(initial, target)
    values = []
    for entropy in entropies:
        adaptive.adapt({"entropy": entropy})
        changed = adaptive.apply(NOW)
        assert changed._replace(entropy=NOW.entropy) == NOW
        values.append(changed.entropy)
    return values


def test_the_logarithm_of_the_coefficient_moves_by_the_distance_to_the_target():
    distances = [0.2, -0.1, 0.0]
    expected = [0.01 * math.exp(0.2), 0.01 * math.exp(0.1), 0.01 * math.exp(0.1)]
    assert coefs([0.5 - distance for distance in distances]) == pytest.approx(expected)


def test_the_coefficient_stays_in_its_range():
    assert coefs([9.0]) == pytest.approx([1e-3])
    assert coefs([-9.0]) == pytest.approx([1.0])


def test_an_entropy_that_is_not_a_number_changes_no_coefficient():
    assert coefs([math.nan, math.inf, -math.inf]) == pytest.approx([0.01] * 3)
    assert coefs([-1e6]) == pytest.approx([1.0])  # no overflow


@pytest.mark.parametrize(
    ("policy", "lowest", "highest"),
    [
        (Categorical((3,)), 0.0, math.log(3)),
        (Categorical((3, 2, 2)), 0.0, math.log(12)),
        (Gaussian(2), -math.inf, math.inf),
    ],
    ids=["one choice", "three choices", "real numbers"],
)
def test_the_range_of_entropies(policy, lowest, highest):
    assert policy.entropy_range == pytest.approx((lowest, highest))
    if policy.discrete:  # the upper end is the entropy of equal logits
        equal = torch.zeros(policy.num_params, dtype=torch.float64)
        action = torch.zeros(policy.width, dtype=torch.int64)
        assert float(policy.evaluate(equal, action)[1]) == pytest.approx(highest)


# Training -------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_policy_that_would_become_certain_keeps_its_target_entropy():
    # Rewards of 1 and -1, one step: with coefficient c the best policy has probabilities of ratio e^(2 / c).
    # 0.95 and 0.05 have an entropy of 0.2, and c = 2 / log 19.
    options = {"ent_coef": 0.1, "lr_decay": Decay(), "learning_rate": 5e-3, "normalize_advantage": "off"}
    certain = learn("choice", 80, **options).last
    assert certain["entropy"] < 0.01
    held = learn("choice", 150, target_entropy=0.1985, **options).metrics[50:]
    assert np.mean([metrics["entropy"] for metrics in held]) == pytest.approx(0.1985, abs=0.03)
    coefficient = math.exp(np.mean([math.log(metrics["ent_coef"]) for metrics in held]))
    assert coefficient == pytest.approx(2 / math.log(19), rel=0.1)


def test_a_rate_that_is_too_small_is_raised_until_the_task_is_learned():
    options = {"learning_rate": 1e-5, "lr_decay": Decay()}
    slow, adapted = (learn("match", 20, **options, **kl).last for kl in ({}, {"desired_kl": 0.01}))
    assert slow["kl"] < 1e-4 and slow["learning_rate"] == 1e-5 and abs(slow["return"]) < 0.3
    assert adapted["kl"] > 1e-3 and adapted["learning_rate"] > 1e-3 and adapted["return"] > 0.8


def run_config(env_id="CartPole-v1", **changes):
    return small_config(env_id, ppo=replace(SMALL_PPO, target_entropy=TARGETS[env_id]), **changes)


def column(folder, key):
    return [row[key] for row in metrics_of(folder)]


@pytest.mark.parametrize("kernels", ["torch", "native"])
@pytest.mark.parametrize("env_id", TARGETS)
def test_a_resumed_run_continues_with_its_coefficients(tmp_path, monkeypatch, kernels, env_id):
    config = run_config(env_id, kernels=kernels)
    straight = run_quietly(config, tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    stopped = run_quietly(config, tmp_path, "stopped")
    assert stopped.summary["status"] == "SIGTERM"
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    resumed = api.resume(stopped.folder)
    assert_same_end(straight.folder, resumed.folder)
    # They change before the stop and after it: a resumed run that began with the initial ones would differ.
    for key in ("learning_rate", "ent_coef"):
        values = column(straight.folder, key)
        assert len(set(values)) == len(values) == 10, (key, values)


def test_the_native_kernels_take_the_adapted_coefficients(tmp_path):
    by_torch, native = (
        run_quietly(run_config(kernels=kernels), tmp_path, kernels) for kernels in ("torch", "native")
    )
    assert native.summary["kernels"].startswith("native")
    rates = [column(run.folder, "learning_rate") for run in (by_torch, native)]
    assert rates[0] == rates[1] and len(set(rates[0])) > 2
    coefficients = [column(run.folder, "ent_coef")[:4] for run in (by_torch, native)]
    assert coefficients[0] == pytest.approx(coefficients[1], rel=1e-3)


def test_no_coefficient_is_adapted_while_the_critic_alone_is_trained(tmp_path):
    config = run_config(rollouts=4)
    config = replace(config, init=replace(config.init, critic_rollouts=3))
    run = run_quietly(config, tmp_path)
    assert column(run.folder, "learning_rate") == [0, 0, 0, 1e-3]
    assert len(set(column(run.folder, "ent_coef"))) == 1


def test_a_callback_multiplies_the_adapted_rate(tmp_path):
    seen = []

    def halve(update):
        if update.metrics["iteration"] == 2:
            before = update.learning_rate
            update.learning_rate = before / 2
            seen.append(before)

    run = run_quietly(run_config(rollouts=4), tmp_path, on_rollout=halve)
    usual = run_quietly(run_config(rollouts=2), tmp_path, "usual")
    after = column(run.folder, "learning_rate")
    assert after[:2] == column(usual.folder, "learning_rate")
    assert after[2] == pytest.approx(seen[0] / 2)


def test_nothing_is_adapted_where_both_options_are_off(tmp_path):
    assert adaptations(PPOConfig()) == {}
    run = run_quietly(small_config(), tmp_path)
    tensors, _ = checkpoint.read(checkpoint.existing(run.folder / "checkpoints")[-1])
    assert [name for name in tensors if name.startswith("adaptations")] == []
    rate = column(run.folder, "learning_rate")
    assert rate == pytest.approx([1e-2 * (1 - i / 10) for i in range(10)])
    assert column(run.folder, "ent_coef") == [0.01] * 10


@pytest.mark.parametrize(
    "option", [["--ppo.desired-kl", "0.01"], ["--ppo.target-entropy", "0.3"]], ids=["kl", "entropy"]
)
def test_the_identity_of_a_run_contains_what_is_on(option):
    base = [*FLAT, "--ppo.ent-coef", "0.01"]
    assert config_hash(assemble(base + option)) != config_hash(assemble(base))


# Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ([*FLAT, "--ppo.desired-kl", "-1"], "ppo.desired_kl is -1.0, it must be above 0"),
        ([*FLAT, "--ppo.desired-kl", "nan"], "ppo.desired_kl is nan, it must be above 0"),
        (
            ["-e", "CartPole-v1", "--ppo.desired-kl", "0.01"],
            "ppo.desired_kl and ppo.lr_decay.final 0 both set ppo.learning_rate: set ppo.lr_decay.final to "
            "none",
        ),
        (
            [*FLAT, "--ppo.desired-kl", "0.01", "--ppo.learning-rate", "0.1"],
            "ppo.learning_rate is 0.1, with ppo.desired_kl it must lie in [1e-05, 0.01]",
        ),
        *(
            (
                [*FLAT, "--ppo.desired-kl", "0.01", "--ppo.update-epochs", "1", *one],
                "ppo.desired_kl needs several gradient steps in an update, because the KL of a minibatch is "
                "measured before its step: increase ppo.update_epochs or ppo.num_minibatches",
            )
            for one in (["--ppo.num-minibatches", "1"], ["--ppo.batch-size", "1024"])
        ),
        ([*FLAT, "--ppo.target-entropy", "inf"], "ppo.target_entropy is inf, it must be finite"),
        (
            [*FLAT, "--ppo.target-entropy", "0.5"],
            "ppo.ent_coef is 0.0, with ppo.target_entropy it must lie in [0.001, 1]",
        ),
        (
            ["-e", "minigrid:MemoryS7", "--ppo.target-entropy", "0.5"],
            "ppo.target_entropy and ppo.ent_decay.final 0.002 both set ppo.ent_coef: set "
            "ppo.ent_decay.final to none",
        ),
        (
            [*FLAT, "-m", "a2c", "--ppo.desired-kl", "0.01"],
            "algorithm a2c adapts no coefficients: ppo.desired_kl and ppo.target_entropy need algorithm ppo",
        ),
    ],
)
def test_a_mistake_is_named_in_one_line(flags, error):
    with pytest.raises(UsageError) as caught:
        assemble(flags)
    assert str(caught.value).endswith(error)


@pytest.mark.parametrize("target", [-0.1, 0.0, 0.7, 5.0])
def test_a_target_that_no_choice_of_two_can_have_is_refused(target, tmp_path):
    message = r"ppo.target_entropy is .* above 0 and below 0.6931 nats"
    with pytest.raises(UsageError, match=message):
        run_quietly(small_config(ppo=replace(SMALL_PPO, target_entropy=target)), tmp_path)


def test_any_target_suits_real_numbers():
    check_target(replace(SMALL_PPO, target_entropy=-5.0), Gaussian(1))
