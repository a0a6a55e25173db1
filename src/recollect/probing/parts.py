"""The parts of a memory state, and the policy without each: tensors, layers, heads, and single units.

A part that is taken away has its mean over all visited states.

Shapes.  S steps of a sample, W floats of a state.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ..agent.agent import Agent
from ..common.tree import Tree, leaves, unflatten
from ..memory import Memory
from ..run.recording import float_leaves, name_states
from .interventions import Spread
from .open_loop import Effect
from .samples import Sample, measure_effect

UNITS = 256  # numbers of all vectors of a state, above which they are not altered one by one
ROWS = 64  # of a tensor, above which they are not either


@dataclass(frozen=True)
class Part:
    """A part of the state, and the policy without it."""

    name: str
    unit: bool
    """Whether it is a single number."""
    effect: Effect | None


class Place(NamedTuple):
    """Where a part is: in each tensor of the state by its path, an index of all axes but the batch."""

    name: str
    where: dict[str, tuple[slice, ...]]
    unit: bool = False


def measure_parts(agent: Agent, sample: Sample, visited: Spread) -> list[Part]:
    """The policy with each part of the state at its mean."""
    return [
        Part(place.name, place.unit, measure_effect(agent, sample, _averaged(sample, visited, place)))
        for place in find_parts(agent.actor.memory)
    ]


def find_parts(memory: Memory) -> Iterator[Place]:
    """All tensors, then the parts of each: heads, rows, or units.

    A memory of attention has a layer for each of its caches, of a tensor or two, and heads. Of other
    tensors with several axes the parts are the rows of the first, as heads of an mLSTM and steps of a stack.
    """
    floats = float_leaves(memory.initial_state(1))
    if memory.heads:
        yield from _find_heads(memory, floats)
        return
    names = dict(zip(floats, name_states(memory.state_names, len(floats)), strict=True))
    if len(floats) > 1:
        for path, leaf in floats.items():
            yield Place(names[path], {path: (slice(None),) * (leaf.ndim - 1)})
    units = sum(leaf.numel() for leaf in floats.values() if leaf.ndim <= 2) <= UNITS
    for path, leaf in floats.items():
        count = leaf.numel() if leaf.ndim <= 2 else leaf.shape[1]
        if leaf.ndim <= 2 and units:
            for i in range(count):
                index = (slice(i, i + 1),)[: leaf.ndim - 1]  # none of a number without an axis of its own
                yield Place(f"{names[path]}, unit {i + 1} of {count}", {path: index}, unit=True)
        elif leaf.ndim > 2 and 1 < count <= ROWS:
            for i in range(count):
                rows = (slice(i, i + 1), *(slice(None),) * (leaf.ndim - 2))
                yield Place(f"{names[path]}, row {i + 1} of {count}", {path: rows})


def _find_heads(memory: Memory, floats: dict[str, Tensor]) -> Iterator[Place]:
    """Layers and heads of a cache of keys and values."""
    # The caches of all layers are one entry of the state, or each is one; bare tensors are one layer.
    nested = len({path.split(".")[0] for path in floats}) == 1
    layers: dict[str, list[str]] = {}
    for path in floats:
        entry, *inside = path.split(".")
        layer = "" if not inside else inside[0] if nested else entry
        layers.setdefault(layer, []).append(path)
    for number, paths in enumerate(layers.values(), 1):
        axes = (slice(None),) * (floats[paths[0]].ndim - 2)
        width = floats[paths[0]].shape[-1] // memory.heads
        yield Place(f"layer {number} of {len(layers)}", {path: (*axes, slice(None)) for path in paths})
        for head in range(memory.heads):
            part = slice(head * width, (head + 1) * width)
            name = f"layer {number}, head {head + 1} of {memory.heads}"
            yield Place(name, {path: (*axes, part) for path in paths})


def _averaged(sample: Sample, visited: Spread, place: Place) -> Tree:
    """The states of a sample with a part at its mean."""
    altered = leaves(sample.state)
    for path, axes in place.where.items():
        numbers = (slice(None), *axes)
        altered[path] = altered[path].clone()
        altered[path][numbers] = visited.mean[path][numbers]
    return unflatten(sample.state, altered)
