"""`recollect watch`: an agent acting, with its memory state, attention weights and the influence of steps.

episodes.py plays and chooses; inside.py computes what is shown, influence.py the influence of each
remembered step; player.py writes the page (player.html, player.css, player.js), strip.py the pictures of a
film.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ..common.errors import UsageError
from ..probing.measure import memory_names
from ..run import api, film
from ..run.film import WINDOW
from ..run.recording import KeepPicture
from ..run.run import Trained
from ..run.weights import load_rewards
from .episodes import Watched, watch
from .film_strip import frames
from .internals import Internals, internals
from .options import WatchOptions
from .player import Gallery, missing, player

PAGE = ".html"


def run_watch(options: WatchOptions) -> None:
    """Play, and show it in a window, as a film or as a page."""
    if options.run == "random":
        raise UsageError(
            "`watch` needs a trained agent: 'random' has no memory to show; "
            "`recollect eval random -e ENV --render FILE.gif` films it"
        )
    target = options.out or _default(options.run)
    kinds = (PAGE, *film.FILES)
    path = None if target == WINDOW else Path(target)
    if path is not None and path.suffix.lower() not in kinds:
        raise UsageError(f"-o {target}: {WINDOW}, or a file that ends in {', '.join(kinds)}, is needed")
    trained = api.load(options.run, env=options.env, imports=options.imports)
    torch.set_num_threads(1)  # rows are small, and a second thread only waits
    if path is not None:
        film.check_writable(path)
    if path is not None and path.suffix.lower() == PAGE:
        _page(path, trained, options)
    else:
        _film(path, trained, options)


def _default(run: str) -> str:
    """A window where there is a screen, else a page in the run folder."""
    shows = sys.platform in ("win32", "darwin") or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)
    if shows:
        return WINDOW
    return str(Path(run) / "watch.html") if Path(run).is_dir() else "watch.html"


def _page(path: Path, trained: Trained, options: WatchOptions) -> None:
    """Every number and every picture, as one file."""
    gallery, lacking = Gallery(), missing()
    watched = _watched(trained, options, options.shown, None if lacking else gallery)
    if lacking:
        watched = replace(watched, note=lacking)
    computed, scaled = _internals(trained, watched)
    path.write_text(player(trained, watched, computed, scaled, gallery.images), encoding="utf-8")
    if watched.note:
        print(f"without pictures: {watched.note}")
    print(f"{path} is written; open it in a browser")


def _film(path: Path | None, trained: Trained, options: WatchOptions) -> None:
    """The best episode with its memory, as a file, or in a window where there is no path."""
    watched = _watched(trained, options, 1, np.copy)
    (episode,), env = watched.episodes, trained.config.env.id
    if not episode.pictures:
        raise UsageError(f"{env} has no pictures for a film ({watched.note}); -o FILE.html shows its numbers")
    (computed,), _ = _internals(trained, watched)
    memory = next((memory for memory in computed.memories if memory.kind), None)
    shown = frames(episode.pictures, memory)
    if path is None:
        film.show_window(shown, watched.fps, f"{trained.folder} on {env}")
        return
    film.write_film(path, shown, watched.fps)
    print(f"{path} is written")


def _watched(trained: Trained, options: WatchOptions, shown: int, keep: KeepPicture | None) -> Watched:
    """The episodes; prints a line on them."""
    watched = watch(trained, options.episodes, shown, options.seed, options.sample, keep)
    print(_line(watched))
    if not watched.alike:
        print("replayed episodes differ from the first time: seeds do not fix this environment")
    return watched


def _internals(trained: Trained, watched: Watched) -> tuple[list[Internals], bool]:
    """Of all episodes, and whether values are in rewards of the task."""
    scale = load_rewards(trained.folder, trained.config, 1)
    kinds = memory_names(trained)
    args = trained.config.ppo, scale, kinds
    return [
        internals(trained.agent, episode.record, *args) for episode in watched.episodes
    ], scale is not None


def _line(watched: Watched) -> str:
    """The episodes in a line."""
    each = ", ".join(f"{one.name} {one.score:.4g} in {one.length} steps" for one in watched.episodes)
    return f"of {watched.played} episodes: {each}"


__all__ = ["run_watch"]
