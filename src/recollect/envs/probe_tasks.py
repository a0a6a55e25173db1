"""The rules of the probes: what an episode shows and pays, as functions of its secret and its steps.

Shapes.  N environments, S numbers in a secret.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from .spaces import Array

Show = Callable[[Array, Array], Any]
Earn = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True, kw_only=True)
class Task:
    """The rules of one probe.

    secret   S sizes: an episode draws one number below each
    show     secret (N, S), steps so far (N,) -> observation
    earn     secret (N, S), steps so far (N,), action -> reward (N,)
    length   steps of an episode, or of the longest one
    lengths  secret (N, S) -> steps of its episode (N,); None: `length`
    endless  whether episodes never terminate and are truncated after `length` steps
    reports  whether success is reported: an episode whose last reward is above 0 is one
    """

    observation: gym.Space[Any]
    action: gym.Space[Any]
    show: Show
    earn: Earn
    secret: tuple[int, ...] = ()
    length: int = 1
    lengths: Callable[[Array], Array] | None = None
    endless: bool = False
    reports: bool = False


# Parts of tasks -------------------------------------------------------------------------------


def _vector(size: int) -> spaces.Box:
    return spaces.Box(-1.0, 1.0, (size,), np.float32)


def _column(x: Array) -> Array:
    """(N,) -> an observation (N, 1)."""
    return x[:, None].astype(np.float32)


def _sign(secret: Array) -> Array:
    """0 or 1 -> -1 or +1, of a secret's first number: (N,)."""
    return 2.0 * secret[:, 0] - 1.0


def _score(right: Array) -> Array:
    """+1 where the action is right, else -1."""
    return np.where(right, 1.0, -1.0)


def _show_zero(secret: Array, steps: Array) -> Array:
    return np.zeros((len(steps), 1), dtype=np.float32)


def _earn_one(secret: Array, steps: Array, action: Array) -> Array:
    return np.ones(len(steps))


# Probes ---------------------------------------------------------------------------------------


def constant() -> Task:
    """One step, reward 1, the observation is 0: V = 1."""
    return Task(observation=_vector(1), action=spaces.Discrete(1), show=_show_zero, earn=_earn_one)


def sight() -> Task:
    """One step, the reward is the observation, -1 or 1: V(obs) = obs."""
    return Task(
        observation=_vector(1),
        action=spaces.Discrete(1),
        secret=(2,),
        show=lambda secret, steps: _column(_sign(secret)),
        earn=lambda secret, steps, action: _sign(secret),
    )


def delay() -> Task:
    """Two steps, reward 1 at the end: V(0) = gamma, V(1) = 1."""
    return Task(
        observation=_vector(1),
        action=spaces.Discrete(1),
        length=2,
        show=lambda secret, steps: _column(np.minimum(steps, 1)),
        earn=lambda secret, steps, action: (steps == 1).astype(np.float64),
    )


def choice() -> Task:
    """One step, reward 1 for the second of two actions, -1 for the first: V = 1."""
    return Task(
        observation=_vector(1),
        action=spaces.Discrete(2),
        show=_show_zero,
        earn=lambda secret, steps, action: _score(action == 1),
    )


def match() -> Task:
    """One step, reward 1 for action 0 at observation -1 and action 1 at observation 1, else -1: V = 1."""
    return Task(
        observation=_vector(1),
        action=spaces.Discrete(2),
        secret=(2,),
        show=lambda secret, steps: _column(_sign(secret)),
        earn=lambda secret, steps, action: _score(action == secret[:, 0]),
    )


def forever() -> Task:
    """Reward 1 at every step, truncated after 5 steps, never terminated: V = 1 / (1 - gamma)."""
    return Task(
        observation=_vector(1),
        action=spaces.Discrete(1),
        length=5,
        endless=True,
        show=_show_zero,
        earn=_earn_one,
    )


def countdown() -> Task:
    """Reward 1 at each of 5 steps, which the observation counts: V(k left) = (1 - gamma^k) / (1 - gamma)."""
    return Task(
        observation=spaces.Box(0.0, 1.0, (1,), np.float32),
        action=spaces.Discrete(1),
        length=5,
        show=lambda secret, steps: _column((5 - steps) / 5),
        earn=_earn_one,
    )


