"""Lines of text in a film: what each frame shows, and what the strips below it mean."""

from collections.abc import Sequence

import numpy as np

from ..envs import Array
from ..envs.spaces import ActionSpec
from .episodes import Episode
from .influence import Influence
from .internals import MemoryTrace

WIDTH = 480  # pixels of a picture, enough for a line of text
LINE = 20  # pixels
SIZE = 13  # of the letters, in pixels
GROUND, INK = (24, 27, 32), (230, 233, 237)
INFLUENCE = "Influence of each remembered step on the action: orange for it, blue against it"


def enlarge(picture: Array) -> Array:
    """The picture in the width of the film."""
    from PIL import Image

    image = Image.fromarray(picture)
    size = (WIDTH, round(image.height * WIDTH / image.width))
    return np.array(image.resize(size, Image.Resampling.LANCZOS))


def draw_line(text: str, width: int) -> Array:
    """A line of text as a picture (LINE, width, 3); what does not fit is cut off."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (width, LINE), GROUND)
    ImageDraw.Draw(image).text((4, 2), text, fill=INK, font=ImageFont.load_default(size=SIZE))
    return np.array(image)


def describe_memory(memory: MemoryTrace) -> str:
    """The meaning of the upper strip."""
    if memory.attention:
        return "Attention weights, one row per layer and head; the present is at the right"
    return f"{' and '.join(memory.states)}: one row per unit, over time"


def describe_steps(
    episode: Episode, memory: MemoryTrace | None, spec: ActionSpec, actions: Sequence[str]
) -> list[str]:
    """A line for each picture: the step, the action and the remembered step that it depends on most.

    actions  names (labels.name_actions); those of components alone do not name what is done
    """
    influence = next(iter(memory.influence.values()), None) if memory else None
    taken = episode.record.rows.prev_action[1:, 0]
    named = spec.kind == "categorical" and spec.width == 1
    lines = [
        f"Step {t}{f': {actions[int(choice[0])]}' if named else ''}{_most(influence, t)}"
        for t, choice in enumerate(taken)
    ]
    ended = "terminated" if episode.record.terminated[-1, 0] else "truncated"
    return [*lines, f"The end ({ended}): return {episode.score:.4g}"]


def _most(influence: Influence | None, t: int) -> str:
    if influence is None:
        return ""
    if not influence.measurable()[t].any():
        return "; needs no earlier step"
    sizes = np.abs(influence.changes[t])
    back = int(sizes.argmax())
    return f"; depends most on step {t - back} ({100 * sizes[back] / sizes.sum():.0f} %)"
