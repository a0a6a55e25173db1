"""Two ways to compute the networks of a training run faster: products in bfloat16, and torch.compile."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..common.tree import map_leaves
from .agent import Agent, Branch

SHAPES = 32  # of inputs; a network is compiled for each, up to so many


@contextlib.contextmanager
def faster(agent: Agent, bf16: bool, compiled: bool) -> Iterator[None]:
    """Compute an agent faster within the block.

    bf16      round the inputs of products to bfloat16, in encoders and in memories that are `plain`
    compiled  compile the networks at their first call with each shape; of a branch whose memory is not
              `plain`, only the encoder
    """
    branches = dict.fromkeys((agent.actor, agent.critic.trunk))  # one, if they share it
    agent.bf16 = bf16
    for branch in branches:
        branch.bf16 = bf16
    if compiled:
        for branch in branches:
            _compile(branch)
    try:
        yield
    finally:
        agent.bf16 = False
        for branch in branches:
            branch.bf16 = False
            vars(branch).pop("features", None)
            for part in (branch.inputs, branch.encoder):
                vars(part).pop("forward", None)


def _compile(branch: Branch) -> None:
    """Replace methods of a branch by compiled ones."""
    # Imported here: it is a second of every process, and 70 MiB.
    import torch._dynamo.config as config

    config.recompile_limit = SHAPES
    if branch.memory.plain:
        branch.features = _compiled(branch.features, branch.device)  # type: ignore[method-assign]
        return
    for part in (branch.inputs, branch.encoder):
        part.forward = _compiled(part.forward, branch.device)  # type: ignore[method-assign]


def _compiled(call: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """A function compiled for each shape of its inputs; on CUDA acting replays a captured graph."""
    compiled = torch.compile(call, dynamic=False)
    if device.type != "cuda":
        return compiled
    graph = torch.compile(call, dynamic=False, mode="reduce-overhead")

    def replay(*inputs: Any) -> Any:
        # A graph of a forward pass may be replayed only after its backward pass, so learning has none.
        if torch.is_grad_enabled():
            return compiled(*inputs)
        torch.compiler.cudagraph_mark_step_begin()
        # Copies, because the next replay overwrites the outputs.
        return map_leaves(Tensor.clone, graph(*inputs))

    return replay
