"""The library in a few calls, of the same power as the command line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium

from . import run as runs
from .agent import Agent
from .config import RunConfig, as_flags, read_yaml
from .envs import EnvConfig
from .errors import UsageError
from .evaluate import Evaluation
from .evaluate import evaluate as evaluate_agent
from .presets import assemble, from_dict, preset
from .run import Destination, Trained

Environment = str | Callable[[], gymnasium.Env[Any, Any]]


def train(
    env: Environment | RunConfig,
    model: str = "ppo",
    *,
    steps: int | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    out: str | Path = "runs",
    run_id: str | None = None,
    quiet: bool = False,
) -> Trained:
    """Train an agent and come back with it.

    env      an id, a callable that makes a Gymnasium environment, or a whole RunConfig
    model    a preset: `recollect list presets`
    options  any field of the config by its dotted name: {"ppo.gamma": 0.995, "actor": "stack"}
    out      the folder of all runs; the run's own lies in it under <model>/<env>/<run_id>
    """
    factory = env if callable(env) else None
    if isinstance(env, RunConfig):
        config = env
    else:
        env_id = env if isinstance(env, str) else _name(env)
        given = {"env.id": env_id, "model": model, **(options or {})}
        flags = as_flags({k: v for k, v in given.items() if k != "env.id" or factory is None})
        config = assemble(flags, "recollect.train", "")
        config = replace(config, env=replace(config.env, id=env_id))
    if steps is not None:
        config = replace(config, steps=steps, rollouts=None)
    if seed is not None:
        config = replace(config, seed=seed)
    where = Destination(out=Path(out), run_id=run_id, quiet=quiet)
    return runs.start(config, where, factory)


def resume(
    folder: str | Path,
    *,
    env: Environment | None = None,
    memories: Sequence[str] = (),
    ignore_versions: bool = False,
    quiet: bool = False,
) -> Trained:
    """Go on with a run that was stopped, to what it would have been without the stop.

    env       again, if the run was of a callable or of an id that imports a module
    memories  again, if the run's came from outside as package.module:Config
    """
    path = Path(folder)
    if not (path / "config.yaml").is_file():
        raise UsageError(f"{path} is not a run: it has no config.yaml")
    named = [env] if isinstance(env, str) else []
    config = from_dict(read_yaml(path / "config.yaml"), [*named, *memories])
    factory = env if callable(env) else None
    return runs.resume(path, config, quiet, ignore_versions, factory)


def load(path: str | Path, *, imports: Sequence[str] = ()) -> Agent:
    """The agent of a run folder, a checkpoint or a saved file.

    imports  the names in it that may import a module: environments and memories from outside
    """
    return runs.load_agent(Path(path), lambda data: from_dict(data, imports))[0]


def evaluate(
    path: str | Path,
    env: str | None = None,
    *,
    episodes: int = 100,
    seed: int = 0,
    deterministic: bool = True,
    imports: Sequence[str] = (),
    on_episode: Callable[[float], None] | None = None,
) -> Evaluation:
    """Play episodes with a saved agent, or with "random", on seeds that no training ever sees."""
    agent, config = open_agent(path, env, imports)
    args = agent, config, episodes, seed, deterministic, str(path)
    return evaluate_agent(*args, on_episode=on_episode)


def open_agent(
    path: str | Path, env: str | None, imports: Sequence[str] = ()
) -> tuple[Agent | None, EnvConfig]:
    """A saved agent, or None for "random", and the environment it plays in."""
    if str(path) == "random":
        if env is None:
            raise UsageError("a random agent needs an environment: -e ID")
        return None, preset("ppo", env).env
    allowed = [*imports, *([env] if env else [])]
    agent, config = runs.load_agent(Path(path), lambda data: from_dict(data, allowed))
    return agent, config.env if env is None else replace(config.env, id=env, backend="auto")


def _name(factory: Callable[..., Any]) -> str:
    return f"callable-{getattr(factory, '__name__', type(factory).__name__).strip('<>')}"
