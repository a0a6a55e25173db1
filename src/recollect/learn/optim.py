"""Adam on one flat vector per branch: zeroing, clipping and stepping are one call each."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from ..common.errors import DivergedError
from .settings import PPOConfig

MAX_SKIPPED = 10  # gradient steps in a row


class FlatAdam:
    """Adam or AdamW for groups of parameters, each group clipped by its own norm.

    Every parameter becomes a view into the vector of its group, and its gradient a view into `gradient`,
    the vector of all groups. Nothing may replace p.data or p.grad: the views would be lost. A step with a
    gradient that is not finite is skipped.
    """

    def __init__(self, groups: Sequence[nn.Module], cfg: PPOConfig) -> None:
        self.flats = [_flatten(module) for module in groups]
        self.gradient = torch.cat([torch.zeros_like(flat) for flat in self.flats])
        self._parts = self.gradient.split([len(flat) for flat in self.flats])
        for module, flat, part in zip(groups, self.flats, self._parts, strict=True):
            _share_gradient(module, flat, part)
        self._parameters = [_trainable(module) for module in groups]
        self.max_norm = cfg.max_grad_norm
        self.rate_factor = 1.0  # multiplies every learning rate
        self.skipped = 0  # steps with a gradient that was not finite
        self.skipped_in_a_row = 0
        # On a GPU, until `count_skips`: skipped steps, those in a row up to now, and the most in a row.
        self._skips: Tensor | None = None
        # The operation behind torch.optim.Adam. Constructing that class imports torch's compiler, which costs
        # each process a second and 70 MiB; its other functions take several times as long as the operation.
        self._adam = partial(
            torch._fused_adamw_ if cfg.optimizer == "adamw" else torch._fused_adam_,
            amsgrad=False,
            maximize=False,
            beta1=0.9,
            beta2=0.999,
            eps=cfg.adam_eps,
            weight_decay=cfg.weight_decay,
        )
        self._states = [
            {
                "step": flat.new_zeros(()),
                "exp_avg": torch.zeros_like(flat),
                "exp_avg_sq": torch.zeros_like(flat),
            }
            for flat in self.flats
        ]

    def zero_grad(self) -> None:
        """Before every backward pass."""
        self.gradient.zero_()

    def step(self, rates: Sequence[float]) -> None:
        """Clip each group and step; change nothing if a gradient is not finite."""
        # Gradients are summed over ranks by now, so all of them skip the same steps. All norms come before
        # the first change: no branch may step if the other is skipped.
        norms = [torch.linalg.vector_norm(part) for part in self._parts]
        rates = [rate * self.rate_factor for rate in rates]
        if self.gradient.is_cpu:
            self._step_by_numbers([float(norm) for norm in norms], rates)
        else:
            self._step_by_tensors(norms, rates)

    def _step_by_numbers(self, norms: Sequence[float], rates: Sequence[float]) -> None:
        # False for NaN as well.
        if not all(norm < float("inf") for norm in norms):
            self.skipped += 1
            self.skipped_in_a_row += 1
            self._check(self.skipped_in_a_row)
            return
        self.skipped_in_a_row = 0
        for i, norm in enumerate(norms):
            if 0 < self.max_norm < norm:
                # 1e-6 as in torch.nn.utils.clip_grad_norm_.
                self._parts[i].mul_(self.max_norm / (norm + 1e-6))
            self._move(i, rates[i])

    def _step_by_tensors(self, norms: Sequence[Tensor], rates: Sequence[float]) -> None:
        """The same on a GPU, where a number in Python would be a wait in every step; on a CPU it takes twice
        as long as numbers.
        """
        skip = (~torch.stack(list(norms)).isfinite().all()).float()
        for i, norm in enumerate(norms):
            if self.max_norm > 0:
                self._parts[i].mul_(torch.where(norm > self.max_norm, self.max_norm / (norm + 1e-6), 1.0))
            self._move(i, rates[i], skip)
        if self._skips is None:
            self._skips = self.gradient.new_zeros(3)
            self._skips[1].fill_(self.skipped_in_a_row)  # by a kernel: a list of numbers would be a copy
        total, in_a_row, most = self._skips.unbind()
        total.add_(skip)
        in_a_row.add_(1).mul_(skip)
        most.copy_(torch.maximum(most, in_a_row))

    def _move(self, group: int, rate: float, skip: Tensor | None = None) -> None:
        """One step of a group; none where `skip` is 1."""
        state = self._states[group]
        step = state["step"].add_(1)
        moments = [state["exp_avg"]], [state["exp_avg_sq"]]
        flat, part = [self.flats[group]], [self._parts[group]]
        self._adam(flat, part, *moments, [], [step], lr=rate, found_inf=skip)
        if skip is not None:
            step.sub_(skip)

    def count_skips(self) -> int:
        """The number of skipped steps so far, after an update; waits for a GPU."""
        if self._skips is not None:
            total, in_a_row, most = map(int, self._skips.tolist())
            self._skips = None
            self.skipped += total
            self.skipped_in_a_row = in_a_row
            self._check(most)
        return self.skipped

    def _check(self, in_a_row: int) -> None:
        if in_a_row >= MAX_SKIPPED:
            raise DivergedError(
                f"{MAX_SKIPPED} consecutive gradient steps were skipped: their gradients are not finite; "
                "try a smaller ppo.learning_rate or --env.normalize_reward True"
            )

    def rescale(self, module: nn.Module, factor: float) -> None:
        """Scale the moments of a module whose gradients are from now on `factor` times as large."""
        # Otherwise the old squares would slow its steps down, or speed them up, for a thousand steps.
        scaled = set(module.parameters())
        for parameters, state in zip(self._parameters, self._states, strict=True):
            sizes = [p.numel() for p in parameters]
            parts = (state[key].split(sizes) for key in ("exp_avg", "exp_avg_sq"))
            for p, average, average_sq in zip(parameters, *parts, strict=True):
                if p in scaled:
                    average.mul_(factor)
                    average_sq.mul_(factor**2)

    def tensors(self) -> dict[str, Tensor]:
        """The moments and step counts, by name; live, not copies."""
        return {f"{i}.{key}": state[key] for i, state in enumerate(self._states) for key in sorted(state)}


def _flatten(module: nn.Module) -> Tensor:
    """Move the parameters of a module into one vector, of which they become views."""
    parameters = _trainable(module)
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        # Through .data, so autograd does not notice when the vector is changed: no change may come between a
        # forward pass and its backward pass.
        p.data = part.view_as(p)
    return flat


def _share_gradient(module: nn.Module, flat: Tensor, gradient: Tensor) -> None:
    """Make a vector the gradient of the flat parameters, and its parts those of each parameter."""
    flat.grad = gradient
    parameters = _trainable(module)
    for p, part in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
        # backward adds to a gradient that exists in place. With create_graph it would replace the view.
        p.grad = part.view_as(p)


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]
