"""Settings that are known to work: per environment, and per model on top of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from .agent import BranchConfig
from .config import RunConfig, apply, as_flags, last, read_yaml, tokens
from .envs import EnvConfig, suites
from .errors import UsageError, nearest
from .memory import MemoryConfig, find
from .memory.gpt2 import Gpt2Config
from .memory.rnn import GruConfig, LstmConfig, MinGruConfig, RecurrentConfig
from .memory.stack import StackConfig
from .memory.trxl import GtrxlConfig, TrxlConfig
from .settings import Decay, PPOConfig

Flags: TypeAlias = list[tuple[str, list[str]]]
Options: TypeAlias = Callable[[RunConfig], Any]
TO_ZERO = Decay(final=0.0)
INTERLEAVED = Gpt2Config(tokens="interleaved")


def default(env_id: str) -> RunConfig:
    """Where nothing is known of an environment: normalise everything, anneal to zero."""
    return RunConfig(
        env=EnvConfig(id=env_id, num_envs=16, normalize_obs=True, normalize_reward=True),
        ppo=PPOConfig(num_steps=128, learning_rate=1e-3, lr_decay=TO_ZERO),
    )


def cartpole() -> RunConfig:
    """Gymnasium's own vectorised CartPole is faster than EnvPool's, and its state can be saved."""
    return RunConfig(
        env=EnvConfig(
            id="CartPole-v1",
            num_envs=64,
            backend="gymnasium",
            normalize_obs=True,
            normalize_reward=True,
        ),
        ppo=PPOConfig(num_steps=64, learning_rate=2.5e-3, lr_decay=TO_ZERO),
        steps=500_000,
    )


def acrobot() -> RunConfig:
    """Small rollouts: the first swing-ups are what everything is learned from."""
    return RunConfig(
        env=EnvConfig(id="Acrobot-v1", num_envs=64, normalize_obs=True, normalize_reward=True),
        ppo=PPOConfig(num_steps=32, learning_rate=2.5e-3, lr_decay=TO_ZERO),
    )


def lunar_lander() -> RunConfig:
    """A long horizon decides here: gamma 0.999, lambda 0.98; and small rollouts."""
    wide = BranchConfig(hidden=(128, 128))
    return RunConfig(
        env=EnvConfig(id="LunarLander-v3", num_envs=32, normalize_obs=True, normalize_reward=True),
        actor=wide,
        critic=wide,
        ppo=PPOConfig(
            num_steps=64,
            update_epochs=8,
            learning_rate=1e-3,
            lr_decay=TO_ZERO,
            gamma=0.999,
            gae_lambda=0.98,
            ent_coef=0.01,
        ),
    )


def bipedal_walker() -> RunConfig:
    """Many passes over large rollouts, and a first policy that does not shake itself down."""
    return RunConfig(
        env=EnvConfig(id="BipedalWalker-v3", num_envs=64, normalize_obs=True, normalize_reward=True),
        actor=BranchConfig(log_std=-0.5),
        ppo=PPOConfig(
            num_steps=128,
            update_epochs=10,
            num_minibatches=4,
            learning_rate=1e-3,
            lr_decay=TO_ZERO,
        ),
        steps=5_000_000,
    )


def poc() -> RunConfig:
    """Few rows and small rollouts: there is one thing to learn."""
    return RunConfig(
        env=EnvConfig(id="poc", num_envs=16, normalize_reward=True),
        ppo=PPOConfig(num_steps=64, learning_rate=2.5e-3, lr_decay=TO_ZERO),
        steps=100_000,
    )


def cartpole_no_velocity() -> RunConfig:
    """As with velocities, in smaller rollouts."""
    config = cartpole()
    return replace(config, env=replace(config.env, num_envs=32), steps=100_000)


def lunar_lander_no_velocity() -> RunConfig:
    """As with velocities, for longer."""
    return replace(lunar_lander(), steps=5_000_000)


def pendulum() -> RunConfig:
    """A short horizon, and small rollouts."""
    return RunConfig(
        env=EnvConfig(id="Pendulum-v1", num_envs=32, normalize_obs=True, normalize_reward=True),
        ppo=PPOConfig(num_steps=64, update_epochs=6, learning_rate=2e-3, lr_decay=TO_ZERO, gamma=0.95),
        steps=500_000,
    )


def mountain_car() -> RunConfig:
    """The hill is first climbed by chance, which takes actions that are large."""
    loud = BranchConfig(log_std=1.0)
    return RunConfig(
        env=EnvConfig(id="MountainCarContinuous-v0", num_envs=32, normalize_obs=True, normalize_reward=True),
        actor=loud,
        ppo=PPOConfig(
            num_steps=128,
            update_epochs=8,
            learning_rate=1e-3,
            lr_decay=TO_ZERO,
            gamma=0.999,
            gae_lambda=0.98,
        ),
        steps=300_000,
    )


def minigrid() -> RunConfig:
    """One memory for both heads, to which values matter: they teach it what the actor then uses.

    And much entropy at first, so that it wanders, and looks, before it hurries.
    """
    wide = BranchConfig(hidden=(256,), activation="relu")
    return RunConfig(
        env=EnvConfig(id="minigrid:MiniGrid-MemoryS9-v0", num_envs=32),
        actor=wide,
        critic=replace(wide, shared=True),
        ppo=PPOConfig(
            num_steps=128,
            num_minibatches=8,
            learning_rate=1e-3,
            vf_coef=1.0,
            ent_coef=0.03,
            ent_decay=Decay(final=0.002),
            adam_eps=1e-8,
        ),
        steps=1_750_000,
    )


TASKS: dict[str, Callable[[], RunConfig]] = {
    "CartPole": cartpole,
    "Acrobot": acrobot,
    "LunarLander": lunar_lander,
    "BipedalWalker": bipedal_walker,
    "poc": poc,
    "minigrid": minigrid,
    "Pendulum": pendulum,
    "PendulumNoVel": pendulum,
    "MountainCarContinuous": mountain_car,
    "MountainCarContinuousNoVel": mountain_car,
    "CartPoleMasked": cartpole_no_velocity,
    "CartPoleNoVel": cartpole_no_velocity,
    "LunarLanderNoVel": lunar_lander_no_velocity,
}


def ppo(config: RunConfig) -> RunConfig:
    """No memory: actor and critic see the present observation."""
    return config


def ppo_gru(config: RunConfig) -> RunConfig:
    """A GRU for the actor and another for the critic."""
    return recurrent(config, GruConfig)


def ppo_lstm(config: RunConfig) -> RunConfig:
    """An LSTM for the actor and another for the critic."""
    return recurrent(config, LstmConfig)


def ppo_mingru(config: RunConfig) -> RunConfig:
    """A linear recurrence for the actor and another for the critic."""
    return recurrent(config, MinGruConfig)


def recurrent(config: RunConfig, kind: type[RecurrentConfig]) -> RunConfig:
    """A recurrence for the actor and another for the critic, half as wide as the layers after them."""

    def remembering(branch: BranchConfig) -> BranchConfig:
        return looking_back(branch, kind(width=max(64, branch.hidden[-1] // 2)))

    return replace(config, actor=remembering(config.actor), critic=remembering(config.critic))


def ppo_gpt(config: RunConfig) -> RunConfig:
    """A GPT-2 for the critic; an actor without memory, with twice the layers."""
    actor = replace(config.actor, hidden=config.actor.hidden * 2)
    critic = replace(looking_back(config.critic, INTERLEAVED), shared=False)
    return replace(config, actor=actor, critic=critic)


def ppo_gpt_frozen(config: RunConfig) -> RunConfig:
    """As ppo_gpt, with a GPT-2 that stays as it began: only what reads it learns."""
    frozen = replace(INTERLEAVED, trained_blocks=0, trained_ends=False)
    config = ppo_gpt(config)
    return replace(config, critic=replace(config.critic, memory=frozen))


def ppo_gpt_shared(config: RunConfig) -> RunConfig:
    """One GPT-2 for actor and critic."""
    return in_common(config, INTERLEAVED)


def ppo_gpt_actor(config: RunConfig) -> RunConfig:
    """A GPT-2 for the actor and another for the critic."""
    actor, critic = (looking_back(branch, INTERLEAVED) for branch in (config.actor, config.critic))
    return replace(config, actor=actor, critic=replace(critic, shared=False))


def ppo_trxl(config: RunConfig) -> RunConfig:
    """One Transformer-XL for actor and critic."""
    return in_common(config, TrxlConfig())


def ppo_gtrxl(config: RunConfig) -> RunConfig:
    """One Transformer-XL with gates for actor and critic."""
    return in_common(config, GtrxlConfig())


def looking_back(branch: BranchConfig, memory: MemoryConfig) -> BranchConfig:
    """A memory that reads what is seen, with one layer, as wide as the task's, after it."""
    return replace(branch, memory=memory, hidden=(), head_hidden=branch.hidden[-1:])


