"""The values of discrete and binary observations."""

from typing import NamedTuple

import numpy as np

from .spaces import Obs, ObsSpec


class Outside(NamedTuple):
    """A value that the space of a discrete or binary observation does not have.

    name  of the leaf, with the component if there are several
    env   the environment that returned it
    rule  the values that the space has
    """

    name: str
    env: int
    value: float
    rule: str


class Ranges:
    """The ranges of the discrete and binary leaves of an observation."""

    def __init__(self, spec: ObsSpec) -> None:
        self._leaves = {name: leaf for name, leaf in spec.leaves.items() if leaf.kind == "discrete"}
        self._sizes = {name: np.array(leaf.sizes, np.uint64) for name, leaf in self._leaves.items()}
        self._binary = [name for name, leaf in spec.leaves.items() if leaf.kind == "binary"]

    def find_outside(self, obs: Obs) -> Outside | None:
        """The first value that is outside of its range, in the leaves of `ObsSpec.split`."""
        for name, sizes in self._sizes.items():
            # As unsigned numbers, negative ones are large: one comparison checks both ends.
            if name in obs and (obs[name].view(np.uint64) >= sizes).any():
                env, place = (int(i) for i in np.argwhere(obs[name].view(np.uint64) >= sizes)[0])
                start, size = self._leaves[name].start[place], int(sizes[place])
                key = f"{name}[{place}]" if len(sizes) > 1 else name
                rule = f"its space has the values {start} to {start + size - 1}"
                return Outside(key, env, int(obs[name][env, place]) + start, rule)
        for name in self._binary:
            if name in obs and (outside := (obs[name] != 0) & (obs[name] != 1)).any():
                env, *places = (int(i) for i in np.argwhere(outside)[0])
                value = obs[name][env, *places].item()
                return Outside(f"{name}{places}", env, value, "its space has the values 0 and 1")
        return None
