"""The search space: options and the values that each may take, by default around the model's preset."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from ..agent.agent import BranchConfig
from ..common.format import number
from ..config.config import RunConfig
from ..learn.settings import COEF_RANGE, RATE_RANGE
from ..memory import MemoryConfig
from ..memory.mlp import MlpConfig
from .option_names import Value, format_value

# Options that an algorithm does not use.
UNUSED = {
    "a2c": ("ppo.clip", "ppo.update_epochs", "ppo.num_minibatches"),
    "reinforce": ("ppo.clip", "ppo.update_epochs", "ppo.num_minibatches", "ppo.gae_lambda", "critic.shared"),
    "trpo": ("ppo.clip", "ppo.ent_coef", "critic.shared"),
}


@dataclass(frozen=True)
class Choices:
    """One of several values."""

    values: tuple[Value, ...]

    def holds(self, value: Value) -> bool:
        """Whether a trial may take this value."""
        return value in self.values

    def suggest(self, trial: Any, name: str) -> Value:
        """The value that Optuna chooses for a trial."""
        # The journal stores the choices in order, and Optuna refuses a resumed study that has others.
        value: Value = trial.suggest_categorical(name, self.values)
        return value

    @property
    def ends(self) -> tuple[Value, ...]:
        """Values to check: if all of these are valid, so is every value of the dimension."""
        return self.values

    def __str__(self) -> str:
        return ", ".join(map(format_value, self.values))


@dataclass(frozen=True)
class Range:
    """A number from low to high, both included; an integer where both are integers."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def is_integer(self) -> bool:
        """Whether the range holds integers only."""
        return isinstance(self.low, int) and isinstance(self.high, int) and isinstance(self.step or 1, int)

    def holds(self, value: Value) -> bool:
        """Whether a trial may take this value."""
        if isinstance(value, bool | str | None) or not self.low <= value <= self.high:
            return False
        steps = (value - self.low) / (self.step or 1)
        return not (self.step or self.is_integer) or abs(steps - round(steps)) < 1e-9

    def suggest(self, trial: Any, name: str) -> Value:
        """The value that Optuna chooses for a trial, rounded to three significant digits; to more in a narrow
        range, so that a hundredth of it remains."""
        if self.is_integer:
            return int(trial.suggest_int(name, self.low, self.high, step=self.step or 1, log=self.log))
        value = float(trial.suggest_float(name, self.low, self.high, step=self.step, log=self.log))
        narrow = max(abs(self.low), abs(self.high)) / max(self.high - self.low, 1e-300)
        digits = 3 + max(0, math.ceil(math.log10(narrow)) - 1)
        # Rounding may step over an end of the range.
        return min(max(float(f"{value:.{digits}g}"), self.low), self.high)

    @property
    def ends(self) -> tuple[Value, ...]:
        """Values to check: if all of these are valid, so is every value of the dimension."""
        return self.low, self.high

    def __str__(self) -> str:
        # Journals store this text and compare it when a study is resumed: it must not change.
        scale = (" on a log scale" if self.log else "") + (f" in steps of {self.step:g}" if self.step else "")
        # As in reports where that is exact, as it was for most ranges of earlier versions.
        low, high = (
            number(end) if float(f"{end:.4g}") == end else repr(end) for end in (self.low, self.high)
        )
        return f"{low} to {high}{scale}"


Dimension: TypeAlias = Choices | Range
SearchSpace: TypeAlias = dict[str, Dimension]


