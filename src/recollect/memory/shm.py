"""Stable Hadamard memory: a matrix whose entries are each scaled and written to in every step.

T steps, B sequences, W features, M rows and columns.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from ..common.tree import Tree
from . import Memory
from .attention import count_steps
from .layers import LayeredConfig
from .sequences import SequenceMemory

DRAWS = 1009  # steps after which the sequence of calibration vectors repeats


@dataclass(frozen=True, kw_only=True)
class ShmConfig(LayeredConfig):
    """Stable Hadamard memory: a matrix that is calibrated and written to entry by entry."""

    name: ClassVar[str] = "shm"
    memory_size: int = 16
    """Rows and columns of the memory matrix; the state has its square of numbers."""
    thetas: int = 128
    """Number of calibration vectors L, one of which is used in each step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("width", "layers", "memory_size", "thetas")

    def layer(self, in_dim: int) -> Memory:
        return Shm(in_dim, self.width, self.memory_size, self.thetas)


class Shm(SequenceMemory):
    """M' = C M + eta v k^T, elementwise in M, C = 1 + tanh(theta_t c^T); y = W (M' q + S n + e) + b
    (Le et al., 2025).

    v, k, q, c and eta are linear in n = norm(V x + d); k and q are positive and of sum 1, eta is between 0
    and 1. The paper draws theta_t from L vectors at random in each step. Here the draw is a fixed function of
    the step of the episode, so that acting and learning compute the same, and the mean over all draws is
    subtracted.
    """

    state_names = ("SHM memory M", "SHM step of the episode")

    def __init__(self, in_dim: int, width: int, memory_size: int, thetas: int) -> None:
        super().__init__()
        self.out_dim, self.reach, self.size = width, None, memory_size
        self.embed = nn.Linear(in_dim, width)
        self.norm = nn.LayerNorm(width)
        self.input = nn.Linear(width, 4 * memory_size + 1, bias=False)
        self.shortcut = nn.Linear(width, memory_size)
        self.thetas = nn.Parameter(nn.init.xavier_uniform_(torch.empty(thetas, memory_size)))
        self.output = nn.Linear(memory_size, width)
        # RandomState: numpy keeps its stream the same in all versions, unlike that of default_rng.
        draws = torch.tensor(np.random.RandomState(0).randint(thetas, size=DRAWS, dtype=np.int64))
        counts = torch.bincount(draws, minlength=thetas).to(torch.get_default_dtype())
        self.register_buffer("draws", draws, persistent=False)
        self.register_buffer("counts", counts, persistent=False)
        self.draws: Tensor
        self.counts: Tensor  # (L,), how often each theta is drawn

    def initial_state(self, batch: int) -> Tree:
        age = torch.zeros(batch, dtype=torch.long, device=self.thetas.device)
        return self.thetas.new_zeros(batch, self.size**2), age

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        start, age = cast(tuple[Tensor, Tensor], state)
        step, age = count_steps(first, age)
        # log C = u - log cosh u, u = theta c: if the mean of theta were not 0, M could grow exponentially.
        theta = (self.thetas - self.counts @ self.thetas / DRAWS)[self.draws[step % DRAWS]]
        sizes = [self.size] * 4 + [1]
        x = self.norm(self.embed(x))
        value, key, query, calibration, eta = self.input(x).split(sizes, -1)
        decay = 1 + torch.tanh(theta[..., :, None] * calibration[..., None, :])
        add = (torch.sigmoid(eta) * value)[..., :, None] * _positive(key)[..., None, :]
        # C may exceed 1, so a carried matrix may be infinite, and infinity times 0 would outlast a reset.
        start = start.masked_fill(first[0, :, None], 0.0)
        memory = self.sequences.linear(decay.flatten(2), add.flatten(2), first, start)
        read = memory.unflatten(2, (self.size, self.size)) @ _positive(query)[..., None]
        return self.output(read[..., 0] + self.shortcut(x)), (memory[-1], age)


def _positive(x: Tensor) -> Tensor:
    """relu(x) over its sum."""
    x = torch.relu(x)
    return x / (x.sum(-1, keepdim=True) + 1e-5)
