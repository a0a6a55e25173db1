"""Spaces in words, for messages."""

import math
from functools import singledispatch

from .spaces import ActionSpec, Leaf, ObsSpec


@singledispatch
def describe(spec: object) -> str:
    """A leaf, an observation or an action in a few words."""
    raise TypeError(f"{type(spec).__name__} is no spec of a space")


@describe.register
def _leaf(leaf: Leaf) -> str:
    shape = " x ".join(map(str, leaf.shape))
    if leaf.kind == "picture":
        return f"a picture {shape}"
    if leaf.kind == "discrete":
        return _choices(leaf.sizes, leaf.start)
    count = math.prod(leaf.shape)
    numbers = {"vector": "number", "binary": "bit", "mask": "bit of an action mask"}[leaf.kind]
    plural = numbers.replace("number", "numbers").replace("bit", "bits") if count != 1 else numbers
    return f"{count} {plural}" + (f" ({shape})" if len(leaf.shape) > 1 else "")


@describe.register
def _observation(spec: ObsSpec) -> str:
    text = ", ".join(f"{name}: {describe(leaf)}" for name, leaf in spec.leaves.items())
    return f"{text}, entries {', '.join(map(str, spec.mask))} hidden" if spec.mask else text


@describe.register
def _action(spec: ActionSpec) -> str:
    if spec.kind == "categorical":
        return _choices(spec.sizes, spec.start)
    bounds = [f"{low:g} to {high:g}" for low, high in zip(spec.low, spec.high, strict=True)]
    text = bounds[0] if len(set(bounds)) == 1 else "; ".join(bounds)
    return f"{spec.width} number{'s' * (spec.width != 1)} ({text})"


def _choices(sizes: tuple[int, ...], start: tuple[int, ...]) -> str:
    text = " x ".join(map(str, sizes)) + " choices"
    return f"{text} from {', '.join(map(str, start))}" if any(start) else text
