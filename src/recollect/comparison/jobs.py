"""The runs of a comparison: which are done, which were started, and how far each is.

A run is recognised by the hash of its whole config, wherever it lies under the folder of all runs.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..common.digests import ChangedError, seal, unseal
from ..common.errors import UsageError
from ..config.config import RunConfig
from ..config.data import config_hash, to_dict
from ..reporting.runs import read_probe
from ..run.evaluate import Evaluation
from ..run.run_folder import check_results, is_unstarted, new_folder, read_summary, write_json
from .run_request import RunRequest

EVALUATION = "evaluation.json"
LAST_LINE = 4096  # bytes that hold the last line of metrics.jsonl

State = Literal["new", "begun", "running", "done", "failed"]


@dataclass
class Job:
    """One run: its config, its folder, and its progress."""

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
    """Of the probe, when that is done."""

    @property
    def progress(self) -> float:
        """The share of its budget that it has used."""
        if self.state == "done":
            return 1.0
        if not self.metrics:
            return 0.0
        return self.config.plan.progress(self.metrics["iteration"], self.metrics["step"])

    def request(self, episodes: int) -> RunRequest:
        """The message that gives the run to a worker process."""
        return RunRequest(to_dict(self.config), self.folder, episodes, self.probes)

    def row(self) -> dict[str, Any]:
        """The run as plain data."""
        return {
            "seed": self.config.seed,
            "state": self.state,
            **evaluation_row(self.evaluation or {}),
            "step": self.metrics.get("step"),
            "seconds": self.metrics.get("time"),
            "verdict": self.verdict or None,
            "error": self.error or None,
            "folder": str(self.folder),
        }

    def read_results(self, episodes: int) -> None:
        """Read metrics, evaluation and verdict from its folder; it is done when none is missing."""
        self.read_metrics()
        evaluation = read_evaluation(self.folder)
        if self.probes:
            # The verdict of a probe over other episodes or another seed does not count.
            probe = read_probe(self.folder) or {}
            requested = (probe.get("episodes"), probe.get("seed")) == (episodes, self.config.seed)
            self.verdict = str(probe["uses"]) if requested else ""
        if evaluation and evaluation["episodes"] == episodes and (self.verdict or not self.probes):
            self.state, self.evaluation = "done", evaluation

    def read_metrics(self) -> None:
        """Read its newest line of metrics while it runs."""
        self.metrics = last_line(self.folder / "metrics.jsonl") or self.metrics


def evaluation_row(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """The scores of an evaluation; None where it is missing."""
    names = {"return": "mean", "return_std": "std", "success": "success", "length": "length"}
    return {name: evaluation.get(key) for name, key in names.items()}


def plan_jobs(configs: Sequence[RunConfig], out: Path, episodes: int, probes: bool = False) -> list[Job]:
    """A job for each config, in the folder of its earlier run or in a new one."""
    # Hashes ignore where a run lies, so runs of other studies and moved folders count as well.
    folders, hashes = existing_runs(out), [config_hash(config) for config in configs]
    counts = Counter(hashes)
    for config, key in zip(configs, hashes, strict=True):
        if counts[key] > 1:
            raise UsageError(
                f"{config.model} on {config.env.id}, seed {config.seed}, is listed twice: two models, or two "
                "environments, have the same settings; remove one of them"
            )
    jobs = []
    for config, key in zip(configs, hashes, strict=True):
        # With the hash, because models of one preset that differ in an option have the same folders above.
        new = new_folder(config, out, f"s{config.seed}-{key[:8]}")
        # Looked at again: another process may have started the run since.
        folder = folders.get(key) or existing_runs(new).get(key)
        job = Job(config, folder or new, probes=probes)
        if folder is not None:
            # Interrupted, until its results say that it is done.
            job.state = "begun"
            job.read_results(episodes)
            if read_summary(folder)["status"] == "finished":  # nothing looks at its files before the report
                check_results(folder)
        elif not is_unstarted(job.folder):
            raise UsageError(f"{job.folder} is broken: its summary.json cannot be read; remove the folder")
        jobs.append(job)
    return jobs


def existing_runs(out: Path) -> dict[str, Path]:
    """Folders of runs by the hash of their config; of several with the same hash, a finished one."""
    runs: dict[str, tuple[bool, Path]] = {}
    for path in sorted(out.rglob("summary.json")):
        try:
            summary = read_summary(path.parent)
        except ChangedError:
            raise  # it may be of a run of this comparison, which would be trained again
        except UsageError:
            continue  # of a run that was killed before its first summary; plan_jobs decides what to do
        key, entry = str(summary.get("config_hash")), (summary["status"] == "finished", path.parent)
        # A finished run first, then the last path: the same choice in every call, whatever the order of
        # folders.
        runs[key] = max(runs.get(key, entry), entry)
    return {key: folder for key, (_, folder) in runs.items()}


def write_evaluation(folder: Path, evaluation: Evaluation, run: str | None = None) -> None:
    """Write an evaluation.

    run  the hash of the config of the run, by which the evaluation of another run is recognised
    """
    data = evaluation.as_json() | ({} if run is None else {"config_hash": run})
    write_json(folder / EVALUATION, seal(data, {}))


def read_evaluation(folder: Path) -> dict[str, Any] | None:
    """The evaluation of a finished run; None where it is missing, incomplete, damaged or of another run."""
    try:
        # A damaged file is one of a run that is evaluated again.
        evaluation, _ = unseal(EVALUATION, json.loads((folder / EVALUATION).read_text()))
        numbers = (evaluation["mean"], evaluation["episodes"], evaluation["success"] or 0.0)
        whole = all(map(_is_number, numbers)) and isinstance(evaluation["returns"], list)
        if "config_hash" in evaluation:  # not in baselines, and not in runs of earlier versions
            whole = whole and evaluation["config_hash"] == read_summary(folder).get("config_hash")
        return evaluation if whole else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def last_line(path: Path) -> dict[str, Any] | None:
    """The last complete line of a file of JSON lines that another process is writing."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - LAST_LINE))  # the whole file would be read at every poll
            complete = file.read().rpartition(b"\n")[0]  # the line after it is still being written
        metrics: dict[str, Any] = json.loads(complete.rpartition(b"\n")[2])
        return metrics if all(_is_number(metrics[key]) for key in ("iteration", "step")) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
