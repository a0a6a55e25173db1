"""Render episodes: in a window, or as a film."""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ..agent.agent import Agent
from ..common import rng
from ..common.errors import UsageError, install_hint
from ..common.output_paths import check_out_folder, whole_file
from ..common.threads import one_thread
from ..envs import Array, EnvConfig, Envs, make_for_evaluation
from ..envs.gym import Factory
from .evaluate import RandomPlayer, as_actor_sees, check_spaces
from .playing import PlayerLike, aborted_by, idle_at_reset, read_ends, warn_of_limit

NO_SCREEN = ("offscreen", "dummy")  # SDL drivers that display nothing
WINDOW, FILES = "human", (".mp4", ".gif", ".webp")
TIME_LIMIT = 1000  # steps, in environments without a time limit
MIN_WIDTH = 240  # pixels; smaller frames are enlarged
MAX_WIDTH = 480  # pixels of .gif and .webp; larger frames are reduced


@one_thread()
def render(
    agent: Agent | None, env: EnvConfig, target: str, episodes: int, seed: int, deterministic: bool = True
) -> list[float]:
    """Play episodes with an agent, or with random actions if it is None; show them and return the returns.

    target  "human" for a window, or a file to write a film to
    """
    if target != WINDOW and Path(target).suffix.lower() not in FILES:
        raise UsageError(f"--render {target}: {WINDOW}, or a file that ends in {', '.join(FILES)}, is needed")
    if target == WINDOW:
        check_screen()
        return _play_and_show(agent, env, target, episodes, seed, deterministic)
    check_writable(Path(target))
    file = str(Path(target).absolute())  # the environment may change the working folder
    with no_display():
        return _play_and_show(agent, env, file, episodes, seed, deterministic)


def _play_and_show(
    agent: Agent | None, env: EnvConfig, target: str, episodes: int, seed: int, deterministic: bool
) -> list[float]:
    envs = make_single_env(as_actor_sees(env, agent))
    returns: list[float] = []
    lengths: list[int] = []

    def player(seed: int) -> PlayerLike:
        return agent.player(envs.num_envs, deterministic, seed) if agent else RandomPlayer(envs, seed)

    try:
        if agent is not None:
            check_spaces(agent, envs, env.id)
        # Index 1: one seed per episode, as `recollect watch` uses. Index 0 is that of evaluations, which have
        # one seed per environment.
        seeds = rng.env_seeds(seed, rng.Purpose.EVALUATE, 1, episodes)
        # A film has no aborted episodes, so frames of one that may be are held back until it has ended.
        live = target == WINDOW or env.on_error != "restart"
        frames = _play_frames(player, envs, env.id, seeds, returns, lengths, live)
        if target == WINDOW:
            show_window(frames, envs.adapter.fps, env.id)
        else:
            write_film(Path(target), frames, envs.adapter.fps)
    finally:
        envs.adapter.close()
    warn_of_limit(envs.imposed_limit, lengths)
    return returns


def make_single_env(env: EnvConfig, factory: Factory | None = None) -> Envs:
    """One environment, of Gymnasium if it has it, because EnvPool cannot render."""
    try:
        return make_for_evaluation(replace(env, num_envs=1, backend="gymnasium"), factory, TIME_LIMIT)
    except UsageError:
        return make_for_evaluation(replace(env, num_envs=1), factory, TIME_LIMIT)


def _play_frames(
    player_of: Callable[[int], PlayerLike],
    envs: Envs,
    env: str,
    seeds: Sequence[int],
    returns: list[float],
    lengths: list[int],
    live: bool,
) -> Iterator[Array]:
    """Play one episode per seed and yield every frame; append the return of each episode to `returns`, and
    its number of steps to `lengths`.

    That of several agents is the mean over those who took part, as in an evaluation. An episode that a
    failure of the environment ended is followed by another one, and has no return.

    live  yield frames at once, also those of episodes that a failure ends
    """
    agents = max(1, len(envs.agents))
    for seed in seeds:
        # A new player per episode: neither memory nor random draws carry over, so each episode can be
        # repeated.
        player = player_of(seed)
        obs = envs.adapter.reset([seed] * envs.num_envs)
        reward = np.zeros(envs.num_envs)
        totals, length, idle = np.zeros(envs.num_envs), 0, idle_at_reset(envs)
        first = took_part = ~idle
        frames, aborted = [_render(envs, env)], False
        while aborted or not idle.all():
            if live:
                yield frames.pop()
            step = envs.adapter.step(player.act(obs, reward, first))
            obs, reward = step.obs, step.reward
            _, first, idle = read_ends(step, idle, envs.adapter.waiting())
            if aborted:
                frames, totals, took_part = [], np.zeros(envs.num_envs), np.zeros_like(first)
                length = -1  # this step begins the episode anew
            totals += step.reward
            length += 1
            took_part = took_part | first
            frames.append(_render(envs, env))
            aborted = bool(idle.all() and aborted_by(step, agents).any())
        yield from frames
        returns.append(float(totals[took_part].mean()))
        lengths.append(length)


def _render(envs: Envs, env: str) -> Array:
    frame = envs.adapter.render()
    if frame is None:
        raise UsageError(f"{env} cannot be rendered: it has no rgb_array render mode")
    return frame.copy()  # renderers may reuse their buffer


