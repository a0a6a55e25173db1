"""How the gradient of a minibatch is computed: by autograd, which serves every agent, or by another engine.

The algorithm does not know which one it has (`Learner.gradients`).
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from ..agent.agent import Agent
from .chunks import Batch
from .maths import Loss
from .optim import FlatAdam
from .settings import Coefficients, PPOConfig

LossFunction: TypeAlias = Callable[[Agent, Batch, PPOConfig, Coefficients], Loss]


class Gradients(Protocol):
    """Computes losses of an agent and their gradients.

    name   of the engine and its version; equal names compute equal bits
    error  relative distance of the first gradient of this session from that of autograd; None: not compared
    """

    @property
    def name(self) -> str: ...

    @property
    def error(self) -> float | None: ...

    def compute(
        self, optimizer: FlatAdam, loss: LossFunction, batch: Batch, cfg: PPOConfig, now: Coefficients
    ) -> Loss:
        """The loss of a minibatch; its gradient by all trained weights becomes that of the optimiser."""


class Autograd:
    """Gradients by torch: the reference."""

    name = "torch"
    error = None

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def compute(
        self, optimizer: FlatAdam, loss: LossFunction, batch: Batch, cfg: PPOConfig, now: Coefficients
    ) -> Loss:
        terms = loss(self.agent, batch, cfg, now)
        optimizer.zero_grad()
        terms.total.backward()
        return terms
