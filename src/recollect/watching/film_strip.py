"""Strips of colours below each picture of a film: memory state or attention weights, and influence."""

from collections.abc import Iterator, Sequence

import numpy as np

from ..common.intervals import Floats
from ..envs import Array
from .film_notes import INFLUENCE, describe_memory, draw_line
from .influence import Influence
from .internals import MemoryTrace

LOWEST, HIGHEST = 48, 128  # pixels of the upper strip
RULE, LOW = 4, 16  # pixels of the line between the strips, and of the lower strip
BRIGHT = 0.98  # quantile of the state that has full colour
GROUND, MORE, LESS = (24, 27, 32), (240, 128, 60), (86, 167, 234)
LINE = (92, 98, 108)


def draw_frames(
    pictures: Sequence[Array], memory: MemoryTrace | None, notes: Sequence[str] = ()
) -> list[Array]:
    """Append strips to each picture: memory state or attention weights, and the influence of each step.

    notes  a line of text above each picture; with them every strip has a title (needs Pillow)
    """
    frames = []
    strips = list(_strips(memory, pictures[0].shape[1])) if pictures and memory and memory.kind else []
    for t, picture in enumerate(pictures):
        parts = [draw_line(notes[t], picture.shape[1]), picture] if notes else [picture]
        for title, strip in strips:
            parts += [draw_line(title, picture.shape[1])] if notes else []
            parts.append(strip[min(t, len(strip) - 1)])  # the picture of row T has no step of its own
        frames.append(np.concatenate(parts) if len(parts) > 1 else picture)
    return frames


def _strips(memory: MemoryTrace, width: int) -> Iterator[tuple[str, list[Array]]]:
    """Titles, and a strip for each step: the memory, and the influence of remembered steps."""
    yield describe_memory(memory), _draw_memory(memory, width)
    if memory.influence:
        lags = memory.attention[0].shape[2] if memory.attention else None
        yield INFLUENCE, _draw_influence(next(iter(memory.influence.values())), lags, width)


def _draw_memory(memory: MemoryTrace, width: int) -> list[Array]:
    """A strip for each step: attention weights with the present at the right, or all states so far."""
    if memory.attention:
        weights = np.concatenate(memory.attention, 1)[:, :, ::-1]
        return [_draw_map(row / max(row.max(), 1e-9), width, _height(len(row))) for row in weights]
    states = [x / max(np.quantile(np.abs(x), BRIGHT), 1e-9) for x in memory.states.values()]
    whole = np.concatenate(states, 1).T
    drawn = _draw_map(whole, width, _height(len(whole)))
    return [_hide_after(drawn, t, whole.shape[1]) for t in range(whole.shape[1])]


def _hide_after(drawn: Array, t: int, steps: int) -> Array:
    """A strip of all steps with those after step t hidden."""
    shown, width = drawn.copy(), drawn.shape[1]
    shown[:, -(-(t + 1) * width // steps) :] = GROUND
    return shown


def _draw_influence(influence: Influence, lags: int | None, width: int) -> list[Array]:
    """A strip for each step t: the changes by remembering each step, the largest in full colour.

    lags  number of columns, with the present at the right as for attention weights; None: a column per step
    """
    line = np.full((RULE, width, 3), LINE, np.uint8)
    strips = []
    for t, changes in enumerate(influence.measurable()):
        last = t if lags is None else lags - 1
        count = min(len(changes), last + 1)
        row = np.zeros(lags or len(influence.changes))
        row[last + 1 - count : last + 1] = changes[:count][::-1]
        largest = max(np.abs(changes).max(), 1e-9)
        strips.append(np.concatenate([line, _draw_map(row[None] / largest, width, LOW)]))
    return strips


def _height(rows: int) -> int:
    return min(HIGHEST, max(LOWEST, 3 * rows))


def _draw_map(x: Floats, width: int, high: int) -> Array:
    """Values (rows, columns) in [-1, 1] as a picture of this size; -1 and 1 have full colour."""
    ground = np.array(GROUND)
    to = np.where(x[..., None] < 0, LESS, MORE)
    colours = (ground + (to - ground) * np.abs(x).clip(max=1)[..., None]).astype(np.uint8)
    rows = np.arange(high) * len(x) // high
    columns = np.arange(width) * x.shape[1] // width
    return colours[rows][:, columns]
