"""The distinct pictures of a rollout, found once, when the environments show them.

Shapes.  T steps, N environments, m distinct pictures, F features.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..envs import Array

Encode: TypeAlias = Callable[[Tensor], Tensor]  # pictures (m, ...) -> features (m, F)
Lookup: TypeAlias = Callable[[Tensor, Encode], Tensor]  # places (T, N) -> features (T, N, F)


class Gallery:
    """The distinct pictures of one leaf of a rollout, in the order in which they are first shown."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self.clear()

    def clear(self) -> None:
        """Begin a new rollout."""
        self._index: dict[bytes, int] = {}
        self._pictures: list[bytes] = []
        self._table: Tensor | None = None
        self._features: Tensor | None = None

    def add(self, pictures: Array) -> list[int]:
        """The index of each picture (N, ...) among the distinct ones."""
        places = []
        for picture in pictures:
            content = picture.tobytes()
            place = self._index.get(content)
            if place is None:
                place = self._index[content] = len(self._pictures)
                self._pictures.append(content)
            places.append(place)
        return places

    def encode(self, place: Tensor, encode: Encode) -> Tensor:
        """The features of the pictures of some steps, each distinct one encoded once."""
        if self._table is None or len(self._table) < len(self._pictures):
            self._table = self._since(0)
        used, which = torch.unique(place, return_inverse=True)
        return encode(self._table[used])[which]

    def encode_in_order(self, place: Tensor, encode: Encode) -> Tensor:
        """The same for the latest step of a rollout, while weights are constant: a picture that an earlier
        step has shown is not encoded again.
        """
        known = 0 if self._features is None else len(self._features)
        if known < len(self._pictures):
            features = encode(self._since(known))
            self._features = features if self._features is None else torch.cat([self._features, features])
        assert self._features is not None
        return self._features[place]

    def _since(self, first: int) -> Tensor:
        """The distinct pictures from an index on."""
        content = np.frombuffer(bytearray().join(self._pictures[first:]), np.uint8)
        return torch.from_numpy(content).unflatten(0, (-1, *self._shape))


class Galleries:
    """The pictures of all leaves of a rollout by their places among the distinct ones.

    places  leaf -> (T, N)
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], steps: int, num_envs: int) -> None:
        """shapes: leaf -> that of its pictures."""
        self._galleries = {name: Gallery(shape) for name, shape in shapes.items()}
        self.places = {name: torch.zeros(steps, num_envs, dtype=torch.long) for name in shapes}

    def clear(self) -> None:
        """Begin a new rollout."""
        for gallery in self._galleries.values():
            gallery.clear()

    def write(self, t: int, obs: Mapping[str, Array]) -> None:
        """Store the places of the pictures of step t."""
        for name, gallery in self._galleries.items():
            self.places[name][t] = torch.tensor(gallery.add(obs[name]))

    def lookups(self, in_order: bool) -> dict[str, Lookup]:
        """Leaf -> features from places; in_order: of the latest step, while weights are constant."""
        galleries = self._galleries.items()
        return {name: x.encode_in_order if in_order else x.encode for name, x in galleries}


class Shown(NamedTuple):
    """Pictures of some steps, by their place in a gallery."""

    lookup: Lookup
    place: Tensor  # (T, N)

    def features(self, encode: Encode) -> Tensor:
        """(T, N, F)."""
        return self.lookup(self.place, encode)
