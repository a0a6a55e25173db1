"""The content of a report in order, before it is a page or a text: sections of text, tables and charts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..common.format import number
from .blocks import Block, Bullets, Chart, Code, Section, Text, slugs
from .curves import ModelCurves
from .efficiency_section import efficiency_blocks
from .popgym_section import popgym_blocks
from .provenance import command_blocks, left_out_blocks, link_blocks, setting_blocks, version_blocks
from .score_sections import aggregate_blocks, best_blocks, difference_blocks, score_blocks
from .summary import Summary


def report_title(summary: Summary) -> str:
    """The models and environments of the report, in a line."""
    models = sorted({group.label for group in summary.groups})
    model_words = ", ".join(models) if len(models) <= 4 else f"{len(models)} models"
    envs = summary.envs
    env_words = ", ".join(envs) if len(envs) <= 3 else f"{len(envs)} environments"
    return f"{model_words} on {env_words}"


def report_sections(summary: Summary, command: Sequence[str], out: Path) -> list[Section]:
    """All sections that have content.

    command  the command that made the report, as words
    out      the folder of the report, from which links start
    """
    sections = [
        Section("Verdict", [Text(statement.text, lead=statement.about) for statement in summary.verdict]),
        Section("Difference to the best", list(best_blocks(summary))),
        Section("Caveats", [Bullets(summary.notes)] if summary.notes else []),
        Section("Learning curves", list(_curve_blocks(summary))),
        Section("Final scores", list(score_blocks(summary))),
        Section("POPGym", list(popgym_blocks(summary))),
        Section("Differences", list(difference_blocks(summary))),
        Section("Aggregate scores", list(aggregate_blocks(summary))),
        Section("Efficiency", list(efficiency_blocks(summary))),
        Section("Players and probes", list(link_blocks(summary, out))),
        Section("Settings that differ", list(setting_blocks(summary))),
        Section("Reproduce", list(command_blocks(summary, command))),
        Section("Machine and versions", list(version_blocks(summary))),
        Section("Left out", list(left_out_blocks(summary))),
    ]
    return [section for section in sections if section.blocks]


def rename(sections: Sequence[Section], names: Mapping[str, str]) -> list[Section]:
    """The sections with other names of models, also within sentences, but not in commands."""
    # The longest first, because one label may begin with another.
    changed = sorted((label for label in names if names[label] != label), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, changed)))

    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(lambda match: names[match[0]], value)
        if isinstance(value, list):
            return [renamed(item) for item in value]
        if type(value) is tuple:
            return tuple(renamed(item) for item in value)
        if is_dataclass(value) and not isinstance(value, Code | type):
            return replace(
                value, **{field.name: renamed(getattr(value, field.name)) for field in fields(value)}
            )
        return value

    return [renamed(section) for section in sections] if changed else list(sections)


def _curve_blocks(summary: Summary) -> Iterator[Block]:
    yield Text(
        "Curves are drawn where all seeds of a model have a value. Return and length are means of the last "
        "100 training episodes, including exploration."
    )
    names = slugs([panel.env for panel in summary.panels])
    for panel in summary.panels:
        ends = ", ".join(f"{line.label} {_final_return(line)}" for line in panel.lines)
        words = f"Learning curves over steps in {panel.env}. Return at the end: {ends}."
        yield Chart(f"curves-{names[panel.env]}", "curves", panel.env, words, panel=panel)


def _final_return(line: ModelCurves) -> str:
    curve = line.curves.get("return", {}).get("step")
    if curve is None:
        return "unknown"
    middle = curve.mean if curve.iqm is None else curve.iqm
    return number(float(middle[np.isfinite(middle)][-1]))
