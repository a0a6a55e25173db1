"""`recollect watch`: see an agent act, and what is in its memory while it does.

episodes.py plays and chooses; inside.py asks the agent what it thought, influence.py what its choices
depended on; player.py makes a page of it that plays (player.html, player.css, player.js), strip.py the
pictures of a film.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from .. import api, film
from ..errors import UsageError
from ..film import WINDOW
from ..options import WatchOptions
from ..probe.measure import memory_names
from ..run import Trained
from ..weights import load_rewards
from .episodes import Watched, watch
from .inside import Thoughts, thoughts
from .player import missing, player
from .strip import frames

PAGE = ".html"


def run_watch(options: WatchOptions) -> None:
    """Play, and show it in a window, as a film or as a page."""
    if options.run == "random":
        raise UsageError("random has nothing on its mind: name a run, a checkpoint or a saved agent")
    target = options.out or _default(options.run)
    kinds = (PAGE, *film.FILES)
    if target != WINDOW and Path(target).suffix not in kinds:
        raise UsageError(f"-o {target}: {WINDOW}, or a file that ends in {', '.join(kinds)}, is needed")
    if target != WINDOW:  # what draws pictures shall look for no screen
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    trained = api.load(options.run, env=options.env, imports=options.imports)
    torch.set_num_threads(1)  # rows are small, and a second thread only waits
    shown = options.shown if target != WINDOW and Path(target).suffix == PAGE else 1
    watched = watch(trained, options.episodes, shown, options.seed, options.sample)
    mind, scaled = _thoughts(trained, watched)
    if target != WINDOW and Path(target).suffix == PAGE:
        _page(Path(target), trained, watched, mind, scaled)
    else:
        _film(target, trained, watched, mind)


def _default(run: str) -> str:
    """A window where there is a screen, else a page beside what was trained."""
    shows = sys.platform in ("win32", "darwin") or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)
    if shows:
        return WINDOW
    return str(Path(run) / "watch.html") if Path(run).is_dir() else "watch.html"


def _thoughts(trained: Trained, watched: Watched) -> tuple[list[Thoughts], bool]:
    """Of all episodes, and whether values are in rewards of the task."""
    scale = load_rewards(trained.folder, trained.config, 1)
    kinds = memory_names(trained)
    args = trained.config.ppo, scale, kinds
    return [thoughts(trained.agent, episode.record, *args) for episode in watched.episodes], scale is not None


def _page(path: Path, trained: Trained, watched: Watched, mind: Sequence[Thoughts], scaled: bool) -> None:
    watched = replace(watched, note=watched.note or missing())
    text = player(trained, watched, mind, scaled)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"-o {path}: {error.strerror}") from error
    print(_told(watched))
    if watched.note:
        print(f"without pictures: {watched.note}")
    print(f"{path} is written; open it in a browser")


def _film(target: str, trained: Trained, watched: Watched, mind: Sequence[Thoughts]) -> None:
    episode, env = watched.episodes[0], trained.config.env.id
    if not episode.pictures:
        raise UsageError(f"{env} has no pictures for a film ({watched.note}); -o FILE.html shows its numbers")
    memory = next((memory for memory in mind[0].memories if memory.kind), None)
    shown = frames(episode.pictures, memory)
    print(_told(watched))
    if target == WINDOW:
        film.show(shown, watched.fps, f"{trained.folder} on {env}")
        return
    film.write(Path(target), shown, watched.fps)
    print(f"{target} is written")


def _told(watched: Watched) -> str:
    """What was played, in a line."""
    each = ", ".join(f"{one.name} {one.score:.1f} in {one.length} steps" for one in watched.episodes)
    return f"of {watched.played} episodes: {each}"


__all__ = ["run_watch"]