def default_space(config: RunConfig, memories: Mapping[str, Sequence[MemoryConfig]]) -> SearchSpace:
    """The space around a preset; memories: for each branch those that it may have."""
    ppo, rate = config.ppo, config.ppo.learning_rate
    low, high = _within(ppo.desired_kl, RATE_RANGE, rate / 5, rate * 5)
    space: SearchSpace = {
        "ppo.learning_rate": Range(low, high, log=True),
        "ppo.gamma": preset_and(ppo.gamma, 0.95, 0.98, 0.99, 0.995, 0.999),
        "ppo.gae_lambda": preset_and(ppo.gae_lambda, 0.9, 0.95, 0.98, 1.0),
        "ppo.ent_coef": preset_and(
            ppo.ent_coef, *_within(ppo.target_entropy, COEF_RANGE, 0.0, 0.001, 0.003, 0.01, 0.03)
        ),
        "ppo.clip": preset_and(ppo.clip, 0.1, 0.2, 0.3),
        "ppo.update_epochs": half_to_double(ppo.update_epochs),
        "ppo.max_grad_norm": preset_and(ppo.max_grad_norm, 0.25, 0.5, 1.0),
        "ppo.num_steps": half_to_double(ppo.num_steps, least=8),
        "env.num_envs": half_to_double(config.env.num_envs, least=4),
    }
    if ppo.critic_learning_rate is not None:
        critic_rate = ppo.critic_learning_rate
        space["ppo.critic_learning_rate"] = Range(critic_rate / 5, critic_rate * 5, log=True)
    if ppo.num_minibatches is not None:
        space["ppo.num_minibatches"] = half_to_double(ppo.num_minibatches)
    # Memories with a width are trained through time; stacked frames are not.
    if any(hasattr(memory, "width") for memory in chain(*memories.values())):
        length = ppo.bptt if isinstance(ppo.bptt, int) and ppo.bptt else 16  # None, 0, episode: 16 and None
        space["ppo.bptt"] = Choices((*preset_and(length, 8, 16, 32).values, None))
    # A shared critic uses the actor's memory, so sharing is an option only where the two are equal.
    if config.actor.memory == config.critic.memory:
        space["critic.shared"] = Choices((False, True))
    trials = config.env.trial > 1
    actor = _branch_space(config.actor, memories["actor"], trials)
    critic = actor if config.critic.shared else _branch_space(config.critic, memories["critic"], trials)
    # One dimension for both branches where they agree: half as many dimensions to search.
    if actor == critic:
        space |= actor
    else:
        space |= {f"actor.{k}": v for k, v in actor.items()} | {f"critic.{k}": v for k, v in critic.items()}
    unused = UNUSED.get(config.algorithm, ())
    return {name: dimension for name, dimension in space.items() if name not in unused}


def _branch_space(config: BranchConfig, memories: Sequence[MemoryConfig], trials: bool) -> SearchSpace:
    """Sizes of a branch: of its memory where that has any, else of its hidden layers.

    trials  whether episodes are those of trials, in which the previous action is always an input
    """
    space: SearchSpace = {}
    for size in ("width", "layers", "context", "frames"):
        sizes = {getattr(memory, size) for memory in memories if hasattr(memory, size)}
        if sizes:
            near = {n for x in sizes for n in ((x, x + 1, max(1, x - 1)) if size == "layers" else _near(x))}
            space[f"memory.{size}"] = Choices(tuple(sorted(near)))
    if config.hidden and not any(hasattr(memory, "width") for memory in memories):
        layers = ([max(1, width * factor // 2) for width in config.hidden] for factor in (1, 2, 4))
        space["hidden"] = Choices(tuple(dict.fromkeys(map(format_value, layers))))
    if not trials and has_memory(*memories) and not any(memory.action_apart for memory in memories):
        space["prev_action"] = Choices((False, True))
    return space


def _within(target: float | None, allowed: tuple[float, float], *values: float) -> list[float]:
    """Values of a coefficient; one that a target adapts may begin only within what is allowed."""
    return list(values) if target is None else [min(max(x, allowed[0]), allowed[1]) for x in values]


def has_memory(*memories: MemoryConfig) -> bool:
    """Whether any of these keeps a state, as all but `mlp` do."""
    return not all(isinstance(memory, MlpConfig) for memory in memories)


def preset_and(preset: float, *usual: float) -> Choices:
    """The preset's value and usual values."""
    # Sorted, because a set has no order, and the journal stores one.
    return Choices(tuple(sorted({preset, *usual})))


def half_to_double(preset: int, least: int = 1) -> Choices:
    """Half of the preset's value, the value, and twice the value."""
    return Choices(tuple(sorted({x for x in _near(preset) if x >= least} | {preset})))


def _near(value: int) -> set[int]:
    return {max(1, value // 2), value, value * 2}
