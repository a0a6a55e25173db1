"""The config of a run: everything that determines it, as one value."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..agent.agent import BranchConfig
from ..common.devices import check_name
from ..common.distributed import CORES, check_threads
from ..common.errors import UsageError
from ..common.notebook import table
from ..common.options import Options
from ..envs import Backend, EnvConfig
from ..learn.settings import Algorithm, Plan, PPOConfig
from .flags import values_in

MINIMUM = {
    **dict.fromkeys(("steps", "rollouts", "val_episodes", "keep", "threads"), 1),
    **dict.fromkeys(("val_check_interval", "barrier", "save_interval"), 0),
}

LONGEST, LONGEST_GAME = 1000, 100  # steps that episodes without a time limit are assumed to take at most


@dataclass(frozen=True, kw_only=True)
class InitConfig(Options):
    """The agent whose weights a run begins from."""

    path: str | None = None
    """A run folder, a checkpoint or a saved agent whose weights the run begins from; None: initial ones."""
    parts: tuple[str, ...] = ()
    """Parts whose weights are taken: actor, critic, normalizer, or parts of these as actor.memory; none: all
    three."""
    critic_rollouts: int = 0
    """Rollouts at the start in which the critic alone is trained, so that a critic that does not know the
    actor yet does not spoil it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_rollouts < 0:
            raise UsageError(f"init.critic_rollouts is {self.critic_rollouts}, at least 0 is needed")
        if self.parts and self.path is None:
            raise UsageError(f"init.parts {' '.join(self.parts)} needs the agent they are of: --init RUN")
        if self.path is not None:
            # So that the run can be resumed from any folder, also if the environment changes the folder.
            object.__setattr__(self, "path", str(Path(self.path).resolve()))


