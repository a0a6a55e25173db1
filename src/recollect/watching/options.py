"""The options of `recollect watch`."""

from dataclasses import dataclass
from typing import ClassVar

from ..config.options import Playing


@dataclass(frozen=True, kw_only=True)
class WatchOptions(Playing):
    """Watch a trained agent act, with its memory: memory states, attention weights, and the influence of
    each past step on the present action.

      recollect watch RUN                      a window where there is a screen, else a page that plays
      recollect watch RUN -o page.html         one file, which needs no network
      recollect watch RUN -o film.gif          also .mp4 and .webp
    """

    POSITIONAL: ClassVar = ("run",)

    run: str
    """A run folder, a checkpoint or a saved agent."""
    out: str | None = None
    """human: a window; or FILE.html, FILE.mp4, FILE.gif, FILE.webp; None: a window where there is a
    screen, else watch.html in the folder of the run, or here for a saved agent."""
    episodes: int = 10
    """Episodes to play and to choose from."""
    shown: int = 3
    """Episodes of the page: the best, a typical one, the worst, then others; a film has one."""
    beside: str | None = None
    """A second agent, which plays the same episodes next to the first on the page."""
    labels: tuple[str, ...] = ()
    """Names for the page: actions=NAME,NAME or observations=NAME,NAME; by default those of the
    environment, if it has some."""
    sample: bool = False
    """Sample actions from the policy instead of taking the most likely."""
