"""Three ways to compute the networks of a training run faster: products in bfloat16, torch.compile, and CUDA
graphs."""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from .agent import Agent, Branch
from .graphs import GraphedStep

SHAPES = 32  # of inputs; a network is compiled for each, up to so many


@contextlib.contextmanager
def faster(agent: Agent, bf16: bool, compiled: bool, graphs: bool = False) -> Iterator[None]:
    """Compute an agent faster within the block.

    bf16      round the inputs of products to bfloat16, in encoders and in memories that are `plain`
    compiled  compile the networks at their first call with each shape; of a branch whose memory is not
              `plain`, only the encoder
    graphs    capture a step of the actor as a CUDA graph
    """
    branches = dict.fromkeys((agent.actor, agent.critic.trunk))  # one, if they share it
    agent.bf16, agent.compiled = bf16, compiled
    for branch in branches:
        branch.bf16 = bf16
    if compiled:
        for branch in branches:
            _compile(branch)
    if graphs:
        graphed = GraphedStep(agent.actor.forward, precision=lambda: agent.actor.bf16)
        vars(agent.actor)["forward"] = graphed  # taken out again below
    try:
        yield
    finally:
        agent.bf16 = agent.compiled = False
        for branch in branches:
            branch.bf16 = False
        for part, name in _replaceable(agent):
            vars(part).pop(name, None)


def _replaceable(agent: Agent) -> list[tuple[nn.Module, str]]:
    """The modules and names of the methods that `faster` may replace."""
    places: list[tuple[nn.Module, str]] = []
    for branch in dict.fromkeys((agent.actor, agent.critic.trunk)):
        places.append((branch, "features"))
        places += [(part, "forward") for part in (branch, branch.inputs, branch.encoder)]
    return places


@contextlib.contextmanager
def full_precision(agent: Agent) -> Iterator[None]:
    """No rounding to bfloat16 within the block, as in an evaluation."""
    branches = agent.actor, agent.critic.trunk
    rounded = [branch.bf16 for branch in branches]
    for branch in branches:
        branch.bf16 = False
    try:
        yield
    finally:
        for branch, bf16 in zip(branches, rounded, strict=True):
            branch.bf16 = bf16


@contextlib.contextmanager
def as_built(agent: Agent) -> Iterator[None]:
    """The agent without what `faster` changes, within the block: to be copied."""
    places = [(part, name) for part, name in _replaceable(agent) if name in vars(part)]
    replaced = [vars(part).pop(name) for part, name in places]
    try:
        with full_precision(agent):
            yield
    finally:
        for (part, name), method in zip(places, replaced, strict=True):
            vars(part)[name] = method


def _compile(branch: Branch) -> None:
    """Replace methods of a branch by compiled ones."""
    # Imported here: it is a second of every process, and 70 MiB.
    import torch._dynamo.config as config

    config.recompile_limit = SHAPES
    if branch.memory.plain:
        branch.features = torch.compile(branch.features, dynamic=False)  # type: ignore[method-assign]
        return
    for part in (branch.inputs, branch.encoder):
        part.forward = torch.compile(part.forward, dynamic=False)  # type: ignore[method-assign]
