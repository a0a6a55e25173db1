"""Advantage actor-critic: one step a rollout along the gradient of log pi(a) A.

All else is PPO's: collecting, values, advantages, chunks of memories. PPO with one epoch, one minibatch
and no clip takes the same step, because a ratio of 1 has the gradient of its logarithm. What PPO
needs for several steps (clip, clip_value, update_epochs, num_minibatches, batch_size, steps_per_minibatch,
shuffle, target_kl) has no effect here: in a first step, values are the old ones.
"""

import torch

from ..agent.agent import Agent
from .auxiliary import losses
from .chunks import Batch
from .learner import Learner
from .maths import Loss, Losses, mean
from .minibatches import Minibatches
from .ppo import descend, estimates
from .rollout import Rollout
from .settings import Coefficients, Draw, Plan, PPOConfig


def loss(agent: Agent, batch: Batch, cfg: PPOConfig, now: Coefficients) -> Loss:
    """-mean of log pi(a) A, the loss of values, and the entropy bonus."""
    params, critic, heads = agent.outputs(batch.rows, batch.state)
    log_prob, entropy = agent.policy.evaluate(params, batch.action)
    # batch.log_prob is 0 on tail rows as well, so their ratio is exactly 1 in the agreement check.
    log_prob = log_prob.masked_fill(~batch.valid, 0.0)
    policy = -mean(batch.weight, log_prob * batch.advantage)
    value = mean(batch.weight, critic.loss(batch.value, batch.target))
    bonus = mean(batch.weight, entropy)
    total = policy + cfg.vf_coef * value - now.entropy * bonus
    predictions = losses(heads, batch)
    total += cfg.predict_coef * sum(predictions.values())
    ratio = (log_prob - batch.log_prob).detach().exp()
    zero = torch.zeros_like(policy)
    return Loss(total, Losses(policy, value, bonus, zero, zero), ratio, critic.values.detach(), predictions)


def update(learner: Learner, rollout: Rollout, plan: Plan, length: int) -> dict[str, float]:
    """One gradient step over the whole rollout."""
    draw = Draw(plan.ppo.normalize_whole, epochs=1, whole=True)
    targets = estimates(learner, rollout, plan.ppo)
    return descend(learner, Minibatches(learner, rollout, plan, length, draw, targets), plan, loss)
