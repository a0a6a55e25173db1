"""Advice for environments whose steps take most of the time of a run."""

from ..common.distributed import CORES
from ..envs import Envs

SLOW = 500  # steps per second of one environment, below which worker processes pay off


def slow_steps(envs: Envs, elapsed: float, cores: int = CORES) -> str:
    """One line of advice after `elapsed` seconds of training; empty where worker processes would not help."""
    taken = envs.num_envs * envs.steps
    alone = cores == 1 or envs.num_envs == 1 or envs.adapter.backend != "gymnasium"
    if alone or envs.seconds < max(elapsed / 2, taken / SLOW):
        return ""
    share, rate = envs.seconds / elapsed, taken / envs.seconds
    return (
        f"steps of the environments take {share:.0%} of the time ({rate:,.0f} steps/s); "
        f"--env.backend workers runs each in a process of its own, on all {cores} cores"
    )
