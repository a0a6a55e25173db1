"""What is tuned: options, and the values that each may take, around the model's preset.

A name without its branch stands for both: memory.width is that of the actor and that of the critic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from ..agent.agent import BranchConfig
from ..common.format import number
from ..config.config import RunConfig, memory_name, options
from ..memory import MemoryConfig
from ..memory.mlp import MlpConfig

Value: TypeAlias = bool | int | float | str | None
Settings: TypeAlias = dict[str, Any]
BRANCHES = ("actor", "critic")
KIND = "memory.name"
# What must go together.
SIZES = (
    *("ppo.num_steps", "ppo.bptt", "ppo.num_minibatches", "ppo.batch_size", "env.num_envs"),
    *(f"{branch}.memory.{size}" for branch in BRANCHES for size in ("width", "heads")),
)
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
    """What train understands."""
    return tuple(
        word for name, value in named_first(chosen).items() for word in (f"--{name}", *spelled(value).split())
    )


def named_first(chosen: Settings) -> Settings:
    """Memories come first, because to name one begins it anew."""
    return dict(sorted(chosen.items(), key=lambda item: not item[0].endswith(KIND)))


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
    if ppo.critic_learning_rate is not None:
        own = ppo.critic_learning_rate
        space["ppo.critic_learning_rate"] = Range(own / 5, own * 5, log=True)
    if ppo.num_minibatches is not None:
        space["ppo.num_minibatches"] = around(ppo.num_minibatches)
    if any(hasattr(kind, "width") for kind in chain(*kinds.values())):  # frames have no gradient
        present = ppo.bptt if isinstance(ppo.bptt, int) and ppo.bptt else 16  # others are None with a memory
        space["ppo.bptt"] = Choices((*among(present, 8, 16, 32).values, None))
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
    if now["ppo.bptt"] in (0, "episode"):
        now = {**now, "ppo.bptt": now["ppo.num_steps"]}
    if not all(now.get(size) is None or _counts(now[size]) for size in SIZES):
        return made  # the config says what is wrong with it
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


def _counts(size: Value) -> bool:
    return isinstance(size, int) and size > 0


def divisor(of: int, most: int) -> int:
    """The largest number up to `most` that divides."""
    return next(x for x in range(min(of, most), 0, -1) if of % x == 0)
