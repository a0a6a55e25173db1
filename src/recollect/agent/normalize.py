"""Running statistics: of observations, which belong to the agent, and of rewards, which do not.

Both are constant from the first act of an iteration to its last gradient step, change nothing in
the first iteration, and learn from valid rows only.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..common.distributed import ALONE, Ranks
from ..envs.spaces import ObsSpec


class Normalizer(nn.Module):
    """Shifts and scales vector leaves by the mean and deviation of all valid rows learned from.

    The statistics belong to the agent and are constant while an iteration acts and learns; before
    the first rows are learned it changes nothing.
    """

    def __init__(self, obs: ObsSpec, active: bool) -> None:
        super().__init__()
        vectors = {name: leaf for name, leaf in obs.leaves.items() if leaf.kind == "vector"}
        self.names = tuple(vectors) if active else ()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.count: Tensor
        for i, name in enumerate(self.names):
            self.register_buffer(f"mean{i}", torch.zeros(vectors[name].shape, dtype=torch.float64))
            self.register_buffer(f"var{i}", torch.ones(vectors[name].shape, dtype=torch.float64))
        self._scaling: dict[str, tuple[Tensor, Tensor]] = {}  # float copies, made when first used

    def forward(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leaves (T, B, ...) -> the same, vectors shifted, scaled and clipped to 10."""
        if not self.names or not self.count:
            return obs
        out = dict(obs)
        for i, name in enumerate(self.names):
            shift, scale = self._scale_of(i, name, obs[name].dtype)
            out[name] = ((obs[name] - shift) * scale).clamp_(-10, 10)
        return out

    def _scale_of(self, i: int, name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        found = self._scaling.get(name)
        if found is None or found[0].dtype != dtype:
            mean, var = self.get_buffer(f"mean{i}"), self.get_buffer(f"var{i}")
            found = self._scaling[name] = mean.to(dtype), (var + 1e-8).rsqrt().to(dtype)
        return found

    @torch.no_grad()
    def update(self, obs: dict[str, Tensor], valid: Tensor, ranks: Ranks = ALONE) -> None:
        """Take the valid ones of rows (T, N) into the statistics, and those of other processes."""
        rows = ranks.all_gather(valid.sum())
        for i, name in enumerate(self.names):
            x = obs[name][valid].double()
            mean, var = self.get_buffer(f"mean{i}"), self.get_buffer(f"var{i}")
            count = self.count.clone()
            for part, found in zip(rows, ranks.all_gather(moments(x)), strict=True):
                merge(mean, var, count, part, found)
                count += part
        self.count += rows.sum()
        self._scaling.clear()

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._scaling.clear()


class RewardScale:
    """Multiplies rewards, or, active, divides them by the deviation of the discounted return."""

    def __init__(self, num_envs: int, gamma: float, active: bool, scale: float = 1.0) -> None:
        self.gamma, self.active, self.scale = gamma, active, scale
        self.running = torch.zeros(num_envs, dtype=torch.float64)  # discounted return so far
        self.mean, self.var, self.count = (torch.zeros((), dtype=torch.float64) for _ in range(3))

    @property
    def divisor(self) -> float:
        """What a reward is divided by: a constant before anything was learned."""
        learned = self.active and self.count > 1 and self.var > 0
        return float(self.var.sqrt()) + 1e-8 if learned else 1 / self.scale

    def scaled(self, reward: Tensor) -> Tensor:
        """Rewards as learning sees them, clipped to 10 where they are scaled."""
        divisor = self.divisor
        if divisor == 1:
            return reward
        return (reward / divisor).clamp(-10, 10) if self.active else reward / divisor

    def update(self, reward: Tensor, valid: Tensor, ended: Tensor) -> None:
        """Take in rows (T, N); `ended` is true where an episode ends or is cut after the row."""
        if not self.active:
            return
        returns = torch.empty(reward.shape, dtype=torch.float64)
        running = self.running
        for t, row in enumerate(reward.double() * valid):
            returns[t] = running = running * self.gamma + row
            running = running * ~ended[t]
        self.running = running
        x = returns[valid]
        rows = torch.tensor(len(x))
        merge(self.mean, self.var, self.count, rows, moments(x))
        self.count += rows

    def tensors(self) -> dict[str, Tensor]:
        """Everything, by name, for a checkpoint."""
        return {"running": self.running, "mean": self.mean, "var": self.var, "count": self.count}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Undoes `tensors`."""
        self.running = tensors["running"]
        self.mean, self.var, self.count = (tensors[k] for k in ("mean", "var", "count"))


def moments(x: Tensor) -> Tensor:
    """Mean and variance of rows (n, ...) as (2, ...); 0 of none."""
    if not len(x):
        return x.new_zeros(2, *x.shape[1:])
    return torch.stack([x.mean(0), x.var(0, correction=0)])


def merge(mean: Tensor, var: Tensor, count: Tensor, rows: Tensor, found: Tensor) -> None:
    """Take the `moments` of some rows into a mean and variance of `count` rows, in place (Chan et al.)."""
    if not rows:
        return
    total = count + rows
    own_mean, own_var = found
    delta = own_mean - mean
    between = delta.square() * count * rows / total
    var.copy_((var * count + own_var * rows + between) / total)
    mean.add_(delta * rows / total)