@dataclass(frozen=True, kw_only=True, repr=False)
class RunConfig(Options):
    """One run: environments, agent, algorithm, budget, validation and checkpoints."""

    model: str = "ppo"
    """Preset of hyperparameters and memories; names the run folder."""
    env: EnvConfig = field(default_factory=EnvConfig)
    actor: BranchConfig = field(default_factory=BranchConfig)
    critic: BranchConfig = field(default_factory=BranchConfig)
    algorithm: Algorithm = "ppo"
    """How actor and critic are updated from a rollout. All algorithms use the options of ppo, where they
    apply."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    init: InitConfig = field(default_factory=InitConfig)
    seed: int = 1
    """Seed of every random number of the run."""
    steps: int | None = 1_000_000
    """Training steps, summed over all environments. Tail rows do not count."""
    rollouts: int | None = None
    """Training rollouts, instead of steps."""
    val_check_interval: int | None = None
    """Rollouts between validations; None: validation takes about 5 % of the time; 0: never."""
    val_episodes: int = 10
    """Episodes of a validation."""
    barrier: int | None = None
    """Rollouts between barriers: all environments are reset, so that a run can be resumed there although
    their states cannot be saved. None: every 10 time limits, if the states cannot be saved; 0: never."""
    save_interval: int | None = None
    """Rollouts between checkpoints to resume from; None: at every barrier, or 10 per run; 0: none."""
    keep: int = 3
    """Number of newest checkpoints to keep."""
    threads: int = 1
    """Threads of torch during updates. More than one is faster for wide layers, if cores are idle."""
    device: str = "auto"
    """Device of the networks: cpu, cuda, cuda:1, mps. auto: a GPU, if there is one and the networks are
    large; config.yaml has what was chosen."""
    amp: Literal["bf16"] | None = None
    """bf16: products of training in bfloat16, but for those of recurrences; evaluation has full precision."""
    compile: bool = False
    """Compile the networks of training at their first use, which takes a minute or more."""
    cuda_graphs: bool = False
    """Capture a step of the actor as a CUDA graph and replay it; for a CUDA device only."""
    kernels: Literal["auto", "native", "torch"] = "auto"
    """Kernels of acting, values and the gradient step. native: in C, compiled at first use, for agents
    without pictures on the CPU, others take torch's; auto: native for networks without a memory or with
    stack, late_stack, gru, lstm, mingru, lmu, lru, deltanet, mamba, gpt2, trxl or gtrxl, otherwise torch's.
    With both, recurrences of other memories are native, but for rnn and indrnn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_finite()
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed is {self.seed}, it must be in [0, 2^63)")
        if self.steps is None and self.rollouts is None:
            raise UsageError("give steps or rollouts: a run needs an end")
        for name, minimum in MINIMUM.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise UsageError(f"{name} is {value}, at least {minimum} is needed")
        check_threads("threads", self.threads)
        check_name(self.device)
        named = (*self.actor.sees, *self.critic.sees, *self.actor.predict, *self.critic.predict)
        if "hidden" in named and not self.env.hidden:
            # Here, so that whoever builds the environments of this config need not know of the branches.
            object.__setattr__(self, "env", dataclasses.replace(self.env, hidden=True))
        if self.env.trial > 1:
            self._add_trial_inputs()
        self._check_values()
        if self.critic.shared and self.critic.sees:
            raise UsageError("a shared critic has no inputs of its own: critic.sees needs --critic MEMORY")
        if self.critic.shared and self.critic.predict:
            raise UsageError("a shared critic has the features of the actor: use actor.predict")
        self._check_algorithm()

    def _check_finite(self) -> None:
        """Of every option, also of third-party memories; arguments of an environment may be infinite."""
        for name, value in values_in(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{name} is {value}, it must be finite")

    def _check_values(self) -> None:
        kind = self.critic.value
        if kind != "scalar" and self.algorithm == "reinforce":
            raise UsageError(
                f"algorithm reinforce trains no critic: critic.value {kind} needs another algorithm"
            )
        if self.actor.value != "scalar":
            raise UsageError(
                f"actor.value is {self.actor.value}, but only a critic has values: use critic.value"
            )
        if kind == "popart" and self.env.normalize_reward:
            raise UsageError(
                "critic.value popart and env.normalize_reward both scale values: set env.normalize_reward "
                "to False, or critic.value to scalar"
            )
        if kind == "hl-gauss" and self.ppo.clip_value is not None:
            raise UsageError(
                f"critic.value hl-gauss is a histogram, which ppo.clip_value {self.ppo.clip_value:g} cannot "
                "clip: set ppo.clip_value to none"
            )

    def _check_algorithm(self) -> None:
        if self.algorithm == "trpo" and self.critic.shared:
            raise UsageError("trpo updates the actor alone: a shared critic is not supported")
        if self.algorithm != "ppo" and self.ppo.is_adaptive:
            raise UsageError(
                f"algorithm {self.algorithm} adapts no coefficients: ppo.desired_kl and ppo.target_entropy "
                "need algorithm ppo"
            )
        ppo, steps = self.ppo, self.env.num_envs * self.ppo.num_steps
        takes_all = ppo.num_minibatches == 1 or ppo.batch_size == steps
        if ppo.desired_kl is not None and takes_all and ppo.update_epochs * ppo.steps_per_minibatch == 1:
            raise UsageError(
                "ppo.desired_kl needs several gradient steps in an update, because the KL of a minibatch is "
                "measured before its step: increase ppo.update_epochs or ppo.num_minibatches"
            )
        if self.algorithm == "reinforce" and self.init.critic_rollouts:
            raise UsageError(
                f"algorithm reinforce trains no critic: init.critic_rollouts {self.init.critic_rollouts} "
                "needs another algorithm"
            )
        if self.algorithm in ("reinforce", "trpo") and (self.actor.predict or self.critic.predict):
            raise UsageError(
                f"algorithm {self.algorithm} learns no predictions: actor.predict and critic.predict need "
                "algorithm ppo or a2c"
            )

    def _add_trial_inputs(self) -> None:
        """Let both branches get the previous action and reward, from which a task is inferred."""
        for side in ("actor", "critic"):
            branch = dataclasses.replace(getattr(self, side), prev_action=True, prev_reward=True)
            object.__setattr__(self, side, branch)

    def __repr__(self) -> str:
        critic = "shared" if self.critic.shared else self.critic.memory.name
        budget = f"{self.steps:,} steps" if self.rollouts is None else f"{self.rollouts:,} rollouts"
        return (
            f"RunConfig({self.model} on {self.env.id}, actor {self.actor.memory.name}, critic {critic}, "
            f"{budget}, seed {self.seed})"
        )

    def _repr_html_(self) -> str:
        """The notebook view: every option and its value."""
        return table(values_in(self))

    @property
    def plan(self) -> Plan:
        """The part of a resolved config that the algorithm takes."""
        assert self.barrier is not None, "resolve() fills this in"
        return Plan(
            ppo=self.ppo,
            seed=self.seed,
            steps=self.steps,
            rollouts=self.rollouts,
            barrier=self.barrier,
            critic_rollouts=self.init.critic_rollouts,
            threads=self.threads,
        )


def resolve(
    config: RunConfig, backend: Backend, native: bool, time_limit: int | None, new: bool = True
) -> RunConfig:
    """The config with every open choice made; none depends on timing.

    new  whether the run is new; files that its memories are initialised from may be missing later
    """
    rows = config.env.num_envs * config.ppo.num_steps
    limit = time_limit or (LONGEST_GAME if config.env.self_play else LONGEST)
    barrier = config.barrier
    if barrier is None:
        barrier = 0 if native else -(-10 * limit // config.ppo.num_steps)
    save = config.save_interval
    if save is None:
        budgets = config.rollouts, config.steps and config.steps // rows
        rollouts = min((budget for budget in budgets if budget is not None), default=0)
        save = barrier or (max(1, rollouts // 10) if native else 0)
    elif barrier or not native:
        # Rounded up to a barrier: only there can environments be restored whose states cannot be saved.
        save = -(-save // barrier) * barrier if barrier else 0
    validate = config.val_check_interval
    if validate is None:
        # A step of validation costs about as much as a step of training.
        # 20 times the longest validation between two of them: 5 % of the time.
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
