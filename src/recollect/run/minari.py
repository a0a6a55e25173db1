"""Datasets of Minari as recorded episodes (extra minari)."""

from typing import Any

import numpy as np

from ..common.errors import UsageError, install_hint
from ..config.config import RunConfig
from ..envs import Obs, ObsSpec
from ..envs.spaces import read_spaces
from .dataset import COLUMNS, Dataset, check_values

PREFIX = "minari:"


def read(name: str, config: RunConfig) -> Dataset:
    """The episodes of a dataset, minari:ID; it is downloaded if it is not on this machine.

    config  of the agent to be trained; env.mask hides entries of the observations
    """
    dataset = _load(name)
    obs_spec, action_spec = read_spaces(dataset.observation_space, dataset.action_space, config.env.mask)
    episodes = [_episode(one, obs_spec) for one in dataset.iterate_episodes()]
    if not episodes:
        raise UsageError(f"{name} has no episodes")
    obs = {key: np.concatenate([one[0][key] for one in episodes]) for key in obs_spec.leaves}
    columns = {key: np.concatenate([one[1][key] for one in episodes]) for key in COLUMNS}
    final = np.roll(columns["first"], -1)  # the row before each first one has no action
    columns["action"] = action_spec.from_env(columns["action"]) * ~final[:, None]
    check_values(name, obs | columns, action_spec)
    return Dataset(name, (obs_spec, action_spec), obs, **columns, about={})


def _load(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise UsageError(f"{name}: datasets of Minari need minari: {install_hint('minari')}") from None
    try:
        return minari.load_dataset(name.removeprefix(PREFIX), download=True)
    except Exception as error:  # errors of the network, the disk and the format have no common class
        reason = " ".join(str(error).split())
        raise UsageError(f"{name} cannot be loaded: {type(error).__name__}: {reason}") from error


def _episode(episode: Any, spec: ObsSpec) -> tuple[Obs, dict[str, Any]]:
    """Observations, and the columns of a recording: n + 1 rows, the last one without an action."""
    steps = len(episode.rewards)
    truncated = np.array(episode.truncations, dtype=bool)
    terminated = np.array(episode.terminations, dtype=bool)
    truncated[-1] |= not terminated[-1]  # an episode that was still going on is bootstrapped
    truncated &= ~terminated
    first = np.arange(steps + 1) == 0

    def padded(x: Any) -> Any:
        return np.concatenate([x, np.zeros_like(x[:1])])

    columns = {
        "action": padded(np.asarray(episode.actions)),
        "reward": padded(np.asarray(episode.rewards, dtype=np.float32)),
        "terminated": padded(terminated),
        "truncated": padded(truncated),
        "first": first,
    }
    return spec.split(episode.observations), columns
