"""Proximal policy optimisation with a memory for the actor and another, or none, for the critic.

Read from top to bottom: collect, value, advantages, loss, update, train. Nothing here depends on the
kind of a memory (contract: memory/__init__.py), and nothing touches files, clocks or screens.

Shapes.  T steps a rollout, N environments, L steps a chunk (truncated back-propagation), B chunks.
Flags.   first, terminated, truncated and valid are defined in rollout.py.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from torch import Tensor

from ..agent.agent import Agent, AgentState
from ..common import rng
from ..common.devices import send
from ..envs import Envs
from .auxiliary import losses
from .chunks import Batch, Estimates
from .engine import LossFunction
from .learner import Learner
from .maths import Loss, Losses, mean, policy_loss
from .minibatches import Minibatches
from .rollout import Outcome, Rollout, slice_rows
from .settings import Coefficients, Plan, PPOConfig
from .states import refreshed

Update: TypeAlias = Callable[[Learner, Rollout, Plan, int], dict[str, float]]

# Collect --------------------------------------------------------------------------------------


@torch.no_grad()
def collect(envs: Envs, learner: Learner, rollout: Rollout, plan: Plan, length: int) -> None:
    """Act for T steps with the actor alone, keeping its memory state only where a chunk begins."""
    policy = learner.agent.policy
    rollout.open(learner.row)
    # Every rank draws the noise of all environments and takes its own, so that a split changes no action.
    random = rng.generator(plan.seed, rng.Purpose.ACT, learner.iteration)
    drawn = policy.noise(random, (rollout.num_steps, rollout.num_envs * learner.ranks.size))
    local_noise = torch.from_numpy(drawn[:, learner.ranks.block(rollout.num_envs)]).to(rollout.log_prob.dtype)
    actor = learner.engine.acting(rollout, learner.state.actor, send(local_noise, rollout.device))
    for t in range(rollout.num_steps):
        if t % length == 0:
            rollout.starts.append(actor.state)
        action = actor.step(t)
        rollout.write(t, action, envs.step(action))
    learner.state = learner.state._replace(actor=actor.state)
    if plan.barrier_after(learner.iteration):
        rollout.truncate()
    learner.row = rollout.last_row()
    # Once for all T steps: one large call costs a fraction of T small ones.
    rollout.log_prob.copy_(policy.evaluate(actor.params(), rollout.sent.action[:-1])[0])


# Value ----------------------------------------------------------------------------------------


@torch.no_grad()
def value(learner: Learner, rollout: Rollout, length: int) -> None:
    """V of steps 0..T-1 and of row T, from the carried state, in one pass over whole chunks."""
    agent, value_of, steps = learner.agent, learner.engine.value, rollout.num_steps
    seen = rollout.normalized(agent)
    state = AgentState(rollout.starts[0], learner.state.critic)
    # Without a memory nothing has to be stored at chunks, and one call is faster.
    span = length if agent.critic.trunk.initial_state(1) else steps
    values = rollout.log_prob.new_empty(rollout.value.shape)
    for t in range(0, steps, span):
        rollout.critic_starts += [state.critic] * (span // length)
        values[t : t + span], state = value_of(slice_rows(seen, slice(t, t + span)), state)
    # Row T is row 0 of the next rollout, which computes it again: the state after it is dropped here.
    values[steps] = value_of(slice_rows(seen, slice(steps, steps + 1)), state)[0][0]
    rollout.value.copy_(values)
    learner.state = learner.state._replace(critic=state.critic)


# Advantages -----------------------------------------------------------------------------------


def advantages(rollout: Rollout | Outcome, reward: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantages (T, N); 0 on tail rows, and nothing passes the end of an episode.

    delta[t] = reward[t] + gamma V[t+1] (1 - terminated[t]) - V[t]
    A[t]     = delta[t] + gamma lambda A[t+1]   while the episode continues

    A truncated episode is bootstrapped: V[t+1] is the value of its tail row, the final observation.
    """
    values, valid = rollout.value, rollout.valid[:-1]
    delta = reward + gamma * values[1:] * ~rollout.terminated - values[:-1]
    delta = delta.masked_fill(~valid, 0.0)
    going_on = valid & ~(rollout.terminated | rollout.truncated)
    decay = gamma * gae_lambda * going_on.to(delta.dtype)
    out = torch.empty_like(delta)
    running = torch.zeros_like(delta[0])
    rows = zip(delta.unbind(), decay.unbind(), out.unbind(), strict=True)
    for delta_t, decay_t, out_t in reversed(list(rows)):
        running = torch.addcmul(delta_t, decay_t, running, out=out_t)
    return out


