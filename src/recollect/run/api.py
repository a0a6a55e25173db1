"""The library in a few calls, of the same power as the command line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium

from ..common.errors import UsageError
from ..config.config import RunConfig, as_flags, read_yaml
from ..config.presets import assemble, from_dict
from . import run as runs
from .run import Trained
from .session import Destination
from .weights import load_agent

Environment = str | Callable[[], gymnasium.Env[Any, Any]]


def train(
    env: Environment | RunConfig,
    model: str | None = None,
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
    model    a preset, ppo if nothing is said: `recollect list presets`
    options  any field of the config by its dotted name: {"ppo.gamma": 0.995, "actor": "stack"}
    out      the folder of all runs; the run's own lies in it under <model>/<env>/<run_id>
    """
    factory = env if callable(env) else None
    if isinstance(env, RunConfig):
        if model is not None or options:
            raise UsageError(
                "a RunConfig says it all: change it with dataclasses.replace, not by model or options"
            )
        config = env
    else:
        env_id = env if isinstance(env, str) else _name(env)
        given = {"env.id": env_id, "model": model or "ppo", **(options or {})}
        config = assemble(as_flags(given), "recollect.train", "")
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
    imports: Sequence[str] = (),
    ignore_versions: bool = False,
    quiet: bool = False,
) -> Trained:
    """Go on with a run that was stopped, to what it would have been without the stop.

    env      again, if the run was of a callable or of an id that imports a module
    imports  other names in its files that may import a module: memories from outside
    """
    path = Path(folder)
    if not (path / "config.yaml").is_file():
        raise UsageError(f"{path} is not a run: it has no config.yaml")
    named = [env] if isinstance(env, str) else []
    config = from_dict(read_yaml(path / "config.yaml"), [*named, *imports])
    factory = env if callable(env) else None
    return runs.resume(path, config, quiet, ignore_versions, factory)


def load(path: str | Path, *, env: Environment | None = None, imports: Sequence[str] = ()) -> Trained:
    """A trained agent from a run folder, a checkpoint or a saved file: evaluate it, or play.

    env      where it plays; None: where it was trained
    imports  names in the file that may import a module: memories from outside
    """
    allowed = [*imports, *([env] if isinstance(env, str) else [])]
    agent, config = load_agent(Path(path), lambda data: from_dict(data, allowed))
    if isinstance(env, str) and env != config.env.id:
        config = replace(config, env=replace(config.env, id=env, backend="auto"))
    return Trained(agent, config, Path(path), {}, env if callable(env) else None)


def _name(factory: Callable[..., Any]) -> str:
    return f"callable-{getattr(factory, '__name__', type(factory).__name__).strip('<>')}"
