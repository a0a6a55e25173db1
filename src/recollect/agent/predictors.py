"""Heads that predict observations, rewards and hidden variables from the features of a memory.

They are trained beside the policy and the values (learn/auxiliary.py), so that the memory holds what they
need, and compute nothing while the agent acts.

Shapes.  L steps, B sequences, F features, A numbers of an action.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..common.errors import UsageError
from ..envs.spaces import HIDDEN, Leaf, ObsSpec
from .nets import Activation, layers, linear

PREDICTED = "obs", "reward", "hidden"
REWARD = "reward"  # name of the leaf with the reward of a step
UNITS = 64  # of the one layer of a head


class Predictor(nn.Module):
    """One layer and a linear output: features and action, or features alone -> the numbers of some leaves.

    leaves   by name
    is_next  whether the action leads to them, so that it is an input
    """

    def __init__(
        self, width: tuple[int, int], leaves: Mapping[str, Leaf], is_next: bool, activation: Activation
    ) -> None:
        """width: F and A."""
        super().__init__()
        self.leaves, self.is_next = dict(leaves), is_next
        self.body, units = layers(width[0] + width[1] * is_next, (UNITS,), activation)
        self.out = linear(units, sum(leaf.width for leaf in leaves.values()), gain=1.0)

    def forward(self, features: Tensor, action: Tensor) -> dict[str, Tensor]:
        """Features (L, B, F), action (L, B, A) -> numbers or logits (L, B, width) of each leaf."""
        x = torch.cat([features, action], -1) if self.is_next else features
        numbers = self.out(self.body(x)).split([leaf.width for leaf in self.leaves.values()], -1)
        return dict(zip(self.leaves, numbers, strict=True))


class Predictors(nn.ModuleDict):
    """The heads of a branch by what they predict; by default none."""

    @property
    def heads(self) -> dict[str, Predictor]:
        """The heads by name."""
        return {name: head for name, head in self.items() if isinstance(head, Predictor)}

    def build(
        self,
        names: Sequence[str],
        inputs: Mapping[str, Leaf],
        obs: ObsSpec,
        width: tuple[int, int],
        activation: Activation,
    ) -> None:
        """Draw the weights of the heads; a UsageError where there is nothing to predict.

        inputs  the leaves that the branch gets
        width   F and A
        """
        for name in names:
            self[name] = Predictor(width, _leaves(name, inputs, obs), name != "hidden", activation)


def _leaves(name: str, inputs: Mapping[str, Leaf], obs: ObsSpec) -> dict[str, Leaf]:
    if name == "reward":
        return {REWARD: Leaf("vector", ())}
    if name == "hidden":
        if HIDDEN in inputs:
            raise UsageError("predict hidden: the branch gets the hidden variables as an input (sees)")
        if HIDDEN not in obs.leaves:
            raise UsageError("predict hidden: the environment has no hidden variables (env.hidden)")
        return {HIDDEN: obs.leaves[HIDDEN]}
    leaves = {key: leaf for key, leaf in inputs.items() if _is_observed(key) and leaf.kind != "picture"}
    if not leaves:
        kinds = ", ".join(f"{key} ({leaf.kind})" for key, leaf in inputs.items())
        raise UsageError(
            f"predict obs: there is nothing to predict, because the branch gets only {kinds}; numbers and "
            "categories of an observation can be predicted, pictures cannot"
        )
    return leaves


def _is_observed(leaf: str) -> bool:
    """Whether a leaf is part of the observation of the environment, and not beside it (envs/extended.py)."""
    return f"{leaf}.".startswith("obs.")
