"""The hyperparameters of the algorithms, how they are scheduled, and the plan of a run."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from ..common.errors import UsageError
from ..common.options import Options

Algorithm: TypeAlias = Literal["ppo", "a2c", "reinforce", "trpo"]
WHOLE_ROLLOUTS: tuple[Algorithm, ...] = ("a2c", "reinforce")  # have no minibatches
Normalization: TypeAlias = Literal["minibatch", "rollout", "off"]
ABOVE_0 = (
    "learning_rate",
    "critic_learning_rate",
    "clip",
    "clip_value",
    "adam_eps",
    "target_kl",
    "desired_kl",
    "predict_coef",
)
RATE_RANGE = 1e-5, 1e-2  # of the actor's learning rate with desired_kl, as in rsl_rl
# Of ent_coef with target_entropy. A smaller one has no effect beside advantages of standard deviation 1, and
# would need many updates to grow again.
COEF_RANGE = 1e-3, 1.0
Bound: TypeAlias = tuple[tuple[str, ...], Callable[[float], bool], str]
# Each is a positive condition, so that NaN fulfils none of them.
BOUNDS: tuple[Bound, ...] = (
    # A tail row never follows another, so a rollout of 2 has at least one valid step per environment.
    (("num_steps",), lambda x: x >= 2, "at least 2 is needed"),
    (("update_epochs", "steps_per_minibatch"), lambda x: x >= 1, "at least 1 is needed"),
    (("gamma", "gae_lambda", "target_lambda"), lambda x: 0 <= x <= 1, "it must lie in [0, 1]"),
    # A negative ent_coef is a penalty on entropy.
    (("ent_coef", "target_entropy", "target_return"), math.isfinite, "it must be finite"),
    (ABOVE_0, lambda x: x > 0, "it must be above 0"),
    (("vf_coef", "weight_decay", "max_grad_norm", "rnd_coef"), lambda x: x >= 0, "it must not be below 0"),
)


@dataclass(frozen=True, kw_only=True)
class Decay(Options):
    """A schedule of a hyperparameter: initial -> final along (1 - progress) ** power."""

    final: float | None = None
    """Value at the horizon and after it, at least 0; None: constant."""
    power: float = 1.0
    """Exponent of the schedule, above 0; 1: linear."""
    horizon: int | None = None
    """Where `final` is reached, in `unit`; None: at the end of the run."""
    unit: Literal["rollouts", "steps"] = "rollouts"
    """Unit of the horizon."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Positive conditions, as in BOUNDS. With a power below 0, the end of the schedule divides by 0.
        if self.final is not None and not 0 <= self.final < math.inf:
            raise UsageError(f"the final value of a decay is {self.final}, it must be finite and at least 0")
        if not 0 < self.power < math.inf:
            raise UsageError(f"the power of a decay is {self.power}, it must be finite and above 0")
        if self.horizon is not None and self.horizon < 1:
            raise UsageError(f"the horizon of a decay is {self.horizon}, at least 1 is needed")

    def at(self, initial: float, rollouts: int, steps: int, progress: float) -> float:
        """The value after so many rollouts and steps, at this fraction of the run."""
        if self.final is None:
            return initial
        if self.horizon is not None:
            progress = (rollouts if self.unit == "rollouts" else steps) / self.horizon
        return self.final + (initial - self.final) * (1.0 - min(progress, 1.0)) ** self.power


