"""The sections on where a report comes from: pages and settings of its runs, commands, versions."""

import os
import platform
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np

from .._version import __version__
from .blocks import Block, Bullets, Code, Links, Table, Text
from .groups import Group, differing_keys, format_value
from .runs import read_probe
from .summary import Summary

RUN_PAGES = {"player": "watch.html", "probe": "probe/probe.html"}  # link text -> file in a run folder


def link_blocks(summary: Summary, out: Path) -> Iterator[Block]:
    """Links to the pages that `recollect watch` and `recollect probe` left in run folders."""
    items = []
    for group in summary.groups:
        for run in group.runs:
            pages = [(name, run.folder / page) for name, page in RUN_PAGES.items()]
            links = [
                # Relative, so that links still work when report and runs are moved together.
                (name, quote(Path(os.path.relpath(page, out)).as_posix()))
                for name, page in pages
                if page.is_file()
            ]
            if links:
                result = (read_probe(run.folder) or {}).get("uses", "")
                items.append((f"{group.label} on {group.env}, seed {run.seed}: {result}".strip(), links))
    if items:
        yield Links(items)


def setting_blocks(summary: Summary) -> Iterator[Block]:
    """For each environment, a table of the settings in which its models differ."""
    for env in summary.envs:
        groups = [group for group in summary.groups if group.env == env]
        keys = [key for key in differing_keys([group.settings for group in groups]) if key != "model"]
        if keys:
            rows = [
                [key, *(format_value(g.settings[key]) if key in g.settings else "-" for g in groups)]
                for key in keys
            ]
            yield Table(env, ["setting", *(group.label for group in groups)], rows)


def command_blocks(summary: Summary, command: Sequence[str]) -> Iterator[Block]:
    """The commands that repeat the runs, and the one that repeats the report."""
    yield Text("These commands repeat the runs, each from its own config.yaml, and this report:")
    lines = [_train_command(group) for group in summary.groups]
    yield Code("\n".join([*lines, shlex.join(command)]))


def _train_command(group: Group) -> str:
    """A shell loop over the seeds of a group."""
    config = shlex.quote(str(group.runs[0].folder / "config.yaml"))
    seeds = " ".join(str(run.seed) for run in group.runs)
    env = str(group.settings["env.id"])
    # A config file may not import a module; only an id on the command line may, so it is repeated there.
    option = f" -e {shlex.quote(env)}" if ":" in env else ""
    return f"for seed in {seeds}; do recollect train --config {config}{option} --seed $seed; done"


def version_blocks(summary: Summary) -> Iterator[Block]:
    """Versions and processors of the runs, and of the report itself."""
    counts: Counter[tuple[str, str]] = Counter()
    for group in summary.groups:
        for run in group.runs:
            versions = run.summary.get("versions")
            if isinstance(versions, Mapping):
                counts.update((str(name), str(value)) for name, value in versions.items())
            if "processor" in run.summary:
                counts["processor", str(run.summary["processor"])] += 1
    rows = [[name, value, str(runs)] for (name, value), runs in sorted(counts.items())]
    if rows:
        yield Table("Packages and processors of the runs", ["name", "version", "runs"], rows)
    yield Text(
        f"Report by recollect {__version__} with Python {platform.python_version()} and "
        f"numpy {np.__version__} on {platform.system()} {platform.machine()}."
    )


def left_out_blocks(summary: Summary) -> Iterator[Block]:
    """Folders that are not in the report, with the reason."""
    if summary.left_out:
        yield Bullets([f"{item.folder}: {item.reason}" for item in summary.left_out])
