"""Gradients by the native kernels, compared with those of autograd on the first minibatch."""

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from ..agent.agent import Agent
from ..learn.chunks import Batch
from ..learn.gradients import Autograd, LossFunction
from ..learn.maths import Loss, Losses
from ..learn.optim import FlatAdam
from ..learn.settings import Coefficients, PPOConfig
from . import structures as c
from .library import version
from .program import networks
from .workspace import Workspace

LARGEST_ERROR = 1e-2  # of the first gradient; beyond it autograd takes over


class NativeGradients:
    """Gradients of PPO's loss.

    active  whether the kernels are used: not after an error above LARGEST_ERROR
    """

    def __init__(self, library: ctypes.CDLL, agent: Agent, announce: Callable[[str], None]) -> None:
        """An UnsupportedError if the kernels cannot compute the agent."""
        self._library, self._announce = library, announce
        self._networks = networks(agent)
        self._workspaces: list[Workspace] = []
        self._programs = (c.Program * len(self._networks))()
        self._discrete = agent.policy.discrete
        self._reference = Autograd(agent)
        self.error: float | None = None
        self.active = True

    @property
    def name(self) -> str:
        return f"native {version()}" if self.active else self._reference.name

    def compute(
        self, optimizer: FlatAdam, loss: LossFunction, batch: Batch, cfg: PPOConfig, now: Coefficients
    ) -> Loss:
        if self.active and self.error is not None:
            return self.run(batch, cfg, now)
        expected = self._reference.compute(optimizer, loss, batch, cfg, now)
        if not self.active:
            return expected
        gradient = optimizer.gradient.clone()
        terms = self.run(batch, cfg, now)
        self.error = distance(optimizer.gradient, gradient)
        # Not `>`, because NaN must not pass.
        self.active = self.error <= LARGEST_ERROR
        if self.active:
            return terms
        self._announce(f"kernels: torch, because the first native gradient differs by {self.error:.2g}")
        optimizer.gradient.copy_(gradient)
        return expected

    def run(self, batch: Batch, cfg: PPOConfig, now: Coefficients) -> Loss:
        """The loss and the gradient by the kernels."""
        steps, sequences = batch.valid.shape
        self._reserve(steps * sequences, sequences)
        first = batch.rows.first.contiguous()
        alive = [first]  # C has addresses only, and torch would free what it cannot see
        for network, workspace, program in zip(self._networks, self._workspaces, self._programs, strict=True):
            inputs = network.inputs(batch.rows), *network.states(batch.state)
            workspace.set_inputs(*inputs)
            program.first = first.data_ptr() if network.branch.resets else None
            alive += inputs
        terms = torch.empty(c.TERMS)
        ratio, values = torch.empty_like(batch.value), torch.empty_like(batch.value)
        arguments = self._arguments(batch, cfg, now, alive)
        arguments.ratio, arguments.values, arguments.terms = (x.data_ptr() for x in (ratio, values, terms))
        self._library.gradients(self._programs, len(self._programs), ctypes.byref(arguments))
        *means, total = terms.unbind()
        return Loss(total, Losses(*means), ratio, values)

    def _arguments(self, batch: Batch, cfg: PPOConfig, now: Coefficients, alive: list[Tensor]) -> c.Batch:
        fields = batch.valid, batch.weight, batch.log_prob, batch.advantage, batch.value, batch.target
        tensors = [x.contiguous() for x in (*fields, batch.action)]
        alive += tensors
        *addresses, action = (x.data_ptr() for x in tensors)
        return c.Batch(
            batch.valid.numel(),
            batch.valid.shape[1],
            *addresses,
            action if self._discrete else None,
            None if self._discrete else action,
            now.clip,
            now.entropy,
            cfg.vf_coef,
            -1.0 if cfg.clip_value is None else cfg.clip_value,
        )

    def _reserve(self, rows: int, sequences: int) -> None:
        """Memory for a minibatch of this size; kept for smaller ones."""
        if self._workspaces and self._workspaces[0].holds(rows, sequences):
            return
        vector = self._library.vector_width()
        self._workspaces = [Workspace(network, rows, sequences, vector) for network in self._networks]
        for i, workspace in enumerate(self._workspaces):
            self._programs[i] = workspace.program


def distance(x: Tensor, expected: Tensor) -> float:
    """|x - expected| / |expected| of two vectors; 0 if both are 0."""
    x, expected = x.double(), expected.double()
    return float((x - expected).norm() / expected.norm().clamp(min=1e-30))
