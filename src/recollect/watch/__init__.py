"""`recollect watch`: see an agent act, and what is in its memory while it does.

episodes.py plays and chooses; inside.py asks the agent what it thought, influence.py what its choices
depended on; player.py makes a page of it that plays (player.html, player.css, player.js), strip.py the
pictures of a film.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from .. import api, film
from ..errors import UsageError
from ..film import WINDOW
from ..options import WatchOptions
from ..probe.measure import memory_names
from ..record import Keep
from ..run import Trained
from ..weights import load_rewards
from .episodes import Watched, watch
from .inside import Thoughts, thoughts
from .player import Gallery, missing, player
from .strip import frames

PAGE = ".html"


def run_watch(options: WatchOptions) -> None:
    """Play, and show it in a window, as a film or as a page."""
    if options.run == "random":
        raise UsageError("random has nothing on its mind: name a run, a checkpoint or a saved agent")
    target = options.out or _default(options.run)
    kinds = (PAGE, *film.FILES)
    path = None if target == WINDOW else Path(target)
    if path is not None and path.suffix.lower() not in kinds:
        raise UsageError(f"-o {target}: {WINDOW}, or a file that ends in {', '.join(kinds)}, is needed")
    trained = api.load(options.run, env=options.env, imports=options.imports)
    torch.set_num_threads(1)  # rows are small, and a second thread only waits
    if path is not None:
        film.writable(path)
    if path is not None and path.suffix.lower() == PAGE:
        _page(path, trained, options)
    else:
        _film(path, trained, options)


def _default(run: str) -> str:
    """A window where there is a screen, else a page beside what was trained."""
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
    mind, scaled = _thoughts(trained, watched)
    path.write_text(player(trained, watched, mind, scaled, gallery.images), encoding="utf-8")
    if watched.note:
        print(f"without pictures: {watched.note}")
    print(f"{path} is written; open it in a browser")


def _film(path: Path | None, trained: Trained, options: WatchOptions) -> None:
    """The best episode with what was remembered, as a file, or in a window where there is no path."""
    watched = _watched(trained, options, 1, np.copy)
    (episode,), env = watched.episodes, trained.config.env.id
    if not episode.pictures:
        raise UsageError(f"{env} has no pictures for a film ({watched.note}); -o FILE.html shows its numbers")
    (mind,), _ = _thoughts(trained, watched)
    shown = frames(episode.pictures, next((memory for memory in mind.memories if memory.kind), None))
    if path is None:
        film.show(shown, watched.fps, f"{trained.folder} on {env}")
        return
    film.write(path, shown, watched.fps)
    print(f"{path} is written")


def _watched(trained: Trained, options: WatchOptions, shown: int, keep: Keep | None) -> Watched:
    """The episodes, and a line on them."""
    watched = watch(trained, options.episodes, shown, options.seed, options.sample, keep)
    print(_told(watched))
    if not watched.alike:
        print("played again they came out otherwise: the environment is not fixed by its seed")
    return watched


def _thoughts(trained: Trained, watched: Watched) -> tuple[list[Thoughts], bool]:
    """Of all episodes, and whether values are in rewards of the task."""
    scale = load_rewards(trained.folder, trained.config, 1)
    kinds = memory_names(trained)
    args = trained.config.ppo, scale, kinds
    return [thoughts(trained.agent, episode.record, *args) for episode in watched.episodes], scale is not None


def _told(watched: Watched) -> str:
    """What was played, in a line."""
    each = ", ".join(f"{one.name} {one.score:.4g} in {one.length} steps" for one in watched.episodes)
    return f"of {watched.played} episodes: {each}"


__all__ = ["run_watch"]
