"""No memory: the output is the input of the same step."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..common.tree import Tree
from . import Memory, MemoryConfig


@dataclass(frozen=True, kw_only=True)
class MlpConfig(MemoryConfig):
    """No memory: a feedforward network."""

    name: ClassVar[str] = "mlp"

    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        return Mlp(in_dim)


class Mlp(Memory):
    """y = x."""

    plain = True

    def __init__(self, in_dim: int) -> None:
        super().__init__()
        self.out_dim, self.reach = in_dim, 1

    def initial_state(self, batch: int) -> Tree:
        return ()

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        return x, state
