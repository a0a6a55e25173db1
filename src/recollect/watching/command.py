"""The command `recollect watch`: play episodes and show them as a page, a film or in a window."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..common.errors import UsageError
from ..common.names import listed
from ..common.output_paths import write_whole_text
from ..common.threads import one_thread
from ..envs.given import Environment
from ..probing.measure import memory_names
from ..run import api, film
from ..run.film import WINDOW
from ..run.recording import KeepPicture
from ..run.run import Trained
from ..run.weights import load_rewards
from .episodes import Watched
from .episodes import watch as play
from .film_notes import describe_steps, enlarge
from .film_strip import draw_frames
from .internals import Internals, MemoryTrace, compute_internals
from .labels import name_actions, name_observations, parse_labels
from .options import WatchOptions
from .watch_page import Gallery, missing_package, render_pair, render_player

PAGE = ".html"


def watch(  # noqa: PLR0913 (options by keyword, each with a default)
    run: str | Path | Trained,
    out: str | Path = "watch.html",
    *,
    episodes: int = 10,
    shown: int = 3,
    seed: int = 0,
    beside: str | Path | Trained | None = None,
    labels: Sequence[str] = (),
    sample: bool = False,
    device: str = "cpu",
    env: Environment | None = None,
    imports: Sequence[str] = (),
) -> Path:
    """Play episodes, and write them with the memory of the agent as a page or a film; the path of the file.

    run      a run folder, a checkpoint, a saved agent, or what train and load return
    out      ends in .html, .mp4, .gif or .webp
    beside   a second agent, shown next to the first on the page, given in the same ways
    labels   names, as ["actions=left,right", "observations=position,speed"]
    env      an environment for an agent that is given as a path; None: that of training
    imports  names of third-party memories and encoders that the file may import

    The others are options of `recollect watch`.
    """
    api.check_env("watch", env, run)
    trained = run if isinstance(run, Trained) else _load(run, env, imports, device)
    options = WatchOptions(
        run=str(trained.folder),
        out=str(out),
        episodes=episodes,
        shown=shown,
        beside=None if beside is None else str(beside.folder if isinstance(beside, Trained) else beside),
        labels=tuple(listed(labels)),
        seed=seed,
        sample=sample,
        device=device,
        imports=tuple(listed(imports)),
    )
    _show(options, _path(options), trained)
    return Path(out)


def run_watch(options: WatchOptions) -> None:
    """Play episodes, and show them in a window, as a film or as a page."""
    path = _path(options)
    _show(options, path, _load(options.run, options.env, options.imports, options.device))


def _load(run: str | Path, env: Environment | None, imports: Sequence[str], device: str) -> Trained:
    if str(run) == "random":
        raise UsageError(
            "`watch` needs a trained agent: 'random' has no memory to show; "
            "`recollect eval random -e ENV --render FILE.gif` films it"
        )
    return api.load(run, env=env, imports=imports, device=device)


def _path(options: WatchOptions) -> Path | None:
    """The file to write; None: a window."""
    target = options.out or _default_target(options.run)
    suffixes = (PAGE, *film.FILES)
    path = None if target == WINDOW else Path(target)
    if path is not None and path.suffix.lower() not in suffixes:
        raise UsageError(f"-o {target}: use {WINDOW}, or a file that ends in {', '.join(suffixes)}")
    if options.beside is not None and (path is None or path.suffix.lower() != PAGE):
        raise UsageError("--beside shows two agents on a page: use -o FILE.html")
    return path


@one_thread()
def _show(options: WatchOptions, path: Path | None, trained: Trained) -> None:
    """Show episodes of an agent."""
    agent, given = trained.agent, parse_labels(options.labels)
    # Wrong names are an error before episodes are played.
    name_actions(agent.action_spec, trained.config.env.id, given, {})
    name_observations(agent.obs_spec, trained.config.env.id, given, {})
    if path is None:
        film.check_screen()
        _write_film(path, trained, options)
        return
    film.check_writable(path)
    file = path.absolute()  # the environment may change the working folder
    with film.no_display():
        if path.suffix.lower() == PAGE:
            _write_page(file, trained, options)
            print(f"{path} is written; open it in a browser")
        else:
            _write_film(file, trained, options)
            print(f"{path} is written")


def _default_target(run: str) -> str:
    """A window if there is a screen, else a page in the run folder."""
    has_screen = sys.platform in ("win32", "darwin") or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)
    if has_screen:
        return WINDOW
    return str(Path(run) / "watch.html") if Path(run).is_dir() else "watch.html"


def _write_page(path: Path, trained: Trained, options: WatchOptions) -> None:
    """Write all numbers and pictures as one file, of a second agent as well if the options name one."""
    agents = [trained]
    if options.beside is not None:  # loaded before the first one plays: a wrong path is an error at once
        second = _load(options.beside, None, [*options.imports, trained.config.env.id], options.device)
        agents.append(_in_environment_of(trained, second))
    pages = [(str(agent.folder), _render(agent, options)) for agent in agents]
    page = pages[0][1] if len(pages) == 1 else render_pair(pages)
    write_whole_text(path, page)


def _in_environment_of(trained: Trained, other: Trained) -> Trained:
    """Another agent in the environment of the first, with the rewards that it was trained on."""
    scaling = other.config.env
    env = replace(
        trained.config.env,
        normalize_obs=scaling.normalize_obs,
        normalize_reward=scaling.normalize_reward,
        reward_scale=scaling.reward_scale,
    )
    return replace(other, config=replace(other.config, env=env), factory=trained.factory)


def _render(trained: Trained, options: WatchOptions) -> str:
    """The page of one agent."""
    gallery, missing = Gallery(), missing_package()
    watched = _watch(trained, options, options.shown, None if missing else gallery)
    if missing:
        watched = replace(watched, note=missing)
    if watched.note:
        print(f"without pictures: {watched.note}")
    computed, scaled = _compute(trained, watched)
    given = parse_labels(options.labels)
    return render_player(trained, watched, computed, scaled, gallery.images, given)


def _write_film(path: Path | None, trained: Trained, options: WatchOptions) -> None:
    """The best episode with its memory, as a file, or in a window if there is no path."""
    # Copies, because renderers may reuse the array of a picture.
    watched = _watch(trained, options, 1, np.copy, film=True)
    (episode,) = watched.episodes
    (computed,), _ = _compute(trained, watched)
    memory = next((memory for memory in computed.memories if memory.kind), None)
    if missing_package():  # a window can do without
        frames = draw_frames(episode.pictures, memory)
    else:
        notes = _describe_steps(trained, watched, memory, options)
        frames = draw_frames([enlarge(picture) for picture in episode.pictures], memory, notes)
    if path is None:
        film.show_window(frames, watched.fps, f"{trained.folder} on {trained.config.env.id}")
        return
    film.write_film(path, frames, watched.fps)


def _describe_steps(
    trained: Trained, watched: Watched, memory: MemoryTrace | None, options: WatchOptions
) -> list[str]:
    """A line for each picture of the film."""
    (episode,), spec = watched.episodes, trained.agent.action_spec
    given = parse_labels(options.labels)
    actions = name_actions(spec, trained.config.env.id, given, watched.names)
    return describe_steps(episode, memory, spec, actions)


def _watch(
    trained: Trained, options: WatchOptions, shown: int, keep: KeepPicture | None, film: bool = False
) -> Watched:
    """Play and select episodes; prints a line about them."""
    watched = play(trained, options.episodes, shown, options.seed, options.sample, keep, film)
    print(_summarise(watched))
    if not watched.reproduced:
        print("replayed episodes have other returns than before: seeds do not determine this environment")
    return watched


def _compute(trained: Trained, watched: Watched) -> tuple[list[Internals], bool]:
    """The internals of all episodes, and whether values are in units of the task's rewards."""
    scale = load_rewards(trained.folder, trained.config)
    names = memory_names(trained)
    computed = [
        compute_internals(trained.agent, episode.record, trained.config.ppo, scale, names)
        for episode in watched.episodes
    ]
    return computed, scale is not None


def _summarise(watched: Watched) -> str:
    """The selected episodes in a line."""
    each = ", ".join(f"{one.name} {one.score:.4g} in {one.length} steps" for one in watched.episodes)
    if not watched.episodes[0].trial:
        return f"of {watched.played} episodes: {each}"
    trials = [
        f"{one.name}, return of each episode: {' '.join(f'{x:.4g}' for _, x in one.trial)}"
        for one in watched.episodes
    ]
    return "\n".join([f"of {watched.played} trials: {each}", *trials])
