"""What a report holds, in order, before it is a page or a text: sections of words, tables and charts."""

import os
import platform
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from urllib.parse import quote

import numpy as np

from .._version import __version__
from ..common.format import duration, number
from ..common.intervals import Interval
from .aggregate import MANY, Difference
from .blocks import Block, Bullets, Chart, Code, DotRow, Line, Links, Plot, Section, Table, Text, slugs
from .curves import RANDOM, Lines
from .efficiency import Efficiency, Threshold
from .groups import Group, differing, spelled
from .runs import read_probe
from .scores import Final
from .significance import fisher, holm, mann_whitney
from .summary import Summary
from .verdict import equal_seeds


def title(summary: Summary) -> str:
    """What the report is about, in a line."""
    models = sorted({group.label for group in summary.groups})
    named = ", ".join(models) if len(models) <= 4 else f"{len(models)} models"
    envs = summary.envs
    on = ", ".join(envs) if len(envs) <= 3 else f"{len(envs)} environments"
    return f"{named} on {on}"


def sections(summary: Summary, command: Sequence[str], out: Path) -> list[Section]:
    """The whole report; command: the words it was asked for with; out: the folder it will lie in."""
    made = [
        Section("Verdict", [Text(said.text, lead=said.about) for said in summary.verdict]),
        Section("What to mind", [Bullets(summary.notes)] if summary.notes else []),
        Section("Learning curves", list(_curves(summary))),
        Section("Final scores", list(_scores(summary))),
        Section("Differences", list(_differences(summary))),
        Section("Aggregate scores", list(_overall(summary))),
        Section("Efficiency", list(_efficiency(summary))),
        Section("Look closer", list(_closer(summary, out))),
        Section("Settings that differ", list(_settings(summary))),
        Section("Make it again", list(_commands(summary, command))),
        Section("Machine and versions", list(_versions(summary))),
        Section("Left out", list(_left_out(summary))),
    ]
    return [section for section in made if section.blocks]


# The sections ---------------------------------------------------------------------------------


def _curves(summary: Summary) -> Iterator[Block]:
    yield Text(
        "Every point is over the seeds of a model, drawn where all of them are known. The band is from "
        "the lowest seed to the highest. Return and length are means of the last 100 training episodes, "
        "which include exploration."
    )
    names = slugs([panel.env for panel in summary.panels])
    for panel in summary.panels:
        ends = ", ".join(f"{line.label} {_last(line)}" for line in panel.lines)
        words = f"Curves over steps in {panel.env}. Return at the end: {ends}."
        yield Chart(f"curves-{names[panel.env]}", "curves", panel.env, words, panel=panel)


def _last(line: Lines) -> str:
    """Where the return of a line ends."""
    curve = line.curves.get("return", {}).get("step")
    if curve is None:
        return "unknown"
    return number(float(curve.mean[np.isfinite(curve.mean)][-1]))


SCORES = {
    "success": "share of successes of the last weights",
    "return": "mean return of the last weights",
    "training": "mean return of the last 100 training episodes",
}


def _scores(summary: Summary) -> Iterator[Block]:
    if not summary.finals:
        return
    yield Text(
        "One number a seed. IQM is the mean of the middle half, which one bad seed cannot spoil. The 95 % "
        "interval is of the mean over all possible seeds. Ten seeds are too few for it where one run in ten "
        "fails: then it holds in about two cases of three."
    )
    names = slugs(summary.envs)
    for env in summary.envs:
        finals = sorted((f for f in summary.finals if f.env == env), key=lambda final: -final.mean)
        if finals:
            about = f"{env}: {SCORES[finals[0].source]}"
            rows = [DotRow(final.label, final.scores, final.mean, final.mean_interval) for final in finals]
            if env in summary.random:
                rows.append(DotRow(RANDOM, np.empty(0), summary.random[env], None))
            words = f"{about}: " + ", ".join(f"{row.label} {number(row.value)}" for row in rows) + "."
            yield Chart(f"scores-{names[env]}", "dots", f"{about}, every seed a dot", words, rows=rows)
            yield _score_table(about, finals, summary.random.get(env))
            for final in finals:
                if final.all_equal:
                    yield Text(f"{final.label}: {equal_seeds(len(final.scores))}.")


def _score_table(about: str, finals: Sequence[Final], random: float | None) -> Table:
    columns = ["model", "seeds", "scores", "mean", "95 %", "IQM", "95 %"]
    rows = [
        [
            final.label,
            " ".join(map(str, final.seeds)),
            " ".join(map(number, final.scores.tolist())),
            number(final.mean),
            _ends(final.mean_interval),
            number(final.iqm),
            _ends(final.iqm_interval),
        ]
        for final in finals
    ]
    if finals[0].source == "success":
        columns.append("mean return")
        rows = [[*row, number(final.mean_return)] for row, final in zip(rows, finals, strict=True)]
    if random is not None:
        rows.append([RANDOM, "-", "-", number(random), *["-"] * (len(columns) - 4)])
    return Table(about, columns, rows)


