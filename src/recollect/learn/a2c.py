"""Advantage actor-critic: one step a rollout along the gradient of log pi(a) A.

All else is PPO's: collecting, values, advantages, chunks of memories. PPO with one pass, one minibatch
and no clip takes the same step, because a ratio that is 1 has the gradient of its logarithm. What PPO
needs for several steps (clip, update_epochs, num_minibatches, steps_per_minibatch, shuffle, target_kl)
means nothing here.
"""

import torch

from .learner import Learner
from .maths import Losses, agreement, explained_variance, mean, standardize
from .ppo import prepared
from .rollout import Rollout
from .settings import Plan
from .states import restate


def update(learner: Learner, rollout: Rollout, plan: Plan, length: int) -> dict[str, float]:
    """One gradient step over the whole rollout."""
    cfg, agent = plan.ppo, learner.agent
    now = plan.coefficients(learner.iteration, learner.step)
    batch, _ = prepared(learner, rollout, cfg, length)
    weight = batch.weight
    quality = explained_variance(batch.value, batch.target, weight)
    batch, errors = restate(agent, rollout, batch, cfg, batch.valid.shape[1])
    advantage = batch.advantage
    if cfg.normalize_advantage != "off":
        advantage = standardize(advantage, weight)
    learner.seed_dropout(plan.seed)
    params, values = agent(batch.rows, batch.state)
    log_prob, entropy = agent.policy.evaluate(params, batch.action)
    log_prob = log_prob.masked_fill(~batch.valid, 0.0)
    if not agent.dropout:
        ratio = (log_prob - batch.log_prob).detach().exp()
        errors = agreement(ratio, values.detach(), batch.value, batch.valid) | errors
    policy = -mean(weight, log_prob * advantage)
    value = mean(weight, (values - batch.target).square())
    bonus = mean(weight, entropy)
    learner.optimizer.zero_grad()
    (policy + cfg.vf_coef * value - now.entropy * bonus).backward()
    learner.optimizer.step(now.rates)
    nothing = torch.zeros(())
    losses = Losses(policy.detach(), value.detach(), bonus.detach(), nothing, nothing)
    return errors | learner.learned(losses, quality, now.rates[0])
