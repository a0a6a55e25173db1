"""Networks around the memories: inputs to features, layers, policies and heads.

Shapes.  T steps, B environments, K components of an action, P parameters of its distribution.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.compiler import is_exporting

from ..common import rng
from ..common.threads import one_thread
from ..encoder import EncoderConfig
from ..encoder.gallery import Lookup, Shown
from ..encoder.leaves import one_hot
from ..envs.spaces import ActionSpec, ObsSpec

Activation: TypeAlias = Literal["tanh", "relu", "gelu", "silu", "elu"]
Init: TypeAlias = Literal["orthogonal", "torch"]


class Rows(NamedTuple):
    """Inputs of a branch over time steps; every tensor (T, B, ...)."""

    obs: dict[str, Tensor]
    first: Tensor  # bool: the observation opens an episode
    prev_action: Tensor  # (T, B, K) of step t-1; 0 where first
    prev_reward: Tensor
    galleries: Mapping[str, Lookup] = {}
    """Of pictures in `obs` that are given by their place (T, B) in a gallery: features from places."""

    def map(self, fn: Callable[[Tensor], Tensor]) -> "Rows":
        """The same steps with fn applied to every tensor."""
        obs = {name: fn(x) for name, x in self.obs.items()}
        return Rows(obs, fn(self.first), fn(self.prev_action), fn(self.prev_reward), self.galleries)

    def to(self, device: torch.device) -> "Rows":
        """The same steps on a device."""
        return self.map(lambda x: x.to(device))


# Layers ---------------------------------------------------------------------------------------


def tanh(x: Tensor) -> Tensor:
    """numpy's tanh on a CPU: 11 us for 1024 x 64 numbers, torch's takes 130."""
    # x.ndim, because numpy returns a scalar, not an array, for a tensor without axes.
    # While a graph is exported, there are no numbers that numpy could read.
    if x.is_cpu and x.dtype in (torch.float32, torch.float64) and x.ndim and not is_exporting():
        return torch.from_numpy(np.tanh(x.numpy()))
    return torch.tanh(x)


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(grads[0], y)


_tanh: Callable[[Tensor], Tensor] = _Tanh.apply


class Tanh(nn.Module):
    """The hyperbolic tangent, fast on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        return _tanh(x) if x.requires_grad else tanh(x)


_ACTIVATIONS: dict[Activation, type[nn.Module]] = {
    "tanh": Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
}


def layers(
    in_dim: int, widths: Sequence[int], activation: Activation, linear_output: bool = False
) -> tuple[nn.Sequential, int]:
    """Linear layers, each followed by its activation, orthogonal with gain sqrt(2); and their width.

    linear_output  omit the activation of the last layer
    """
    parts: list[nn.Module] = []
    for width in widths:
        parts += [linear(in_dim, width, math.sqrt(2)), _ACTIVATIONS[activation]()]
        in_dim = width
    return nn.Sequential(*(parts[:-1] if linear_output else parts)), in_dim


def linear(in_dim: int, out_dim: int, gain: float) -> nn.Linear:
    """A linear layer, initialised with orthogonal weights and zero bias."""
    layer = nn.Linear(in_dim, out_dim)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


@contextlib.contextmanager
def seeded_weights(seed: int, *index: int) -> Iterator[None]:
    """Draw weights as a function of a seed and an index alone; the generator of the caller is restored."""
    # With more threads orthogonal weights are rounded differently. They are drawn on the CPU, so the
    # generators of other devices need no copy.
    with one_thread(), torch.random.fork_rng(devices=()):
        torch.manual_seed(rng.torch_seed(seed, rng.Purpose.INIT, *index))
        yield


def initialise(module: nn.Module, init: Init) -> None:
    """Draw the weights of linear layers again if they are not to be orthogonal."""
    if init == "torch":
        for layer in module.modules():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()


# Inputs to features -----------------------------------------------------------------------------


class Inputs(nn.Module):
    """Rows -> features (T, B, F): the encoded observation and, if configured, previous action and reward."""

    def __init__(
        self,
        obs: ObsSpec,
        action: ActionSpec,
        prev_action: bool,
        prev_reward: bool,
        encoder: EncoderConfig,
        sees: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.leaves = obs.inputs(sees)
        self.prev_action, self.prev_reward = prev_action, prev_reward
        self.action_sizes = action.sizes if action.kind == "categorical" else ()
        self.eyes = encoder.build(replace(obs, leaves=self.leaves))  # its name is in saved agents
        self.action_dim = sum(self.action_sizes) or action.width
        self.out_dim = self.eyes.out_dim + prev_action * self.action_dim + prev_reward

    def forward(self, rows: Rows) -> Tensor:
        """Rows (T, B, ...) -> (T, B, F)."""
        float_type = rows.prev_reward.dtype
        # This order of features is that of the input weights, so saved agents depend on it.
        parts = [self.eyes({name: self._leaf(name, rows) for name in self.leaves}, float_type)]
        if self.prev_action:
            parts.append(self.action(rows).to(float_type))
        if self.prev_reward:
            parts.append(rows.prev_reward.clamp(-10, 10)[..., None])
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _leaf(self, name: str, rows: Rows) -> Tensor | Shown:
        x = rows.obs[name]
        return Shown(rows.galleries[name], x) if name in rows.galleries else x

    def action(self, rows: Rows) -> Tensor:
        """The previous actions (T, B, action_dim); 0 where there was none."""
        if not self.action_sizes:
            return rows.prev_action
        # Action 0 is a valid choice with a one-hot code, so the code is blanked where an episode opens.
        return one_hot(rows.prev_action, self.action_sizes, rows.prev_reward.dtype) * ~rows.first[..., None]
