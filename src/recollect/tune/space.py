"""What is tuned: options, and the values that each may take; from the model's preset, and from a file.

    ppo.learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}
    memory.name: [gru, lstm]

A name without its branch stands for both: memory.width is that of the actor and that of the critic.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import Any, TypeAlias

from ..agent import BranchConfig
from ..config import RunConfig, memory_name, options, read_yaml
from ..errors import UsageError, nearest
from ..log import number
from ..memory import MemoryConfig, find
from ..memory.mlp import MlpConfig

Value: TypeAlias = bool | int | float | str | None
Settings: TypeAlias = dict[str, Any]
BRANCHES = ("actor", "critic")
KIND = "memory.name"
# What trials are compared at, so what none of them may choose.
FIXED = ("env.id", "model", "seed", "steps", "rollouts")
# What an algorithm does not look at.
IGNORED = {
    "a2c": ("ppo.clip", "ppo.update_epochs", "ppo.num_minibatches"),
    "reinforce": ("ppo.clip", "ppo.update_epochs", "ppo.num_minibatches", "ppo.gae_lambda", "critic.shared"),
    "trpo": ("ppo.clip", "ppo.ent_coef", "critic.shared"),
}


@dataclass(frozen=True)
class Choices:
    """One of these."""

    values: tuple[Value, ...]

    def holds(self, value: Value) -> bool:
        """Whether a trial may take this value."""
        return value in self.values

    def ask(self, trial: Any, name: str) -> Value:
        """The value of a trial of Optuna's."""
        found: Value = trial.suggest_categorical(name, self.values)
        return found

    @property
    def ends(self) -> tuple[Value, ...]:
        """What must be allowed if all of it is."""
        return self.values

    def __str__(self) -> str:
        return ", ".join(map(spelled, self.values))


@dataclass(frozen=True)
class Range:
    """A number between two others, which it may be; whole where both of them are."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def whole(self) -> bool:
        """Whether only whole numbers lie in it."""
        return isinstance(self.low, int) and isinstance(self.high, int) and isinstance(self.step or 1, int)

    def holds(self, value: Value) -> bool:
        """Whether a trial may take this value."""
        if isinstance(value, bool | str | None) or not self.low <= value <= self.high:
            return False
        steps = (value - self.low) / (self.step or 1)
        return not (self.step or self.whole) or abs(steps - round(steps)) < 1e-9

    def ask(self, trial: Any, name: str) -> Value:
        """The value of a trial of Optuna's; of a number of many digits only those that matter."""
        if self.whole:
            return int(trial.suggest_int(name, self.low, self.high, step=self.step or 1, log=self.log))
        found = float(trial.suggest_float(name, self.low, self.high, step=self.step, log=self.log))
        return min(max(float(f"{found:.3g}"), self.low), self.high)

    @property
    def ends(self) -> tuple[Value, ...]:
        """What must be allowed if all of it is."""
        return self.low, self.high

    def __str__(self) -> str:
        how = (" on a log scale" if self.log else "") + (f" in steps of {self.step:g}" if self.step else "")
        return f"{number(self.low)} to {number(self.high)}{how}"


Dimension: TypeAlias = Choices | Range
Space: TypeAlias = dict[str, Dimension]
# A config with such flags over the preset.
Base: TypeAlias = Callable[[tuple[str, ...]], RunConfig]


# Options by name ------------------------------------------------------------------------------


def settings(config: RunConfig) -> Settings:
    """Every option of a config as a file names it, the kinds of memory among them."""
    found = {name.removeprefix("--").replace("-", "_"): value for name, value in options(config).items()}
    for branch in BRANCHES:
        found[f"{branch}.{KIND}"] = memory_name(getattr(config, branch).memory)
    return {name: list(x) if isinstance(x, tuple) else x for name, x in found.items()}


def differing(config: RunConfig, preset: RunConfig) -> Settings:
    """What flags must say over the preset to make the config; of another memory all of it."""
    before, now = settings(preset), settings(config)
    others = [b for b in BRANCHES if now[f"{b}.{KIND}"] != before[f"{b}.{KIND}"]]
    anew = [*(f"{branch}.memory." for branch in others), *(["critic.shared"] if others else [])]
    return {k: v for k, v in now.items() if before.get(k, anew) != v or k.startswith(tuple(anew))}


def meant(name: str, known: Mapping[str, Any]) -> list[str]:
    """The options that a name stands for: itself, what it is short for, or that of both branches."""
    branch, _, rest = name.partition(".")
    for spelling in ([name], [f"{branch}.memory.{rest}"], [f"{branch}.{name}" for branch in BRANCHES]):
        if found := [option for option in spelling if option in known]:
            return found
    return []


