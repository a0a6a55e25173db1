"""Linear attention: attention whose weights are products of features, so that the past is one matrix.

T steps, B sequences, N heads, D numbers of a head.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.errors import UsageError
from ..common.tree import Tree
from . import Memory
from .layers import BlockConfig
from .sequences import SequenceMemory

EPS = 1e-6  # added to the sum of weights


@dataclass(frozen=True, kw_only=True)
class LinearAttentionConfig(BlockConfig):
    """Linear attention: one matrix of sums of keys and values per head."""

    name: ClassVar[str] = "linear_attention"
    heads: int = 4
    """Number of heads; it divides the width."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("width", "layers", "heads")
        check_heads(self.name, self.width, self.heads)

    def layer(self, in_dim: int) -> Memory:
        return LinearAttention(self.width, self.heads)


def check_heads(name: str, width: int, heads: int, normalised: bool = False) -> None:
    """Raise an error if the heads do not divide the width, or are too narrow.

    normalised  whether outputs are normalised within heads
    """
    if width % heads:
        raise UsageError(f"{name}.heads is {heads}; it must divide {name}.width, which is {width}")
    if normalised and width == heads:
        raise UsageError(
            f"{name}.heads is {heads}, as {name}.width: heads of width 1 keep at most a sign, because "
            "outputs are normalised within each; take fewer heads"
        )


class LinearAttention(SequenceMemory):
    """S' = S + f(k) v^T; z' = z + f(k); y = W (f(q) S' / f(q) z') + b (Katharopoulos et al., 2020).

    f(x) = elu(x) + 1; q, k and v are linear in the input.
    """

    state_names = ("linear attention sums S and z",)

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.out_dim, self.reach, self.heads = width, None, heads
        self.input = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width)

    def initial_state(self, batch: int) -> Tree:
        size = self.out_dim // self.heads
        return (self.output.bias.new_zeros(batch, self.heads, size, size + 1),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        (sums,) = cast(tuple[Tensor], state)
        query, key, value = (p.unflatten(2, (self.heads, -1)) for p in self.input(x).chunk(3, -1))
        query, key = F.elu(query) + 1, F.elu(key) + 1
        log_decay = torch.zeros_like(query[..., 0])
        # The weights are summed as one more number of each value, which is 1.
        value = F.pad(value, (0, 1), value=1.0)
        y, sums = self.sequences.outer(query, key, value, None, log_decay, first, sums)
        return self.output((y[..., :-1] / (y[..., -1:] + EPS)).flatten(2)), (sums,)
