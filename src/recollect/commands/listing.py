"""`recollect list ...`: what there is to choose from."""

import json
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .. import envs, memory
from ..common.format import duration, number
from ..config import presets, tasks


def list_envs() -> None:
    """Environments by suite, each with a line on what it tests."""
    table = _table("suite", "id", "what it tests")
    for suite, ids in envs.listing().items():
        prefix = "" if suite in ("gym", "envpool") else f"{suite}:"
        for name, about in ids.items():
            table.add_row(suite, prefix + name, about)
    Console().print(table)
    print("Others: package.module:Id for any environment registered with Gymnasium.")


def list_presets() -> None:
    """Models, and the environments with settings of their own."""
    table = _table("model (-m)", "what it is")
    for name, model in presets.MODELS.items():
        table.add_row(name, _first_line(model.__doc__))
    Console().print(table)
    table = _table("environment", "settings", "budget")
    for name, task in tasks.TASKS.items():
        budget = task().steps or 0
        table.add_row(name, _first_line(task.__doc__), f"{budget:,} steps")
    Console().print(table)
    print("Any other environment begins with settings that normalise everything.")


def list_memories() -> None:
    """Memories for --actor and --critic, with their options."""
    table = _table("memory", "what it is", "options")
    for name, config in sorted(memory.available().items()):
        fields = ", ".join(f"{key}={value}" for key, value in vars(config()).items())
        table.add_row(name, _first_line(config.__doc__), fields)
    Console().print(table)
    print("Your own: package.module:Config, a MemoryConfig beside the Memory it builds.")


def list_agents() -> None:
    """Runs under ./runs, and saved agents under ./models with their scores over seeds."""
    table = _table("agent", "status", "steps", "return", "time")
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
    """Status, steps and scores of a saved agent, as the scores.json beside it has them."""
    try:
        found = json.loads((path.parent / "scores.json").read_text())[path.name]
        scores = found["scores"]
        over = f"{number(sum(scores) / len(scores))} ({found['metric']}, {len(scores)} seeds)"
        return "saved", f"{found['steps']:,}", over
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
