"""Classic tasks without their velocities: names for settings of environments of others.

One observation no longer tells where things are going, so an agent must remember the last ones.
"""

from dataclasses import dataclass, replace

from ..common.errors import UsageError, nearest
from .base import EnvConfig


@dataclass(frozen=True)
class Masked:
    """What one name stands for.

    id          of the environment behind it
    hidden      entries of its observation that read 0
    about       what it tests
    time_limit  steps after which an episode is cut; None keeps the environment's own
    """

    id: str
    hidden: tuple[int, ...]
    about: str
    time_limit: int | None = None


_POLE = "balance from positions alone, without the speeds of cart and pole"
_LANDER = "land from place and angle alone, without the three speeds"

_TASKS = {
    "CartPoleMasked": Masked("CartPole-v1", (1, 3), f"{_POLE}, for 200 steps", time_limit=200),
    "CartPoleNoVel-v1": Masked("CartPole-v1", (1, 3), _POLE),
    "PendulumNoVel-v1": Masked("Pendulum-v1", (2,), "swing up from the angle alone, without its speed"),
    "MountainCarContinuousNoVel-v0": Masked(
        "MountainCarContinuous-v0", (1,), "rock uphill, with little force, from the place alone"
    ),
    "MountainCarNoVel-v0": Masked("MountainCar-v0", (1,), "rock uphill from the place alone"),
    "LunarLanderNoVel-v3": Masked("LunarLander-v3", (2, 3, 5), _LANDER),
    "LunarLanderNoVel-v2": Masked("LunarLander-v2", (2, 3, 5), f"{_LANDER} (old version)"),
}
BARE = tuple(_TASKS)


def settings(config: EnvConfig, name: str) -> EnvConfig:
    """The config that a name stands for; what the config itself hides is hidden as well."""
    if name not in _TASKS:
        raise UsageError(f"environment masked:{name} is unknown; {nearest(name, sorted(_TASKS))}")
    task = _TASKS[name]
    return replace(
        config,
        id=task.id,
        mask=tuple(sorted({*task.hidden, *config.mask})),
        time_limit=task.time_limit if config.time_limit is None else config.time_limit,
    )


def listing() -> dict[str, str]:
    """Each name and what it tests."""
    return {name: task.about for name, task in _TASKS.items()}
