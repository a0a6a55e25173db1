"""Finished training episodes, one line of episodes.jsonl each."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Episode(NamedTuple):
    """One finished training episode."""

    step: int  # training steps of all environments when it ended
    env: int  # index of its environment
    return_: float  # undiscounted sum of raw rewards
    length: int
    success: float  # NaN where the environment reports none
    terminated: bool  # False: truncated

    @property
    def line(self) -> str:
        """One JSON object; formatted by hand because json.dumps takes three times as long."""
        success = "null" if self.success != self.success else repr(self.success)
        return (
            f'{{"step": {self.step}, "env": {self.env}, "return": {self.return_!r}, "length": {self.length}, '
            f'"success": {success}, "terminated": {"true" if self.terminated else "false"}}}\n'
        )


def lines_of(episodes: Iterable[Episode]) -> str:
    """The lines of these episodes, in their order."""
    return "".join(episode.line for episode in episodes)


def read_episodes(path: Path) -> list[Episode]:
    """Every episode of a file, in the order in which they ended; a torn last line is left out."""
    complete = path.read_text().split("\n")[:-1]
    return [_parsed(json.loads(line)) for line in complete]


def _parsed(entry: dict[str, float | None]) -> Episode:
    values = [float("nan") if value is None else value for value in entry.values()]
    step, env, total, length, success, terminated = values
    return Episode(int(step), int(env), float(total), int(length), float(success), bool(terminated))
