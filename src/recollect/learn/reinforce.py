"""REINFORCE (Williams, 1992): actions become the likelier, the more was earned after them.

    gradient = mean of grad log pi(a[t]) (G[t] - b)        G[t] = r[t] + gamma r[t+1] + ...

over the rows of episodes that end inside the rollout, because only there G is known. b is the mean of G;
G - b is divided by its deviation unless ppo.normalize_advantage is off, which takes b = 0. An episode
that a time limit cuts counts as ended. The critic acts in nothing and learns nothing.
"""

import torch
from torch import Tensor

from .learner import Learner
from .maths import Losses, agreement, mean, standardize
from .minibatches import chunk
from .ppo import prepared
from .rollout import Rollout
from .settings import Plan
from .states import restate


def returns_to_go(rollout: Rollout, reward: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """G (T, N), and where it is known: on valid rows of episodes that end inside the rollout."""
    ended, valid = rollout.terminated | rollout.truncated, rollout.valid[:-1]
    returns, known = torch.zeros_like(reward), torch.zeros_like(valid)
    after, knows = torch.zeros_like(reward[0]), torch.zeros_like(valid[0])
    for t in reversed(range(len(reward))):
        after = reward[t] + gamma * after.masked_fill(ended[t] | ~valid[t], 0.0)
        knows = (knows | ended[t]) & valid[t]
        returns[t], known[t] = after, knows
    return returns, known


def update(learner: Learner, rollout: Rollout, plan: Plan, length: int) -> dict[str, float]:
    """One gradient step over the episodes that ended."""
    cfg, agent = plan.ppo, learner.agent
    now = plan.coefficients(learner.iteration, learner.step)
    returns, known = returns_to_go(rollout, learner.rewards.scaled(rollout.reward), cfg.gamma)
    batch, _ = prepared(learner, rollout, cfg, length)
    known = chunk(rollout, length, known.to(returns.dtype)).advantage
    weight = known / known.sum().clamp(min=1)
    earned = chunk(rollout, length, returns).advantage
    if cfg.normalize_advantage != "off" and known.sum() > 1:
        earned = standardize(earned, weight)
    batch, errors = restate(agent, rollout, batch, cfg, batch.valid.shape[1])
    learner.seed_dropout(plan.seed)
    params, values = agent(batch.rows, batch.state)
    log_prob, entropy = agent.policy.evaluate(params, batch.action)
    log_prob = log_prob.masked_fill(~batch.valid, 0.0)
    if not agent.dropout:
        ratio = (log_prob - batch.log_prob).detach().exp()
        errors = agreement(ratio, values.detach(), batch.value, batch.valid) | errors
    policy, bonus = -mean(weight, log_prob * earned), mean(weight, entropy)
    learner.optimizer.zero_grad()
    (policy - now.entropy * bonus).backward()
    if known.any():
        learner.optimizer.step(now.rates)
    nothing, unknown = torch.zeros(()), torch.tensor(torch.nan)
    said = (policy.detach(), bonus.detach()) if known.any() else (unknown, unknown)
    losses = Losses(said[0], unknown, said[1], nothing, nothing)
    return errors | learner.learned(losses, torch.nan, now.rates[0])
