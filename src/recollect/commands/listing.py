"""`recollect list`: the environments, presets, memories and agents to choose from."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import encoder, envs, memory
from ..common.digests import unseal
from ..common.errors import UsageError
from ..common.format import duration, number
from ..common.named import NamedConfig
from ..config import presets, tasks
from ..config.config import RunConfig
from ..config.data import to_dict
from ..run.run_folder import is_locked

UNWRAPPED = 1000  # columns of a table whose lines may be longer than those of the terminal
OTHER = "any"  # stands for an environment without hyperparameters of its own


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """List environments, presets, memories, encoders or agents.

      recollect list envs
      recollect list memories
      recollect list presets --verbose

    Environments of packages that are not installed are not listed.
    """

    POSITIONAL: ClassVar = ("kind",)

    kind: Literal["envs", "presets", "memories", "encoders", "agents"]
    """envs: environments by suite. presets: models, and environments with hyperparameters of their own.
    memories: for --actor and --critic, with their options. encoders: for --actor.encoder and
    --critic.encoder. agents: runs in the folder runs, and saved agents in the folder models."""
    verbose: bool = False
    """With presets: every hyperparameter that a preset sets, and its value."""


def run_list(options: ListOptions) -> int:
    """Print a table; the exit code."""
    if options.verbose:
        if options.kind != "presets":
            raise UsageError(f"--verbose is for presets, not for {options.kind}")
        list_hyperparameters()
    else:
        LISTS[options.kind]()
    return 0


def list_envs() -> None:
    """Environments by suite, each with a line on what it tests."""
    for suite, ids in envs.listing().items():
        table = _table(suite, "what it tests")
        prefix = "" if suite in ("gym", "envpool") else f"{suite}:"
        for name, about in ids.items():
            table.add_row((prefix + name).removesuffix(":"), about)
        Console().print(table)
    print("Third-party: package.module:Id for any environment registered with Gymnasium.")


def list_presets() -> None:
    """Models, and the environments with hyperparameters of their own."""
    table = _table("model (-m)", "description")
    for name, model in presets.MODELS.items():
        table.add_row(name, _first_line(model.__doc__))
    Console().print(table)
    table = _table("environment", "hyperparameters", "budget")
    for task in dict.fromkeys(tasks.TASKS.values()):
        names = "\n".join(name for name, build in tasks.TASKS.items() if build is task)
        table.add_row(names, _first_line(task.__doc__), f"{task().steps or 0:,} steps")
    Console().print(table)
    print(
        "CartPole stands for all its versions, popgym:RepeatFirst for all its levels, and so do the others;"
    )
    print("minigrid, popgym, memory_gym, atari and meta stand for all their environments.")
    print("Any other environment: observations and rewards normalised, learning rate annealed to 0.")


def list_hyperparameters() -> None:
    """What each model changes in ppo, and what each environment changes in the default."""
    task = tasks.default(OTHER)
    table = _table("model (-m)", "in place of those of ppo")
    for name, model in presets.MODELS.items():
        table.add_row(name, changes(presets.ppo(task), model(task)))
    Console().print(table)
    table = _table("environment", "in place of those of any other")
    for name, build in tasks.TASKS.items():
        table.add_row(name, changes(task, build()))
    table.add_row("any other", changes(RunConfig(), task))
    Console().print(table)
    print("recollect train ENV -m MODEL --help-all shows every option with its value.")


def changes(base: RunConfig, config: RunConfig) -> str:
    """The options in which a config differs from another, with their values."""
    before, after = flat_options(base), flat_options(config)
    return ", ".join(
        f"{name} {format_option(value)}"
        for name, value in after.items()
        if before.get(name) != value and name not in ("env.id", "model")
    )


def flat_options(config: RunConfig) -> dict[str, Any]:
    """The values of a config by dotted name."""

    def flatten(prefix: str, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            return {prefix: data}
        parts = (flatten(f"{prefix}.{key}" if prefix else key, value) for key, value in data.items())
        return {name: value for part in parts for name, value in part.items()}

    return flatten("", to_dict(config))


def format_option(value: Any) -> str:
    """A value as on the command line."""
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def list_memories() -> None:
    """Memories for --actor and --critic, with their options."""
    _list_parts("memory", memory.available())
    print("Set an option: --actor gru --actor.width 128. Explain the options: recollect train CartPole-v1")
    print("--actor gru --help-all. Third-party: package.module:Config, the MemoryConfig of the memory.")


def list_encoders() -> None:
    """Encoders for --actor.encoder and --critic.encoder, with their options."""
    _list_parts("encoder", encoder.available())
    print("Set an option: --actor.encoder residual --actor.encoder.features 512. Third-party:")
    print("package.module:Config, the EncoderConfig of the encoder.")


def _list_parts(kind: str, configs: Mapping[str, type[NamedConfig]]) -> None:
    table = _table(kind, "description", "options")
    for name, config in sorted(configs.items()):
        fields = ", ".join(f"{key}={value}" for key, value in vars(config()).items())
        table.add_row(name, _first_line(config.__doc__), fields)
    Console().print(table)


def list_agents() -> None:
    """Runs under ./runs, and saved agents under ./models with their scores over seeds."""
    # The path comes last and is not wrapped: on a narrow terminal it can still be copied as a whole.
    table = _table("status", "steps", "return", "time", "agent")
    # The depth that `new_folder` creates.
    for summary in sorted(Path("runs").glob("*/*/*/summary.json")):
        try:
            data = json.loads(summary.read_text())
            if not isinstance(data["status"], str):
                raise TypeError("the status of a run is a word")
            unseal(str(summary), data)
            died = data["status"] == "running" and not is_locked(summary.parent)
            cells = (
                "killed" if died else data["status"],
                f"{data.get('step', 0):,}",
                number(data.get("return")),
                duration(data.get("time")),
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            cells = "unreadable", "", "", ""
        table.add_row(*map(_plain, (*cells, str(summary.parent))))
    for path in sorted(Path("models").glob("**/*.safetensors")):
        table.add_row(*map(_plain, (*_scores(path), "", str(path))))
    Console(width=UNWRAPPED).print(table)
    if not table.row_count:
        print("No runs here yet: recollect train CartPole-v1")


def _plain(text: str) -> Text:
    """Text of files, in which brackets are no styles and codes of terminals have no effect."""
    return Text("".join(c if c.isprintable() else "?" for c in text))


def _scores(path: Path) -> tuple[str, str, str]:
    """Status, steps and mean score of a saved agent, from the scores.json beside it."""
    try:
        entry = json.loads((path.parent / "scores.json").read_text())[path.name]
        scores = entry["scores"]
        mean = f"{number(sum(scores) / len(scores))} ({entry['metric']}, {len(scores)} seeds)"
        return "saved", f"{entry['steps']:,}", mean
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, RecursionError):
        return "saved", "", ""


LISTS: dict[str, Callable[[], None]] = {
    "envs": list_envs,
    "presets": list_presets,
    "memories": list_memories,
    "encoders": list_encoders,
    "agents": list_agents,
}


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 3, 0, 0))
    for index, column in enumerate(columns):
        # The first one has names to copy.
        table.add_column(column, overflow="fold", no_wrap=index == 0)
    return table


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