def spelled(value: Any) -> str:
    """As a flag has it."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def flags(chosen: Settings) -> tuple[str, ...]:
    """What train understands; memories come first, because to name one begins it anew."""
    order = sorted(chosen, key=lambda name: not name.endswith(KIND))
    return tuple(word for name in order for word in (f"--{name}", *spelled(chosen[name]).split()))


# What is tuned if nothing is said -------------------------------------------------------------


def default(config: RunConfig, kinds: Mapping[str, Sequence[MemoryConfig]]) -> Space:
    """Around a preset; kinds: for each branch the memories that it may have."""
    ppo, rate = config.ppo, config.ppo.learning_rate
    space: Space = {
        "ppo.learning_rate": Range(rate / 5, rate * 5, log=True),
        "ppo.gamma": among(ppo.gamma, 0.95, 0.98, 0.99, 0.995, 0.999),
        "ppo.gae_lambda": among(ppo.gae_lambda, 0.9, 0.95, 0.98, 1.0),
        "ppo.ent_coef": among(ppo.ent_coef, 0.0, 0.001, 0.003, 0.01, 0.03),
        "ppo.clip": among(ppo.clip, 0.1, 0.2, 0.3),
        "ppo.update_epochs": around(ppo.update_epochs),
        "ppo.max_grad_norm": among(ppo.max_grad_norm, 0.25, 0.5, 1.0),
        "ppo.num_steps": around(ppo.num_steps, least=8),
        "env.num_envs": around(config.env.num_envs, least=4),
    }
    if ppo.num_minibatches is not None:
        space["ppo.num_minibatches"] = around(ppo.num_minibatches)
    if any(hasattr(kind, "width") for kind in chain(*kinds.values())):  # frames have no gradient
        space["ppo.bptt"] = Choices((*among(ppo.bptt or 16, 8, 16, 32).values, None))
    if config.actor.memory == config.critic.memory:
        space["critic.shared"] = Choices((False, True))
    actor = _branch(config.actor, kinds["actor"])
    critic = actor if config.critic.shared else _branch(config.critic, kinds["critic"])
    if actor == critic:
        space |= actor
    else:
        space |= {f"actor.{k}": v for k, v in actor.items()} | {f"critic.{k}": v for k, v in critic.items()}
    return {name: of for name, of in space.items() if name not in IGNORED.get(config.algorithm, ())}


def _branch(config: BranchConfig, kinds: Sequence[MemoryConfig]) -> Space:
    """What a branch may be like: its memory where that has a size, else its layers."""
    found: Space = {}
    for size in ("width", "layers", "context", "frames"):
        sizes = {getattr(kind, size) for kind in kinds if hasattr(kind, size)}
        if sizes:
            near = {n for x in sizes for n in ((x, x + 1, max(1, x - 1)) if size == "layers" else _near(x))}
            found[f"memory.{size}"] = Choices(tuple(sorted(near)))
    if not any(hasattr(kind, "width") for kind in kinds):
        rows = ([max(1, x * by // 2) for x in config.hidden] for by in (1, 2, 4))
        found["hidden"] = Choices(tuple(map(spelled, rows)))
    if remembers(*kinds) and not any(kind.action_apart for kind in kinds):
        found["prev_action"] = Choices((False, True))
    return found


def remembers(*memories: MemoryConfig) -> bool:
    """Whether there is a memory among them."""
    return not all(isinstance(memory, MlpConfig) for memory in memories)


def among(present: float, *others: float) -> Choices:
    """Values that are usual, and the preset's."""
    return Choices(tuple(sorted({present, *others})))


def around(present: int, least: int = 1) -> Choices:
    """A half of it, itself, and twice as much."""
    return Choices(tuple(sorted({x for x in _near(present) if x >= least} | {present})))


