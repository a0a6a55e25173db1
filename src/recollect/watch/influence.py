"""How much a choice, or a value, would change with what was read some rows before.

The gradient with respect to what an encoder reads: what is seen, normalised or one-hot, or what
convolutions make of a picture, and the action and the reward before where they are inputs. Each row is
asked with the last rows before it, from the state in which they began; many rows at once. Nothing is
left out by chance, and gradients go as far as rows are looked up, also where learning cuts them.

Shapes.  T rows of one episode, K rows of a window, F features.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..agent import Agent, Branch
from ..memory.attention import whole_gradients
from ..nets import Rows
from ..record import states
from ..report.intervals import Floats
from ..tree import Tree, map_leaves, stack

REACH = 32  # rows of a window: the present one and those before it
AT_ONCE = 64  # windows

Says: TypeAlias = Callable[[Rows, Tree], Tensor]


def on_actions(agent: Agent, rows: Rows, action: Tensor) -> Floats:
    """On the probability of what was chosen; of real actions, on the means. (T, K)"""

    def says(windows: Rows, state: Tree) -> Tensor:
        return agent.actor(windows, state)[0]

    if agent.policy.discrete:
        return _influence(agent.actor, rows, says, lambda said, at: _probability(agent, said, action[at, 0]))
    means = agent.policy.width
    return _influence(agent.actor, rows, says, lambda said, _: said[:, :means])


def on_values(agent: Agent, rows: Rows) -> Floats:
    """On the value. (T, K)"""

    def says(windows: Rows, state: Tree) -> Tensor:
        return agent.value(windows, state)[0][..., None]

    branch = agent.critic if isinstance(agent.critic, Branch) else agent.actor
    return _influence(branch, rows, says, lambda said, _: said)


def _probability(agent: Agent, params: Tensor, action: Tensor) -> Tensor:
    """Of what was chosen, (B, P) and (B, K) -> (B, 1)."""
    return agent.policy.evaluate(params, action)[0].exp()[:, None]


@torch.enable_grad()
def _influence(branch: Branch, rows: Rows, says: Says, answers: Callable[[Tensor, Tensor], Tensor]) -> Floats:
    """The length of the gradient of row t's answers by what was read k rows before: (T, K)."""
    length = len(rows.first)
    width = min(REACH, length)
    out = np.zeros((length, width))
    begun = _Begun(branch, rows)
    for begin in range(0, length, AT_ONCE):
        at = torch.arange(begin, min(begin + AT_ONCE, length))
        start = (at - width + 1).clamp(min=0)
        windows, state = _windows(rows, start, width), begun.before(start)
        squares = _squares(branch, windows, state, says, answers, at, at - start)  # (width, B)
        back = (at - start)[None] - torch.arange(width)[:, None]
        kept = back >= 0
        row = at.expand_as(back)
        out[row[kept].numpy(), back[kept].numpy()] = squares[kept].sqrt().numpy()
    return out


def _squares(
    branch: Branch,
    windows: Rows,
    state: Tree,
    says: Says,
    answers: Callable[[Tensor, Tensor], Tensor],
    at: Tensor,
    place: Tensor,
) -> Tensor:
    """Squared lengths (width, B) of the gradients of all answers of each window, summed."""
    with _asked(branch) as read:
        said = says(windows, state)[place, torch.arange(len(place))]
        answered = answers(said, at)
    total = torch.zeros(windows.first.shape, dtype=torch.float64)
    for column in answered.unbind(1):
        for gradient in torch.autograd.grad(column.sum(), read, retain_graph=True):
            total += gradient.double().square().sum(-1)
    return total


@contextmanager
def _asked(branch: Branch) -> Iterator[list[Tensor]]:
    """What the branch reads while this is open, as leaves of its graph."""
    read: list[Tensor] = []

    def leaf(x: Tensor) -> Tensor:
        read.append(x.detach().requires_grad_())
        return read[-1]

    def ask(_module: object, _given: object, x: Tensor) -> Tensor:
        return leaf(x)

    def ask_apart(_module: object, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The action that goes past the encoder."""
        x, *rest = given
        apart = branch.inputs.action_dim
        seen, action = x.split([x.shape[-1] - apart, apart], -1)
        return torch.cat([seen, leaf(action)], -1), *rest

    hooks = [branch.inputs.register_forward_hook(ask)]
    if branch.action_apart:
        hooks.append(branch.memory.register_forward_pre_hook(ask_apart))
    training = branch.training
    branch.eval()
    try:
        with whole_gradients():
            yield read
    finally:
        branch.train(training)
        for hook in hooks:
            hook.remove()


class _Begun:
    """States before the rows with which windows begin; those that no later window asks for are let go."""

    def __init__(self, branch: Branch, rows: Rows) -> None:
        self._kept = {0: branch.memory.initial_state(1)}
        self._next = enumerate(states(branch, rows), 1)

    @torch.no_grad()
    def before(self, start: Tensor) -> Tree:
        """Of these rows (B,), side by side; rows never go back."""
        first, last = int(start[0]), int(start[-1])
        while last not in self._kept:
            row, state = next(self._next)
            self._kept[row] = state
        self._kept = {row: state for row, state in self._kept.items() if row >= first}
        return map_leaves(lambda x: x.flatten(0, 1), stack([self._kept[int(row)] for row in start]))


def _windows(rows: Rows, start: Tensor, width: int) -> Rows:
    """Rows (T, 1, ...) -> windows (width, B, ...)."""
    place = start[None] + torch.arange(width)[:, None]
    obs = {name: x[place, 0] for name, x in rows.obs.items()}
    return Rows(obs, *(x[place, 0] for x in rows[1:]))