def _differences(summary: Summary) -> Iterator[Block]:
    if not summary.differences:
        return
    yield Text(
        "How far apart the means and the IQMs of two models are, each with the 95 % interval of this one "
        "difference. p is of Welch's t-test of equal means, adjusted (Holm) for all tests of the verdict; "
        "below 0.05 the means differ. P is the probability that a seed of the first is above a seed of the "
        "second; 0.5 is no difference."
    )
    columns = ["model", "against", "difference", "95 %", "of IQMs", "95 %", "p", "means", "P (95 %)"]
    for env in summary.envs:
        rows = [_difference_row(d) for d in _shown(summary, env)]
        if rows:
            yield Table(env, columns, rows, names=2)


def _shown(summary: Summary, env: str) -> list[Difference]:
    """All pairs of few models; of many, those with the best."""
    here = [difference for difference in summary.differences if difference.env == env]
    models = [final for final in summary.finals if final.env == env]
    if len(models) <= MANY:
        return here
    best = max(models, key=lambda final: final.mean).label
    return [difference for difference in here if difference.better == best]


def _difference_row(d: Difference) -> list[str]:
    return [
        d.better,
        d.worse,
        number(d.by),
        _ends(d.interval),
        number(d.iqm_by),
        _ends(d.iqm_interval),
        _p(d.p),
        "-" if np.isnan(d.p) else "differ" if d.differs else "no detectable difference",
        f"{d.wins:.2f} ({_shares(d.wins_interval)})",
    ]


def _overall(summary: Summary) -> Iterator[Block]:
    if len(summary.aggregates) < 2:
        return
    yield Text(f"Scores are made comparable: {_scaled(summary)}.")
    yield from _aggregates(summary)
    yield Text("A profile is the share of runs above each score: the higher, the better.")
    half = len(summary.profile_grid) // 2
    shares = ", ".join(f"{p.label} {p.share[half]:.2f}" for p in summary.profiles)
    words = f"Share of runs above {number(float(summary.profile_grid[half]))}: {shares}."
    lines = [Line(p.label, p.share, p.low, p.high) for p in summary.profiles]
    plot = Plot("normalised score", "share of runs above", summary.profile_grid, lines)
    yield Chart("profiles", "lines", "Share of runs above a normalised score", words, plot=plot)
    yield _improvements(summary)


def _aggregates(summary: Summary) -> Iterator[Block]:
    rows = [DotRow(a.label, np.empty(0), a.iqm, a.iqm_interval) for a in summary.aggregates]
    words = "Normalised IQM: " + ", ".join(f"{row.label} {number(row.value)}" for row in rows) + "."
    yield Chart("aggregate", "dots", "Normalised interquartile mean, 95 % interval", words, rows=rows)
    cells = [
        (a.label, str(a.seeds), number(a.mean), _ends(a.mean_interval), number(a.iqm), _ends(a.iqm_interval))
        for a in summary.aggregates
    ]
    columns = ["model", "runs", "mean", "95 %", "IQM", "95 %"]
    yield Table("Normalised scores over all environments", columns, [list(row) for row in cells])


def _improvements(summary: Summary) -> Table:
    caption = (
        "Probability of improvement: that a run of the first is above a run of the second; p of an exact "
        "rank test, adjusted as above"
    )
    pairs = summary.improvements
    if len(summary.aggregates) > MANY:
        caption += "; only the best against each other model"
        pairs = [pair for pair in pairs if pair.label == summary.aggregates[0].label]
    columns = ["model", "against", "probability", "95 %", "p", "environments"]
    rows = [
        [
            pair.label,
            pair.other,
            f"{pair.probability:.2f}",
            _shares(pair.interval),
            _p(pair.p),
            str(pair.envs),
        ]
        for pair in pairs
    ]
    return Table(caption, columns, rows, names=2)


def _scaled(summary: Summary) -> str:
    """What 0 and 1 stand for."""
    scales = summary.scales
    ends = [
        ("0 is a random agent", [s.env for s in scales if s.low_is == "random"]),
        (
            "0 is the worst run, for want of a random agent below it,",
            [s.env for s in scales if s.low_is == "worst"],
        ),
        ("1 is the threshold or published score", [s.env for s in scales if s.high_is == "reference"]),
        ("1 is the best run, for want of such a score,", [s.env for s in scales if s.high_is == "best"]),
    ]
    return "; ".join(f"{words} in {', '.join(envs)}" for words, envs in ends if envs)


def _efficiency(summary: Summary) -> Iterator[Block]:
    if not summary.efficiencies:
        return
    yield Text(
        "When the training return first got to a threshold. A seed that never did counts as later than "
        "all others, so the middle seed is given, with the earliest and the latest. Times compare only "
        "between runs of one machine that did nothing else."
    )
    columns = ["model", "reached", "steps, middle seed", "earliest to latest"]
    columns += ["time, middle seed", "earliest to latest", "steps/s"]
    for threshold in summary.thresholds:
        items = [item for item in summary.efficiencies if item.env == threshold.env]
        caption = f"{threshold.env}: return of {number(threshold.value)}, {_why(threshold)}"
        yield Table(caption, columns, [_efficiency_row(item) for item in items])
        if 1 < len(items) <= MANY:
            yield _reached_tests(threshold.env, items)


