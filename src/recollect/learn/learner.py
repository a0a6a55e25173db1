"""The learner: all that training carries from one iteration to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent, AgentState
from ..agent.normalize import RewardScale
from ..common import rng
from ..common.distributed import ALONE, Ranks
from ..envs import Envs
from .adaptive import Adaptation, adaptations
from .chunks import Scores
from .engine import Engine, TorchEngine
from .episodes import Episodes
from .maths import Losses
from .novelty import Novelty
from .opponents import PastSelves
from .optim import FlatAdam
from .rollout import Rollout, Row, opening_row
from .settings import Coefficients, Plan

CHECK_INTERVAL = 16  # iterations between two comparisons of the weights of all ranks


@dataclass
class Learner:
    """All that is carried between iterations; a checkpoint is exactly this and the environments."""

    agent: Agent
    optimizer: FlatAdam
    rewards: RewardScale
    row: Row  # row 0 of the next rollout
    state: AgentState  # memory states before that row; every leaf (N, ...)
    episodes: Episodes
    engine: Engine
    ranks: Ranks = ALONE
    iteration: int = 0
    step: int = 0  # training steps so far, of all ranks
    adaptations: dict[str, Adaptation] = field(default_factory=dict)
    novelty: Novelty | None = None  # the intrinsic reward
    opponents: PastSelves | None = None  # of self-play

    def coefficients(self, plan: Plan) -> Coefficients:
        """The hyperparameters of the next update: those of the schedules, and the adapted ones."""
        now = plan.coefficients(self.iteration, self.step)
        for adaptation in self.adaptations.values():
            now = adaptation.apply(now)
        return now

    def adapt(self, metrics: Mapping[str, float]) -> None:
        """Adapt coefficients to the metrics of an update, unless the actor was not trained in it."""
        if metrics["learning_rate"] > 0:
            for adaptation in self.adaptations.values():
                adaptation.adapt(metrics)

    def scaled_rewards(self, rollout: Rollout) -> Tensor:
        """The rewards that are learned from, of the environments of all ranks (T, N)."""
        reward = self.rewards.scaled(rollout.outcome(self.ranks).reward)
        return reward if self.novelty is None else reward + self.novelty.rewards(rollout, self.ranks)

    def follow_targets(self, scores: Scores) -> Scores:
        """Adapt the value head to the targets of all ranks, before the first gradient step; the scores with
        its values.
        """
        head = self.agent.value_head
        values, factor = head.follow(scores.target[scores.mask], scores.value)
        if factor != 1:
            self.optimizer.rescale(head.out, factor)
        return scores._replace(value=values)

    def update_statistics(self, rollout: Rollout) -> None:
        """Update normalisers and episode statistics; after the last gradient step, because until then they
        must be those that the actor acted with.
        """
        outcome, local_valid = rollout.outcome(self.ranks), rollout.valid[:-1]
        valid = outcome.valid[:-1]
        # Without row T, which the next rollout counts as its row 0. Observations stay with their rank, and
        # only their moments are gathered; rewards are those of all ranks already.
        self.agent.normalizer.update(
            {k: x[:-1] for k, x in rollout.rows.obs.items()}, local_valid, self.ranks
        )
        self.rewards.update(outcome.reward, valid, outcome.terminated | outcome.truncated)
        if self.novelty is not None:
            self.novelty.learn(rollout, self.ranks)
        self.episodes.add(outcome, self.step)
        self.iteration += 1
        if self.opponents is not None:
            self.opponents.follow(self.iteration)
        self.step += int(valid.sum())
        # Every rank comes here in the same iteration, as the comparison is a collective operation.
        if self.iteration % CHECK_INTERVAL == 0:
            self.ranks.check_equal(self.optimizer.flats)

    def progress(self) -> dict[str, float | None]:
        """The metrics of progress: counts, means over the last 100 episodes, and the error of the kernels."""
        counts = {
            "step": self.step,
            "iteration": self.iteration,
            "episodes": self.episodes.finished,
        }
        intrinsic = {"intrinsic_reward": self.novelty.mean} if self.novelty else {}
        return {**counts, **self.episodes.means(), **intrinsic, "kernel_error": self.engine.error}

    def update_metrics(
        self, losses: Losses, explained_variance: float, now: Coefficients
    ) -> dict[str, float]:
        """The metrics of an update: mean losses, explained variance, the coefficients of the actor."""
        policy, value, entropy, kl, clip_fraction = torch.stack(losses).tolist()
        return {
            "policy_loss": policy,
            # Squared errors in units of the raw reward, so that runs are comparable.
            "value_loss": value * self.agent.value_head.loss_unit(self.rewards.divisor),
            "entropy": entropy,
            "kl": kl,
            "clip_fraction": clip_fraction,
            "explained_variance": explained_variance,
            "learning_rate": now.rates[0] * self.optimizer.rate_factor,
            "ent_coef": now.entropy,
            "skipped_steps": self.optimizer.count_skips(),
        }

    def restart(self, envs: Envs, seed: int) -> None:
        """A barrier: reset all environments from the seeds of this iteration, and all memories."""
        if self.opponents is not None:
            self.opponents.restart()
        # The iteration is that of the next rollout by now; resuming there draws the same seeds.
        self.row = first_row(envs, self.agent, seed, self.iteration, self.ranks)
        self.state = self.agent.initial_state(envs.num_envs)

    def seed_dropout(self, seed: int) -> None:
        """Seed torch's generator, from which only dropout draws, so that a resumed run draws the same."""
        if self.agent.dropout:
            torch.manual_seed(rng.torch_seed(seed, rng.Purpose.DROPOUT, self.iteration, self.ranks.rank))

    def has_ended(self, plan: Plan) -> bool:
        """Whether the run has had its steps, or the mean return of its last 100 episodes is the target."""
        target, mean = plan.ppo.target_return, self.episodes.means()["return"]
        reached = target is not None and mean is not None and mean >= target
        return reached or plan.progress(self.iteration, self.step) >= 1


def begin(
    envs: Envs,
    agent: Agent,
    plan: Plan,
    normalize_reward: bool = False,
    reward_scale: float = 1.0,
    ranks: Ranks = ALONE,
    self_play: int = 0,
) -> Learner:
    """A learner at the start of training, with its environments reset."""
    all_envs = envs.num_envs * ranks.size
    opponents = None
    if self_play:
        opponents = PastSelves(agent, envs, self_play)
        envs.adapter.play_against(opponents)  # before the first reset, in which they may act
    return Learner(
        agent,
        FlatAdam([agent.actor, agent.critic], plan.ppo),
        RewardScale(all_envs, plan.ppo.gamma, normalize_reward, reward_scale),
        first_row(envs, agent, plan.seed, 0, ranks),
        agent.initial_state(envs.num_envs),
        Episodes.begin(all_envs),
        TorchEngine(agent),
        ranks,
        adaptations=adaptations(plan.ppo),
        opponents=opponents,
    )


def first_row(envs: Envs, agent: Agent, seed: int, iteration: int, ranks: Ranks = ALONE) -> Row:
    """Reset every environment from its seed; their first row."""
    # For the environments of all ranks, of which each takes its block: a split changes none
    # but those of Gymnasium's CartPole, which share a generator (envs/cartpole.py).
    seeds = rng.env_seeds(seed, rng.Purpose.ENV, iteration, envs.num_envs * ranks.size)
    obs = envs.reset(seeds[ranks.block(envs.num_envs)])
    dtype = np.dtype("int64" if agent.policy.discrete else "float32")
    return opening_row(obs, agent.policy.width, dtype, envs.adapter.waiting())
