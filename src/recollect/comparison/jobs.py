"""The runs of a comparison: which are done, which were begun, and how far each is.

A run is found again by the hash of its whole config, wherever it lies under the folder of all runs.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..common.errors import UsageError
from ..config.config import RunConfig, config_hash
from ..reporting.runs import read_probe
from ..run.run_folder import is_unstarted, new_folder, read_summary

EVALUATION = "evaluation.json"
LAST_LINE = 4096  # bytes that hold the last line of metrics.jsonl

State = Literal["new", "begun", "running", "done", "failed"]


@dataclass
class Job:
    """One run: what is asked for, where it lies, how far it is."""

    config: RunConfig
    folder: Path
    state: State = "new"
    metrics: dict[str, Any] = field(default_factory=dict)
    """Its newest line."""
    evaluation: dict[str, Any] | None = None
    """Of its last weights, when it is done."""
    error: str = ""
    """Why it failed."""
    probes: bool = False
    """Whether its memory is probed as well."""
    verdict: str = ""
    """What the probe says of it, when that is done."""

    @property
    def progress(self) -> float:
        """How much of it is behind."""
        if self.state == "done":
            return 1.0
        if not self.metrics:
            return 0.0
        return self.config.plan.progress(self.metrics["iteration"], self.metrics["step"])

    def look(self, episodes: int) -> None:
        """Read what its folder says now."""
        self.look_on()
        found = evaluation(self.folder)
        self.verdict = self._verdict(episodes) if self.probes else ""
        if found is not None and found["episodes"] == episodes and (self.verdict or not self.probes):
            self.state, self.evaluation = "done", found

    def look_on(self) -> None:
        """Read how far it is while it runs."""
        self.metrics = last_line(self.folder / "metrics.jsonl") or self.metrics

    def _verdict(self, episodes: int) -> str:
        """What the probe says that was asked for; one over other episodes is another."""
        found = read_probe(self.folder)
        wanted = {"episodes": episodes, "seed": self.config.seed}
        return "" if found is None or not wanted.items() <= found.items() else str(found["uses"])


def plan(configs: Sequence[RunConfig], out: Path, episodes: int, probes: bool = False) -> list[Job]:
    """A job for each config, in the folder it was begun in or in a new one."""
    known, names = begun(out), [config_hash(config) for config in configs]
    times = Counter(names)
    for config, name in zip(configs, names, strict=True):
        if times[name] > 1:
            raise UsageError(
                f"{config.model} on {config.env.id}, seed {config.seed}, is there twice: two of the models, "
                "or of the environments, have the same settings; leave one out"
            )
    jobs = []
    for config, name in zip(configs, names, strict=True):
        folder = known.get(name)
        job = Job(config, folder or new_folder(config, out, f"s{config.seed}-{name[:8]}"), probes=probes)
        if folder is not None:
            job.state = "begun"
            job.look(episodes)
        elif not is_unstarted(job.folder):
            raise UsageError(f"{job.folder} is broken: it has no summary.json that can be read; remove it")
        jobs.append(job)
    return jobs


def begun(out: Path) -> dict[str, Path]:
    """Runs under a folder by the hash of their config; of equal ones, one that is finished."""
    found: dict[str, tuple[bool, Path]] = {}
    for path in sorted(out.rglob("summary.json")):
        try:
            summary = read_summary(path.parent)
        except UsageError:
            continue
        name, entry = str(summary.get("config_hash")), (summary["status"] == "finished", path.parent)
        found[name] = max(found.get(name, entry), entry)
    return {name: folder for name, (_, folder) in found.items()}


def evaluation(folder: Path) -> dict[str, Any] | None:
    """What was found when the run was done; None where it is not, or not whole."""
    try:
        found: dict[str, Any] = json.loads((folder / EVALUATION).read_text())
        return found if {"mean", "episodes", "returns"} <= set(found) else None
    except (OSError, ValueError, TypeError):
        return None


def last_line(path: Path) -> dict[str, Any] | None:
    """The last whole line of a file that another process writes."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - LAST_LINE))
            whole = file.read().rpartition(b"\n")[0]
        found: dict[str, Any] = json.loads(whole.rpartition(b"\n")[2])
        return found
    except (OSError, ValueError):
        return None
