"""What the loops of users pass to a player beside observations, checked."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..common import tree
from ..common.errors import UsageError
from ..envs.spaces import Array

if TYPE_CHECKING:
    from .player import PlayerState


def check_state(given: Any, current: "PlayerState") -> None:
    """Raise a UsageError for a state that a player whose state is `current` cannot continue from."""
    if not isinstance(given, type(current)):
        raise UsageError(
            f"state is {given!r:.80}; it must be the one that the previous call returned, or None"
        )
    if len(given.action) != len(current.action):
        raise UsageError(
            f"the state is that of {len(given.action)} environments, the observation that of "
            f"{len(current.action)}; give None where other environments begin"
        )
    shapes = [{name: x.shape for name, x in tree.leaves(state.memory).items()} for state in (given, current)]
    if shapes[0] != shapes[1] or given.action.shape != current.action.shape:
        raise UsageError("the state is that of another agent; give None to begin an episode with this one")


def read_flags(name: str, given: Any, num_envs: int) -> Array:
    """A bool for each environment, or one for all."""
    flags = np.asarray(given)
    valid = flags.dtype == bool or np.isin(flags, (False, True)).all()
    if flags.shape not in ((), (num_envs,)) or not valid:
        raise UsageError(f"{name} is {given!r:.80}; it must be one bool for each of {num_envs} environments")
    return flags.astype(bool)


def read_rewards(given: Any, opens: Array, step: int | None) -> Array:
    """The previous rewards (num_envs,); 0 where none are given, and none is needed.

    opens  (num_envs,) which environments begin an episode, and have no previous reward
    step   of the player, for messages; None: its agent takes no rewards, which may then be any numbers
    """
    num_envs = len(opens)
    if given is None:
        if step is not None and not opens.all():
            raise UsageError(
                f"no reward is given at step {step} of this player, whose agent takes the previous one: "
                "act(obs, reward)"
            )
        return np.zeros(num_envs)
    try:
        rewards = np.asarray(given, dtype=np.float64).reshape(num_envs)
    except (TypeError, ValueError):
        raise UsageError(
            f"reward is {given!r:.80}; it must be one number for each of {num_envs} environments"
        ) from None
    bad = np.flatnonzero(~np.isfinite(rewards))
    if step is not None and len(bad):
        raise UsageError(
            f"reward is {rewards[bad[0]]} in environment {bad[0]}, at step {step} of this player: only "
            "finite numbers are allowed"
        )
    return rewards
