"""What a memory looks at, or holds, as a strip of colours below each picture of a film."""

from collections.abc import Sequence

import numpy as np

from ..envs import Array
from ..report.intervals import Floats
from .inside import Memory

LOWEST, HIGHEST = 48, 128  # pixels
BRIGHT = 0.98  # of all numbers are below what is shown in full colour
GROUND, MORE, LESS = (24, 27, 32), (240, 128, 60), (86, 167, 234)


def frames(pictures: Sequence[Array], memory: Memory | None) -> list[Array]:
    """Each picture with what its memory looks at, or holds, below it."""
    if not pictures or memory is None or memory.kind is None:
        return list(pictures)
    strip = _strip(memory, pictures[0].shape[1])
    last = len(strip) - 1
    return [np.concatenate([picture, strip[min(t, last)]]) for t, picture in enumerate(pictures)]


def _strip(memory: Memory, width: int) -> list[Array]:
    """A picture for each step: weights over the past, or what was held until then."""
    if memory.attention:
        weights = np.concatenate(memory.attention, 1)[:, :, ::-1]  # of all layers, the present at the right
        return [_map(row / max(row.max(), 1e-9), width) for row in weights]
    held = np.concatenate([x / max(np.quantile(np.abs(x), BRIGHT), 1e-9) for x in memory.states.values()], 1)
    made = _map(held.T, width)
    edges = np.linspace(0, width, len(held) + 1).astype(int)
    shown = []
    for right in edges[1:]:
        picture = made.copy()
        picture[:, right:] = GROUND
        shown.append(picture)
    return shown


def _map(x: Floats, width: int) -> Array:
    """Numbers (rows, columns), of which -1 and 1 have full colour, as a picture of this width."""
    ground = np.array(GROUND)
    to = np.where(x[..., None] < 0, LESS, MORE)
    colours = (ground + (to - ground) * np.abs(x).clip(max=1)[..., None]).astype(np.uint8)
    high = min(HIGHEST, max(LOWEST, 3 * len(x)))
    rows = np.arange(high) * len(x) // high
    columns = np.arange(width) * x.shape[1] // width
    return colours[rows][:, columns]
