"""Adam over each branch's weights as one flat vector: zeroing, clipping and stepping are one pass."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .errors import DivergedError
from .settings import PPOConfig

MOST_SKIPPED = 10


class FlatAdam:
    """Adam or AdamW for groups of parameters, each clipped by its own norm.

    Every parameter becomes a view into its group's vector, and so does its gradient. A step with a
    gradient that is not finite in any group is skipped whole.
    """

    def __init__(self, groups: Sequence[nn.Module], cfg: PPOConfig) -> None:
        self.flats = [_flatten(module) for module in groups]
        self.max_norm = cfg.max_grad_norm
        self.skipped = 0  # steps with a gradient that was not finite
        self.skipped_in_a_row = 0
        kind = torch.optim.Adam if cfg.optimizer == "adam" else torch.optim.AdamW
        self._adam = kind(
            [{"params": [flat]} for flat in self.flats],
            lr=cfg.learning_rate,
            eps=cfg.adam_eps,
            weight_decay=cfg.weight_decay,
            fused=True,
        )
        for flat in self.flats:  # so that a checkpoint before the first step holds them too
            zeros = torch.zeros_like(flat)
            self._adam.state[flat] = {
                "step": torch.zeros(()),
                "exp_avg": zeros,
                "exp_avg_sq": zeros.clone(),
            }

    def zero_grad(self) -> None:
        """Before every backward pass."""
        for flat in self.flats:
            assert flat.grad is not None
            flat.grad.zero_()

    def step(self, rates: Sequence[float]) -> None:
        """Clip each group and step; change nothing if a gradient is not finite."""
        norms = [float(torch.linalg.vector_norm(flat.grad)) for flat in self.flats if flat.grad is not None]
        if not all(norm < float("inf") for norm in norms):
            self._skip()
            return
        self.skipped_in_a_row = 0
        for flat, norm in zip(self.flats, norms, strict=True):
            if 0 < self.max_norm < norm and flat.grad is not None:
                flat.grad.mul_(self.max_norm / (norm + 1e-6))
        for group, rate in zip(self._adam.param_groups, rates, strict=True):
            group["lr"] = rate
        self._adam.step()

    def _skip(self) -> None:
        self.skipped += 1
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row >= MOST_SKIPPED:
            raise DivergedError(
                f"{MOST_SKIPPED} gradient steps in a row had gradients that are not finite; none was "
                "taken. A smaller ppo.learning_rate or --env.normalize_reward True may help."
            )

    def tensors(self) -> dict[str, Tensor]:
        """The moments and step counts, by name; live, not copies."""
        states = [self._adam.state[flat] for flat in self.flats]
        return {f"{i}.{key}": state[key] for i, state in enumerate(states) for key in sorted(state)}


def _flatten(module: nn.Module) -> Tensor:
    """Lay a module's parameters, and their gradients, side by side in one vector."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    flat = torch.cat([p.detach().reshape(-1) for p in parameters]).requires_grad_()
    flat.grad = torch.zeros_like(flat)
    start = 0
    for p in parameters:
        span = slice(start, start + p.numel())
        p.data = flat.data[span].view_as(p)
        p.grad = flat.grad[span].view_as(p)
        start = span.stop
    return flat
