"""Executable checks of the contracts of memories and encoders, for built-in and third-party ones.

    from recollect.testing import check_memory
    check_memory(MyConfig(width=8))

`check_memory` and `check_encoder` raise an AssertionError that names the first violated rule and how to fix
it. `check_agent` checks a whole agent: the outputs of acting must equal those of learning.
"""

import copy

import torch
from torch import Tensor

from ..agent.agent import Agent, Branch
from ..agent.critic import SharedCritic
from ..agent.nets import Rows
from ..common import tree
from ..common.tree import Tree
from ..learn.rollout import slice_rows
from ..memory import MemoryConfig
from .compare import close, distance, require
from .encoder import check_encoder as check_encoder
from .encoder import random_leaf
from .rules import RULES
from .subject import BATCH, Subject


def check_memory(config: MemoryConfig, in_dim: int = 5) -> None:
    """Check all rules of the contract on the memory that `config` builds, in float64; print that it passed.

    in_dim  input features of the memory
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        subject = Subject(config, in_dim)
        for rule in RULES:
            rule(subject)
    print(f"{type(config).__name__}: all {len(RULES)} rules of the contract hold")


def check_agent(agent: Agent, length: int = 8, num_envs: int = BATCH) -> None:
    """Check that acting, step by step, gives the outputs of learning from chunks, in float64.

    The agent is copied and not changed.

    length    steps of a chunk
    num_envs  environments in the random inputs
    """
    # In float64 a mistake is far above rounding, which differs between one long call and many short ones.
    agent = copy.deepcopy(agent).double().eval()
    with torch.random.fork_rng(devices=()), torch.no_grad():
        torch.manual_seed(0)
        rows = _random_rows(agent, 2 * length, num_envs)
        state = agent.initial_state(num_envs)
        for name, branch, start in (
            ("actor", agent.actor, state.actor),
            ("critic", agent.critic, agent.critic.trunk.initial_state(num_envs)),
        ):
            acted, learned = _act_and_learn(branch, rows, start, length)
            require(
                close(acted, learned, 1e-12),
                "agent",
                f"the outputs of the {name} step by step differ from those in chunks of {length} steps "
                f"(largest difference {distance(acted, learned):.2g})",
                "run check_memory on its memory; layers outside of it must treat every step on its own",
            )


def _act_and_learn(
    branch: Branch | SharedCritic, rows: Rows, state: Tree, length: int
) -> tuple[Tensor, Tensor]:
    """The outputs of a branch step by step, and in one call over two chunks from their stored states."""
    num_envs = rows.first.shape[1]
    outputs, starts = [], []
    for t in range(2 * length):
        if t % length == 0:
            starts.append(state)
        y, state = branch(slice_rows(rows, slice(t, t + 1)), state)
        outputs.append(y)
    # Side by side along the batch, as in a minibatch.
    chunk_states = tree.map_leaves(lambda x: x.flatten(0, 1), tree.stack(starts))

    def cut(x: Tensor) -> Tensor:
        return torch.cat(torch.split(x, length), 1)

    learned = branch(rows.map(cut), chunk_states)[0]
    return torch.cat(outputs), torch.cat(torch.split(learned, num_envs, 1))


def _random_rows(agent: Agent, length: int, num_envs: int) -> Rows:
    """Random inputs (T, N, ...) in the spaces of an agent."""
    first = torch.rand(length, num_envs) < 0.2
    first[0] = True
    obs = {key: random_leaf(leaf, length, num_envs) for key, leaf in agent.obs_spec.leaves.items()}
    spec = agent.action_spec
    if agent.policy.discrete:
        action = torch.stack([torch.randint(n, (length, num_envs)) for n in spec.sizes], -1)
    else:
        action = torch.randn(length, num_envs, spec.width, dtype=torch.float64)
    reward = torch.randn(length, num_envs, dtype=torch.float64)
    return Rows(agent.normalizer(obs), first, action * ~first[..., None], reward * ~first)
