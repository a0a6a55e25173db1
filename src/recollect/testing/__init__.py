"""The contract of a memory as a check that runs, for the memories here and for yours.

    from recollect.testing import check_memory
    check_memory(MyConfig(width=8))

`check_memory` raises an AssertionError that names the first broken rule and how to mend it.
`check_agent` does the same for a whole agent: acting must equal learning.
"""

import copy

import torch
from torch import Tensor

from ..agent.agent import Agent, Branch, SharedCritic
from ..agent.nets import Rows
from ..common import tree
from ..common.tree import Tree
from ..envs.spaces import Leaf
from ..learn.rollout import slice_rows
from ..memory import MemoryConfig
from .compare import close, demand, distance
from .rules import RULES
from .subject import BATCH, Subject


def check_memory(config: MemoryConfig, in_dim: int = 5) -> None:
    """Run the whole contract on the memory that `config` builds, in float64."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        subject = Subject(config, in_dim)
        for rule in RULES:
            rule(subject)


def check_agent(agent: Agent, length: int = 8, num_envs: int = BATCH) -> None:
    """Acting row by row must equal learning from chunks of `length` rows, in float64.

    The agent is copied, not changed.
    """
    agent = copy.deepcopy(agent).double().eval()
    with torch.random.fork_rng(devices=()), torch.no_grad():
        torch.manual_seed(0)
        rows = _random_rows(agent, 2 * length, num_envs)
        state = agent.initial_state(num_envs)
        for name, branch, start in (
            ("actor", agent.actor, state.actor),
            ("critic", agent.critic, agent.critic.trunk.initial_state(num_envs)),
        ):
            acted, learned = _both_ways(branch, rows, start, length)
            demand(
                close(acted, learned, 1e-12),
                "agent",
                f"the {name} computes other numbers row by row than in chunks of {length} rows "
                f"(largest difference {distance(acted, learned):.2g})",
                "run check_memory on its memory; layers around it must treat every row alone",
            )


def _both_ways(branch: Branch | SharedCritic, rows: Rows, state: Tree, length: int) -> tuple[Tensor, Tensor]:
    """What a branch says row by row, and over two chunks side by side from their states."""
    num_envs = rows.first.shape[1]
    said, starts = [], []
    for t in range(2 * length):
        if t % length == 0:
            starts.append(state)
        y, state = branch(slice_rows(rows, slice(t, t + 1)), state)
        said.append(y)
    joined = tree.map_leaves(lambda x: x.flatten(0, 1), tree.stack(starts))

    def cut(x: Tensor) -> Tensor:
        return torch.cat(torch.split(x, length), 1)

    learned = branch(rows.map(cut), joined)[0]
    return torch.cat(said), torch.cat(torch.split(learned, num_envs, 1))


def _random_rows(agent: Agent, length: int, num_envs: int) -> Rows:
    """Rows (T, N, ...) such as an environment could give."""
    first = torch.rand(length, num_envs) < 0.2
    first[0] = True
    obs = {key: _random_leaf(leaf, length, num_envs) for key, leaf in agent.obs_spec.leaves.items()}
    spec = agent.action_spec
    if agent.policy.discrete:
        action = torch.stack([torch.randint(n, (length, num_envs)) for n in spec.sizes], -1)
    else:
        action = torch.randn(length, num_envs, spec.width, dtype=torch.float64)
    reward = torch.randn(length, num_envs, dtype=torch.float64)
    return Rows(agent.normalizer(obs), first, action * ~first[..., None], reward * ~first)


def _random_leaf(leaf: Leaf, length: int, num_envs: int) -> Tensor:
    if leaf.kind == "picture":
        return torch.randint(256, (length, num_envs, *leaf.shape), dtype=torch.uint8)
    if leaf.kind == "discrete":
        return torch.stack([torch.randint(n, (length, num_envs)) for n in leaf.sizes], -1)
    x = torch.randn(length, num_envs, *leaf.shape, dtype=torch.float64)
    return (x > 0).double() if leaf.kind == "binary" else x
