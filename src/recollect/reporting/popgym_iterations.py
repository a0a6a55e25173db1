"""Training returns of a run by the iterations of the POPGym paper, and their maximum, MMER.

The paper trains with RLlib's PPO, whose iteration has 65,536 steps. RLlib reports the mean return of the
episodes that ended within an iteration, and the paper takes the maximum over training.

Shapes.  E episodes of a run, B complete iterations.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..common.digests import Digests, check_digest, digest_file
from ..common.errors import UsageError
from ..common.intervals import Floats

PREFIX = "popgym:"
ITERATION = 65_536  # steps
FILE = "episodes.jsonl"
TOO_SHORT = f"shorter than one iteration of the paper ({ITERATION:,} steps)"


@dataclass(frozen=True)
class TrainingIterations:
    """The mean returns (B,) of the iterations of a run; NaN where no episode ended."""

    means: Floats
    problem: str = ""
    """Why there is no mean."""

    @property
    def mmer(self) -> float:
        """The highest mean; NaN if there is none."""
        return mmer(self.means)


def is_popgym(env_id: str) -> bool:
    """Whether an environment id is that of a POPGym task."""
    return env_id.startswith(PREFIX)


def iteration_means(steps: NDArray[np.int64], returns: Floats, total: int) -> Floats:
    """Mean returns (B,) of the episodes that ended within each complete iteration.

    Iterations are counted from the first step, as in the paper, so a longer run has the iterations of a
    shorter one and further ones. An incomplete last iteration is left out: its mean would be of fewer
    episodes, and a maximum prefers noisy means.

    steps    number of training steps of the run when each episode ended (E,)
    returns  (E,)
    total    training steps of the run
    """
    count = total // ITERATION
    iteration = (steps - 1) // ITERATION  # a step that completes an iteration belongs to it
    complete = iteration < count
    sums = np.bincount(iteration[complete], weights=returns[complete], minlength=count)
    episodes = np.bincount(iteration[complete], minlength=count)
    return np.divide(sums, episodes, out=np.full(count, np.nan), where=episodes > 0)


def mmer(means: Floats) -> float:
    """Maximum of the mean episodic returns (B,); iterations without an episode have none."""
    known = means[np.isfinite(means)]
    return float(known.max()) if len(known) else float("nan")


def read_iterations(folder: Path, total: int, files: Digests) -> TrainingIterations:
    """The iterations of a run folder; a file that cannot be read is a problem in words, not an error.

    files  digests of the files of the folder
    """
    nothing = np.empty(0)
    if total < ITERATION:
        return TrainingIterations(nothing, TOO_SHORT)
    try:
        if FILE in files:
            check_digest(FILE, digest_file(folder / FILE), files)
        steps, returns = _read(folder / FILE)
    except FileNotFoundError:
        return TrainingIterations(nothing, f"without the training returns of {FILE}")
    except (OSError, UnicodeDecodeError, UsageError, _BadLine) as error:
        return TrainingIterations(nothing, f"with a {FILE} that cannot be read: {error}")
    means = iteration_means(steps, returns, total)
    if not np.isfinite(means).any():
        return TrainingIterations(means, "without a training episode that ended in a complete iteration")
    return TrainingIterations(means)


def shorten_episodes(path: Path) -> Iterator[dict[str, float]]:
    """An entry for each iteration in which an episode ended: the step of the last end, and the mean return.

    As lines of an episodes.jsonl they have the iteration means, and so the MMER, of all episodes. UsageError
    if there is a line that is not that of an episode.
    """
    try:
        steps, returns = _read(path)
    except _BadLine as error:
        raise UsageError(f"{path}: {error}") from None
    for iteration in np.unique((steps - 1) // ITERATION):
        within = (steps - 1) // ITERATION == iteration
        yield {"step": int(steps[within].max()), "return": float(returns[within].mean())}


class _BadLine(Exception):
    """A line that is not that of an episode."""


def _read(path: Path) -> tuple[NDArray[np.int64], Floats]:
    """Steps and returns (E,) of all episodes; an incomplete last line is skipped."""
    steps: list[int] = []
    returns: list[float] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.endswith("\n"):
                step, episode_return = _parse(number, line)
                steps.append(step)
                returns.append(episode_return)
    return np.array(steps, dtype=np.int64), np.array(returns, dtype=np.float64)


def _parse(number: int, line: str) -> tuple[int, float]:
    try:
        entry = json.loads(line)
        step, episode_return = int(entry["step"]), float(entry["return"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise _BadLine(f"line {number} has no step and return") from None
    if not (1 <= step < 2**63 and abs(episode_return) < 1e300):  # False for NaN
        raise _BadLine(f"line {number} has no valid step and return")
    return step, episode_return
