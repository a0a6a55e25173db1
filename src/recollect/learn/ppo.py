"""Proximal policy optimisation with a memory for the actor and another, or none, for the critic.

Read from top to bottom: collect, value, advantages, update, train. This file never asks which
memory it drives (contract: memory/__init__.py) and touches neither files, clocks nor screens.

Shapes.  T rows a rollout, N environments, L rows a chunk (truncated back-propagation).
Flags.   first[t]       obs[t] opens an episode: memories are cleared before they read it
         terminated[t]  the episode ended for good after action[t]: its future is worth 0
         truncated[t]   it was cut after action[t]: its future is worth V(final observation)
         valid[t]       false on a tail row, which holds a final observation: nobody acts there
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from torch import Tensor

from ..agent.agent import Agent, AgentState
from ..common import rng
from ..envs import Envs
from .learner import Learner
from .maths import Losses, agreement, explained_variance, mean, policy_loss, standardize, value_loss
from .minibatches import Batch, Scores, chunk, minibatches, scores
from .rollout import Outcome, Rollout, slice_rows
from .settings import Plan, PPOConfig
from .states import chunk_states, refreshed, restate

Update: TypeAlias = Callable[[Learner, Rollout, Plan, int], dict[str, float]]

# Collect --------------------------------------------------------------------------------------


@torch.no_grad()
def collect(envs: Envs, learner: Learner, rollout: Rollout, plan: Plan, length: int) -> None:
    """Act for T rows with the actor alone, keeping its state only where a chunk starts."""
    agent, state, policy = learner.agent, learner.state.actor, learner.agent.policy
    rollout.open(learner.row)
    random, ranks = rng.generator(plan.seed, rng.Purpose.ACT, learner.iteration), learner.ranks
    drawn = policy.noise(random, (rollout.num_steps, rollout.num_envs * ranks.size))
    own = torch.from_numpy(drawn[:, ranks.block(rollout.num_envs)])
    noise = own.to(rollout.log_prob.dtype).unbind()
    history: list[Tensor] = []
    for t in range(rollout.num_steps):
        if t % length == 0:
            rollout.starts.append(state)
        rows = rollout.at[t]
        params, state = agent.actor(rows._replace(obs=agent.normalizer(rows.obs)), state)
        action = policy.sample(params[0], noise[t]).numpy()
        history.append(params)
        rollout.write(t, action, envs.step(action))
    # Of what the actor said while acting, all at once: one call for T rows.
    rollout.log_prob.copy_(policy.evaluate(torch.cat(history), rollout.action)[0])
    learner.state = learner.state._replace(actor=state)
    if plan.barrier_after(learner.iteration):
        rollout.cut()
    learner.row = rollout.last_row()


# Value ----------------------------------------------------------------------------------------


@torch.no_grad()
def value(learner: Learner, rollout: Rollout, length: int) -> None:
    """V of rows 0..T from the carried state, one pass over whole chunks.

    Row T is row 0 of the next rollout: it is read from a copy of the state that nobody keeps.
    """
    agent, steps, seen = learner.agent, rollout.num_steps, rollout.seen(learner.agent)
    state = AgentState(rollout.starts[0], learner.state.critic)
    span = length if agent.critic.trunk.initial_state(1) else steps  # without a memory one pass is the same
    for t in range(0, steps, span):
        rollout.critic_starts += [state.critic] * (span // length)
        values, state = agent.value(slice_rows(seen, slice(t, t + span)), state)
        rollout.value[t : t + span] = values
    rollout.value[steps] = agent.value(slice_rows(seen, slice(steps, steps + 1)), state)[0][0]
    learner.state = learner.state._replace(critic=state.critic)


# Advantages -----------------------------------------------------------------------------------


def advantages(rollout: Rollout | Outcome, reward: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantages (T, N); 0 on tail rows, and nothing passes an episode's end.

    delta[t] = reward[t] + gamma V[t+1] (1 - terminated[t]) - V[t]
    A[t]     = delta[t] + gamma lambda A[t+1]   while the episode goes on

    Where an episode is cut, V[t+1] is the value of its tail row: V(final observation).
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


def prepared(learner: Learner, rollout: Rollout, cfg: PPOConfig, length: int) -> tuple[Batch, Scores]:
    """The rollout as chunks with their advantages, as the networks see it; and scores of all processes."""
    ranks, outcome = learner.ranks, rollout.outcome(learner.ranks)
    reward, own = learner.rewards.scaled(outcome.reward), ranks.block(rollout.num_envs)
    advantage = advantages(outcome, reward, cfg.gamma, cfg.gae_lambda)
    surplus = advantage if (far := cfg.target_lambda) is None else advantages(outcome, reward, cfg.gamma, far)
    batch = chunk(rollout, length, advantage[:, own], surplus[:, own])
    rows = batch.rows._replace(obs=learner.agent.normalizer(batch.rows.obs))
    return batch._replace(rows=rows), scores(outcome, length, advantage, surplus)


# Update ---------------------------------------------------------------------------------------


def losses(agent: Agent, batch: Batch, cfg: PPOConfig, clip: float) -> tuple[Losses, Tensor, Tensor]:
    """Run both branches over chunks (L, B, ...) from their stored states; also ratio and values."""
    params, values = agent(batch.rows, batch.state)
    weight = batch.weight  # every mean is over valid rows
    log_prob, entropy = agent.policy.evaluate(params, batch.action)
    log_ratio = (log_prob - batch.log_prob) * batch.valid
    ratio = log_ratio.exp()
    with torch.no_grad():
        away = ratio - 1
        kl = mean(weight, away - log_ratio)  # never negative (Schulman's third estimator)
        clip_fraction = mean(weight, away.abs() > clip)
    means = Losses(
        mean(weight, policy_loss(ratio, batch.advantage, clip)),
        mean(weight, value_loss(values, batch.value, batch.target, cfg.clip_value)),
        mean(weight, entropy),
        kl,
        clip_fraction,
    )
    return means, ratio.detach(), values.detach()


def update(learner: Learner, rollout: Rollout, plan: Plan, length: int) -> dict[str, float]:
    """Several passes over shuffled chunks, each starting from the memory stored for it."""
    cfg, agent, ranks = plan.ppo, learner.agent, learner.ranks
    now = plan.coefficients(learner.iteration, learner.step)
    batch, everyone = prepared(learner, rollout, cfg, length)
    quality = explained_variance(everyone.value, everyone.target, everyone.weight)
    if cfg.normalize_advantage == "rollout":
        everyone = everyone._replace(advantage=standardize(everyone.advantage, everyone.weight))
    num_envs = rollout.num_envs * ranks.size
    size = cfg.chunks_per_minibatch(num_envs, length)
    batch, errors = restate(agent, rollout, batch, cfg, size)
    learner.seed_dropout(plan.seed)
    history: list[Tensor] = []
    for epoch in range(cfg.update_epochs):
        if epoch and cfg.renews_states:
            batch = batch._replace(state=chunk_states(agent, rollout, cfg))
        random = rng.generator(plan.seed, rng.Purpose.SHUFFLE, learner.iteration, epoch)
        passed: list[Tensor] = []
        for part in minibatches(batch, num_envs, size, random, cfg.draw, everyone, ranks):
            terms, ratio, values = losses(agent, part, cfg, now.clip)
            if not history and not passed and not agent.dropout:
                errors = agreement(ratio, values, part.value, part.valid) | errors
            learner.optimizer.zero_grad()
            (terms.policy + cfg.vf_coef * terms.value - now.entropy * terms.entropy).backward()
            ranks.all_reduce_sum(learner.optimizer.gradient)
            learner.optimizer.step(now.rates)
            passed.append(torch.stack(terms).detach())
        history.append(torch.stack(passed))
        if cfg.target_kl is not None and ranks.all_reduce_sum(history[-1][:, 3].mean()) > cfg.target_kl:
            break
    means = Losses(*ranks.all_reduce_sum(torch.cat(history).mean(0)))
    return errors | learner.learned(means, quality, now.rates[0])


# Train ----------------------------------------------------------------------------------------


def learn(learner: Learner, rollout: Rollout, plan: Plan, length: int, by: Update) -> dict[str, float]:
    """An update by any algorithm, and the memories that the next rollout begins with."""
    metrics = by(learner, rollout, plan, length)
    if plan.ppo.chunk_state == "refresh":
        learner.state = refreshed(learner.agent, rollout)
    return metrics


def train(envs: Envs, learner: Learner, plan: Plan, by: Update = update) -> Iterator[dict[str, float | None]]:
    """Iterate to the end of the plan, yielding metrics; in between, the learner is whole."""
    cfg = plan.ppo
    length = cfg.chunk_length(any(learner.agent.initial_state(1)))
    dtype = next(learner.agent.parameters()).dtype
    rollout = Rollout(learner.agent, learner.row, cfg.num_steps, dtype)
    while plan.progress(learner.iteration, learner.step) < 1:
        torch.set_num_threads(1)
        collect(envs, learner, rollout, plan, length)
        torch.set_num_threads(plan.threads)
        value(learner, rollout, length)
        metrics = learn(learner, rollout, plan, length, by)
        learner.read(rollout)
        if plan.barrier_after(learner.iteration - 1):
            learner.restart(envs, plan.seed)
        yield {**learner.progress(), **metrics}
        if learner.reached(cfg.target_return):
            return
