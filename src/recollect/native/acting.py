"""Acting by the native kernels: inputs, actor and sample of all environments are one call per step."""

import ctypes

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent
from ..agent.nets import Rows
from ..agent.policies import GaussianHead
from ..common import tree
from ..common.tree import Tree
from ..envs import Array
from ..envs.spaces import ACTION_MASK
from ..learn.rollout import Rollout
from . import structures as c
from .workspace import Workspace


class NativeActing:
    """Acting during one rollout, with the weights of its beginning."""

    def __init__(
        self,
        library: ctypes.CDLL,
        workspace: Workspace,
        agent: Agent,
        rollout: Rollout,
        start: Tree,
        noise: Tensor,
    ) -> None:
        self._act = library.act
        steps, batch, policy = rollout.num_steps, rollout.num_envs, agent.policy
        self._state = tree.map_leaves(lambda x: x.clone(memory_format=torch.contiguous_format), start)
        features = torch.empty(batch, workspace.network.nodes[0].width)
        states = tree.leaves(self._state).values()
        workspace.set_inputs(features, *states)
        workspace.set_ends(*states)
        self._params = torch.empty(steps, batch, policy.num_params)
        actions = torch.empty(steps, batch, policy.width, dtype=rollout.action.dtype)
        # Views of each step, sliced once.
        self._actions: list[Array] = list(actions.numpy())
        noise, first = noise.contiguous(), rollout.rows.first
        allowed = rollout.rows.obs[ACTION_MASK] if agent.actor.masked else None
        sources = Sources(agent, rollout.rows)
        std = agent.actor.head.log_std.exp() if isinstance(agent.actor.head, GaussianHead) else None
        self._actor = c.Actor(
            ctypes.pointer(workspace.program),
            sources.array,
            first.data_ptr(),
            first.stride(0),
            None if allowed is None else allowed.data_ptr(),
            0 if allowed is None else allowed.stride(0),
            noise.data_ptr(),
            None if std is None else std.data_ptr(),
            features.data_ptr(),
            self._params.data_ptr(),
            actions.data_ptr(),
            len(sources.array),
            batch,
            agent.actor.resets,
            noise.shape[-1],
        )
        self._alive = workspace, features, noise, sources, std  # C has addresses only
        self._pointer = ctypes.pointer(self._actor)
        library.pack_weights(workspace.program)

    @property
    def state(self) -> Tree:
        return tree.map_leaves(Tensor.clone, self._state)

    def step(self, t: int) -> Array:
        self._act(self._pointer, t)
        return self._actions[t]

    def params(self) -> Tensor:
        return self._params


class Sources:
    """The parts of the features of an actor, in the order of Inputs.forward."""

    def __init__(self, agent: Agent, rows: Rows) -> None:
        self._agent, self._arrays = agent, list[Array]()
        inputs, normalizer = agent.actor.inputs, agent.normalizer
        parts = []
        for name, leaf in inputs.leaves.items():
            x = rows.obs[name]
            if leaf.kind == "discrete":
                parts.append(self._choices(x, leaf.sizes))
            elif x.is_floating_point():
                scaled = normalizer.scales and name in normalizer.names
                parts.append(self._numbers(x, *(normalizer.scaling(name, x) if scaled else ())))
            else:
                parts.append(self._part(x, c.BINARY, x[0, 0].numel(), bytes=x.element_size()))
        if inputs.prev_action:
            parts.append(self._previous_action(rows))
        if inputs.prev_reward:
            parts.append(self._part(rows.prev_reward, c.REWARD, 1))
        if agent.actor.action_apart:
            parts.append(self._previous_action(rows))
        self.array = (c.Source * len(parts))(*parts)

    def _previous_action(self, rows: Rows) -> c.Source:
        sizes = self._agent.actor.inputs.action_sizes
        if sizes:
            return self._choices(rows.prev_action, sizes, blank=True)
        return self._numbers(rows.prev_action)

    def _numbers(self, x: Tensor, shift: Tensor | None = None, scale: Tensor | None = None) -> c.Source:
        part = self._part(x, c.NUMBERS, x[0, 0].numel())
        if shift is not None and scale is not None:
            part.shift, part.scale = (self._keep(y.numpy().ravel()) for y in (shift, scale))
        return part

    def _choices(self, x: Tensor, sizes: tuple[int, ...], blank: bool = False) -> c.Source:
        part = self._part(x, c.CHOICES, sum(sizes), groups=len(sizes), blank=blank)
        part.sizes = self._keep(np.array(sizes, np.int32))
        return part

    def _part(self, x: Tensor, kind: int, width: int, **fields: int) -> c.Source:
        return c.Source(
            from_=x.data_ptr(), stride=x.stride(0) * x.element_size(), kind=kind, width=width, **fields
        )

    def _keep(self, array: Array) -> int:
        """The address of an array that only C points to."""
        self._arrays.append(array)
        return array.ctypes.data
