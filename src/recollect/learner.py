"""What training carries from one iteration to the next, and how it begins."""

from dataclasses import dataclass

import numpy as np
import torch

from . import rng
from .agent import Agent, AgentState
from .envs import Envs
from .maths import Losses
from .normalize import RewardScale
from .optim import FlatAdam
from .rollout import Episodes, Rollout, Row, opening_row
from .settings import Plan


@dataclass
class Learner:
    """All that goes from one iteration to the next; a checkpoint is exactly this and the environments."""

    agent: Agent
    optimizer: FlatAdam
    rewards: RewardScale
    row: Row  # row 0 of the next rollout
    state: AgentState  # both memories before that row; every leaf (N, ...)
    episodes: Episodes
    iteration: int = 0
    step: int = 0  # valid rows so far

    def read(self, rollout: Rollout) -> None:
        """After the last gradient step of an iteration: take the rollout into all statistics."""
        valid = rollout.valid[:-1]
        self.agent.normalizer.learn({k: x[:-1] for k, x in rollout.rows.obs.items()}, valid)
        self.rewards.learn(rollout.reward, valid, rollout.terminated | rollout.truncated)
        self.episodes.read(rollout)
        self.iteration += 1
        self.step += int(valid.sum())

    def progress(self) -> dict[str, float | None]:
        """How far the run is and how well the last 100 episodes went."""
        counts = {
            "step": self.step,
            "iteration": self.iteration,
            "episodes": self.episodes.finished,
        }
        return {**counts, **self.episodes.means()}

    def learned(self, terms: Losses, quality: float, rate: float) -> dict[str, float]:
        """What an update did, as it is logged: mean losses, explained variance, the actor's rate."""
        policy, value, entropy, kl, clip_fraction = torch.stack(terms).tolist()
        return {
            "policy_loss": policy,
            # In raw reward, so that runs share a scale.
            "value_loss": value * self.rewards.divisor**2,
            "entropy": entropy,
            "kl": kl,
            "clip_fraction": clip_fraction,
            "explained_variance": quality,
            "learning_rate": rate,
            "skipped_steps": self.optimizer.skipped,
        }

    def restart(self, envs: Envs, seed: int) -> None:
        """A barrier: every environment begins anew from its key, and nothing is remembered."""
        self.row = first_row(envs, self.agent, seed, self.iteration)
        self.state = self.agent.initial_state(envs.num_envs)

    def seed_dropout(self, seed: int) -> None:
        """Dropout is the one thing that draws from torch's generator, the same whenever a run goes on."""
        if self.agent.dropout:
            torch.manual_seed(rng.torch_seed(seed, rng.Purpose.DROPOUT, self.iteration))

    def reached(self, target_return: float | None) -> bool:
        """Whether the last 100 episodes are good enough to stop."""
        mean = self.episodes.means()["return"]
        return target_return is not None and mean is not None and mean >= target_return


def begin(
    envs: Envs, agent: Agent, plan: Plan, normalize_reward: bool = False, reward_scale: float = 1.0
) -> Learner:
    """A learner that has not learned yet, before the first row of its environments."""
    return Learner(
        agent,
        FlatAdam([agent.actor, agent.critic], plan.ppo),
        RewardScale(envs.num_envs, plan.ppo.gamma, normalize_reward, reward_scale),
        first_row(envs, agent, plan.seed, 0),
        agent.initial_state(envs.num_envs),
        Episodes.begin(envs.num_envs),
    )


def first_row(envs: Envs, agent: Agent, seed: int, iteration: int) -> Row:
    """Reset every environment from its key and look."""
    obs = envs.reset(rng.env_seeds(seed, rng.Purpose.ENV, iteration, envs.num_envs))
    dtype = np.dtype("int64" if agent.policy.discrete else "float32")
    return opening_row(obs, agent.policy.width, dtype)
