"""Moving pictures: in a window, or as a file."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..agent.agent import Agent
from ..common import rng
from ..common.errors import UsageError
from ..envs import Array, EnvConfig, Envs, make_for_evaluation
from ..envs.gym import Factory
from .evaluate import PlayerLike, RandomPlayer, check_spaces

NOWHERE = ("offscreen", "dummy")  # drivers that show nothing
WINDOW, FILES = "human", (".mp4", ".gif", ".webp")
LONGEST = 1000  # steps of an episode that has no limit
SMALLEST, LARGEST = 240, 480  # pixels that a film is wide, at least; and one of single pictures at most


def render(
    agent: Agent | None, env: EnvConfig, target: str, episodes: int, seed: int, deterministic: bool = True
) -> list[float]:
    """Play, with an agent or at random, in a window ("human") or into a film; the returns."""
    if target != WINDOW and Path(target).suffix.lower() not in FILES:
        raise UsageError(f"--render {target}: {WINDOW}, or a file that ends in {', '.join(FILES)}, is needed")
    if target != WINDOW:
        check_writable(Path(target))
    envs, returns = make_single_env(env), list[float]()

    def player(seed: int) -> PlayerLike:
        space = envs.adapter.action_space
        return agent.player(1, deterministic, seed) if agent else RandomPlayer(space, 1, seed)

    try:
        if agent is not None:
            check_spaces(agent, envs, env.id)
        seeds = rng.env_seeds(seed, rng.Purpose.EVALUATE, 1, episodes)
        shown = _played(player, envs, env.id, seeds, returns)
        if target == WINDOW:
            show_window(shown, envs.adapter.fps, env.id)
        else:
            write_film(Path(target), list(shown), envs.adapter.fps)
    finally:
        envs.adapter.close()
    return returns


def make_single_env(env: EnvConfig, factory: Factory | None = None) -> Envs:
    """One environment, where possible of Gymnasium: EnvPool's cannot be drawn."""
    try:
        return make_for_evaluation(replace(env, num_envs=1, backend="gymnasium"), factory, LONGEST)
    except UsageError:
        return make_for_evaluation(replace(env, num_envs=1), factory, LONGEST)


def _played(
    player_of: Callable[[int], PlayerLike], envs: Envs, env: str, seeds: Sequence[int], returns: list[float]
) -> Iterator[Array]:
    """Every picture of these episodes, while they are played."""
    for seed in seeds:
        adapter, player = envs.adapter, player_of(seed)
        obs, reward, total, ended = adapter.reset([seed]), np.zeros(1), 0.0, False
        yield _picture(envs, env)
        while not ended:
            step = adapter.step(player.act(obs, reward))
            obs, reward, total = step.obs, step.reward, total + float(step.reward[0])
            ended = bool(step.terminated[0] | step.truncated[0])
            yield _picture(envs, env)
        returns.append(total)


def _picture(envs: Envs, env: str) -> Array:
    picture = envs.adapter.picture()
    if picture is None:
        raise UsageError(f"{env} cannot be rendered: it has no rgb_array render mode")
    return picture.copy()


def unrenderable_reason(envs: Envs, seed: int = 0) -> str:
    """Why an environment cannot be rendered; empty where it can."""
    try:
        envs.adapter.reset([seed])
        picture = envs.adapter.picture()
    except UsageError as error:
        return str(error)
    if picture is not None:
        return ""
    if envs.adapter.backend == "envpool":
        return "EnvPool cannot render"
    return "the environment has no rgb_array render mode"


def disable_display() -> None:
    """Let pygame, which renders many environments, look for no screen."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def check_writable(path: Path) -> None:
    """Make the folder of a file, and see that it can be written, before minutes of work are lost."""
    disable_display()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.exists()
        path.open("ab").close()
        if not there:
            path.unlink()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def write_film(path: Path, frames: Sequence[Array], fps: int) -> None:
    """A film of pictures (H, W, 3), by the name of its file."""
    even = [_enlarged(frame) for frame in frames]
    if path.suffix.lower() == ".mp4":
        _write_mp4(path, even, fps)
    else:
        _write_pictures(path, even, fps)


def _enlarged(frame: Array) -> Array:
    """Large enough to see, with even sides, as films need them."""
    times = -(-SMALLEST // frame.shape[1])
    frame = frame.repeat(times, 0).repeat(times, 1)
    return np.ascontiguousarray(frame[: len(frame) // 2 * 2, : frame.shape[1] // 2 * 2])


def _write_pictures(path: Path, shown: Sequence[Array], fps: int) -> None:
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError(f"{path.name}: needs Pillow: pip install 'recollect[video]'") from error
    # A gif shows at most 50 pictures a second, and half of them look as smooth at half the size.
    every = max(1, round(fps / 25))
    made = [Image.fromarray(frame) for frame in shown[::every]]
    if made[0].width > LARGEST:
        made = [image.reduce(-(-image.width // LARGEST)) for image in made]
    if path.suffix.lower() == ".gif":
        made = [image.convert("P", palette=Image.Palette.ADAPTIVE) for image in made]
    made[0].save(path, save_all=True, append_images=made[1:], duration=1000 * every // fps, loop=0)


def _write_mp4(path: Path, shown: Sequence[Array], fps: int) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise UsageError(f"{path.name}: needs ffmpeg: pip install 'recollect[video]'") from error
    height, width = shown[0].shape[:2]
    writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=fps, macro_block_size=1)
    writer.send(None)
    for frame in shown:
        writer.send(frame)
    writer.close()


# A window -------------------------------------------------------------------------------------


def show_window(shown: Iterable[Array], fps: int, title: str) -> None:
    """In a window, until the film ends or somebody closes it."""
    try:
        import pygame
    except ImportError as error:
        raise UsageError("a window needs pygame: pip install 'recollect[minigrid]'") from error
    try:
        for number, frame in enumerate(map(_enlarged, shown)):
            if not number:
                screen = _opened(pygame, frame, title)
            if any(event.type == pygame.QUIT for event in pygame.event.get()):
                return
            screen.blit(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), (0, 0))
            pygame.display.flip()
            time.sleep(1 / fps)
    finally:
        pygame.display.quit()


def _opened(pygame: Any, frame: Array, title: str) -> Any:
    """A window as large as a picture."""
    try:
        pygame.display.init()
        screen = pygame.display.set_mode((frame.shape[1], frame.shape[0]))
    except pygame.error as error:
        raise UsageError(f"no window can be opened: {error}; a file needs none") from error
    if pygame.display.get_driver() in NOWHERE:
        raise UsageError("no window can be opened: there is no screen; a file needs none")
    pygame.display.set_caption(title)
    return screen
