"""The native kernels as the engine of a run, compared with torch on the first minibatch."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..agent.agent import Agent, AgentState, Outputs
from ..agent.nets import Rows
from ..agent.values import CriticOutput
from ..common import tree
from ..common.tree import Tree
from ..envs.spaces import ACTION_MASK
from ..learn.chunks import Batch
from ..learn.engine import Acting, LossFunction, TorchEngine, backpropagate
from ..learn.maths import Loss, Losses
from ..learn.optim import FlatAdam
from ..learn.rollout import Rollout
from ..learn.settings import Coefficients, PPOConfig
from ..memory.sequences import TORCH, use
from . import structures as c
from .acting import NativeActing
from .library import version
from .program import Network, actor_network, coverage, critic_network
from .sequences import NativeSequences
from .workspace import Workspace

LARGEST_ERROR = 1e-2  # of the first gradient; beyond it torch takes over
MOVED = 1e-3  # standard deviation of a change of the weights that rounding cannot undo


class NativeEngine:
    """Actions, values, and gradients of PPO's loss.

    active  whether the kernels are used: not after an error above LARGEST_ERROR
    """

    def __init__(self, library: ctypes.CDLL, agent: Agent, announce: Callable[[str], None]) -> None:
        """An UnsupportedError if the kernels cannot compute the agent."""
        self._library, self._announce = library, announce
        self._agent, self._reference = agent, TorchEngine(agent)
        self._covered = coverage(agent)
        for part in ("actor", "critic"):
            if not getattr(self._covered, part):
                use(NativeSequences(), getattr(agent, part))
        self._workspaces: list[Workspace] = []
        self._programs = (c.Program * len(self._covered.networks))()
        self._forward: dict[str, Workspace] = {}  # of acting and of values, by the name of the branch
        self.error: float | None = None
        self.active, self._is_checked = True, False

    @property
    def name(self) -> str:
        if not self.active:
            return self._reference.name
        parts = [part for part in ("actor", "critic") if getattr(self._covered, part)]
        return f"native {version()}" + (f", {parts[0]} only" if len(parts) == 1 else "")

    @property
    def reason(self) -> str:
        """Why torch computes one of the branches; empty if it does not."""
        return self._covered.reason

    def acting(self, rollout: Rollout, state: Tree, noise: Tensor) -> Acting:
        if not (self.active and self._covered.actor):
            return self._reference.acting(rollout, state, noise)
        workspace = self._forward_workspace("actor", actor_network, rollout.num_envs, rollout.num_envs)
        return NativeActing(self._library, workspace, self._agent, rollout, state, noise)

    def value(self, rows: Rows, state: AgentState) -> tuple[Tensor, AgentState]:
        if not (self.active and self._covered.critic):
            return self._reference.value(rows, state)
        steps, batch = rows.first.shape
        workspace = self._forward_workspace("critic", critic_network, steps * batch, batch)
        network, first = workspace.network, rows.first.contiguous()
        features, states = network.inputs(rows), network.states(state)
        after = tree.map_leaves(empty_state, getattr(state, network.part))
        workspace.set_inputs(features, *states)
        workspace.set_ends(*tree.leaves(after).values())
        workspace.program.first = first.data_ptr() if network.branch.resets else None
        values = torch.empty(steps, batch)
        self._library.values(workspace.program, steps * batch, batch, values.data_ptr())
        return self._agent.value_head.decode(values), state._replace(**{network.part: after})

    def prepare(self, batch: Batch) -> Batch:
        if not self.active:
            return batch
        # The inputs of the networks have no weights, so those of all epochs are computed once.
        return batch._replace(inputs=tuple(network.inputs(batch.rows) for network in self._covered.networks))

    def gradients(
        self, optimizer: FlatAdam, loss: LossFunction, batch: Batch, cfg: PPOConfig, now: Coefficients
    ) -> Loss:
        if self.active and self._is_checked:
            terms = None if self._covered.complete else self._by_torch(optimizer, loss, batch, cfg, now)
            return self.run(batch, cfg, now, terms)
        if not self.active:
            return self._reference.gradients(optimizer, loss, batch, cfg, now)
        expected, gradient, terms, error = self._compare(optimizer, loss, batch, cfg, now)
        # Not `>`, because NaN must not pass.
        if not error <= LARGEST_ERROR:
            error = self._error_nearby(optimizer, loss, batch, cfg, now)
        # A resumed run has the error of its beginning, as if it had not stopped.
        self.error, self._is_checked = error if self.error is None else self.error, True
        self.active = error <= LARGEST_ERROR
        if self.active:
            return terms
        use(TORCH, self._agent)
        self._announce(f"kernels: torch, because the first native gradient differs by {error:.2g}")
        optimizer.gradient.copy_(gradient)
        return expected

    def _compare(
        self, optimizer: FlatAdam, loss: LossFunction, batch: Batch, cfg: PPOConfig, now: Coefficients
    ) -> tuple[Loss, Tensor, Loss, float]:
        """Torch's loss and gradient, the native loss, and the relative error of the native gradient, which is
        left in the optimizer."""
        expected = self._reference.gradients(optimizer, loss, batch, cfg, now)
        gradient = optimizer.gradient.clone()
        self._native_part(optimizer, optimizer.gradient).zero_()  # what is not written must not agree
        terms = self.run(batch, cfg, now, expected)
        error = distance(*(self._native_part(optimizer, x) for x in (optimizer.gradient, gradient)))
        return expected, gradient, terms, error

    def _error_nearby(
        self, optimizer: FlatAdam, loss: LossFunction, batch: Batch, cfg: PPOConfig, now: Coefficients
    ) -> float:
        """The error at weights that are moved a little; changes nothing.

        Initial biases are 0, so an input of a ReLU can be 0 but for rounding, and has no derivative. The
        weights nearby have one.
        """
        changed = *optimizer.flats, optimizer.gradient
        before = [x.clone() for x in changed]
        random = torch.Generator().manual_seed(0)
        for flat in optimizer.flats:
            flat += MOVED * torch.randn(len(flat), generator=random)
        with torch.random.fork_rng(devices=()):  # dropout of a branch that torch computes
            *_, error = self._compare(optimizer, loss, batch, cfg, now)
        for x, value in zip(changed, before, strict=True):
            x.copy_(value)
        return error

    def run(self, batch: Batch, cfg: PPOConfig, now: Coefficients, by_torch: Loss | None = None) -> Loss:
        """The loss and the gradient by the kernels.

        by_torch  the loss whose terms of the other branch are kept, and whose gradient is there
        """
        batch = batch if batch.inputs else self.prepare(batch)
        steps, sequences = batch.valid.shape
        self._reserve(steps * sequences, sequences)
        first = batch.rows.first.contiguous()
        alive = [first]  # C has addresses only, and torch would free what it cannot see
        for network, features, workspace, program in zip(
            self._covered.networks, batch.inputs, self._workspaces, self._programs, strict=True
        ):
            inputs = features, *network.states(batch.state)
            workspace.set_inputs(*inputs)
            program.first = first.data_ptr() if network.branch.resets else None
            alive += inputs
        terms = torch.empty(c.TERMS)
        ratio, values = torch.empty_like(batch.value), torch.empty_like(batch.value)
        arguments = self._arguments(batch, cfg, now, alive)
        arguments.ratio, arguments.values, arguments.terms = (x.data_ptr() for x in (ratio, values, terms))
        threads = torch.get_num_threads()  # those of the run; they change no bit
        self._library.gradients(self._programs, len(self._programs), ctypes.byref(arguments), threads)
        *means, total = terms.unbind()
        if self._covered.critic:
            values = self._agent.value_head.decode(values)
        native = Loss(total, Losses(*means), ratio, values)
        return native if by_torch is None else self._combined(native, by_torch, cfg, now)

    def _by_torch(
        self, optimizer: FlatAdam, loss: LossFunction, batch: Batch, cfg: PPOConfig, now: Coefficients
    ) -> Loss:
        """The loss and the gradient of the branch that the kernels do not compute."""
        half: Any = Half(self._agent, self._covered.critic)
        return backpropagate(half, optimizer, loss, batch, cfg, now)

    def _combined(self, native: Loss, by_torch: Loss, cfg: PPOConfig, now: Coefficients) -> Loss:
        if self._covered.complete:
            return native
        actor, critic = (native, by_torch) if self._covered.actor else (by_torch, native)
        means = actor.means._replace(value=critic.means.value)
        # The kernels make no predictions: those are of the other branch.
        predictions = by_torch.predictions
        total = means.policy + cfg.vf_coef * means.value - now.entropy * means.entropy
        total += cfg.predict_coef * sum(predictions.values())
        return Loss(total, means, actor.ratio, critic.values, predictions)

    def _native_part(self, optimizer: FlatAdam, gradient: Tensor) -> Tensor:
        """The gradient of the branches that the kernels compute."""
        if self._covered.complete:
            return gradient
        actor, critic = gradient.split([len(flat) for flat in optimizer.flats])
        return actor if self._covered.actor else critic

    def _arguments(self, batch: Batch, cfg: PPOConfig, now: Coefficients, alive: list[Tensor]) -> c.Batch:
        old, target = self._values(batch)
        fields = batch.valid, batch.weight, batch.log_prob, batch.advantage, old, target
        tensors = [x.contiguous() for x in (*fields, batch.action)]
        alive += tensors
        *addresses, action = (x.data_ptr() for x in tensors)
        discrete, allowed = self._agent.policy.discrete, None
        if self._agent.actor.masked:
            alive.append(batch.rows.obs[ACTION_MASK].contiguous())
            allowed = alive[-1].data_ptr()
        return c.Batch(
            batch.valid.numel(),
            batch.valid.shape[1],
            *addresses,
            action if discrete else None,
            allowed,
            None if discrete else action,
            now.clip,
            now.entropy,
            cfg.vf_coef,
            -1.0 if cfg.clip_value is None else cfg.clip_value,
        )

    def _values(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Old values and targets as outputs of the value head, whose squared error the kernels compute."""
        if not self._covered.critic:
            return batch.value, batch.target
        encode = self._agent.value_head.encode
        return encode(batch.value), encode(batch.target)

    def _reserve(self, rows: int, sequences: int) -> None:
        """Memory for a minibatch of this size; kept for smaller ones."""
        if self._workspaces and self._workspaces[0].holds(rows, sequences):
            return
        vector = self._library.vector_width()
        self._workspaces = [Workspace(network, rows, sequences, vector) for network in self._covered.networks]
        for i, workspace in enumerate(self._workspaces):
            self._programs[i] = workspace.program

    def _forward_workspace(
        self, branch: str, build: Callable[[Agent], Network], rows: int, batch: int
    ) -> Workspace:
        """Memory for a pass without gradients over so many rows; kept for fewer."""
        workspace = self._forward.get(branch)
        if workspace is None or not workspace.holds(rows, batch):
            vector = self._library.vector_width()
            workspace = Workspace(build(self._agent), rows, batch, vector, gradients=False)
            self._forward[branch] = workspace
        return workspace


class Half:
    """One branch of an agent for a loss function; the outputs of the other one are constant."""

    def __init__(self, agent: Agent, is_actor: bool) -> None:
        self._agent, self._is_actor, self.policy = agent, is_actor, agent.policy

    def outputs(self, rows: Rows, state: AgentState) -> Outputs:
        agent, shape = self._agent, rows.first.shape
        if self._is_actor:
            features, _ = agent.actor.features(rows, state.actor)
            heads = ((agent.actor.predictors, features),)
            critic = CriticOutput(torch.zeros(shape), agent.value_head)
            return Outputs(agent.actor.output(features, rows), critic, heads)
        # A critic that torch computes alone has a trunk of its own, and takes no features of the actor.
        critic, features = agent.critic.values(rows, state, torch.empty(0))
        params = critic.raw.new_zeros(*shape, agent.policy.num_params)
        return Outputs(params, critic, ((agent.critic.predictors, features),))


def distance(x: Tensor, expected: Tensor) -> float:
    """|x - expected| / |expected| of two vectors; 0 if both are 0."""
    x, expected = x.double(), expected.double()
    return float((x - expected).norm() / expected.norm().clamp(min=1e-30))


def empty_state(x: Tensor) -> Tensor:
    """Memory for a state like x."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)
