"""The Python API: train, resume and load, with the same options as the command line."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ..common.devices import check_name, choose, find_device
from ..common.errors import UsageError
from ..common.names import listed
from ..common.option_values import Setting, value_of
from ..config.assembly import OPTIONS, check_effect, configure, from_dict
from ..config.config import RunConfig
from ..config.data import read_yaml, settings_in
from ..config.flags import resolve
from ..envs.given import Environment, resolve_environment
from . import hub
from .build import Factory
from .destination import Destination
from .evaluate import Evaluation, with_reported_mask
from .evaluate import evaluate as play
from .run import Trained, iterate_run, resume_run, start_run
from .run_folder import read_summary
from .update import OnRollout, Training
from .weights import describe_missing_run, load_agent, other_version


def train(  # noqa: PLR0913 (options by keyword, each with a default)
    env: Environment | RunConfig,
    model: str | None = None,
    *,
    steps: int | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    out: str | Path = "runs",
    run_id: str | None = None,
    quiet: bool = False,
    on_rollout: OnRollout | None = None,
) -> Trained:
    """Train an agent and return it.

    env      an id, a function or class that builds an environment of Gymnasium or PettingZoo, one such
             environment, of which copies are made, or a whole RunConfig
    model    a preset of `recollect list presets`; None is ppo
    steps    training steps; None is the default of the preset
    seed     seed of the run; None is the default of the preset
    options  fields of the config by dotted name: {"ppo.gamma": 0.995, "actor": "stack"}
    out      folder of all runs; the run is written to <out>/<model>/<env>/<run_id>
    run_id   name of the run's folder; None is the seed and the time
    quiet    print nothing

    on_rollout  called with an Update after each iteration; it can stop the run, set the learning rate and
                save the agent. It must depend on the updates alone, or a resumed run differs
    """
    config, factory = _prepare(env, model, steps, seed, options)
    if on_rollout is not None and not callable(on_rollout):
        raise UsageError(f"on_rollout is {on_rollout!r:.80}; it must be a function of an Update")
    return start_run(config, Destination(out=Path(out), run_id=run_id, quiet=quiet), factory, on_rollout)


def iterate(
    env: Environment | RunConfig,
    model: str | None = None,
    *,
    steps: int | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    out: str | Path = "runs",
    run_id: str | None = None,
    quiet: bool = True,
) -> Training:
    """Train as a loop: an iterator of Updates, one after each iteration. Arguments are those of train.

    training = recollect.iterate("CartPole-v1", steps=100_000)
    for update in training:
        if (update.metrics["return"] or 0) > 450:
            update.stop()
    run = training.trained
    """
    config, factory = _prepare(env, model, steps, seed, options)
    return Training(iterate_run(config, Destination(out=Path(out), run_id=run_id, quiet=quiet), factory))


def _prepare(
    env: Environment | RunConfig,
    model: str | None,
    steps: int | None,
    seed: int | None,
    options: Mapping[str, Any] | None,
) -> tuple[RunConfig, Factory | None]:
    """The config of a run, and what builds one environment if that is a callable."""
    factory = None
    if isinstance(env, RunConfig):
        if env.env.id.startswith("callable-"):
            raise UsageError(
                f"train: the environment of this config, {env.env.id}, was given as an object of Python, "
                "which no config contains; train that object, with the settings as options"
            )
        if model is not None or options:
            raise UsageError(
                "train: `model` and `options` do not go with a RunConfig; change it with dataclasses.replace"
            )
        config = env
    else:
        env_id, factory = resolve_environment(env)
        if not isinstance(options, Mapping | None):
            raise UsageError(f'options is {options!r:.80}; give names and values: {{"ppo.gamma": 0.98}}')
        # A config file among the options may name another model.
        fields = {"env.id": env_id, **({"model": model} if model else {}), **(options or {})}
        config = configure(settings_in(fields, "options"))
        check_effect(config, (one for one in settings_in(options or {}, "options") if one.name != "config"))
    steps, seed = (
        value_of(Setting(name, number, name), int | None)
        for name, number in (("steps", steps), ("seed", seed))
    )
    if steps is not None:
        # A preset's budget in rollouts would otherwise remain: a run ends at whichever budget is used up
        # first.
        named = any(resolve(name.replace("-", "_"), OPTIONS) == "rollouts" for name in options or {})
        config = replace(config, steps=steps, rollouts=config.rollouts if named else None)
    if seed is not None:
        config = replace(config, seed=seed)
    return config, factory


def resume(
    folder: str | Path | Trained,
    *,
    env: Environment | None = None,
    imports: Sequence[str] = (),
    ignore_versions: bool = False,
    quiet: bool = False,
    device: str | None = None,
    on_rollout: OnRollout | None = None,
    kernels: Literal["torch"] | None = None,
) -> Trained:
    """Resume a run that was stopped; the result equals that of a run without a stop.

    env              the environment again, if it was a callable or its id imports a module
    imports          names of third-party memories and encoders that its files may import
    ignore_versions  resume with other versions of packages, after which results may differ
    quiet            print nothing
    device           where the networks are; None is the device of the run. Another one rounds differently
    on_rollout       called after each iteration, as in train
    kernels          torch: not the native kernels of the run, after which results differ by rounding
    """
    path = folder.path if isinstance(folder, Trained) else Path(folder)
    file = path / "config.yaml"
    if not file.is_file():
        raise UsageError(describe_missing_run(path))
    env_id, factory = (None, None) if env is None else resolve_environment(env)
    named = [env_id] if env_id and factory is None else []
    # The id that the caller repeats is the permission to import its module; the file alone imports nothing.
    try:
        config = from_dict(read_yaml(file), [*named, *listed(imports)], str(file))
    except UsageError as error:
        hint = ""
        with suppress(UsageError):
            hint = other_version(read_summary(path))
        raise UsageError(f"{error}{hint}") from error
    if env_id is not None and env_id != config.env.id:
        message = f"{path} is a run on {config.env.id}, and is resumed in {env_id}"
        if factory is None or not config.env.id.startswith("callable-"):
            raise UsageError(f"resume: {message}: give the environment of the run")
        warnings.warn(f"{message}: the result is that of one environment only if both build it", stacklevel=2)
    if device is not None:
        check_name(device)
    return resume_run(path, config, quiet, ignore_versions, factory, device, on_rollout, kernels)


def check_env(call: str, env: Environment | None, *runs: str | Path | Trained) -> None:
    """Raise UsageError for an environment beside an agent that has its own."""
    if env is not None and any(isinstance(run, Trained) for run in runs):
        raise UsageError(f"{call}: env is for agents that are given as paths: load(run.folder, env=...)")


def evaluate(
    run: str | Path | Trained,
    episodes: int = 100,
    *,
    env: Environment | None = None,
    seed: int = 0,
    deterministic: bool = True,
    imports: Sequence[str] = (),
    device: str = "cpu",
) -> Evaluation:
    """Play episodes with a trained agent, or with "random", which needs an env; their returns.

    run  a path as in load, or what train and load return, in its own environment and on its own device

    Other arguments are those of load and of Trained.evaluate.
    """
    check_env("evaluate", env, run)
    if isinstance(run, Trained):
        return run.evaluate(episodes, seed, deterministic)
    if str(run) != "random":
        return load(run, env=env, imports=imports, device=device).evaluate(episodes, seed, deterministic)
    if env is None:
        raise UsageError(
            'evaluate: a random agent needs an environment: evaluate("random", env="CartPole-v1")'
        )
    config, factory = _prepare(env, None, None, None, None)
    masked = with_reported_mask(config.env, factory)
    return play(None, masked, episodes, seed, name="random", factory=factory)


def load(
    path: str | Path,
    *,
    env: Environment | None = None,
    imports: Sequence[str] = (),
    device: str = "cpu",
) -> Trained:
    """Load a trained agent from a run folder, a checkpoint, a saved file, or hf:owner/name of the hub.

    env      environment for evaluation; None is the environment of training
    imports  names of third-party memories and encoders that the file may import
    device   where the networks are, whichever device they were trained on
    """
    check_name(device)
    if not isinstance(path, str | Path):
        raise UsageError(f"load: {path!r:.80} is no path; give a run folder, a file, or hf:owner/name")
    env_id, factory = (None, None) if env is None else resolve_environment(env)
    allowed = [*listed(imports), *([env_id] if env_id and factory is None else [])]
    path = hub.download(str(path)) if str(path).startswith(hub.PREFIX) else path
    elsewhere = env_id is not None
    agent, config = load_agent(Path(path), lambda data: from_dict(data, allowed, str(path), elsewhere))
    if env_id and env_id != config.env.id:
        # The saved backend was chosen for the environment of training, and may not offer this one. A callable
        # has arguments of its own.
        kwargs = config.env.kwargs if factory is None else {}
        config = replace(config, env=replace(config.env, id=env_id, backend="auto", kwargs=kwargs))
    agent.to(find_device(choose(device, agent)))
    return Trained(agent, config, Path(path), {}, factory)
