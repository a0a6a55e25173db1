"""Frame stacking: the last few rows side by side, the honest control for every other memory."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..common.tree import Tree
from . import Memory, MemoryConfig


@dataclass(frozen=True, kw_only=True)
class StackConfig(MemoryConfig):
    """The last frames side by side, read before the encoder."""

    name: ClassVar[str] = "stack"
    before_encoder: ClassVar[bool] = True
    frames: int = 4
    """Rows that are seen together, the present one included."""

    def __post_init__(self) -> None:
        self.check_sizes("frames")

    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        return Stack(in_dim, self.frames)


@dataclass(frozen=True, kw_only=True)
class LateStackConfig(StackConfig):
    """The last frames side by side, read after the encoder."""

    name: ClassVar[str] = "late_stack"
    before_encoder: ClassVar[bool] = False


class Stack(Memory):
    """y[t] = (x[t], x[t-1], ..., x[t-frames+1]); frames before the episode read 0."""

    def __init__(self, in_dim: int, frames: int) -> None:
        super().__init__()
        self.in_dim, self.frames = in_dim, frames
        self.out_dim, self.reach = in_dim * frames, frames
        # Follows the module's device and type; holds nothing.
        self.register_buffer("zero", torch.zeros(()), persistent=False)
        self.zero: Tensor

    def initial_state(self, batch: int) -> Tree:
        return (self.zero.new_zeros(batch, self.frames - 1, self.in_dim),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        length, past = len(x), self.frames - 1
        assert isinstance(state, tuple) and isinstance(state[0], Tensor)
        frames = torch.cat([state[0].transpose(0, 1), x])  # (past + T, B, in)
        # The episode of each frame, counted from the one the carried frames belong to.
        episode = torch.cat([first.new_zeros(past, first.shape[1]), first]).cumsum(0)
        now = episode[past:]
        views = []
        for back in range(self.frames):
            span = slice(past - back, past - back + length)
            views.append(frames[span] * (episode[span] == now)[..., None])
        kept = frames[length:] * (episode[length:] == episode[-1])[..., None]
        return torch.cat(views, -1), (kept.transpose(0, 1),)
