"""One value that says all about a run; from flags and YAML, and back to YAML.

A file and the command line say the same things the same way: a file is read as the flags it stands
for, so there is one parser, and flags come after the file and win.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import yaml

from .. import memory
from ..agent.agent import BranchConfig
from ..common.distributed import CORES
from ..common.errors import UsageError, nearest
from ..envs import Backend, EnvConfig
from ..learn.settings import Algorithm, Plan, PPOConfig

T = TypeVar("T")
Flags: TypeAlias = list[tuple[str, list[str]]]
LEAST = {
    **dict.fromkeys(("steps", "rollouts", "val_episodes", "keep", "threads"), 1),
    **dict.fromkeys(("val_check_interval", "barrier", "save_interval"), 0),
}


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run: environments, agent, algorithm, budget, and what happens on the side."""

    model: str = "ppo"
    """The preset this began as; names the folder."""
    env: EnvConfig = field(default_factory=EnvConfig)
    actor: BranchConfig = field(default_factory=BranchConfig)
    critic: BranchConfig = field(default_factory=BranchConfig)
    algorithm: Algorithm = "ppo"
    """How actor and critic learn from a rollout; the options of ppo are those of all, where they apply."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    seed: int = 1
    """Every random number of the run is a function of it."""
    steps: int | None = 1_000_000
    """Steps of all environments together; tail rows are not steps."""
    rollouts: int | None = None
    """Rollouts of T rows, instead of steps."""
    val_check_interval: int | None = None
    """Rollouts between validations; None: about 5 % of the run's time; 0: never."""
    val_episodes: int = 10
    """Episodes of a validation."""
    barrier: int | None = None
    """Rollouts between resets of all environments, which a run resumes from where they cannot be saved;
    None: every 10 time limits if needed; 0: never."""
    save_interval: int | None = None
    """Rollouts between checkpoints to resume from; None: at every barrier, or 10 a run; 0: none."""
    keep: int = 3
    """Checkpoints that are kept."""
    threads: int = 1
    """Threads of torch while learning; more pay for wide layers, but only where cores are idle."""
    device: str = "cpu"
    """Where the networks run."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed is {self.seed}, it must lie in [0, 2^63)")
        if self.steps is None and self.rollouts is None:
            raise UsageError("give steps or rollouts: a run needs an end")
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} is {value}, at least {least} is needed")
        if self.algorithm == "trpo" and self.critic.shared:
            raise UsageError("trpo moves the actor alone: give the critic a network of its own")
        if self.device != "cpu":
            raise UsageError(f"device {self.device} is not supported yet; cpu is")

    @property
    def plan(self) -> Plan:
        """What the algorithm needs to know of this run, once it is resolved."""
        assert self.barrier is not None, "resolve() fills this in"
        return Plan(
            ppo=self.ppo,
            seed=self.seed,
            steps=self.steps,
            rollouts=self.rollouts,
            barrier=self.barrier,
            threads=self.threads,
        )


def resolve(
    config: RunConfig, backend: Backend, native: bool, time_limit: int | None, new: bool = True
) -> RunConfig:
    """The same config with everything that was left open decided; nothing is decided by timing.

    new  whether it is of a new run; files that its memories begin from may be gone later
    """
    rows = config.env.num_envs * config.ppo.num_steps
    limit = time_limit or 1000
    barrier = config.barrier
    if barrier is None:
        barrier = 0 if native else -(-10 * limit // config.ppo.num_steps)
    save = config.save_interval
    if save is None:
        rollouts = config.rollouts or (config.steps or 0) // rows
        save = barrier or (max(1, rollouts // 10) if native else 0)
    elif barrier or not native:
        save = -(-save // barrier) * barrier if barrier else 0
    validate = config.val_check_interval
    if validate is None:
        # A row of validation costs about as much as a row of training.
        validate = -(-20 * config.val_episodes * limit // rows)
    env = dataclasses.replace(config.env, backend=backend, threads=config.env.threads or CORES)
    actor, critic = (
        dataclasses.replace(branch, memory=branch.memory.resolved()) if new else branch
        for branch in (config.actor, config.critic)
    )
    return dataclasses.replace(
        config,
        env=env,
        actor=actor,
        critic=critic,
        barrier=barrier,
        save_interval=save,
        val_check_interval=validate,
    )


# To and from plain data -----------------------------------------------------------------------


def to_dict(value: Any) -> Any:
    """A config as dicts, lists and scalars; a memory also says its name."""
    if isinstance(value, memory.MemoryConfig):
        return {"name": memory_name(value), **_fields(value)}
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: to_dict(getattr(value, f.name)) for f in dataclasses.fields(value)}


def memory_name(config: memory.MemoryConfig) -> str:
    """The name a memory is found by; package.module:Config for one from outside."""
    kind = type(config)
    if memory.available().get(kind.name) is kind:
        return kind.name
    return f"{kind.__module__}:{kind.__qualname__}"


def config_hash(config: RunConfig) -> str:
    """What a run is found again by: the whole of its resolved config."""
    text = json.dumps(to_dict(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_yaml(config: RunConfig, path: Path) -> None:
    """The config as a file that --config reads."""
    path.write_text(yaml.safe_dump(to_dict(config), sort_keys=False), encoding="utf-8")


def read_yaml(path: Path) -> dict[str, Any]:
    """A config file as nested dicts."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"config file {path}: {str(error).splitlines()[0]}") from error
    if not isinstance(data, dict):
        raise UsageError(f"config file {path} holds no settings")
    return data