@dataclass(frozen=True, kw_only=True)
class PPOConfig(Options):
    """Proximal policy optimisation. N environments are env.num_envs."""

    num_steps: int = 128
    """T: steps per environment between two updates."""
    bptt: int | Literal["episode"] | None = None
    """L: steps of a chunk, the segment of truncated back-propagation through time; divides T. episode, or 0:
    gradients flow through all steps of an episode in the rollout, L = T. None: T with a memory, 1 without."""
    chunk_state: Literal["stored", "zero", "burn-in", "refresh"] = "stored"
    """Memory state at the start of a chunk. stored: of the rollout; zero: initial; burn-in: computed from the
    burn_in steps before the chunk; refresh: computed from the whole rollout before each epoch."""
    burn_in: int = 0
    """Steps before each chunk that are computed without gradient, with chunk_state burn-in."""
    update_epochs: int = 4
    """Epochs over each rollout."""
    num_minibatches: int | None = 4
    """Minibatches per epoch, or fewer where the chunks do not divide evenly; None with a batch_size."""
    batch_size: int | None = None
    """Steps per minibatch, instead of num_minibatches."""
    steps_per_minibatch: int = 1
    """Consecutive gradient steps on each minibatch."""
    shuffle: bool = True
    """Whether minibatches are drawn at random; False: in order of time."""
    gamma: float = 0.99
    """Discount factor per step."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation: 0 relies on values, 1 on rewards."""
    target_lambda: float | None = None
    """Lambda of the value targets; None: gae_lambda. 1: discounted returns, bootstrapped at the end of the
    rollout."""
    clip: float = 0.2
    """PPO clip range."""
    clip_decay: Decay = field(default_factory=Decay)
    """Schedule of clip."""
    clip_value: float | None = None
    """Clip range of values, in units of the critic output: with critic.value scalar those of the (normalised)
    reward, with symlog those of symlog space, with popart standard deviations. None: not clipped."""
    normalize_advantage: Normalization = "minibatch"
    """Steps over which advantages are normalised to mean 0 and standard deviation 1."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus; below 0: a penalty on entropy."""
    ent_decay: Decay = field(default_factory=Decay)
    """Schedule of ent_coef."""
    target_entropy: float | None = None
    """The entropy coefficient is adapted after each update, from ent_coef and within [0.001, 1], so that the
    mean entropy of the policy approaches this, in nats; None: it follows its schedule."""
    vf_coef: float = 0.5
    """Weight of the value loss; without shared layers it only affects gradient clipping."""
    predict_coef: float = 0.1
    """Weight of each prediction loss, of the branches that `predict`."""
    rnd_coef: float = 0.0
    """Weight of an intrinsic reward for new observations, by random network distillation; 0: off."""
    learning_rate: float = 2.5e-4
    """Learning rate of the actor, and of the critic unless it has its own."""
    critic_learning_rate: float | None = None
    """Learning rate of the critic; None: that of the actor."""
    lr_decay: Decay = field(default_factory=Decay)
    """Schedule of both learning rates."""
    desired_kl: float | None = None
    """The learning rates are adapted after each update: divided by 1.5 if its mean KL was above twice this,
    multiplied by 1.5 if it was below half of it; the actor's stays in [1e-5, 1e-2]. None: they follow their
    schedule."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """adamw: weight decay is decoupled from the gradient."""
    adam_eps: float = 1e-5
    """Epsilon of Adam, added to the denominator."""
    weight_decay: float = 0.0
    """Weight decay coefficient."""
    max_grad_norm: float = 0.5
    """Maximum gradient norm, of each branch separately; 0: not clipped."""
    target_kl: float | None = None
    """An update ends after the epoch whose mean KL exceeds this; None: never. TRPO: the trust region."""
    target_return: float | None = None
    """The run ends when the mean return of 100 episodes reaches this; None: never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for names, holds, needed in BOUNDS:
            for name in names:
                value = getattr(self, name)
                if value is not None and not holds(value):
                    raise UsageError(f"ppo.{name} is {value}, {needed}")
        self._check_chunks()
        self._check_adaptive()
        if (self.num_minibatches is None) == (self.batch_size is None):
            raise UsageError(
                "give one of ppo.num_minibatches and ppo.batch_size and set the other to None: "
                f"they are {self.num_minibatches} and {self.batch_size}"
            )

    def _check_chunks(self) -> None:
        if isinstance(self.bptt, int) and self.bptt < 0:
            raise UsageError(
                f"ppo.bptt is {self.bptt}; give the steps of a chunk as a number, or episode (or 0)"
            )
        if (self.burn_in > 0) != (self.chunk_state == "burn-in") or self.burn_in < 0:
            raise UsageError(
                f"ppo.burn_in is {self.burn_in} with ppo.chunk_state {self.chunk_state}: burn-in needs at "
                "least 1 step, the others 0"
            )

    def _check_adaptive(self) -> None:
        """An adapted coefficient has an initial value and no schedule."""
        for option, adapted, schedule, (lowest, highest) in (
            ("desired_kl", "learning_rate", "lr_decay", RATE_RANGE),
            ("target_entropy", "ent_coef", "ent_decay", COEF_RANGE),
        ):
            if getattr(self, option) is None:
                continue
            final, initial = getattr(self, schedule).final, getattr(self, adapted)
            if final is not None:
                raise UsageError(
                    f"ppo.{option} and ppo.{schedule}.final {final:g} both set ppo.{adapted}: set "
                    f"ppo.{schedule}.final to none"
                )
            if not lowest <= initial <= highest:
                raise UsageError(
                    f"ppo.{adapted} is {initial}, with ppo.{option} it must lie in [{lowest:g}, {highest:g}]"
                )

    @property
    def is_adaptive(self) -> bool:
        """Whether a coefficient is adapted after each update."""
        return self.desired_kl is not None or self.target_entropy is not None

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
    def recomputes_states(self) -> bool:
        """Whether chunk states are computed again, with the current weights, before each epoch."""
        return self.chunk_state in ("burn-in", "refresh")

    def chunk_length(self, has_memory: bool) -> int:
        """L: as configured; otherwise T with a memory and 1 without one.

        A chunk of T steps contains every episode of the rollout whole: memories reset themselves
        inside a chunk, so no sequence is split or padded.
        """
        if self.bptt is None:
            return self.num_steps if has_memory else 1
        return self.num_steps if self.bptt == "episode" or not self.bptt else self.bptt

    def chunks_per_minibatch(self, num_envs: int, length: int, whole: bool = False) -> int:
        """Chunks of L steps per minibatch; a UsageError with the sizes where they do not fit.

        whole  one minibatch of all chunks, whatever the options of minibatches are
        """
        steps = self.num_steps
        sizes = f"env.num_envs {num_envs}, ppo.num_steps {steps}, chunks of {length} (ppo.bptt)"
        if length < 1 or steps % length:
            raise UsageError(f"ppo.bptt is {length}, and must divide ppo.num_steps, {steps}")
        chunks = num_envs * steps // length
        if whole:
            return chunks
        if self.num_minibatches is not None:
            if not 1 <= self.num_minibatches <= chunks:
                raise UsageError(
                    f"{chunks} chunks do not make {self.num_minibatches} minibatches: {sizes}; "
                    "decrease ppo.num_minibatches or ppo.bptt, or increase env.num_envs"
                )
            return math.ceil(chunks / self.num_minibatches)
        assert self.batch_size is not None
        if self.batch_size < length or self.batch_size > num_envs * steps:
            raise UsageError(
                f"ppo.batch_size is {self.batch_size}, and must lie between the steps of a chunk and those "
                f"of a rollout: {sizes}"
            )
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
    """The scheduled hyperparameters at one iteration."""

    clip: float
    entropy: float
    rates: tuple[float, float]  # actor, critic


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One training run: hyperparameters, budget, seed and threads."""

    ppo: PPOConfig
    seed: int
    steps: int | None = None
    """Training steps (valid, over all environments) after which the run ends."""
    rollouts: int | None = None
    """Rollouts after which the run ends."""
    barrier: int = 0
    """Rollouts between two resets of all environments from their seeds; 0: never."""
    critic_rollouts: int = 0
    """Rollouts at the start in which the critic alone is trained."""
    threads: int = 1
    """Threads of torch in updates; acting uses one."""

    def barrier_after(self, iteration: int) -> bool:
        """Whether all environments are reset after this iteration."""
        return self.barrier > 0 and (iteration + 1) % self.barrier == 0

    def trains_actor(self, rollouts: int) -> bool:
        """Whether the actor is trained after so many rollouts, and not the critic alone."""
        return rollouts >= self.critic_rollouts

    def coefficients(self, rollouts: int, steps: int) -> "Coefficients":
        """The scheduled hyperparameters after so many rollouts and steps."""
        cfg = self.ppo
        now = rollouts, steps, self.progress(rollouts, steps)
        rate = cfg.lr_decay.at(cfg.learning_rate, *now)
        critic = rate * (cfg.critic_learning_rate or cfg.learning_rate) / cfg.learning_rate
        clip, entropy = cfg.clip_decay.at(cfg.clip, *now), cfg.ent_decay.at(cfg.ent_coef, *now)
        return Coefficients(clip, entropy, (rate if self.trains_actor(rollouts) else 0.0, critic))

    def progress(self, rollouts: int, steps: int) -> float:
        """The completed fraction of the run, from 0 to 1."""
        fractions = [0.0]
        if self.steps:
            fractions.append(steps / self.steps)
        if self.rollouts:
            fractions.append(rollouts / self.rollouts)
        return min(max(fractions), 1.0)