def in_common(config: RunConfig, memory: MemoryConfig) -> RunConfig:
    """One such memory for both heads."""
    critic = replace(looking_back(config.critic, memory), shared=True)
    return replace(config, actor=looking_back(config.actor, memory), critic=critic)


def ppo_stack(config: RunConfig) -> RunConfig:
    """The last four observations side by side, for actor and critic."""
    stack = StackConfig()
    return replace(
        config,
        actor=replace(config.actor, memory=stack),
        critic=replace(config.critic, memory=stack),
    )


MODELS: dict[str, Callable[[RunConfig], RunConfig]] = {
    "ppo": ppo,
    "ppo_stack": ppo_stack,
    "ppo_gru": ppo_gru,
    "ppo_lstm": ppo_lstm,
    "ppo_mingru": ppo_mingru,
    "ppo_gpt": ppo_gpt,
    "ppo_gpt_frozen": ppo_gpt_frozen,
    "ppo_gpt_shared": ppo_gpt_shared,
    "ppo_gpt_actor": ppo_gpt_actor,
    "ppo_trxl": ppo_trxl,
    "ppo_gtrxl": ppo_gtrxl,
}


def preset(model: str, env_id: str) -> RunConfig:
    """The named model on an environment, with the environment's settings where they are known."""
    if model not in MODELS:
        raise UsageError(f"model {model!r} is unknown; {nearest(model, sorted(MODELS))}")
    suite, _, name = env_id.rpartition(":")
    found = [key for key in (name.partition("-")[0], suite) if key in TASKS]
    config = TASKS[found[0]]() if found else default(env_id)
    config = replace(config, env=replace(config.env, id=env_id), model=model)
    return MODELS[model](config)


