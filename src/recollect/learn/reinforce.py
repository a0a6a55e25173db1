"""REINFORCE (Williams, 1992): actions become more likely the higher the return after them.

    gradient = mean of grad log pi(a[t]) (G[t] - b)        G[t] = r[t] + gamma r[t+1] + ...

over the steps of episodes that end inside the rollout, because only there G is known. b is the mean of G,
and G - b is divided by its standard deviation; with ppo.normalize_advantage off, b = 0. A truncated episode
counts as ended, but not where a barrier or a failure cut it short. The critic is not trained, so its
options have no effect, nor have those that A2C does not use.
"""

import torch
from torch import Tensor

from ..agent.agent import Agent
from .chunks import Batch, Estimates
from .learner import Learner
from .maths import Loss, Losses, mean
from .minibatches import Minibatches
from .ppo import descend
from .rollout import Rollout
from .settings import Coefficients, Draw, Plan, PPOConfig


def returns_to_go(rollout: Rollout, reward: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """G (T, N), and where it is known: in valid steps of episodes that end inside the rollout."""
    ended = rollout.terminated | (rollout.truncated & ~rollout.cut_short)
    valid = rollout.valid[:-1]
    returns, known = torch.zeros_like(reward), torch.zeros_like(valid)
    ahead, ends = torch.zeros_like(reward[0]), torch.zeros_like(valid[0])
    # `ends` is true while an end lies ahead in the episode of step t. It is cleared on tail rows and set
    # again by the step before, which ended the episode.
    for t in reversed(range(len(reward))):
        ahead = reward[t] + gamma * ahead.masked_fill(ended[t] | ~valid[t], 0.0)
        ends = (ends | ended[t]) & valid[t]
        returns[t], known[t] = ahead, ends
    return returns, known


def loss(agent: Agent, batch: Batch, cfg: PPOConfig, now: Coefficients) -> Loss:
    """-mean of log pi(a) (G - b), and the entropy bonus; no loss for the critic."""
    params, values = agent(batch.rows, batch.state)
    log_prob, entropy = agent.policy.evaluate(params, batch.action)
    # batch.log_prob is 0 on tail rows as well, so their ratio is exactly 1 in the agreement check.
    log_prob = log_prob.masked_fill(~batch.valid, 0.0)
    policy, bonus = -mean(batch.weight, log_prob * batch.advantage), mean(batch.weight, entropy)
    ratio = (log_prob - batch.log_prob).detach().exp()
    zero, unknown = torch.zeros_like(policy), torch.full_like(policy, torch.nan)
    means = Losses(policy, unknown, bonus, zero, zero)
    return Loss(policy - now.entropy * bonus, means, ratio, values.detach())


def update(learner: Learner, rollout: Rollout, plan: Plan, length: int) -> dict[str, float]:
    """One gradient step on the episodes that ended inside the rollout."""
    reward = learner.scaled_rewards(rollout)
    returns, known = returns_to_go(rollout, reward, plan.ppo.gamma)
    draw = Draw(plan.ppo.normalize_whole, epochs=1, whole=True)
    targets = Estimates(returns, returns, known)  # the second is not used: no value function is learned
    minibatches = Minibatches(learner, rollout, plan, length, draw, targets)
    if known.any():
        critic = learner.optimizer.flats[1]
        before = critic.clone()
        metrics = descend(learner, minibatches, plan, loss)
        critic.copy_(before)  # its gradient is 0, but weight decay moves it
    else:  # no gradient step, but acting and learning are compared
        now = learner.coefficients(plan)
        minibatches.record(loss(learner.agent, minibatches.batch, plan.ppo, now), minibatches.batch)
        metrics = minibatches.metrics(now) | {"policy_loss": torch.nan, "entropy": torch.nan}
    return metrics | {"explained_variance": torch.nan}
