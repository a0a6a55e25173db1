"""Finished training episodes and their means."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..envs import Array
from .rollout import Outcome, Rollout


class Episode(NamedTuple):
    """One finished training episode."""

    step: int  # training steps of all environments when it ended
    env: int  # index of its environment
    return_: float  # undiscounted sum of raw rewards
    length: int
    success: float  # NaN where the environment reports none
    terminated: bool  # False: truncated

    @property
    def line(self) -> str:
        """One JSON object; formatted by hand because json.dumps takes three times as long."""
        success = "null" if self.success != self.success else repr(self.success)
        return (
            f'{{"step": {self.step}, "env": {self.env}, "return": {self.return_!r}, "length": {self.length}, '
            f'"success": {success}, "terminated": {"true" if self.terminated else "false"}}}\n'
        )


@dataclass
class Episodes:
    """Returns (of raw rewards) and lengths of training episodes, and means over the last 100 of them."""

    running_return: Array  # (N,) float64
    running_length: Array  # (N,) int64
    recent: list[tuple[float, int, float]]  # return, length, success of the last 100
    finished: int = 0
    latest: list[Episode] = field(default_factory=list)  # those of the last rollout

    @classmethod
    def begin(cls, num_envs: int) -> "Episodes":
        """Statistics before the first episode."""
        return cls(np.zeros(num_envs), np.zeros(num_envs, dtype=np.int64), [])

    def add(self, rollout: Rollout | Outcome, step: int = 0) -> None:
        """Add the finished episodes of a rollout that began at `step`, but not those cut short."""
        valid = rollout.valid[:-1].numpy()
        # In float64: a return is the difference of two sums over the rollout; float32 would lose digits.
        rewards = np.cumsum(np.where(valid, rollout.reward.numpy().astype(np.float64), 0.0), axis=0)
        lengths, steps = np.cumsum(valid, axis=0), step + np.cumsum(valid.sum(1))
        terminated, success = rollout.terminated.numpy(), rollout.success.numpy()
        ended, cut_short = terminated | rollout.truncated.numpy(), rollout.cut_short.numpy()
        # The sums when the running episode of each environment began: negative if before this rollout.
        reward_base, length_base = -self.running_return, -self.running_length
        self.latest = []
        # argwhere is in the order of time, then environment, over all ranks: `recent` does not depend on how
        # a run is split.
        for t, n in np.argwhere(ended):
            if not cut_short[t, n]:
                total, length = float(rewards[t, n] - reward_base[n]), int(lengths[t, n] - length_base[n])
                flags = float(success[t, n]), bool(terminated[t, n])
                self.latest.append(Episode(int(steps[t]), int(n), total, length, *flags))
            reward_base[n], length_base[n] = rewards[t, n], lengths[t, n]
        self.finished += len(self.latest)
        self.recent += [(x.return_, x.length, x.success) for x in self.latest]
        del self.recent[:-100]
        self.running_return, self.running_length = (
            rewards[-1] - reward_base,
            lengths[-1] - length_base,
        )

    def means(self, fewest: int = 100) -> dict[str, float | None]:
        """return, length and success over the last 100 episodes; None until so many have finished."""
        names = "return", "length", "success"
        if len(self.recent) < fewest:
            return dict.fromkeys(names)
        means = (float(np.mean(column)) for column in zip(*self.recent, strict=True))
        return {name: x if np.isfinite(x) else None for name, x in zip(names, means, strict=True)}
