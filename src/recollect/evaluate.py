"""Play episodes with an agent that no longer learns, and count honestly."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np

from . import rng
from .agent import Agent
from .envs import Array, EnvConfig, Envs, make, suite_of
from .errors import UsageError
from .stats import bootstrap, iqm


class Plays(Protocol):
    """Anything that acts for N environments at once."""

    def act(self, obs: Any, reward: Any = None, first: Array | None = None) -> Any:
        """Actions for observations, as the environments take them."""


class RandomPlayer:
    """Acts uniformly at random: the baseline every agent must beat."""

    def __init__(self, space: gymnasium.Space[Any], num_envs: int, seed: int) -> None:
        self._spaces = [space] * num_envs
        space.seed(rng.torch_seed(seed, rng.Purpose.ACT) >> 32)

    def act(self, obs: Any, reward: Any = None, first: Array | None = None) -> Array:
        """One sample of the action space for each environment."""
        return np.stack([np.asarray(space.sample()) for space in self._spaces])


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of finished episodes, and what they say."""

    env: str
    agent: str
    seed: int
    deterministic: bool
    returns: list[float]
    lengths: list[int]
    successes: list[float]

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))

    def summary(self) -> dict[str, Any]:
        """What is quoted: mean, deviation, interquartile mean, 95 % interval of the mean."""
        low, high = bootstrap(self.returns)
        reported = [x for x in self.successes if np.isfinite(x)]
        return {
            "episodes": len(self.returns),
            "mean": self.mean,
            "std": float(np.std(self.returns)),
            "iqm": iqm(self.returns),
            "low": low,
            "high": high,
            "length": float(np.mean(self.lengths)),
            "success": float(np.mean(reported)) if reported else None,
        }

    def as_json(self) -> dict[str, Any]:
        """Everything, for --json."""
        successes = [x if np.isfinite(x) else None for x in self.successes]
        return {**asdict(self), "successes": successes, **self.summary()}


