"""How much a choice, or a value, would change with what was read some rows before.

The gradient with respect to what an encoder reads: what is seen, normalised or one-hot, or what
convolutions make of a picture, and the action and the reward before where they are inputs. Each row is
asked with the last rows before it, from the state in which they began; all rows at once.

Shapes.  T rows of one episode, K rows of a window, F features.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..agent import Agent, Branch
from ..nets import Rows
from ..record import states
from ..report.intervals import Floats
from ..tree import Tree, map_leaves, stack

REACH = 32  # rows of a window: the present one and those before it
AT_ONCE = 128  # windows

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
    begun = _begun(branch, rows)
    for begin in range(0, length, AT_ONCE):
        at = torch.arange(begin, min(begin + AT_ONCE, length))
        start = (at - width + 1).clamp(min=0)
        windows = _windows(rows, start, width)
        state = _states(begun, start)
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
        (gradient,) = torch.autograd.grad(column.sum(), read, retain_graph=True)
        total += gradient.double().square().sum(-1)
    return total


@contextmanager
def _asked(branch: Branch) -> Iterator[list[Tensor]]:
    """What the branch reads while this is open, as leaves of its graph."""
    read: list[Tensor] = []

    def ask(_module: object, _given: object, x: Tensor) -> Tensor:
        read.append(x.detach().requires_grad_())
        return read[-1]

    hook = branch.inputs.register_forward_hook(ask)
    try:
        yield read
    finally:
        hook.remove()


def _begun(branch: Branch, rows: Rows) -> list[Tree]:
    """The state before each row, each of one environment."""
    with torch.no_grad():
        return [branch.memory.initial_state(1), *states(branch, rows)]


def _states(begun: list[Tree], start: Tensor) -> Tree:
    """The states before these rows, side by side."""
    return map_leaves(lambda x: x.flatten(0, 1), stack([begun[int(t)] for t in start]))


def _windows(rows: Rows, start: Tensor, width: int) -> Rows:
    """Rows (T, 1, ...) -> windows (width, B, ...)."""
    place = start[None] + torch.arange(width)[:, None]
    obs = {name: x[place, 0] for name, x in rows.obs.items()}
    return Rows(obs, *(x[place, 0] for x in rows[1:]))
