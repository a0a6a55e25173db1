"""Running statistics of observations, which are part of the agent, and of rewards, which are not.

Both are constant from the first action of an iteration to its last gradient step, because acting and
learning must see the same inputs. They are the identity in the first iteration, and are updated from valid
steps only.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..common.devices import send
from ..common.distributed import ALONE, Ranks
from ..envs.spaces import ObsSpec


class Normalizer(nn.Module):
    """Shifts and scales vector observations by the mean and standard deviation of all valid steps so far."""

    def __init__(self, obs: ObsSpec, active: bool) -> None:
        super().__init__()
        vectors = {name: leaf for name, leaf in obs.leaves.items() if leaf.kind == "vector"}
        self.names = tuple(vectors) if active else ()
        # In float64: late in a run, the share of one rollout is below the rounding of float32.
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.count: Tensor
        for i, name in enumerate(self.names):
            self.register_buffer(f"mean{i}", torch.zeros(vectors[name].shape, dtype=torch.float64))
            self.register_buffer(f"var{i}", torch.ones(vectors[name].shape, dtype=torch.float64))
        # In the dtype and on the device of the observations, computed at first use.
        self._scaling: dict[str, tuple[Tensor, Tensor]] = {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Normalizer":
        """Keep the statistics where rollouts are, in the memory of the CPU, and in float64."""
        return self

    def forward(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Observations (T, B, ...) -> the same, vectors shifted, scaled and clipped to [-10, 10]."""
        if not self.scales:
            return obs
        out = dict(obs)
        for name in self.names:
            if name not in obs:  # a leaf that only the critic sees, and a player is not given
                continue
            shift, scale = self.scaling(name, obs[name])
            # clamp_ changes the new tensor only; observations are stored raw.
            out[name] = ((obs[name] - shift) * scale).clamp_(-10, 10)
        return out

    @property
    def scales(self) -> bool:
        """Whether observations are changed: not before the first statistics."""
        return bool(self.names and self.count)

    def scaling(self, name: str, like: Tensor) -> tuple[Tensor, Tensor]:
        """Shift and scale of an observation, in the dtype and on the device of a tensor."""
        scaling = self._scaling.get(name)
        if scaling is None or scaling[0].dtype != like.dtype or scaling[0].device != like.device:
            i = self.names.index(name)
            mean, var = self.get_buffer(f"mean{i}"), self.get_buffer(f"var{i}")
            # 1e-8, because an entry that never changes has a variance of 0.
            shift, scale = mean.to(like.dtype), (var + 1e-8).rsqrt().to(like.dtype)
            # To the dtype before the device: not every device has float64.
            scaling = self._scaling[name] = send(shift, like.device), send(scale, like.device)
        return scaling

    @torch.no_grad()
    def update(self, obs: dict[str, Tensor], valid: Tensor, ranks: Ranks = ALONE) -> None:
        """Add the valid steps (T, N) of all processes to the statistics."""
        counts = ranks.all_gather(valid.sum())
        for i, name in enumerate(self.names):
            x = obs[name][valid].double()
            mean, var = self.get_buffer(f"mean{i}"), self.get_buffer(f"var{i}")
            count = self.count.clone()
            # In the order of ranks, so that every process rounds alike.
            for rank_count, rank_moments in zip(counts, ranks.all_gather(moments(x)), strict=True):
                merge(mean, var, count, rank_count, rank_moments)
                count += rank_count
        self.count += counts.sum()
        self._scaling.clear()

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._scaling.clear()


class RewardScale:
    """Divides rewards by the standard deviation of the discounted return, or multiplies by a constant."""

    def __init__(self, num_envs: int, gamma: float, active: bool, scale: float = 1.0) -> None:
        self.gamma, self.active, self.scale = gamma, active, scale
        self.running = torch.zeros(num_envs, dtype=torch.float64)  # discounted return of the present episode
        self.mean, self.var, self.count = (torch.zeros((), dtype=torch.float64) for _ in range(3))

    @property
    def divisor(self) -> float:
        """Divisor of rewards; constant within an iteration."""
        learned = self.active and self.count > 1 and self.var > 0
        return float(self.var.sqrt()) + 1e-8 if learned else 1 / self.scale

    def scaled(self, reward: Tensor) -> Tensor:
        """Scaled rewards, clipped to [-10, 10] where they are normalised."""
        divisor = self.divisor
        # Also before there is a divisor, as in the first rollout: one large reward would outweigh all others.
        scaled = reward if divisor == 1 else reward / divisor
        return scaled.clamp(-10, 10) if self.active else scaled

    def update(self, reward: Tensor, valid: Tensor, ended: Tensor) -> None:
        """Add steps (T, N) to the statistics; `ended` is true where an episode ends after the step."""
        if not self.active:
            return
        returns = torch.empty(reward.shape, dtype=torch.float64)
        running = self.running
        for t, valid_reward in enumerate(reward.double() * valid):
            returns[t] = running = running * self.gamma + valid_reward
            # After an end the sum is 0, and the tail row adds 0, so the next episode starts from 0.
            running = running * ~ended[t]
        self.running = running
        x = returns[valid]
        count = torch.tensor(len(x))
        merge(self.mean, self.var, self.count, count, moments(x))
        self.count += count

    def tensors(self) -> dict[str, Tensor]:
        """Everything, by name, for a checkpoint."""
        return {"running": self.running, "mean": self.mean, "var": self.var, "count": self.count}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Undoes `tensors`."""
        self.running = tensors["running"]
        self.mean, self.var, self.count = (tensors[k] for k in ("mean", "var", "count"))


def moments(x: Tensor) -> Tensor:
    """Mean and variance of samples (n, ...) as (2, ...); 0 for n = 0."""
    if not len(x):
        return x.new_zeros(2, *x.shape[1:])
    # Without correction: `merge` combines variances of populations.
    return torch.stack([x.mean(0), x.var(0, correction=0)])


def merge(mean: Tensor, var: Tensor, count: Tensor, new_count: Tensor, new_moments: Tensor) -> None:
    """Add the `moments` of new samples to a mean and variance of `count` samples, in place (Chan et al.)."""
    if not new_count:
        return
    total = count + new_count
    new_mean, new_var = new_moments
    delta = new_mean - mean
    between = delta.square() * count * new_count / total
    var.copy_((var * count + new_var * new_count + between) / total)
    mean.add_(delta * new_count / total)
