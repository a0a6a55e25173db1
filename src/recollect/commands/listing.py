"""`recollect list`: the environments, presets, memories and agents to choose from."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from rich.console import Console
from rich.table import Table

from .. import envs, memory
from ..common.format import duration, number
from ..config import presets, tasks


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """List environments, presets, memories or agents.

      recollect list envs
      recollect list memories

    Environments of packages that are not installed are not listed.
    """

    POSITIONAL: ClassVar = ("kind",)

    kind: Literal["envs", "presets", "memories", "agents"]
    """envs, presets, memories or agents. envs: environments by suite. presets: models, and environments
    with hyperparameters of their own. memories: for --actor and --critic, with their options. agents: runs
    in the folder runs, and saved agents in the folder models."""


def run_list(options: ListOptions) -> int:
    """Print a table; the exit code."""
    LISTS[options.kind]()
    return 0


def list_envs() -> None:
    """Environments by suite, each with a line on what it tests."""
    table = _table("suite", "id", "what it tests")
    for suite, ids in envs.listing().items():
        prefix = "" if suite in ("gym", "envpool") else f"{suite}:"
        for name, about in ids.items():
            table.add_row(suite, (prefix + name).removesuffix(":"), about)
    Console().print(table)
    print("Third-party: package.module:Id for any environment registered with Gymnasium.")


def list_presets() -> None:
    """Models, and the environments with hyperparameters of their own."""
    table = _table("model (-m)", "description")
    for name, model in presets.MODELS.items():
        table.add_row(name, _first_line(model.__doc__))
    Console().print(table)
    table = _table("environment", "hyperparameters", "budget")
    for name, task in tasks.TASKS.items():
        budget = task().steps or 0
        table.add_row(name, _first_line(task.__doc__), f"{budget:,} steps")
    Console().print(table)
    print("CartPole stands for all its versions; minigrid, popgym and memory_gym for all their environments.")
    print("Any other environment: observations and rewards normalised, learning rate annealed to 0.")


def list_memories() -> None:
    """Memories for --actor and --critic, with their options."""
    table = _table("memory", "description", "options")
    for name, config in sorted(memory.available().items()):
        fields = ", ".join(f"{key}={value}" for key, value in vars(config()).items())
        table.add_row(name, _first_line(config.__doc__), fields)
    Console().print(table)
    print("Set an option: --actor gru --actor.width 128. Explain the options: recollect train CartPole-v1")
    print("--actor gru --help-all. Third-party: package.module:Config, the MemoryConfig of the memory.")


def list_agents() -> None:
    """Runs under ./runs, and saved agents under ./models with their scores over seeds."""
    table = _table("agent", "status", "steps", "return", "time")
    # The depth that `new_folder` creates.
    for summary in sorted(Path("runs").glob("*/*/*/summary.json")):
        try:
            data = json.loads(summary.read_text())
            row = data["status"], f"{data.get('step', 0):,}", number(data.get("return"))
            table.add_row(str(summary.parent), *row, duration(data.get("time")))
        except (OSError, ValueError, KeyError):
            table.add_row(str(summary.parent), "unreadable")
    for path in sorted(Path("models").glob("**/*.safetensors")):
        table.add_row(str(path), *_scores(path))
    Console().print(table)
    if not table.row_count:
        print("No runs here yet: recollect train CartPole-v1")


def _scores(path: Path) -> tuple[str, ...]:
    """Status, steps and mean score of a saved agent, from the scores.json beside it."""
    try:
        entry = json.loads((path.parent / "scores.json").read_text())[path.name]
        scores = entry["scores"]
        mean = f"{number(sum(scores) / len(scores))} ({entry['metric']}, {len(scores)} seeds)"
        return "saved", f"{entry['steps']:,}", mean
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return ("saved",)


LISTS: dict[str, Callable[[], None]] = {
    "envs": list_envs,
    "presets": list_presets,
    "memories": list_memories,
    "agents": list_agents,
}


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 3, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