# From flags -----------------------------------------------------------------------------------


def assemble(arguments: Sequence[str], prog: str, about: str, options: Options | None = None) -> Any:
    """Flags, over a --config file, over the preset they name: a RunConfig, or options around one."""
    found = tokens(arguments)
    file = last(found, "--config")
    if file is not None:
        found = flags_of(read_yaml(Path(file))) + [f for f in found if f[0] != "--config"]
    model, env_id = last(found, "--model") or "ppo", last(found, "--env.id") or "CartPole-v1"
    config = preset(model, env_id)
    config, found = with_memories(config, found)
    return apply(config if options is None else options(config), found, prog, about)


def from_dict(data: dict[str, Any], imports: Sequence[str] = ()) -> RunConfig:
    """A config that was saved. A name that would import a module counts only if it is in `imports`.

    So nothing that a stranger's file says is imported or run unless the user says so too.
    """
    found = flags_of(data)
    for flag in ("--env.id", "--actor.memory.name", "--critic.memory.name"):
        name = last(found, flag) or ""
        suite, colon, _ = name.partition(":")
        if colon and name not in imports and not (flag == "--env.id" and suite in suites()):
            option = "-e" if flag == "--env.id" else "--imports"
            raise UsageError(f"the file names {name}, which imports a module: allow it with {option} {name}")
    config, found = with_memories(RunConfig(), found)
    return apply(config, found, "recollect", "")


def flags_of(data: Mapping[str, Any]) -> Flags:
    """A file as flags. It has no order, and naming a memory undoes `shared`, so names come first."""
    return sorted(tokens(as_flags(data)), key=lambda flag: not flag[0].endswith(".memory.name"))


def with_memories(config: RunConfig, found: Flags) -> tuple[RunConfig, Flags]:
    """The config with the memories that flags name; flags then set their fields.

    `--critic shared` names no memory of its own; naming one again undoes it. Settings that a file has
    for one memory go with it where a flag names another.
    """
    rest: Flags = []
    named: dict[str, str] = {}
    for flag, values in found:
        if not flag.endswith(".memory.name"):
            rest.append((flag, values))
            continue
        name = last([(flag, values)], flag) or ""
        if named.setdefault(flag, name) != name:
            rest = [given for given in rest if not given[0].startswith(flag.removesuffix("name"))]
            named[flag] = name
        shared = flag == "--critic.memory.name" and name == "shared"
        if flag == "--critic.memory.name":
            rest.append(("--critic.shared", [str(shared)]))
        if not shared:
            branch = flag.removeprefix("--").partition(".")[0]
            part = replace(getattr(config, branch), memory=find(name)())
            config = replace(config, **{branch: part})
    return config, rest
