"""Random network distillation: an intrinsic reward for new observations (Burda et al. 2018).

Two networks map an observation to a code: the target, which keeps its random weights, and the predictor,
which is trained to compute the same. The squared error of the predictor is large for an observation unlike
all earlier ones, and falls as the agent returns to it.

    reward[t] = scaled reward[t] + rnd_coef e[t] / s,  e[t] = mean (predictor(obs[t+1]) - target(obs[t+1]))^2

s is the standard deviation of the discounted sum of e over all rollouts before (agent/normalize.py). In the
first rollout there are no statistics of observations yet, and e is 0, so in the second s is 1. Unlike in the
paper, one value function serves the sum of both rewards, so the intrinsic return ends with the episode, and
there are no steps of a random agent before.

Shapes.  T steps, N environments.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..agent.agent import BranchConfig
from ..agent.nets import Inputs, Rows, layers, linear, seeded_weights
from ..agent.normalize import Normalizer, RewardScale
from ..common.devices import send
from ..common.distributed import Ranks
from ..envs.spaces import ActionSpec, ObsSpec
from .optim import FlatAdam
from .rollout import Rollout, slice_rows
from .settings import PPOConfig

UNITS = 64  # of every layer, and numbers of the code
BATCHES = 4  # gradient steps per rollout


class Distillation(nn.Module):
    """The two networks, on the observations of the actor, normalised by statistics of their own.

    Initial weights are a function of the seed alone, and not those of the agent.
    """

    def __init__(self, spaces: tuple[ObsSpec, ActionSpec], actor: BranchConfig, seed: int) -> None:
        super().__init__()

        def network(*hidden: int) -> nn.Sequential:
            inputs = Inputs(
                *spaces, prev_action=False, prev_reward=False, encoder=actor.encoder, sees=actor.sees
            )
            body, width = layers(inputs.out_dim, hidden, "relu")
            return nn.Sequential(inputs, body, linear(width, UNITS, 1.0))

        # Always, because an observation that is large or small in the units of its environment would be
        # new or known for that alone.
        self.normalizer = Normalizer(spaces[0], active=True)
        with seeded_weights(seed, 1):
            self.target, self.predictor = network(UNITS), network(UNITS, UNITS, UNITS)
        self.target.requires_grad_(False)

    def forward(self, rows: Rows) -> Tensor:
        """Rows (T, N, ...) -> the mean squared error of the predictor (T, N)."""
        rows = rows._replace(obs=self.normalizer(rows.obs))
        return (self.predictor(rows) - self.target(rows)).square().mean(-1)


class Novelty:
    """The intrinsic reward of a run, and all that it learns."""

    def __init__(self, distillation: Distillation, cfg: PPOConfig, num_envs: int) -> None:
        """num_envs: of all ranks."""
        self.distillation, self.coef, self.rate = distillation, cfg.rnd_coef, cfg.learning_rate
        self.optimizer = FlatAdam([distillation.predictor], cfg)
        self.scale = RewardScale(num_envs, cfg.gamma, active=True)
        self.mean = 0.0  # intrinsic reward per step of the latest rollout
        self._errors = torch.zeros(0)  # of the present rollout (T, N)

    @torch.no_grad()
    def rewards(self, rollout: Rollout, ranks: Ranks) -> Tensor:
        """The intrinsic rewards of the environments of all ranks (T, N), on the CPU."""
        outcome, counted = rollout.outcome(ranks), _counted(rollout, ranks)
        self._errors = torch.zeros_like(outcome.reward)
        if self._has_statistics:
            local = self.distillation(_next_rows(rollout)).to(outcome.reward)
            self._errors = ranks.all_gather_envs([local])[0].masked_fill(~counted, 0.0)
        rewards = self.coef * self.scale.scaled(self._errors)
        self.mean = float(rewards.sum() / counted.sum().clamp(min=1))
        return rewards

    def learn(self, rollout: Rollout, ranks: Ranks) -> None:
        """Train the predictor on a rollout and update the statistics; after the last use of its rewards."""
        outcome, counted = rollout.outcome(ranks), _counted(rollout, ranks)
        if self._has_statistics:
            self._train(rollout, counted, ranks)
            self.scale.update(self._errors, counted, outcome.terminated | outcome.truncated)
        valid = rollout.valid[:-1]
        obs = {name: x[:-1] for name, x in rollout.rows.obs.items()}
        self.distillation.normalizer.update(obs, valid, ranks)

    def _train(self, rollout: Rollout, counted: Tensor, ranks: Ranks) -> None:
        rows, local_envs = _next_rows(rollout), ranks.block(rollout.num_envs)
        for first in range(min(BATCHES, rollout.num_steps)):
            # Not steps in a row, which are much alike.
            steps = slice(first, None, BATCHES)
            if not counted[steps].any():  # of all ranks: nothing to learn, and momentum alone would move it
                continue
            mask = counted[steps].to(rollout.log_prob.dtype)
            weight = send((mask / mask.sum())[:, local_envs].contiguous(), rollout.device)
            self.optimizer.zero_grad()
            (weight * self.distillation(slice_rows(rows, steps))).sum().backward()
            ranks.all_reduce_sum(self.optimizer.gradient)
            self.optimizer.step([self.rate])
        self.optimizer.count_skips()

    @property
    def _has_statistics(self) -> bool:
        return bool(self.distillation.normalizer.count)

    def tensors(self) -> dict[str, Tensor]:
        """Everything, by name, for a checkpoint."""
        parts = {
            "networks": self.distillation.state_dict(),
            "optimizer": self.optimizer.tensors(),
            "scale": self.scale.tensors(),
        }
        return {f"{part}.{name}": x for part, tensors in parts.items() for name, x in tensors.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Undoes `tensors`."""
        # In place: weights and moments are views of flat vectors.
        self.distillation.load_state_dict(
            {name: tensors[f"networks.{name}"] for name in self.distillation.state_dict()}
        )
        for name, x in self.optimizer.tensors().items():
            x.copy_(tensors[f"optimizer.{name}"])
        self.scale.load({name: tensors[f"scale.{name}"] for name in self.scale.tensors()})


def _next_rows(rollout: Rollout) -> Rows:
    """The rows that the actions of steps 0..T-1 led to."""
    return slice_rows(rollout.sent.rows, slice(1, None))


def _counted(rollout: Rollout, ranks: Ranks) -> Tensor:
    """Whether the next row of a step (T, N) is an observation that its action led to, for all ranks."""
    outcome = rollout.outcome(ranks)
    # After a failure of an environment there may be no final observation.
    return outcome.valid[:-1] & ~outcome.cut_short