def estimates(learner: Learner, rollout: Rollout, cfg: PPOConfig) -> Estimates:
    """Advantages and value targets of the environments of all ranks."""
    outcome, reward = rollout.outcome(learner.ranks), learner.scaled_rewards(rollout)
    advantage = advantages(outcome, reward, cfg.gamma, cfg.gae_lambda)
    if cfg.target_lambda is None:
        return Estimates(advantage, surplus=advantage)
    return Estimates(advantage, surplus=advantages(outcome, reward, cfg.gamma, cfg.target_lambda))


# Loss and update ------------------------------------------------------------------------------


def loss(agent: Agent, batch: Batch, cfg: PPOConfig, now: Coefficients) -> Loss:
    """The clipped objective over a minibatch of chunks (L, B, ...), from the states they begin with."""
    params, critic, heads = agent.outputs(batch.rows, batch.state)
    log_prob, entropy = agent.policy.evaluate(params, batch.action)
    log_ratio = (log_prob - batch.log_prob) * batch.valid
    ratio = log_ratio.exp()
    policy = mean(batch.weight, policy_loss(ratio, batch.advantage, now.clip))
    value = mean(batch.weight, critic.loss(batch.value, batch.target, cfg.clip_value))
    bonus = mean(batch.weight, entropy)
    # Schulman's third estimator: never negative, but for rounding.
    kl = mean(batch.weight, (ratio - 1 - log_ratio).detach())
    clip_fraction = mean(batch.weight, (ratio - 1).abs() > now.clip)
    total = policy + cfg.vf_coef * value - now.entropy * bonus
    predictions = losses(heads, batch)
    total += cfg.predict_coef * sum(predictions.values())
    means = Losses(policy, value, bonus, kl, clip_fraction)
    return Loss(total, means, ratio.detach(), critic.values.detach(), predictions)


def update(learner: Learner, rollout: Rollout, plan: Plan, length: int) -> dict[str, float]:
    """Several epochs over shuffled minibatches of chunks; the metrics."""
    targets = estimates(learner, rollout, plan.ppo)
    return descend(learner, Minibatches(learner, rollout, plan, length, plan.ppo.draw, targets), plan, loss)


def descend(learner: Learner, minibatches: Minibatches, plan: Plan, loss: LossFunction) -> dict[str, float]:
    """One gradient step on each minibatch of each epoch; the metrics."""
    now, optimizer = learner.coefficients(plan), learner.optimizer
    for epoch in minibatches:
        for batch in epoch:
            terms = learner.engine.gradients(optimizer, loss, batch, plan.ppo, now)
            minibatches.record(terms, batch)
            learner.ranks.all_reduce_sum(optimizer.gradient)
            optimizer.step(now.rates)
    return minibatches.metrics(now)


# Train ----------------------------------------------------------------------------------------


def learn(learner: Learner, rollout: Rollout, plan: Plan, length: int, by: Update) -> dict[str, float]:
    """An update by any algorithm, and the memory states that the next rollout begins with."""
    metrics = by(learner, rollout, plan, length)
    learner.adapt(metrics)
    if plan.ppo.chunk_state == "refresh":
        learner.state = refreshed(learner.agent, rollout)
    return metrics


def train(envs: Envs, learner: Learner, plan: Plan, by: Update = update) -> Iterator[dict[str, float | None]]:
    """Iterate to the end of the plan, yielding metrics; at each yield the learner can be saved."""
    length = plan.ppo.chunk_length(any(learner.agent.initial_state(1)))
    dtype = next(learner.agent.parameters()).dtype
    rollout = Rollout(learner.agent, learner.row, plan.ppo.num_steps, dtype)
    while not learner.has_ended(plan):
        torch.set_num_threads(1)  # a step is too little work to share out
        collect(envs, learner, rollout, plan, length)
        torch.set_num_threads(plan.threads)
        value(learner, rollout, length)
        metrics = learn(learner, rollout, plan, length, by)
        learner.update_statistics(rollout)
        if plan.barrier_after(learner.iteration - 1):
            learner.restart(envs, plan.seed)
        yield {**learner.progress(), **metrics}
