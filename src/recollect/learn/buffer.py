"""Arrays of several dtypes in one block of memory, so that one copy takes all of them to another device."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ..envs import Array

ALIGNMENT = 64  # bytes, a cache line


class Buffer:
    """Arrays (T, ...) side by side in `memory` (T, bytes): a row of it holds row t of every array.

    fields  the arrays by name, as views of `memory`
    """

    def __init__(self, length: int, rows: Mapping[str, Array], device: torch.device) -> None:
        """Zeros for `length` rows of the shapes and dtypes of the given ones, to be sent to a device."""
        self._device = device
        self._places: dict[str, tuple[slice, torch.dtype, tuple[int, ...]]] = {}
        end = 0
        for name, row in rows.items():
            place = slice(end, end + math.prod(row.shape) * row.dtype.itemsize)
            self._places[name] = place, torch.from_numpy(np.zeros(0, row.dtype)).dtype, row.shape
            end = math.ceil(place.stop / ALIGNMENT) * ALIGNMENT
        self.memory = torch.zeros(length, end, dtype=torch.uint8)
        if device.type not in ("cpu", "mps"):
            self.memory = self.memory.pin_memory()  # copies from pageable memory would wait for the device
        self.fields = self._split(self.memory)

    def send(self, rows: slice) -> dict[str, Tensor]:
        """The arrays of some rows on the device: one copy, or none if that is the CPU."""
        if self._device.type == "cpu":
            return {name: x[rows] for name, x in self.fields.items()}
        return self._split(self.memory[rows].to(self._device, non_blocking=True))

    def _split(self, memory: Tensor) -> dict[str, Tensor]:
        """(T, bytes) -> views (T, *shape)."""
        return {
            name: memory[:, place].view(dtype).unflatten(1, shape)
            for name, (place, dtype, shape) in self._places.items()
        }
