"""What training carries from one iteration to the next, and how it begins."""

from dataclasses import dataclass

import numpy as np
import torch

from ..agent.agent import Agent, AgentState
from ..agent.normalize import RewardScale
from ..common import rng
from ..common.distributed import ALONE, Ranks
from ..envs import Envs
from .episodes import Episodes
from .maths import Losses
from .optim import FlatAdam
from .rollout import Rollout, Row, opening_row
from .settings import Plan

CHECKED = 16  # iterations between two looks at whether all processes have the same weights


@dataclass
class Learner:
    """All that goes from one iteration to the next; a checkpoint is exactly this and the environments."""

    agent: Agent
    optimizer: FlatAdam
    rewards: RewardScale
    row: Row  # row 0 of the next rollout
    state: AgentState  # both memories before that row; every leaf (N, ...)
    episodes: Episodes
    ranks: Ranks = ALONE
    iteration: int = 0
    step: int = 0  # valid rows so far

    def update_statistics(self, rollout: Rollout) -> None:
        """After the last gradient step of an iteration: take the rollout into all statistics."""
        outcome, own = rollout.outcome(self.ranks), rollout.valid[:-1]
        valid = outcome.valid[:-1]
        self.agent.normalizer.update({k: x[:-1] for k, x in rollout.rows.obs.items()}, own, self.ranks)
        self.rewards.update(outcome.reward, valid, outcome.terminated | outcome.truncated)
        self.episodes.add(outcome, self.step)
        self.iteration += 1
        self.step += int(valid.sum())
        if self.iteration % CHECKED == 0:
            self.ranks.check_equal(self.optimizer.flats)

    def progress(self) -> dict[str, float | None]:
        """How far the run is and how well the last 100 episodes went."""
        counts = {
            "step": self.step,
            "iteration": self.iteration,
            "episodes": self.episodes.finished,
        }
        return {**counts, **self.episodes.means()}

    def update_metrics(self, losses: Losses, explained_variance: float, rate: float) -> dict[str, float]:
        """The metrics of an update: mean losses, explained variance, the learning rate of the actor."""
        policy, value, entropy, kl, clip_fraction = torch.stack(losses).tolist()
        return {
            "policy_loss": policy,
            # In raw reward, so that runs share a scale.
            "value_loss": value * self.rewards.divisor**2,
            "entropy": entropy,
            "kl": kl,
            "clip_fraction": clip_fraction,
            "explained_variance": explained_variance,
            "learning_rate": rate,
            "skipped_steps": self.optimizer.skipped,
        }

    def restart(self, envs: Envs, seed: int) -> None:
        """A barrier: every environment begins anew from its key, and nothing is remembered."""
        self.row = first_row(envs, self.agent, seed, self.iteration, self.ranks)
        self.state = self.agent.initial_state(envs.num_envs)

    def seed_dropout(self, seed: int) -> None:
        """Dropout is the one thing that draws from torch's generator, the same whenever a run goes on."""
        if self.agent.dropout:
            place = self.iteration, self.ranks.rank
            torch.manual_seed(rng.torch_seed(seed, rng.Purpose.DROPOUT, *place))

    def reached(self, target_return: float | None) -> bool:
        """Whether the last 100 episodes are good enough to stop."""
        mean = self.episodes.means()["return"]
        return target_return is not None and mean is not None and mean >= target_return


def begin(
    envs: Envs,
    agent: Agent,
    plan: Plan,
    normalize_reward: bool = False,
    reward_scale: float = 1.0,
    ranks: Ranks = ALONE,
) -> Learner:
    """A learner that has not learned yet, before the first row of its environments."""
    everywhere = envs.num_envs * ranks.size
    return Learner(
        agent,
        FlatAdam([agent.actor, agent.critic], plan.ppo),
        RewardScale(everywhere, plan.ppo.gamma, normalize_reward, reward_scale),
        first_row(envs, agent, plan.seed, 0, ranks),
        agent.initial_state(envs.num_envs),
        Episodes.begin(everywhere),
        ranks,
    )


def first_row(envs: Envs, agent: Agent, seed: int, iteration: int, ranks: Ranks = ALONE) -> Row:
    """Reset every environment from its key and look."""
    seeds = rng.env_seeds(seed, rng.Purpose.ENV, iteration, envs.num_envs * ranks.size)
    obs = envs.reset(seeds[ranks.block(envs.num_envs)])
    dtype = np.dtype("int64" if agent.policy.discrete else "float32")
    return opening_row(obs, agent.policy.width, dtype)
