"""Frame stacking: the features of the last steps side by side; a baseline for the other memories."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..common.tree import Tree
from . import Memory, MemoryConfig


@dataclass(frozen=True, kw_only=True)
class StackConfig(MemoryConfig):
    """Stacks the raw features of the last steps, before the encoder."""

    name: ClassVar[str] = "stack"
    before_encoder: ClassVar[bool] = True
    frames: int = 4
    """Number of stacked steps, the present one included."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("frames")

    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        return Stack(in_dim, self.frames)


@dataclass(frozen=True, kw_only=True)
class LateStackConfig(StackConfig):
    """Stacks the encoded features of the last steps, after the encoder."""

    name: ClassVar[str] = "late_stack"
    before_encoder: ClassVar[bool] = False


class Stack(Memory):
    """y[t] = (x[t], x[t-1], ..., x[t-frames+1]); frames before the episode are 0."""

    plain = True

    state_names = ("stacked observations",)

    def __init__(self, in_dim: int, frames: int) -> None:
        super().__init__()
        self.in_dim, self.frames = in_dim, frames
        self.out_dim, self.reach = in_dim * frames, frames
        # Without weights, this buffer tells initial_state the device and the dtype of the module.
        self.register_buffer("zero", torch.zeros(()), persistent=False)
        self.zero: Tensor

    def initial_state(self, batch: int) -> Tree:
        return (self.zero.new_zeros(batch, self.frames - 1, self.in_dim),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        length, past = len(x), self.frames - 1
        assert isinstance(state, tuple) and isinstance(state[0], Tensor)
        frames = torch.cat([state[0].transpose(0, 1), x])  # (past + T, B, in)
        # Number the episodes of all frames; the carried frames are of episode 0. A frame of another
        # episode is multiplied by 0, which also stops its gradient.
        episode = torch.cat([first.new_zeros(past, first.shape[1]), first]).cumsum(0)
        now = episode[past:]
        stacked = []
        for back in range(self.frames):
            span = slice(past - back, past - back + length)
            stacked.append(frames[span] * (episode[span] == now)[..., None])
        carried = frames[length:] * (episode[length:] == episode[-1])[..., None]
        return torch.cat(stacked, -1), (carried.transpose(0, 1),)
