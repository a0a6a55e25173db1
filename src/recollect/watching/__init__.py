"""`recollect watch`: an agent acting, with its memory states, attention weights and the influence of steps.

episodes.py plays and selects episodes. internals.py computes the values, policies and memory quantities of
an episode, and influence.py the influence of each remembered step. watch_page.py writes the page
(player.html, player.css, player.js), film_strip.py the frames of a film; command.py is the command line.
"""

from .command import run_watch
from .options import WatchOptions

__all__ = ["WatchOptions", "run_watch"]
