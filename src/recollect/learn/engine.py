"""What computes the networks of a run: torch, which serves every agent, or another engine.

The algorithm does not know which one it has (`Learner.engine`).

Shapes.  T steps a rollout, N environments, K components of an action, P parameters of the policy.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from ..agent.agent import Agent, AgentState
from ..agent.nets import Rows
from ..common.tree import Tree
from ..envs import Array
from ..memory.sequences import TORCH, Sequences, use
from .chunks import Batch
from .maths import Loss
from .optim import FlatAdam
from .rollout import Rollout
from .settings import Coefficients, PPOConfig

LossFunction: TypeAlias = Callable[[Agent, Batch, PPOConfig, Coefficients], Loss]


class Acting(Protocol):
    """The actor during one rollout: steps 0, 1, ..., T-1."""

    @property
    def state(self) -> Tree:
        """The memory state before the next step; later steps leave it as it is."""

    def step(self, t: int) -> Array:
        """The actions (N, K) of row t of the rollout."""

    def params(self) -> Tensor:
        """The parameters of the policy (T, N, P), after all steps."""


class Engine(Protocol):
    """Computes actions, values, losses and their gradients.

    name   of the engine and its version; equal names compute equal bits
    error  relative distance of the first gradient of the run from that of torch; None: not compared
    """

    error: float | None

    @property
    def name(self) -> str: ...

    def acting(self, rollout: Rollout, state: Tree, noise: Tensor) -> Acting:
        """The actor with its current weights, from a memory state, with the noise (T, ...) of all actions."""

    def value(self, rows: Rows, state: AgentState) -> tuple[Tensor, AgentState]:
        """V (T, N), and the state after the rows as far as values depend on it."""

    def prepare(self, batch: Batch) -> Batch:
        """All chunks of an update, before minibatches are taken of them."""

    def gradients(
        self, optimizer: FlatAdam, loss: LossFunction, batch: Batch, cfg: PPOConfig, now: Coefficients
    ) -> Loss:
        """The loss of a minibatch; its gradient by all trained weights becomes that of the optimiser."""


class TorchActing:
    """Acting by torch."""

    def __init__(self, agent: Agent, rollout: Rollout, state: Tree, noise: Tensor) -> None:
        self.state = state
        self._agent, self._rollout, self._noise = agent, rollout, noise.unbind()
        self._outputs: list[Tensor] = []

    def step(self, t: int) -> Array:
        agent, rows = self._agent, self._rollout.send_row(t)
        params, self.state = agent.actor(rows._replace(obs=agent.normalizer(rows.obs)), self.state)
        self._outputs.append(params)
        action: Array = agent.policy.sample(params[0], self._noise[t]).cpu().numpy()
        return action

    def params(self) -> Tensor:
        return torch.cat(self._outputs)


class TorchEngine:
    """Modules and autograd of torch: the reference, unless the memories have other recurrences."""

    error: float | None = None

    def __init__(self, agent: Agent, recurrences: Sequences = TORCH) -> None:
        self.agent, self._recurrences = agent, recurrences
        use(recurrences, agent)

    @property
    def name(self) -> str:
        return ", ".join(filter(None, ("torch", self._recurrences.name)))

    def acting(self, rollout: Rollout, state: Tree, noise: Tensor) -> TorchActing:
        return TorchActing(self.agent, rollout, state, noise)

    def value(self, rows: Rows, state: AgentState) -> tuple[Tensor, AgentState]:
        return self.agent.value(rows, state)

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def gradients(
        self, optimizer: FlatAdam, loss: LossFunction, batch: Batch, cfg: PPOConfig, now: Coefficients
    ) -> Loss:
        return backpropagate(self.agent, optimizer, loss, batch, cfg, now)


def backpropagate(
    agent: Agent, optimizer: FlatAdam, loss: LossFunction, batch: Batch, cfg: PPOConfig, now: Coefficients
) -> Loss:
    """The loss and its gradient by autograd."""
    terms = loss(agent, batch, cfg, now)
    optimizer.zero_grad()
    terms.total.backward()
    return terms
