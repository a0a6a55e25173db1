"""Advice for environments whose steps take most of the time of a run."""

from ..common.distributed import CORES
from ..envs import Envs
from ..envs.gym import GymEnv

SLOW = 500  # steps per second of one environment, below which worker processes pay off


def slow_steps(envs: Envs, elapsed: float, processes: int = 1, cores: int = CORES) -> str:
    """One line of advice after `elapsed` seconds of training; empty where worker processes would not help.

    processes  of the run, which share the cores
    """
    taken, cores = envs.num_envs * envs.steps, cores // processes
    # Other environments of this process cannot be stepped by workers, or have threads.
    alone = cores < 2 or envs.num_envs == 1 or not isinstance(envs.adapter, GymEnv)
    if alone or envs.adapter.backend != "gymnasium" or envs.seconds < max(elapsed / 2, taken / SLOW):
        return ""
    share, rate = envs.seconds / elapsed, taken / envs.seconds
    return (
        f"steps of the environments take {share:.0%} of the time ({rate:,.0f} steps/s); "
        f"--env.backend workers runs each in a process of its own, on all {cores} cores"
    )