def as_flags(data: Mapping[str, Any], prefix: str = "--") -> list[str]:
    """Nested settings as the flags that say the same."""
    flags: list[str] = []
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flags += as_flags(value, f"{name}.")
        elif isinstance(value, list | tuple):
            flags += [name, *map(str, value)]
        else:
            flags += [name, str(value)]
    return flags


# Flags ----------------------------------------------------------------------------------------

ALIASES = {
    "-e": "--env.id",
    "--env": "--env.id",
    "-m": "--model",
    "--model-name": "--model",
    "--actor": "--actor.memory.name",
    "--critic": "--critic.memory.name",
    "-ne": "--rollouts",
    "--num-epochs": "--rollouts",
}
UNITS = (  # what says something in a unit of its own, and what says the same in another
    ("--rollouts", "--steps"),
    ("--steps", "--rollouts"),
    ("--ppo.batch-size", "--ppo.num-minibatches"),
    ("--ppo.num-minibatches", "--ppo.batch-size"),
)
_WORDS = {"true": "True", "false": "False", "none": "None", "null": "None"}


def tokens(arguments: Sequence[str]) -> Flags:
    """Arguments as (flag, values) in one spelling: hyphens, no aliases, no = signs."""
    found: Flags = []
    for argument in arguments:
        is_flag = argument.startswith("-") and not _is_number(argument)
        if is_flag:
            name, equals, value = argument.partition("=")
            if name == "--cpu":
                name, equals, value = "--device", "=", "cpu"
            name = name if name.startswith("--env.kwargs.") else name.replace("_", "-")
            found.append((ALIASES.get(name, name), [value] if equals else []))
        elif not found:
            raise UsageError(f"unexpected argument {argument!r}")
        else:
            found[-1][1].append(_WORDS.get(argument.lower(), argument))
    return found


def last(found: Flags, flag: str) -> str | None:
    """The value a flag ends up with, if it is given."""
    values = [value for name, value in found if name == flag]
    if values and len(values[-1]) != 1:
        raise UsageError(f"{flag} takes one value, not {len(values[-1])}")
    return values[-1][0] if values else None


def apply(config: T, found: Flags, prog: str, about: str) -> T:
    """A config with flags applied; every mistake is a UsageError of one line."""
    import tyro

    known = options(config)
    plain: list[str] = []
    kwargs: dict[str, str] = {}
    for name, values in _shorthands(found, known):
        its_own = name.startswith("--env.kwargs.")
        if len(values) > 1 and (its_own or not isinstance(known.get(name, ()), tuple | Mapping)):
            raise UsageError(f"{name} takes one value, not {len(values)}: {' '.join(values)}")
        if its_own:
            kwargs[name.removeprefix("--env.kwargs.")] = values[0] if values else "True"
        elif name in known:
            plain += [name, *(values or (["True"] if known[name] is False else []))]
        elif name in ("-h", "--help"):
            plain.append("--help")
        else:
            raise UsageError(f"unknown option {name}; {nearest(name, list(known))}")
    if kwargs:
        plain += ["--env.kwargs", *(word for pair in kwargs.items() for word in pair)]
    errors = io.StringIO()
    markers = (tyro.conf.FlagConversionOff, tyro.conf.AvoidSubcommands)
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(
                type(config),
                default=config,
                args=plain,
                prog=prog,
                description=about,
                config=markers,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(_one_line(errors.getvalue())) from None


def options(config: Any, prefix: str = "--") -> dict[str, Any]:
    """Every flag a config understands, with the value it has now."""
    names: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value, name = getattr(config, f.name), f"{prefix}{f.name.replace('_', '-')}"
        if dataclasses.is_dataclass(value):
            inner = prefix if isinstance(value, RunConfig) else f"{name}."
            names |= options(value, inner)
        else:
            names[name] = value
    return names


def _shorthands(found: Flags, known: Mapping[str, Any]) -> Flags:
    """--critic.width stands for --critic.memory.width; a budget in one unit replaces the other."""
    out: Flags = []
    for name, values in found:
        branch, _, setting = name.partition(".")
        long = f"{branch}.memory.{setting}"
        out.append((long if name not in known and long in known else name, values))
    return out + [(name, ["None"]) for name in _replaced(found) if name in known]


def over(below: Flags, above: Flags) -> Flags:
    """Flags of a file, say, and others that win over them: also where they say it in another unit."""
    gone = _replaced([flag for flag in above if flag[1] != ["None"]])
    return [flag for flag in below if flag[0] not in gone] + list(above)


def _replaced(found: Flags) -> list[str]:
    """What these flags say in another unit, and do not say themselves."""
    given = {name for name, _ in found}
    return [other for unit, other in UNITS if unit in given and other not in given]


def _one_line(box: str) -> str:
    """The message inside the frame a parsing error is printed in."""
    message: list[str] = []
    for line in box.splitlines()[1:]:
        text = line.strip("│╭╮╰╯|+ ").strip()
        if set(text) <= set("─-"):  # a rule ends the message, but may also stand above it
            if message:
                break
            continue
        message.append(text)
    return " ".join(message).removeprefix("Error parsing ")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
