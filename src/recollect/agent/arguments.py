"""What the loops of users pass to a player beside observations, checked."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..common import tree
from ..common.errors import UsageError
from ..envs.spaces import Array, Leaf, Obs, ObsSpec, flatten

if TYPE_CHECKING:
    from .player import PlayerState


def check_obs(spec: ObsSpec, obs: Any) -> None:
    """Raise a UsageError for an entry that is no array of numbers, or has others than its leaf; entries that
    the agent does not know may be anything."""
    for name, given in flatten(obs).items():
        if name in spec.leaves:
            _check_entry(name, given, spec.leaves[name])


def _check_entry(name: str, given: Any, leaf: Leaf) -> None:
    try:
        x = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # a ragged list; a tensor on a GPU
        raise UsageError(f"observation {name} is no array of numbers: {error}") from None
    kind = x.dtype.kind
    if kind not in "biuf":
        shown = " ".join(repr(given).split())
        raise UsageError(f"observation {name} is {shown:.80}; it must be an array of numbers")
    if leaf.kind == "picture" and x.dtype != np.uint8 and x.size:
        # Numbers from 0 to 1, as other libraries scale them, would look black.
        values = f"with values from {x.min()} to {x.max()}" if kind in "iu" else f"of {x.dtype}"
        if kind == "f" or x.min() < 0 or x.max() > 255:
            raise UsageError(
                f"observation {name} is a picture {values}; this agent takes pictures of bytes, 0 to 255, as "
                "the environment has them: convert it, for example by x.astype(numpy.uint8)"
            )
    if leaf.kind == "discrete" and kind == "f":
        fractions = x[~np.isfinite(x) | (x != np.trunc(x))]
        if fractions.size:
            raise UsageError(f"observation {name} is {fractions[0]}; it must be a whole number")


def known_leaves(spec: ObsSpec, obs: Any) -> Obs:
    """The entries of an observation that an agent knows, as named arrays; there may be others."""
    return {name: np.asarray(x) for name, x in flatten(obs).items() if name in spec.leaves}


def count_envs(spec: ObsSpec, obs: Any) -> int:
    """The number of environments of an observation; 1 for a number alone, whose shape is refused later."""
    check_obs(spec, obs)
    return 1 if spec.is_single(obs) else len(np.atleast_1d(next(iter(known_leaves(spec, obs).values()))))


def batched_obs(obs: Any) -> Any:
    """One observation, with a batch axis of 1 before every array."""
    if isinstance(obs, dict):
        return {key: batched_obs(part) for key, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(batched_obs(part) for part in obs)
    return np.asarray(obs)[None]


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
