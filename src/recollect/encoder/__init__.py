"""An encoder maps the observation of each step to the features that layers and memory take.

    features = encoder(obs, dtype)

    obs       dict of leaves (T, B, ...), as `ObsSpec.leaves` describes them: normalised vectors in floating
              point, indices of categories, pictures as bytes
    features  (T, B, out_dim) of that dtype

Every encoder obeys these rules, which `recollect.testing.check_encoder` tests:

1. features have the shape (T, B, out_dim) and the given dtype, and out_dim is known once it is built.
2. features[t, b] depend on obs[t, b] alone: what happened before is for the memory.
3. The same observations give the same features; a call changes neither the module nor its arguments.
4. Initial weights depend on torch's generator alone, and gradients reach all of them.

The previous action and reward are not observations: a branch appends them to the features (`prev_action`,
`prev_reward`). Each file of this folder holds one encoder with its config; `available` lists them by name.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..common.named import NamedConfig
from ..envs.spaces import ObsSpec


class Encoder(nn.Module, ABC):
    """Observations to features, each step on its own."""

    out_dim: int
    """Width of the features."""
    takes_shown: ClassVar[bool] = False
    """Whether pictures may come as `gallery.Shown`, so that equal ones are encoded once."""

    @abstractmethod
    def forward(self, obs: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        """Leaves (T, B, ...) -> features (T, B, out_dim) of the dtype."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(NamedConfig):
    """Options of one encoder; subclass it in the file of the encoder that it builds."""

    folder: ClassVar[str] = __name__

    @abstractmethod
    def build(self, obs: ObsSpec) -> Encoder:
        """The encoder of the observations of a space; a UsageError for a space that it cannot encode."""


available, find = EncoderConfig.available, EncoderConfig.find
