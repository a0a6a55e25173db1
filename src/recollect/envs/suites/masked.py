"""Classic tasks with velocities hidden, as ids of their own.

One observation no longer shows how things move, so an agent must remember earlier ones.
"""

from dataclasses import dataclass, replace

from ...common.errors import UsageError, nearest
from ..base import EnvConfig


@dataclass(frozen=True)
class Masked:
    """The environment that one id of this suite is an alias for.

    id          of the underlying environment
    hidden      entries of its observation that are set to 0
    about       one-line description
    time_limit  steps after which an episode is truncated; None: the limit of the environment
    """

    id: str
    hidden: tuple[int, ...]
    about: str
    time_limit: int | None = None


_POLE = "balance a pole from positions, with the velocities of cart and pole hidden"
_LANDER = "land from position and angle, with the three velocities hidden"

_TASKS = {
    "CartPoleMasked": Masked("CartPole-v1", (1, 3), f"{_POLE}, for 200 steps", time_limit=200),
    "CartPoleNoVel-v1": Masked("CartPole-v1", (1, 3), _POLE),
    "PendulumNoVel-v1": Masked(
        "Pendulum-v1", (2,), "swing up a pendulum from its angle, with the velocity hidden"
    ),
    "MountainCarContinuousNoVel-v0": Masked(
        "MountainCarContinuous-v0", (1,), "rock uphill with little force, with the velocity hidden"
    ),
    "MountainCarNoVel-v0": Masked("MountainCar-v0", (1,), "rock uphill, with the velocity hidden"),
    "LunarLanderNoVel-v3": Masked("LunarLander-v3", (2, 3, 5), _LANDER),
    "LunarLanderNoVel-v2": Masked("LunarLander-v2", (2, 3, 5), f"{_LANDER} (old version)"),
}
BARE = tuple(_TASKS)


def resolve_alias(config: EnvConfig, name: str) -> EnvConfig:
    """The config of the underlying environment; entries hidden by config.mask stay hidden as well."""
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
    """Id -> one-line description."""
    return {name: task.about for name, task in _TASKS.items()}
