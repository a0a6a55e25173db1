"""episodes.jsonl: one line for each finished training episode."""

import json
from collections.abc import Iterable
from pathlib import Path

from ..common.errors import UsageError
from ..learn.episodes import Episode


def format_episodes(episodes: Iterable[Episode]) -> str:
    """The lines of these episodes, in their order."""
    return "".join(episode.line for episode in episodes)


def read_episodes(path: Path) -> list[Episode]:
    """All episodes of a file, in the order in which they ended; an incomplete last line is skipped."""
    complete = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    episodes = []
    for number, line in enumerate(complete, 1):
        try:
            episodes.append(_parse(json.loads(line)))
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{path}, line {number}, is damaged: {error}") from error
    return episodes


def _parse(entry: dict[str, float | None]) -> Episode:
    values = [float("nan") if value is None else value for value in entry.values()]
    # By position: `Episode.line` must keep these six keys in this order, which the files of all runs have.
    step, env, total, length, success, terminated = values
    return Episode(int(step), int(env), float(total), int(length), float(success), bool(terminated))