def _near(present: int) -> set[int]:
    return {max(1, present // 2), present, present * 2}


# What a trial is ------------------------------------------------------------------------------


def propose(pick: Callable[[str, Dimension], Value], space: Space, base: Base) -> Settings:
    """A choice from a space that makes a whole config: what belongs to no memory of it is not asked for."""
    chosen: Settings = {}
    config = base(())
    for name in sorted(space, key=lambda name: not name.endswith(KIND)):
        options = meant(name, settings(config))
        if options:
            chosen |= dict.fromkeys(options, pick(name, space[name]))
        if name == KIND and config.critic.shared:
            chosen["critic.shared"] = True  # to name the critic's memory would give it one of its own
        if name.endswith(KIND):
            config = base(flags(chosen))
    return chosen | fitted(settings(config) | chosen, remembers(config.actor.memory, config.critic.memory))


def fitted(now: Settings, remembers: bool) -> Settings:
    """What must be another for the sizes to go together, each the nearest below that does."""
    made: Settings = {}
    for branch in BRANCHES:
        width, heads = (now.get(f"{branch}.memory.{size}", 0) for size in ("width", "heads"))
        if heads and width % heads:
            made[f"{branch}.memory.heads"] = divisor(width, heads)
    steps, rows, length = now["ppo.num_steps"], now["ppo.bptt"], now["ppo.num_steps"] if remembers else 1
    if rows and steps % rows:
        made["ppo.bptt"] = rows = divisor(steps, rows)
    chunks = now["env.num_envs"] * steps // (rows or length)
    if (now["ppo.num_minibatches"] or 0) > chunks:
        made["ppo.num_minibatches"] = chunks
    batch = now["ppo.batch_size"]
    if batch and not (rows or length) <= batch <= now["env.num_envs"] * steps:
        made["ppo.batch_size"] = min(max(batch, rows or length), now["env.num_envs"] * steps)
    return made


def divisor(of: int, most: int) -> int:
    """The largest number up to `most` that divides."""
    return next(x for x in range(min(of, most), 0, -1) if of % x == 0)


# From a file ----------------------------------------------------------------------------------


def space(base: Base, file: Path | None, given: Sequence[str]) -> Space:
    """The default, with a file over it; given: what the command line sets, which is not tuned."""
    asked = _entries(file) if file else {}
    known = {k: v for kind in _kinds(asked) for k, v in settings(base(flags(kind))).items()}
    for name, dimension in asked.items():
        asked[name] = _placed(name, dimension, known, given, f"space {file}: ")
    _check(asked, base, f"space {file}: ")
    config = base(())
    usual = default(config, {branch: _memories(asked, branch, config) for branch in BRANCHES})
    taken = {option for name in (*asked, *given) for option in meant(name, known)}
    return {k: v for k, v in usual.items() if taken.isdisjoint(meant(k, known))} | asked


def _entries(file: Path) -> Space:
    """A file's dimensions, each of which makes sense by itself."""
    return {
        str(name).replace("-", "_"): _dimension(f"space {file}: {name}", said)
        for name, said in read_yaml(file).items()
    }


def _dimension(where: str, said: Any) -> Dimension:
    if isinstance(said, list) and said:
        return Choices(tuple(map(_plain, said)))
    if not isinstance(said, Mapping):
        raise UsageError(f"{where}: {said!r} is neither a list of choices nor {{low, high, log, step}}")
    for key in said:
        if key not in ("low", "high", "log", "step"):
            raise UsageError(f"{where}: unknown {key!r}; {nearest(str(key), ['low', 'high', 'log', 'step'])}")
    low, high, step = (_number(where, key, said.get(key)) for key in ("low", "high", "step"))
    log = said.get("log", False)
    if low is None or high is None or not low < high:
        raise UsageError(f"{where}: low must be below high, they are {low} and {high}")
    if not isinstance(log, bool) or (log and (low <= 0 or step is not None)):
        raise UsageError(f"{where}: log is true or false, and true needs a low above 0 and no step")
    if step is not None and not 0 < step <= high - low:
        raise UsageError(f"{where}: step is {step}, it must be above 0 and at most high - low")
    return Range(low, high, log, step)


def _number(where: str, key: str, said: Any) -> float | None:
    value = _plain(said)
    if isinstance(value, bool | str):
        raise UsageError(f"{where}: {key} is {said!r}, not a number")
    return value


def _plain(said: Any) -> Value:
    """Numbers also where YAML sees a word, as in 1e-4; widths in a row as one text."""
    if isinstance(said, str):
        with suppress(ValueError):
            return float(said) if set(said) & set(".e") else int(said)
    return said if isinstance(said, bool | int | float | str | None) else spelled(said)


def _placed(name: str, dimension: Dimension, known: Settings, given: Sequence[str], where: str) -> Dimension:
    """A dimension of an option that there is, and that is free; 0 to 1 are all numbers between them."""
    options = meant(name, known)
    if not options:
        short = {option.removeprefix(f"{branch}.") for option in known for branch in BRANCHES}
        raise UsageError(f"{where}unknown option {name!r}; {nearest(name, sorted(short | set(known)))}")
    if set(options) & set(FIXED):
        raise UsageError(f"{where}{name} is the same for all trials")
    if set(options) & {option for flag in given for option in meant(flag, known)}:
        raise UsageError(f"{where}{name} is set by a flag as well: take one of them away")
    if isinstance(dimension, Range) and isinstance(known[options[0]], float):
        return replace(dimension, low=float(dimension.low), high=float(dimension.high))
    return dimension


def _kinds(asked: Space) -> list[Settings]:
    """Every way to choose among the memories that are asked for, as settings."""
    names = [name for name in asked if name.endswith(KIND)]
    known = dict.fromkeys(f"{branch}.{KIND}" for branch in BRANCHES)
    ways = product(*(asked[name].ends for name in names))
    return [
        {option: kind for name, kind in zip(names, way, strict=True) for option in meant(name, known)}
        for way in ways
    ]


def _memories(asked: Space, branch: str, config: RunConfig) -> list[MemoryConfig]:
    """What a branch may remember with: the preset's memory where nothing is said."""
    present: MemoryConfig = getattr(config, branch).memory
    names = {str(kind.get(f"{branch}.{KIND}", memory_name(present))) for kind in _kinds(asked)} - {"shared"}
    return [present if name == memory_name(present) else find(name)() for name in sorted(names)]


def _check(asked: Space, base: Base, where: str) -> None:
    """Every end of every range, with every way to remember."""
    for name, dimension in asked.items():
        kinds = [{}] if name.endswith(KIND) else _kinds(asked)
        for value, kind in product(dimension.ends, kinds):
            only: Space = {k: Choices((v,)) for k, v in {**kind, name: value}.items()}
            try:
                base(flags(propose(lambda _, dimension: dimension.ends[0], only, base)))
            except UsageError as error:
                raise UsageError(f"{where}{name} {spelled(value)}: {error}") from error
