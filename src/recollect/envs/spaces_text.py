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
    if leaf.kind == "picture":
        return f"a picture {_times(leaf.shape)}"
    if leaf.kind == "discrete":
        return _choices(leaf.sizes, leaf.start) + _arranged(leaf.shape)
    count = math.prod(leaf.shape)
    numbers = {"vector": "number", "binary": "bit", "mask": "bit of an action mask"}[leaf.kind]
    plural = numbers.replace("number", "numbers").replace("bit", "bits") if count != 1 else numbers
    return f"{count} {plural}{_arranged(leaf.shape)}"


@describe.register
def _observation(spec: ObsSpec) -> str:
    text = ", ".join(f"{name}: {describe(leaf)}" for name, leaf in spec.leaves.items())
    return f"{text}, entries {', '.join(map(str, spec.mask))} hidden" if spec.mask else text


@describe.register
def _action(spec: ActionSpec) -> str:
    if spec.kind == "categorical":
        return _choices(spec.sizes, spec.start) + _arranged(spec.shape)
    bounds = [f"{low:g} to {high:g}" for low, high in zip(spec.low, spec.high, strict=True)]
    text = bounds[0] if len(set(bounds)) == 1 else "; ".join(bounds)
    kind = "" if spec.dtype == "float32" else f" of {spec.dtype}"
    return f"{spec.width} number{'s' * (spec.width != 1)}{kind}{_arranged(spec.shape)} ({text})"


def _choices(sizes: tuple[int, ...], start: tuple[int, ...]) -> str:
    text = f"{_times(sizes)} choices"
    return f"{text} from {', '.join(map(str, start))}" if any(start) else text


def _arranged(shape: tuple[int, ...]) -> str:
    """The shape of an array, which a vector needs not."""
    return f" ({_times(shape)})" if len(shape) > 1 else ""


def _times(numbers: tuple[int, ...]) -> str:
    return " x ".join(map(str, numbers))