def _reached_tests(env: str, items: Sequence[Efficiency]) -> Table:
    """Which of two models reaches the threshold sooner, and more often."""
    pairs = list(combinations(items, 2))
    sooner = holm([mann_whitney(a.steps, b.steps) for a, b in pairs])
    oftener = holm([fisher(a.reached, len(a.steps), b.reached, len(b.steps)) for a, b in pairs])
    rows = [[a.label, b.label, _p(p), _p(q)] for (a, b), p, q in zip(pairs, sooner, oftener, strict=True)]
    caption = (
        f"{env}: p of no model reaching it sooner (Mann-Whitney, never is last) and of none reaching it more "
        "often (Fisher), each column adjusted (Holm)"
    )
    return Table(caption, ["model", "against", "sooner: p", "more often: p"], rows, names=2)


def _efficiency_row(item: Efficiency) -> list[str]:
    """Of one model."""
    steps, seconds = (np.sort(column) for column in (item.steps, item.seconds))
    return [
        item.label,
        f"{item.reached} of {len(steps)}",
        _steps(float(np.median(steps))),
        _from_to(_steps(steps[0]), _steps(steps[-1])),
        _time(float(np.median(seconds))),
        _from_to(_time(seconds[0]), _time(seconds[-1])),
        _steps(item.pace),
    ]


def _why(threshold: Threshold) -> str:
    if threshold.kind == "target":
        return "which the configs ask for"
    bottom = "acting at random" if threshold.kind == "random" else "the lowest first return"
    return f"90 % of the way from {bottom} to the best mean"


PAGES = {"player": "watch.html", "probe": "probe/probe.html"}


def _closer(summary: Summary, out: Path) -> Iterator[Block]:
    """What `recollect watch` and `recollect probe` made of the runs, where they did."""
    runs = ((group, run) for group in summary.groups for run in group.runs)
    items = []
    for group, run in runs:
        found = [(name, run.folder / page) for name, page in PAGES.items() if (run.folder / page).is_file()]
        if found:
            links = [(name, quote(Path(os.path.relpath(page, out)).as_posix())) for name, page in found]
            said = (read_probe(run.folder) or {}).get("uses", "")
            items.append((f"{group.label} on {group.env}, seed {run.seed}: {said}".strip(), links))
    if items:
        yield Links(items)


def _settings(summary: Summary) -> Iterator[Block]:
    for env in summary.envs:
        groups = [group for group in summary.groups if group.env == env]
        keys = [key for key in differing([group.settings for group in groups]) if key != "model"]
        if keys:
            rows = [[key, *(_setting(group.settings, key) for group in groups)] for key in keys]
            yield Table(env, ["setting", *(group.label for group in groups)], rows)


def _commands(summary: Summary, command: Sequence[str]) -> Iterator[Block]:
    yield Text("The runs, from the config that each of them keeps, and this report:")
    lines = [_command(group) for group in summary.groups]
    yield Code("\n".join([*lines, shlex.join(command)]))


def _command(group: Group) -> str:
    """The loop that makes a group's runs again."""
    config = shlex.quote(str(group.runs[0].folder / "config.yaml"))
    seeds = " ".join(str(run.seed) for run in group.runs)
    env = str(group.settings["env.id"])
    # A file alone may not import a module, so its name is said again.
    again = f" -e {shlex.quote(env)}" if ":" in env else ""
    return f"for seed in {seeds}; do recollect train --config {config}{again} --seed $seed; done"


def _versions(summary: Summary) -> Iterator[Block]:
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
        yield Table("What the runs were made with", ["what", "version", "runs"], rows)
    yield Text(
        f"This report was made by recollect {__version__} with Python {platform.python_version()} and "
        f"numpy {np.__version__} on {platform.system()} {platform.machine()}."
    )


def _left_out(summary: Summary) -> Iterator[Block]:
    if summary.left_out:
        yield Bullets([f"{item.folder}: {item.reason}" for item in summary.left_out])


# Small words ----------------------------------------------------------------------------------


def _ends(interval: Interval | None) -> str:
    return "-" if interval is None else f"{number(interval.low)} to {number(interval.high)}"


def _p(p: float) -> str:
    if np.isnan(p):
        return "-"
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def _shares(interval: Interval) -> str:
    return f"{interval.low:.2f} to {interval.high:.2f}"


def _from_to(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def _steps(count: float) -> str:
    if np.isinf(count):
        return "never"
    return "-" if np.isnan(count) else f"{count:,.0f}"


def _time(seconds: float) -> str:
    if np.isinf(seconds):
        return "never"
    return "-" if np.isnan(seconds) else duration(float(seconds))


def _setting(settings: Mapping[str, object], key: str) -> str:
    return spelled(settings[key]) if key in settings else "-"