def unrenderable_reason(envs: Envs, seed: int = 0) -> str:
    """Why an environment cannot be rendered; empty where it can."""
    try:
        envs.adapter.reset([seed])
        frame = envs.adapter.render()
    except UsageError as error:
        return str(error)
    if frame is not None:
        return ""
    if envs.adapter.backend == "envpool":
        return "EnvPool cannot render"
    return "the environment has no rgb_array render mode"


@contextlib.contextmanager
def no_display() -> Iterator[None]:
    """Make pygame, which renders many environments, work without a screen within the block."""
    # SDL reads it when its display starts, so it must be set before the first frame. A user's choice stays.
    if "SDL_VIDEODRIVER" in os.environ:
        yield
        return
    os.environ["SDL_VIDEODRIVER"] = "dummy"
    try:
        yield
    finally:
        os.environ.pop("SDL_VIDEODRIVER", None)


def check_writable(path: Path) -> None:
    """Create the folder of a file, and raise UsageError if the file cannot be written.

    Called before episodes are played, so that minutes of work are not lost.
    """
    check_out_folder(path.parent, str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        existed = path.exists()
        # Appending nothing: an existing file keeps its content until the film is complete.
        path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def write_film(path: Path, frames: Iterable[Array], fps: int) -> None:
    """Write frames (H, W, 3) as a film, in the format of the file name's suffix.

    Frames are taken one by one, so an iterator need not hold those of whole episodes.
    """
    write = _write_mp4 if path.suffix.lower() == ".mp4" else _write_images
    with whole_file(path) as temporary:
        write(temporary, map(_resize, frames), fps)


def _resize(frame: Array) -> Array:
    """Enlarge a frame to MIN_WIDTH or more, with even sides, which video codecs need."""
    times = -(-MIN_WIDTH // frame.shape[1])
    frame = frame.repeat(times, 0).repeat(times, 1)
    return np.ascontiguousarray(frame[: len(frame) // 2 * 2, : frame.shape[1] // 2 * 2])


def _write_images(path: Path, frames: Iterator[Array], fps: int) -> None:
    """Write an animated .gif or .webp."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError(f"{path.name}: needs Pillow: {install_hint('video')}") from error
    palette = path.suffix.lower() == ".gif"

    def reduced(frame: Array) -> Image.Image:
        image = Image.fromarray(frame)
        if image.width > MAX_WIDTH:
            image = image.reduce(-(-image.width // MAX_WIDTH))
        return image.convert("P", palette=Image.Palette.ADAPTIVE) if palette else image

    # A gif has at most 50 frames per second; about 25 look as smooth at half the size.
    every = max(1, round(fps / 25))
    first, *others = map(reduced, islice(frames, 0, None, every))
    first.save(path, save_all=True, append_images=others, duration=1000 * every // fps, loop=0)


def _write_mp4(path: Path, frames: Iterator[Array], fps: int) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise UsageError(f"{path.name}: needs ffmpeg: {install_hint('video')}") from error
    first = next(frames)
    height, width = first.shape[:2]
    # 1, because `_resize` made the sides even; the default of 16 would rescale every frame.
    writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=fps, macro_block_size=1)
    count = 0
    with closing(writer):
        # The writer is a generator, which has to be started before it takes frames.
        writer.send(None)
        for frame in chain([first], frames):
            writer.send(frame)
            count += 1
    # An ffmpeg that could not write the last frames ends without a word.
    try:
        written, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    except (OSError, RuntimeError):
        written = 0
    if written != count:
        raise OSError(errno.EIO, f"ffmpeg has written {written} of {count} frames")


# A window -------------------------------------------------------------------------------------


def check_screen() -> None:
    """Raise UsageError if no window can be opened; called before episodes are played."""
    pygame = _import_pygame()
    try:
        pygame.display.init()
        driver = pygame.display.get_driver()
    except pygame.error as error:
        raise UsageError(f"no window can be opened: {error}; write a file instead") from error
    finally:
        pygame.display.quit()
    if driver in NO_SCREEN:
        raise UsageError("no window can be opened: there is no screen; write a file instead")


def show_window(frames: Iterable[Array], fps: int, title: str) -> None:
    """Show frames in a window, until they end or the window is closed."""
    pygame = _import_pygame()
    try:
        for number, frame in enumerate(map(_resize, frames)):
            if not number:
                screen = _open_window(pygame, frame, title)
            if any(event.type == pygame.QUIT for event in pygame.event.get()):
                return
            screen.blit(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), (0, 0))
            pygame.display.flip()
            time.sleep(1 / fps)
    finally:
        pygame.display.quit()


def _open_window(pygame: Any, frame: Array, title: str) -> Any:
    """Open a window of the size of a frame."""
    try:
        screen = pygame.display.set_mode((frame.shape[1], frame.shape[0]))
    except pygame.error as error:  # a screen that can be opened may still have no such mode
        raise UsageError(f"no window can be opened: {error}; write a file instead") from error
    pygame.display.set_caption(title)
    return screen


def _import_pygame() -> Any:
    try:
        import pygame
    except ImportError as error:
        raise UsageError(f"a window needs pygame: {install_hint('minigrid')}") from error
    return pygame