def box() -> Task:
    """One step, a Box action in [-2, 4], reward -(action - (1 + 2 obs))^2: V = 0."""
    return Task(
        observation=_vector(1),
        action=spaces.Box(-2.0, 4.0, (1,), np.float32),
        secret=(2,),
        show=lambda secret, steps: _column(_sign(secret)),
        earn=lambda secret, steps, action: -((action[:, 0] - 1.0 - 2.0 * _sign(secret)) ** 2),
    )


def recall(delay: int = 3, lead: int = 0) -> Task:
    """A sign is shown, after up to `lead` others; 1 if the action `delay` steps later equals it, else -1.

    How many come before it is drawn for each episode, so that no step of it is always the one that counts.
    """

    def others(secret: Array) -> Array:
        return secret[:, lead + 1] if lead else np.zeros(len(secret), dtype=np.int64)

    def sign(secret: Array, place: Array) -> Array:
        return secret[np.arange(len(secret)), np.minimum(place, lead)]

    def show(secret: Array, steps: Array) -> Array:
        before = others(secret)
        signs = np.where(steps <= before, 2.0 * sign(secret, steps) - 1.0, 0.0)
        return np.stack([signs, steps == before + delay], axis=-1, dtype=np.float32)

    def earn(secret: Array, steps: Array, action: Array) -> Array:
        before = others(secret)
        return np.where(steps == before + delay, _score(action == sign(secret, before)), 0.0)

    return Task(
        observation=_vector(2),
        action=spaces.Discrete(2),
        secret=(2,) * (lead + 1) + ((lead + 1,) if lead else ()),
        length=lead + delay + 1,
        lengths=lambda secret: others(secret) + delay + 1,
        reports=True,
        show=show,
        earn=earn,
    )


def loan(steps: int = 32) -> Task:
    """0.1 for the action that is shown; a loan of 5 or -5, shown and paid at first, is settled at the end.

    The best actions need no memory, and values do: they depend on the loan until it is settled. The return
    is 0.1 for each right action.
    """
    length = max(steps, 2)

    def right(secret: Array, steps: Array) -> Array:
        # The first number of the secret is the loan; after the last step no action is right.
        return secret[np.arange(len(steps)), 1 + np.minimum(steps, length - 1)]

    def show(secret: Array, steps: Array) -> Array:
        owed = np.where(steps == 0, _sign(secret), 0.0)
        return np.stack([2.0 * right(secret, steps) - 1.0, owed, steps / length], axis=-1, dtype=np.float32)

    def earn(secret: Array, steps: Array, action: Array) -> Array:
        paid = np.where(steps == 0, 1.0, 0.0) - np.where(steps == length - 1, 1.0, 0.0)
        return 0.1 * (action == right(secret, steps)) + 5.0 * paid * _sign(secret)

    return Task(
        observation=_vector(3),
        action=spaces.Discrete(2),
        secret=(2,) * (1 + length),
        length=length,
        show=show,
        earn=earn,
    )


def mixed() -> Task:
    """One step, every kind of space, reward 1 for each of 6 action components that is right: V = 6."""

    def show(secret: Array, steps: Array) -> dict[str, Any]:
        pair = secret[:, 2:4], secret[:, 4:].astype(np.int8)
        return {"vector": _column(_sign(secret)), "place": secret[:, 1] + 5, "pair": pair}

    sizes = (2, 3, 2, 4, 2, 2)
    pair = spaces.Tuple([spaces.MultiDiscrete(sizes[2:4]), spaces.MultiBinary(2)])
    parts = {"vector": _vector(1), "place": spaces.Discrete(3, start=5), "pair": pair}
    return Task(
        observation=spaces.Dict(parts),
        action=spaces.MultiDiscrete(sizes),
        secret=sizes,
        show=show,
        earn=lambda secret, steps, action: (action == secret).sum(1).astype(np.float64),
    )


def bits() -> Task:
    """One step, reward 1 if a MultiBinary action equals the 4 observed bits, else 0: V = 1."""
    return Task(
        observation=spaces.MultiBinary(4),
        action=spaces.MultiBinary(4),
        secret=(2, 2, 2, 2),
        show=lambda secret, steps: secret.astype(np.int8),
        earn=lambda secret, steps, action: (action == secret).all(1).astype(np.float64),
    )


TASKS: dict[str, Callable[..., Task]] = {
    task.__name__: task
    for task in (
        constant,
        sight,
        delay,
        choice,
        match,
        forever,
        countdown,
        box,
        recall,
        loan,
        mixed,
        bits,
    )
}
