"""The options of the algorithm, each with its meaning."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from ..common.errors import UsageError

Algorithm: TypeAlias = Literal["ppo", "a2c", "reinforce", "trpo"]
Normalization: TypeAlias = Literal["minibatch", "rollout", "off"]
ABOVE_0 = ("learning_rate", "critic_learning_rate", "clip", "clip_value", "adam_eps", "target_kl")
Bound: TypeAlias = tuple[tuple[str, ...], Callable[[float], bool], str]
# NaN is within none of them.
BOUNDS: tuple[Bound, ...] = (
    # Of two rows in a row at most one is a tail row, so a rollout of 2 has something to learn.
    (("num_steps",), lambda x: x >= 2, "at least 2 is needed"),
    (("update_epochs", "steps_per_minibatch"), lambda x: x >= 1, "at least 1 is needed"),
    (("gamma", "gae_lambda", "target_lambda"), lambda x: 0 <= x <= 1, "it must lie in [0, 1]"),
    (ABOVE_0, lambda x: x > 0, "it must be above 0"),
    (("weight_decay", "max_grad_norm"), lambda x: x >= 0, "it must not be below 0"),
)


@dataclass(frozen=True, kw_only=True)
class Decay:
    """How an option moves: initial -> final along (1 - progress) ** power."""

    final: float | None = None
    """The value at the horizon and after; None: constant."""
    power: float = 1.0
    """1 is linear."""
    horizon: int | None = None
    """Where `final` is reached, in units; None: at the end of the run."""
    unit: Literal["rollouts", "steps"] = "rollouts"
    """What the horizon counts."""

    def __post_init__(self) -> None:
        if self.horizon is not None and self.horizon < 1:
            raise UsageError(f"the horizon of a decay is {self.horizon}, at least 1 is needed")

    def at(self, initial: float, rollouts: int, steps: int, progress: float) -> float:
        """The option's value after so many rollouts and steps, at this fraction of the run."""
        if self.final is None:
            return initial
        if self.horizon is not None:
            progress = (rollouts if self.unit == "rollouts" else steps) / self.horizon
        return self.final + (initial - self.final) * (1.0 - min(progress, 1.0)) ** self.power


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Proximal policy optimisation. N environments are env.num_envs."""

    num_steps: int = 128
    """T: rows per environment between two updates."""
    bptt: int | Literal["episode"] | None = None
    """L: steps of a chunk, through which gradients flow; divides T. episode, or 0: all steps that an
    episode has in the rollout, L = T. None: T with a memory, 1 without."""
    chunk_state: Literal["stored", "zero", "burn-in", "refresh"] = "stored"
    """Where memories stand when a chunk is learned from: as they stood while acting; at nothing; after
    reading the burn_in rows before it; or computed anew, with today's weights, for every pass."""
    burn_in: int = 0
    """Rows that are read before each chunk, without gradient, with chunk_state burn-in."""
    update_epochs: int = 4
    """Passes over each rollout."""
    num_minibatches: int | None = 4
    """Gradient steps per pass, or fewer where chunks cannot be shared out so; None with a batch_size."""
    batch_size: int | None = None
    """Rows per gradient step, instead of num_minibatches."""
    steps_per_minibatch: int = 1
    """Gradient steps in a row on each minibatch."""
    shuffle: bool = True
    """Whether minibatches are drawn at random; False: in the order of time."""
    gamma: float = 0.99
    """Discount of a reward one step away."""
    gae_lambda: float = 0.95
    """How far advantages trust rewards (1) over values (0)."""
    target_lambda: float | None = None
    """The same for the targets of values; None: gae_lambda. 1: discounted returns, with the value of the
    last observation where an episode goes on."""
    clip: float = 0.2
    """How far the ratio of new to old probability may pay off."""
    clip_decay: Decay = field(default_factory=Decay)
    """How clip moves."""
    clip_value: float | None = None
    """The same for values, in units of the (normalised) reward; None: not clipped."""
    normalize_advantage: Normalization = "minibatch"
    """Over which rows advantages get mean 0 and deviation 1."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus."""
    ent_decay: Decay = field(default_factory=Decay)
    """How ent_coef moves."""
    vf_coef: float = 0.5
    """Weight of the value loss; without shared layers it only scales what max_grad_norm clips."""
    learning_rate: float = 2.5e-4
    """Of the actor, and of the critic unless it has its own."""
    critic_learning_rate: float | None = None
    """Of the critic; None: the actor's."""
    lr_decay: Decay = field(default_factory=Decay)
    """How the learning rate moves; the critic's follows in proportion."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """AdamW decays weights apart from the gradient."""
    adam_eps: float = 1e-5
    """Keeps steps finite where gradients vanish."""
    weight_decay: float = 0.0
    """Strength of weight decay."""
    max_grad_norm: float = 0.5
    """Longest gradient, for each branch on its own; 0: not clipped."""
    target_kl: float | None = None
    """End an update after the pass whose mean KL exceeds this; None: never."""
    target_return: float | None = None
    """End the run when the mean return of 100 episodes reaches this; None: never."""

    def __post_init__(self) -> None:
        for names, holds, needed in BOUNDS:
            for name in names:
                value = getattr(self, name)
                if value is not None and not holds(value):
                    raise UsageError(f"ppo.{name} is {value}, {needed}")
        self._check_chunks()
        if (self.num_minibatches is None) == (self.batch_size is None):
            raise UsageError(
                "give one of ppo.num_minibatches and ppo.batch_size and set the other to None: "
                f"they are {self.num_minibatches} and {self.batch_size}"
            )

    def _check_chunks(self) -> None:
        if isinstance(self.bptt, int) and self.bptt < 0:
            raise UsageError(
                f"ppo.bptt is {self.bptt}; give the steps of a chunk, or episode (or 0) for whole episodes"
            )
        if (self.burn_in > 0) != (self.chunk_state == "burn-in") or self.burn_in < 0:
            raise UsageError(
                f"ppo.burn_in is {self.burn_in} with ppo.chunk_state {self.chunk_state}: burn-in needs at "
                "least 1 row, the others 0"
            )

    @property
    def draw(self) -> "Draw":
        """How PPO draws minibatches."""
        return Draw(
            self.normalize_advantage,
            self.update_epochs,
            shuffle=self.shuffle,
            repeats=self.steps_per_minibatch,
            target_kl=self.target_kl,
        )

    @property
    def normalize_whole(self) -> "Normalization":
        """How advantages are normalised by algorithms that take the rollout in one piece."""
        return "off" if self.normalize_advantage == "off" else "rollout"

    @property
    def renews_states(self) -> bool:
        """Whether the states of chunks follow the weights from pass to pass."""
        return self.chunk_state in ("burn-in", "refresh")

    def chunk_length(self, remembers: bool) -> int:
        """L: as configured, else whole rollouts with a memory and single rows without one.

        A chunk of T rows holds whole every episode that lies in the rollout, because memories reset
        themselves inside it; so no sequence is split off, and none is padded.
        """
        if self.bptt is None:
            return self.num_steps if remembers else 1
        return self.num_steps if self.bptt == "episode" or not self.bptt else self.bptt

    def chunks_per_minibatch(self, num_envs: int, length: int) -> int:
        """Chunks of L rows in each gradient step, or a UsageError that names what does not fit."""
        steps = self.num_steps
        sizes = f"N = {num_envs} environments, T = {steps} rows, L = {length}"
        if length < 1 or steps % length:
            raise UsageError(f"L must divide T: {sizes}")
        chunks = num_envs * steps // length
        if self.num_minibatches is not None:
            if not 1 <= self.num_minibatches <= chunks:
                raise UsageError(
                    f"{self.num_minibatches} minibatches of {chunks} chunks: {sizes}; "
                    "take fewer minibatches, a smaller L or more environments"
                )
            return math.ceil(chunks / self.num_minibatches)
        assert self.batch_size is not None
        if self.batch_size < length or self.batch_size > num_envs * steps:
            raise UsageError(f"a minibatch of {self.batch_size} rows does not hold whole chunks: {sizes}")
        return self.batch_size // length


class Draw(NamedTuple):
    """How minibatches are drawn from the chunks of a rollout."""

    normalize: Normalization
    epochs: int
    shuffle: bool = True
    repeats: int = 1  # gradient steps in a row on each minibatch
    whole: bool = False  # one minibatch of all chunks, in the order of time
    target_kl: float | None = None  # no further epoch after one with a larger mean KL


class Coefficients(NamedTuple):
    """The options that move, at one moment."""

    clip: float
    entropy: float
    rates: tuple[float, float]  # actor, critic


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One training run: the algorithm, how long, from which seed, with how many threads."""

    ppo: PPOConfig
    seed: int
    steps: int | None = None
    """Valid rows after which the run ends."""
    rollouts: int | None = None
    """Rollouts after which the run ends."""
    barrier: int = 0
    """Rollouts between two resets of all environments from their keys; 0: never."""
    threads: int = 1
    """Threads of torch while learning; acting takes one."""

    def barrier_after(self, iteration: int) -> bool:
        """Whether all environments are reset after this iteration."""
        return self.barrier > 0 and (iteration + 1) % self.barrier == 0

    def coefficients(self, rollouts: int, steps: int) -> "Coefficients":
        """What moves during a run, as it stands after so many rollouts and steps."""
        cfg = self.ppo
        now = rollouts, steps, self.progress(rollouts, steps)
        rate = cfg.lr_decay.at(cfg.learning_rate, *now)
        critic = rate * (cfg.critic_learning_rate or cfg.learning_rate) / cfg.learning_rate
        clip, entropy = cfg.clip_decay.at(cfg.clip, *now), cfg.ent_decay.at(cfg.ent_coef, *now)
        return Coefficients(clip, entropy, (rate, critic))

    def progress(self, rollouts: int, steps: int) -> float:
        """How much of the run is behind, from 0 to 1."""
        parts = [0.0]
        if self.steps:
            parts.append(steps / self.steps)
        if self.rollouts:
            parts.append(rollouts / self.rollouts)
        return min(max(parts), 1.0)
