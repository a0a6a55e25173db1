"""A critic without networks of its own below its head: it takes the features of the actor."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..common.tree import Tree
from .nets import Rows, initialise, layers
from .predictors import Predictors
from .values import HEADS, CriticOutput, ValueHead

if TYPE_CHECKING:
    from .agent import AgentState, Branch, BranchConfig


class SharedCritic(nn.Module):
    """A value head on the actor's features, with the methods of a Branch and no memory of its own.

    Its part of an AgentState is (): what values depend on is the actor's.
    """

    def __init__(self, trunk: "Branch", cfg: "BranchConfig") -> None:
        super().__init__()
        # In a tuple, or the actor's parameters would be registered, saved and stepped as the critic's too.
        self._trunk = (trunk,)
        self.body, width = layers(trunk.features_dim, cfg.head_hidden, cfg.activation)
        self.head: ValueHead = HEADS[cfg.value](width)
        initialise(self, cfg.init)
        self.predictors = Predictors()  # the actor's features have heads of the actor

    @property
    def trunk(self) -> "Branch":
        """The branch whose memory values depend on: the actor."""
        return self._trunk[0]

    def output(self, features: Tensor) -> Tensor:
        """(T, B, F) -> V (T, B)."""
        return self.head(self.body(features))

    def forward(self, rows: Rows, state: Tree) -> tuple[Tensor, Tree]:
        """Rows (T, B, ...), state of the trunk -> V (T, B), state of the trunk."""
        features, state = self.trunk.features(rows, state)
        return self.output(features), state

    def initial_state(self, batch: int) -> Tree:
        """No state of its own."""
        return ()

    def advance(self, rows: Rows, state: Tree) -> Tree:
        """No state of its own."""
        return ()

    def value(self, rows: Rows, state: "AgentState") -> tuple[Tensor, "AgentState"]:
        """V (T, B), and the state after the rows as far as values depend on it."""
        values, actor = self(rows, state.actor)
        return values, state._replace(actor=actor)

    def values(self, rows: Rows, state: "AgentState", actor_features: Tensor) -> tuple[CriticOutput, Tensor]:
        """Values and the features, in a pass that has computed the actor's features of the same rows."""
        return CriticOutput(self.head.raw(self.body(actor_features)), self.head), actor_features