def play(
    envs: Envs,
    player: Plays,
    episodes: int,
    seeds: list[int],
    on_episode: Callable[[float], None] | None = None,
) -> tuple[list[float], list[int], list[float]]:
    """Returns, lengths and successes; environment j plays a fixed share of the episodes.

    Counting the first episodes to finish, as is common, would favour short ones.
    """
    num = envs.num_envs
    share = np.array([episodes // num + (j < episodes % num) for j in range(num)])
    found: list[list[tuple[float, int, float]]] = [[] for _ in range(num)]
    returns, lengths = np.zeros(num), np.zeros(num, dtype=np.int64)
    obs, reward = envs.adapter.reset(seeds), np.zeros(num)
    first, tail = np.ones(num, dtype=bool), np.zeros(num, dtype=bool)
    while any(len(column) < n for column, n in zip(found, share, strict=True)):
        step = envs.adapter.step(player.act(obs, reward, first))
        returns += np.where(tail, 0.0, step.reward)
        lengths += ~tail
        ended = (step.terminated | step.truncated) & ~tail
        for j in np.flatnonzero(ended):
            if len(found[j]) < share[j]:
                success = np.nan if step.success is None else float(step.success[j])
                found[j].append((float(returns[j]), int(lengths[j]), success))
                if on_episode:
                    on_episode(float(returns[j]))
            returns[j], lengths[j] = 0.0, 0
        obs, reward, first, tail = step.obs, step.reward, tail, ended
    flat = [episode for column in found for episode in column]
    columns = [list(column) for column in zip(*flat, strict=True)]
    return columns[0], columns[1], columns[2]


def evaluate(
    agent: Agent | None,
    env: EnvConfig,
    episodes: int = 100,
    seed: int = 0,
    deterministic: bool = True,
    name: str = "agent",
    factory: Callable[[], gymnasium.Env[Any, Any]] | None = None,
    on_episode: Callable[[float], None] | None = None,
) -> Evaluation:
    """Play with an agent, or at random without one, on seeds no training ever sees."""
    if episodes < 1:
        raise UsageError(f"{episodes} episodes: at least 1 is needed")
    num = min(episodes, 50)
    envs = make(replace(env, num_envs=num), factory)
    try:
        if agent is None:
            player: Plays = RandomPlayer(envs.adapter.action_space, num, seed)
        else:
            check_spaces(agent, envs, env.id)
            player = agent.player(num, deterministic, seed)
        seeds = rng.env_seeds(seed, rng.Purpose.EVALUATE, 0, num)
        played = play(envs, player, episodes, seeds, on_episode)
    finally:
        envs.adapter.close()
    return Evaluation(env.id, name, seed, deterministic, *played)


def check_spaces(agent: Agent, envs: Envs, env_id: str) -> None:
    """An agent acts only in spaces like its own."""
    if agent.obs_spec.leaves != envs.obs_spec.leaves:
        raise UsageError(
            f"{env_id} gives observations {envs.obs_spec.leaves}, the agent takes {agent.obs_spec.leaves}"
        )
    mine, theirs = agent.action_spec, envs.action_spec
    if (mine.kind, mine.sizes, mine.shape) != (theirs.kind, theirs.sizes, theirs.shape):
        raise UsageError(f"{env_id} takes actions {theirs}, the agent gives {mine}")


# Watching -------------------------------------------------------------------------------------


def render(agent: Agent | None, env: EnvConfig, target: str, episodes: int, seed: int) -> list[float]:
    """Play in one Gymnasium environment, on the screen ("human") or into a .mp4 or .gif file."""
    from .envs import gym as gym_suite

    suffix = Path(target).suffix
    if target != "human" and suffix not in (".mp4", ".gif"):
        raise UsageError(f"--render {target}: human, a file.mp4 or a file.gif is possible")
    suite, name = suite_of(env.id)
    if suite is not None and hasattr(suite, "settings"):
        env = suite.settings(env, name)
    elif suite is not None:
        raise UsageError(f"--render: {env.id} has no picture; Gymnasium's environments have")
    mode = "human" if target == "human" else "rgb_array"
    _, spec = gym_suite.find(env.id)
    options = {**env.kwargs, "render_mode": mode}
    if env.time_limit is not None:
        options["max_episode_steps"] = env.time_limit
    world = gymnasium.make(spec, **options)
    frames: list[Array] = []
    try:
        shown = None if mode == "human" else frames
        seeds = rng.env_seeds(seed, rng.Purpose.EVALUATE, 1, episodes)
        returns = [_watch(agent, world, episode, shown) for episode in seeds]
        fps = int(world.metadata.get("render_fps", 30))
    finally:
        world.close()
    if frames:
        (_write_gif if suffix == ".gif" else _write_mp4)(Path(target), frames, fps)
    return returns


def _watch(
    agent: Agent | None,
    world: gymnasium.Env[Any, Any],
    seed: int,
    frames: list[Array] | None,
) -> float:
    obs, _ = world.reset(seed=seed)
    world.action_space.seed(seed >> 32)
    player = agent.player() if agent else None
    total, reward, ended = 0.0, 0.0, False
    while not ended:
        action = player.act(obs, reward) if player else world.action_space.sample()
        obs, reward, terminated, truncated, _ = world.step(action)
        total, ended = total + float(reward), terminated or truncated
        if frames is not None:
            frames.append(np.asarray(world.render()))
    return total


def _write_gif(path: Path, frames: list[Array], fps: int) -> None:
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError("--render FILE.gif needs Pillow: pip install 'recollect[video]'") from error
    # A gif shows at most 50 pictures a second, and half of them look as smooth at half the size.
    every = max(1, round(fps / 25))
    pictures = [
        Image.fromarray(frame).convert("P", palette=Image.Palette.ADAPTIVE) for frame in frames[::every]
    ]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=1000 * every // fps, loop=0)


def _write_mp4(path: Path, frames: list[Array], fps: int) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise UsageError("--render FILE.mp4 needs ffmpeg: pip install 'recollect[video]'") from error
    height, width = frames[0].shape[:2]
    writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=fps, macro_block_size=1)
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame))
    writer.close()
