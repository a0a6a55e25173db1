"""Environments that raise, crash or hang: what is reported, and when a failed one is restarted."""

import traceback
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from ..common.errors import EnvDataError, EnvFailedError, UsageError
from ..common.signals import raise_if_stopping

FAILURES = (Exception, SystemExit)  # what code of an environment may raise
ABORTED = "_recollect_aborted"  # key of info: the environments whose episode a failure ended
# What constructors raise for wrong arguments and for missing packages.
EXPECTED = (gym.error.Error, TypeError, ValueError, AssertionError, KeyError, ImportError)
MAX_RESTARTS = 10  # of an environment that completes no episode in between


class Failure(NamedTuple):
    """A call of an environment that did not return."""

    call: str  # "step 17 with action 1", or "reset"
    reason: str  # one line: the exception, the exit code or the timeout
    trace: str = ""  # the environment's own traceback


class Restarts:
    """Failures of N environments. Raises EnvFailedError for one that must not be restarted.

    name     of the environment in messages
    allowed  whether failed environments are restarted
    counts   restarts so far (N,)
    """

    def __init__(self, name: str, num_envs: int, allowed: bool) -> None:
        self.name, self.allowed = name, allowed
        self.counts = np.zeros(num_envs, dtype=np.int64)
        self._seeds = [0] * num_envs
        self._earlier = np.zeros(num_envs, dtype=np.int64)
        self._in_a_row = np.zeros(num_envs, dtype=np.int64)
        self._works = np.zeros(num_envs, dtype=bool)

    def begin(self, seeds: Sequence[int]) -> None:
        """The environments are reset from these seeds."""
        self._seeds, self._earlier = list(seeds), self.counts.copy()

    def note_reset(self, env: int) -> None:
        """An environment was reset without a failure: from now on it may be restarted."""
        self._works[env] = True

    def note_ends(self, ended: Any) -> None:
        """The environments (N,) that completed an episode."""
        self._in_a_row[ended] = 0

    def next_seed(self, env: int) -> int:
        """The seed of a restart, derived from the seed of the environment and the restarts since its reset.

        Not from earlier ones, of which a resumed run knows nothing.
        """
        restarts = int(self.counts[env] - self._earlier[env])
        sequence = np.random.SeedSequence((self._seeds[env], restarts))
        return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))

    def add(self, env: int, failure: Failure, cause: BaseException | None = None) -> None:
        """Count a failure; EnvFailedError if the environment is not to be restarted."""
        raise_if_stopping()  # the signal may have ended the worker: a restart would change what is saved
        text = f"environment {env} ({self.name}) failed in {failure.call}: {failure.reason}"
        trace = f"\n{failure.trace.rstrip()}" if failure.trace else ""
        if not self.allowed:
            hint = "; --env.on-error restart would restart it" if self._works[env] else ""
            raise EnvFailedError(f"{text}{hint}{trace}") from cause
        if not self._works[env] or self._in_a_row[env] >= MAX_RESTARTS:
            often = f" after {MAX_RESTARTS} restarts without a completed episode" if self._works[env] else ""
            raise EnvFailedError(f"{text}; given up{often}{trace}") from cause
        self.counts[env] += 1
        self._in_a_row[env] += 1
        warnings.warn(f"{text}; it is restarted, and its episode is not counted{trace}", stacklevel=2)


def describe(call: str, error: BaseException) -> Failure:
    """A failure from an exception, with the traceback below the frame that called the environment."""
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    trace = "".join(traceback.format_exception(type(error), error, frames))
    return Failure(call, f"{type(error).__name__}: {error}".splitlines()[0], trace)


def cannot_build(error: BaseException) -> UsageError:
    """The message for an environment whose constructor failed."""
    failure = describe("", error)
    # Their messages say what is wrong. The text of a KeyError is the key alone.
    plain = isinstance(error, EXPECTED) and not isinstance(error, KeyError)
    where = "" if isinstance(error, EXPECTED) else f"\n{failure.trace.rstrip()}"
    return UsageError(f"the environment cannot be built: {error if plain else failure.reason}{where}")


def has_failed(env: int, name: str, call: str, error: BaseException) -> EnvFailedError:
    """The message for an environment that failed in a call after which it is not restarted."""
    failure = describe(call, error)
    text = f"environment {env} ({name}) failed in {failure.call}: {failure.reason}"
    return EnvFailedError(f"{text}\n{failure.trace.rstrip()}")


def close_quietly(env: gym.Env[Any, Any]) -> None:
    """Close an environment. An error in its `close` is only a warning: a run may depend on nothing there."""
    try:
        env.close()
    except FAILURES as error:
        name = type(env.unwrapped).__name__
        warnings.warn(f"{name}.close() raised {type(error).__name__}: {error}", stacklevel=2)


def join_info(vec: VectorEnv, infos: dict[str, Any], info: Any, env: int, name: str) -> dict[str, Any]:
    """The infos of a vector environment with that of one more environment."""
    try:
        _widen(infos, info, vec.num_envs)
        joined: dict[str, Any] = vec._add_info(infos, info, env)
        return joined
    except Exception as error:
        raise EnvDataError(
            f"the info of environment {env} ({name}) cannot be joined with those of the others: {error}; it "
            "must be a dict whose entries have the same shape in every environment"
        ) from error


def _widen(infos: dict[str, Any], info: Any, num_envs: int) -> None:
    """Make each array of infos of a type that holds the value of one more environment as well.

    Gymnasium gives it that of the first value. After an integer, of a 0 for example, fractions would be cut,
    and no integer type holds one of more than 64 bits.
    """
    for key, value in info.items():
        known = infos.get(key)
        if isinstance(value, dict) and isinstance(known, dict | None):
            _widen(infos.setdefault(key, {}), value, num_envs)
        elif isinstance(value, int) and value.bit_length() > 63:
            infos[key] = np.full(num_envs, None) if known is None else known.astype(object)
        elif isinstance(known, np.ndarray) and known.dtype.kind in "biuf":
            infos[key] = known.astype(np.result_type(known, value), copy=False)
