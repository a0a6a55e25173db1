"""episodes.jsonl: one line for each finished training episode."""

import json
from collections.abc import Iterable
from pathlib import Path

from ..learn.episodes import Episode


def format_episodes(episodes: Iterable[Episode]) -> str:
    """The lines of these episodes, in their order."""
    return "".join(episode.line for episode in episodes)


def read_episodes(path: Path) -> list[Episode]:
    """All episodes of a file, in the order in which they ended; an incomplete last line is skipped."""
    complete = path.read_text().split("\n")[:-1]
    return [_parse(json.loads(line)) for line in complete]


def _parse(entry: dict[str, float | None]) -> Episode:
    values = [float("nan") if value is None else value for value in entry.values()]
    # By position: `Episode.line` must keep these six keys in this order, which the files of all runs have.
    step, env, total, length, success, terminated = values
    return Episode(int(step), int(env), float(total), int(length), float(success), bool(terminated))
