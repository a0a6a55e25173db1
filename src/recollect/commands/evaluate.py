"""`recollect eval`: episodes of a trained agent, and their returns."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..agent.agent import Agent
from ..common.digests import seal
from ..common.errors import UsageError
from ..common.intervals import describe_equal
from ..config.options import Playing
from ..config.presets import preset
from ..envs import EnvConfig
from ..run import api
from ..run.evaluate import Evaluation, evaluate, with_reported_mask
from ..run.film import WINDOW, render

EPISODES = 100  # one where they are rendered


@dataclass(frozen=True, kw_only=True)
class EvalOptions(Playing):
    """Evaluate a trained agent: play episodes, and print the mean return with a 95 % confidence interval.

      recollect eval runs/ppo/CartPole-v1/cart
      recollect eval agent.safetensors --episodes 20 --json
      recollect eval runs/ppo/CartPole-v1/cart --render film.gif
      recollect eval random -e CartPole-v1

    Actions are the most likely ones, and a run folder stands for its last weights.
    """

    POSITIONAL: ClassVar = ("run", "env")

    run: str
    """A run folder, a checkpoint, a saved agent, or random."""
    episodes: int | None = None
    """Episodes to play; None: 100, or 1 with --render."""
    running_rew_len: int | None = None
    """Print each episode, with the mean return of this many latest episodes; None: only the summary."""
    sample: bool = False
    """Sample actions from the policy instead of taking the most likely."""
    json: bool = False
    """Print all returns and the summary as JSON."""
    render: str | None = None
    """Show the episodes: human for a window, or FILE.mp4, FILE.gif or FILE.webp. None: they are not shown."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("episodes", "running_rew_len"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name.replace('_', '-')} is {value}, at least 1 is needed")
        for flag, value in (("--json", self.json), ("--running-rew-len", self.running_rew_len)):
            if self.render and value:
                raise UsageError(f"{flag} and --render exclude each other: --render prints the returns")
        if self.json and self.running_rew_len:
            raise UsageError("--json and --running-rew-len exclude each other: JSON has every return")


def run_eval(options: EvalOptions) -> int:
    """Play, and print the returns; the exit code."""
    agent, config = _player(options)
    if options.render:
        episodes = options.episodes or 1
        returns = render(agent, config, options.render, episodes, options.seed, not options.sample)
        played = f"{config.id}: return {', '.join(f'{x:.1f}' for x in returns)}"
        print(played if options.render == WINDOW else f"{options.render} is written; {played}")
        return 0
    on_episode = _running_mean(options.running_rew_len) if options.running_rew_len else None
    episodes = options.episodes or EPISODES
    args = agent, config, episodes, options.seed, not options.sample, options.run
    result = evaluate(*args, on_episode=on_episode)
    print(json.dumps(seal(result.as_json(), {})) if options.json else _summary(result))
    return 0


def _player(options: EvalOptions) -> tuple[Agent | None, EnvConfig]:
    """The agent, None for one that acts at random, and where it plays."""
    if options.run != "random":
        trained = api.load(options.run, env=options.env, imports=options.imports, device=options.device)
        return trained.agent, trained.config.env
    if options.env is None:
        raise UsageError("a random agent needs an environment: recollect eval random -e CartPole-v1")
    return None, with_reported_mask(preset("ppo", options.env).env)


def _running_mean(window: int) -> Callable[[float], None]:
    recent: list[float] = []

    def on_episode(value: float) -> None:
        recent.append(value)
        mean = sum(recent[-window:]) / len(recent[-window:])
        print(f"episode {len(recent):>5}  return {value:>9.2f}  mean of last {window} {mean:>9.2f}")

    return on_episode


def _summary(result: Evaluation) -> str:
    """The scores in a few lines."""
    s: dict[str, Any] = result.summary()
    mode = "deterministic" if result.deterministic else "sampling"
    mode = "at random" if result.agent == "random" else mode
    interval = "" if s["low"] is None else f"   95 % interval {s['low']:.2f} to {s['high']:.2f}"
    lines = [
        f"{result.agent} on {result.env}: {s['episodes']} episodes, {mode}, seed {result.seed}",
        f"  return  mean {s['mean']:.2f}{interval}",
        f"          std {s['std']:.2f}   interquartile mean {s['iqm']:.2f}   length {s['length']:.1f}",
    ]
    if not interval and s["episodes"] > 1:
        lines.append(f"          {describe_equal(s['episodes'], 'episodes')}")
    if result.by_episode:
        means = np.mean(result.by_episode, axis=0)
        lines.append(f"  by episode of a trial  {' '.join(f'{x:.4g}' for x in means)}")
    if result.by_agent:
        by_agent = {name: float(np.nanmean(returns)) for name, returns in result.by_agent.items()}
        lines.append(f"  by agent  {'   '.join(f'{name} {x:.4g}' for name, x in by_agent.items())}")
    if s["success"] is not None:
        lines.append(f"  success {s['success']:.1%}")
    return "\n".join(lines)
