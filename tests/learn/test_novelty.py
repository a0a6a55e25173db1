"""The intrinsic reward: exact by hand, small where the agent has been, and no part of any statistic."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import recollect
from recollect.agent.agent import BranchConfig
from recollect.agent.nets import Rows
from recollect.common.distributed import ALONE
from recollect.common.errors import UsageError
from recollect.config.assembly import assemble
from recollect.config.data import config_hash
from recollect.envs import Envs
from recollect.learn import ppo
from recollect.learn.novelty import Distillation, Novelty
from recollect.learn.settings import PPOConfig
from recollect.run import api
from recollect.run.display import SilentDisplay

from ..helpers import (
    N,
    Scripted,
    StopAt,
    T,
    assert_same_end,
    lively,
    metrics_of,
    prepare,
    roll,
    run_quietly,
    small_config,
)

COEF = 0.5
DICT = spaces.Dict({"place": spaces.Discrete(3), "speed": spaces.Box(-1.0, 1.0, (4,), np.float32)})
SHORT = {"env.num_envs": 8, "ppo.num_steps": 32, "val_check_interval": 0}


class Lock(gym.Env):
    """A lock of 16 digits: a wrong one ends the episode, and the last one has the reward 1."""

    DIGITS = 16
    observation_space = spaces.Discrete(DIGITS + 1)
    action_space = spaces.Discrete(2)
    CODE = (0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 1, 1, 0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.open = 0
        return 0, {}

    def step(self, action):
        right = int(action) == self.CODE[self.open]
        self.open += right
        solved = self.open == self.DIGITS
        return self.open, float(solved), not right or solved, False, {}


class Pictures(Scripted):
    """Few distinct pictures, so that a gallery keeps each of them once."""

    def __init__(self):
        super().__init__(spaces.Box(0, 255, (36, 36, 3), np.uint8))

    def look(self):
        shades = self.random.integers(0, 3, self.num_envs)
        return np.broadcast_to(shades[:, None, None, None] * 80, (self.num_envs, 36, 36, 3)).astype(np.uint8)


def distillation(envs, seed=3):
    return Distillation((envs.obs_spec, envs.action_spec), BranchConfig(), seed)


def prepared(env=None):
    """A float64 learner with an intrinsic reward."""
    s = prepare(env=env or Scripted(DICT), normalize=True)
    networks = lively(distillation(s.envs)).double()
    s.learner.novelty = Novelty(networks, PPOConfig(rnd_coef=COEF, learning_rate=1e-3), N)
    return s


def weighted(config, coef):
    """A config with this weight of the intrinsic reward."""
    return replace(config, ppo=replace(config.ppo, rnd_coef=coef))


def second_rollout(s):
    """The rollout in which statistics exist for the first time."""
    roll(s)
    ppo.estimates(s.learner, s.rollout, s.plan.ppo)
    s.learner.update_statistics(s.rollout)
    roll(s)


# Exact rewards --------------------------------------------------------------------------------


def test_the_reward_of_a_step_is_the_error_on_the_observation_that_it_led_to():
    s = prepared()
    second_rollout(s)
    # As after an environment that was restarted: there is no next observation.
    s.rollout.cut_short[3] = s.rollout.valid[3]
    novelty, outcome = s.learner.novelty, s.rollout.outcome(ALONE)
    networks, rows = novelty.distillation, s.rollout.sent.rows
    novelty.scale.var.fill_(4.0)
    novelty.scale.count.fill_(9.0)
    expected = s.learner.rewards.scaled(outcome.reward).clone()
    for t in range(T):
        for n in range(N):
            if s.rollout.valid[t, n] and not s.rollout.cut_short[t, n]:
                ahead = rows.map(lambda x, t=t, n=n: x[t + 1, n][None, None])
                ahead = ahead._replace(obs=networks.normalizer(ahead.obs))
                codes = networks.predictor(ahead) - networks.target(ahead)
                expected[t, n] += COEF * codes.detach().square().mean().item() / 2.0
    computed = s.learner.scaled_rewards(s.rollout)
    torch.testing.assert_close(computed, expected, rtol=1e-6, atol=1e-9)
    assert (computed != s.learner.rewards.scaled(outcome.reward)).any()


def test_the_metric_is_the_mean_over_the_steps_that_count():
    s = prepared()
    second_rollout(s)
    added = s.learner.scaled_rewards(s.rollout) - s.learner.rewards.scaled(s.rollout.reward)
    assert s.learner.progress()["intrinsic_reward"] == pytest.approx(float(added[s.rollout.valid[:T]].mean()))
    assert not added[~s.rollout.valid[:T]].any()


def test_the_first_rollout_has_none_and_gives_the_statistics():
    s = prepared()
    roll(s)
    assert torch.equal(s.learner.scaled_rewards(s.rollout), s.learner.rewards.scaled(s.rollout.reward))
    before = [p.clone() for p in s.learner.novelty.distillation.parameters()]
    s.learner.update_statistics(s.rollout)
    after = list(s.learner.novelty.distillation.parameters())
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))
    normalizer = s.learner.novelty.distillation.normalizer
    valid = s.rollout.valid[:T]
    seen = s.rollout.rows.obs["obs.speed"][:T][valid].double()
    torch.testing.assert_close(normalizer.get_buffer("mean0"), seen.mean(0))


def test_the_scale_is_that_of_errors_of_the_predictor():
    """The first rollout has none, and its zeros are none."""
    s = prepared()
    second_rollout(s)
    assert s.learner.novelty.scale.count == 0
    ppo.estimates(s.learner, s.rollout, s.plan.ppo)
    s.learner.update_statistics(s.rollout)
    assert 0 < s.learner.novelty.scale.count <= T * N


def test_episodes_and_reward_statistics_count_the_reward_of_the_environment_alone():
    with_it, without = prepared(), prepare(env=Scripted(DICT), normalize=True)
    for s in (with_it, without):
        s.learner.rewards.active = True
        second_rollout(s)
        ppo.estimates(s.learner, s.rollout, s.plan.ppo)
        s.learner.update_statistics(s.rollout)
    np.testing.assert_array_equal(with_it.learner.episodes.recent, without.learner.episodes.recent)
    for name, x in with_it.learner.rewards.tensors().items():
        assert torch.equal(x, without.learner.rewards.tensors()[name]), name


def test_pictures_in_a_gallery_give_the_rewards_of_pictures_in_rows():
    s = prepared(Pictures())
    second_rollout(s)
    assert s.rollout.sent.rows.galleries
    networks, rows = s.learner.novelty.distillation, s.rollout.sent.rows
    pictures = {name: x[1:] for name, x in s.rollout.rows.obs.items()}
    plain = Rows(pictures, rows.first[1:], rows.prev_action[1:], rows.prev_reward[1:])
    added = s.learner.scaled_rewards(s.rollout) - s.learner.rewards.scaled(s.rollout.reward)
    valid, divisor = s.rollout.valid[:T], s.learner.novelty.scale.divisor
    with torch.no_grad():
        expected = (COEF * networks(plain) / divisor).clamp(max=COEF * 10)
    torch.testing.assert_close(added[valid], expected[valid], rtol=1e-5, atol=1e-9)


# What is new ----------------------------------------------------------------------------------


def test_the_error_falls_where_the_agent_has_been_and_stays_where_it_has_not():
    class Places(Scripted):
        """Eight places, of which four are shown."""

        def look(self):
            return self.random.integers(0, 4, self.num_envs)

    s = prepared(Places(spaces.Discrete(8)))
    networks = s.learner.novelty.distillation
    x = torch.zeros(1, 8, dtype=torch.float64)
    rows = Rows({"obs": torch.arange(8)[None, :, None]}, x == 1, torch.zeros(1, 8, 1), x)
    with torch.no_grad():
        before = networks(rows)[0]
    for _ in range(60):
        roll(s)
        ppo.estimates(s.learner, s.rollout, s.plan.ppo)
        s.learner.update_statistics(s.rollout)
    with torch.no_grad():
        after = networks(rows)[0]
    assert before[:4].max() < 2 * before[4:].min()  # they begin alike
    assert after[:4].max() < 0.1 * after[4:].min()


@pytest.mark.thorough
def test_a_reward_that_chance_does_not_find_is_found(tmp_path):
    returns = {}
    for coef in (0.0, 1.0):
        options = {**SHORT, "ppo.rnd_coef": coef, "ppo.learning_rate": 3e-3, "steps": 15_000}
        run = recollect.train(Lock, options=options, out=tmp_path / str(coef), quiet=True, seed=1)
        returns[coef] = metrics_of(run.folder)[-1]["return"]
    assert returns[0.0] == 0 and returns[1.0] > 0.5, returns


@pytest.mark.parametrize("algorithm", ["a2c", "reinforce", "trpo"])
def test_every_algorithm_learns_from_it(algorithm, tmp_path):
    weights = []
    for coef in (0.0, 1.0):
        config = weighted(small_config(algorithm=algorithm, rollouts=3), coef)
        weights.append(run_quietly(config, tmp_path, f"{algorithm}-{coef}").agent.state_dict())
    plain, curious = weights
    assert any(not torch.equal(x, curious[name]) for name, x in plain.items())


# Runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", ["torch", "native"])
def test_a_resumed_run_ends_like_an_uninterrupted_one(kernels, tmp_path, monkeypatch):
    config = weighted(small_config("CartPole-v1", kernels=kernels), COEF)
    straight = run_quietly(config, tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    stopped = run_quietly(config, tmp_path, "stopped")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    assert_same_end(straight.folder, api.resume(stopped.folder).folder)
    rewards = [row["intrinsic_reward"] for row in metrics_of(straight.folder)]
    assert rewards[0] == 0 and all(reward > 0 for reward in rewards[1:])


def test_its_weights_follow_from_the_seed_and_are_not_those_of_the_agent():
    envs = Envs(Scripted())
    one, same, other = (distillation(envs, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(x, same[name]) for name, x in one.items())
    name = "target.2.weight"
    assert not torch.equal(one[name], other[name])


def test_rollouts_may_be_shorter_than_the_predictor_has_batches(tmp_path):
    options = ["--rollouts", "3", "--ppo.num-steps", "2", "--ppo.bptt", "2", "--ppo.num-minibatches", "1"]
    run = run_quietly(assemble([*options, "--ppo.rnd-coef", "0.5", "--env.num-envs", "4"]), tmp_path)
    assert metrics_of(run.folder)[-1]["intrinsic_reward"] > 0


def test_a_rollout_of_which_no_step_counts_leaves_the_predictor():
    s = prepared()
    second_rollout(s)
    novelty = s.learner.novelty
    novelty.learn(s.rollout, ALONE)
    before = {
        name: x.clone() for name, x in novelty.tensors().items() if name.startswith("networks.predictor")
    }
    s.rollout.cut_short[:] = s.rollout.valid[:T]
    novelty.learn(s.rollout, ALONE)
    assert all(torch.equal(x, novelty.tensors()[name]) for name, x in before.items())


def test_it_is_off_by_default(tmp_path):
    run = run_quietly(small_config(rollouts=2), tmp_path)
    assert {row["intrinsic_reward"] for row in metrics_of(run.folder)} == {None}
    assert config_hash(assemble(["--ppo.rnd-coef", "0.5"])) != config_hash(assemble([]))


@pytest.mark.parametrize("coef", ["-1", "nan"])
def test_a_negative_weight_is_refused(coef):
    with pytest.raises(UsageError, match=r"ppo.rnd_coef is .*, it must not be below 0"):
        assemble(["--ppo.rnd-coef", coef])
