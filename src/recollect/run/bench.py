"""`recollect bench ENV`: steps per second of each phase of training, and of the environment alone."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from ..common.devices import describe, synchronize
from ..config.config import RunConfig
from ..envs import Envs
from ..envs.random_actions import draw_allowed
from ..envs.spaces import ACTION_MASK
from ..learn.algorithms import UPDATES
from ..learn.learner import Learner
from ..learn.ppo import collect, learn, value
from ..learn.rollout import Rollout
from .build import build, build_learner, training_mode
from .kernels import engine

SECONDS = 5.0
COMPILING = 2  # rollouts in which networks are compiled


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Measure the speed of training on this machine: steps per second of acting (collect), of the value
    pass, of the update, and of the environment alone.

      recollect bench LunarLander-v3
      recollect bench LunarLander-v3 -m ppo_lstm --threads 2
    """

    POSITIONAL: ClassVar = ("env.id",)

    imports: tuple[str, ...] = ()
    """Third-party environments, memories and encoders named in the --config file, which may then be
    imported."""
    config: RunConfig


def run_bench(options: BenchOptions) -> int:
    """Measure the phases of training for a few seconds and print a table."""
    envs, learner, config = _build(options.config)
    with training_mode(learner.agent, config):
        phases, steps = _measure(envs, learner, config, SECONDS)
    total = sum(phases.values())
    print(
        f"{config.env.id}  {config.model}  backend {envs.adapter.backend}  "
        f"N {envs.num_envs}  T {config.ppo.num_steps}  device {describe(learner.agent.device)}"
    )
    print(f"{'phase':<12}{'ms/rollout':>14}{'share':>8}{'steps/s':>12}")
    for name, seconds in phases.items():
        share = f"{seconds / total:.0%}"
        print(f"{name:<12}{1000 * seconds:>14.2f}{share:>8}{steps / seconds:>12,.0f}")
    print(f"{'all':<12}{1000 * total:>14.2f}{'':>8}{steps / total:>12,.0f}")
    print(f"environment alone, random actions: {_environment_alone(envs):,.0f} steps/s")
    print(f"one run of {SECONDS:g} s, seed {config.seed}: medians over its rollouts; other runs differ")
    envs.adapter.close()
    return 0


def estimate_seconds(config: RunConfig, seconds: float = 1.0) -> float:
    """Estimate how many seconds a run takes, by timing rollouts for `seconds`."""
    envs, learner, config = _build(config)
    with training_mode(learner.agent, config):
        phases, steps = _measure(envs, learner, config, seconds)
    envs.adapter.close()
    rollouts = config.rollouts or float("inf")
    return sum(phases.values()) * min(rollouts, (config.steps or float("inf")) / steps)


def _build(config: RunConfig) -> tuple[Envs, Learner, RunConfig]:
    """Build environments and learner; return them with the resolved config."""
    envs, agent, config = build(config)
    learner = build_learner(config, envs, agent)
    learner.engine = engine(config, agent, print)
    return envs, learner, config


def _measure(
    envs: Envs, learner: Learner, config: RunConfig, seconds: float
) -> tuple[dict[str, float], float]:
    """Median seconds of each phase and mean steps of a rollout, over at least three rollouts."""
    plan = config.plan
    length = plan.ppo.chunk_length(any(learner.agent.initial_state(1)))
    rollout = Rollout(learner.agent, learner.row, plan.ppo.num_steps)
    update = UPDATES[config.algorithm]
    timed = partial(_timed, learner.agent.device)

    def iterate() -> tuple[float, float, float, int]:
        # The threads of each phase are those of training (learn/ppo.py).
        torch.set_num_threads(1)
        collecting = timed(lambda: collect(envs, learner, rollout, plan, length))
        torch.set_num_threads(plan.threads)
        valuing = timed(lambda: value(learner, rollout, length))
        updating = timed(lambda: learn(learner, rollout, plan, length, update))
        learner.update_statistics(rollout)
        return collecting, valuing, updating, int(rollout.valid[:-1].sum())

    for _ in range(COMPILING if config.compile else 0):
        iterate()
    rollouts = list[tuple[float, float, float, int]]()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rollouts) < 3:
        rollouts.append(iterate())
    *times, steps = zip(*rollouts, strict=True)
    # Medians, because other processes of the machine disturb single rollouts.
    medians = map(statistics.median, times)
    return dict(zip(("collect", "value", "update"), medians, strict=True)), statistics.mean(steps)


def _environment_alone(envs: Envs) -> float:
    """Steps per second of the environment with random actions, without the time that drawing them takes."""
    if ACTION_MASK in envs.obs_spec.leaves:
        return _masked_environment_alone(envs)
    space = envs.adapter.action_space
    actions = [np.stack([np.asarray(space.sample()) for _ in range(envs.num_envs)]) for _ in range(100)]
    count, start = 0, time.perf_counter()
    while time.perf_counter() < start + 1:
        for action in actions:
            envs.adapter.step(action)
        count += len(actions) * envs.num_envs
    return count / (time.perf_counter() - start)


def _masked_environment_alone(envs: Envs) -> float:
    """As above, where each action depends on the mask of its observation."""
    random = np.random.default_rng(0)
    obs = envs.adapter.reset(list(range(envs.num_envs)))
    count, seconds = 0, 0.0
    while seconds < 1:
        action = envs.action_spec.to_env(draw_allowed(envs.action_spec, obs[ACTION_MASK], random))
        start = time.perf_counter()
        obs = envs.adapter.step(action).obs
        seconds += time.perf_counter() - start
        count += envs.num_envs
    return count / seconds


def _timed(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds that a call takes, until the device has finished."""
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start
