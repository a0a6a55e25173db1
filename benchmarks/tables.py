"""Writes the tables of the documentation from result files.

    python -m benchmarks.tables [--check]

In README.md and docs/**/*.md, this command writes the lines between `<!-- table NAME -->` and
`<!-- end table -->` from benchmarks/results/ and docs/results/. NAME is one of

    peers, peers short, recurrent, transformers    speed compared with other libraries
    zoo                                            scores of the presets beside RL Zoo's settings
    memories                                       speed and size of each memory beside a GRU
    equivalence, and with _short, _trxl, _late_stack, _blocks, _blocks_more, _mamba, _lmu, _lmu_more
                                                   native kernels beside torch's
    critic_memories                                gains of critics with a memory
    critics, context                               critics on the same rollouts; time over context length
    gpt2ppo_peer                                   the plain PPO of GPT2PPO's authors, run again
    limits                                         LunarLander with errors of the tutorial's code
    leaderboard                                    memories over all tasks
    leaderboard kinds, leaderboard tasks           memories in each kind of task, and in each task
    leaders                                        the two memories that lead a task, with ten fresh seeds
    memory_length NAME                             estimates of memory length beside the required one:
                                                   solved, primary, all tasks, half solved, used
    delays                                         memories that learn to repeat an input, from labels
    coverage seeds, coverage episodes, coverage tasks
                                                   how often intervals contain the true value
    coverage unequal                               false differences of models with equal means
    intervals NAME                                 a table of simulated studies: means, differences,
                                                   families, power, ranks
    probe_errors                                   false statements of the verdict of a probe
    probe_errors rules                             rules of its statements, before and now
    soak                                           memory and disk of long runs
    presets, mujoco, toy control, memory tasks, cards    scores of the presets
    scores STUDY, differences STUDY                a folder of docs/results: its report as tables
    area_scores STUDY, area_differences STUDY      areas under its training curves, from its archive
    training STUDY                                 training returns at the end
    thresholds STUDY, tests STUDY                  when training reached the threshold

--check changes no file: it lists the tables that are out of date, and fails.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from . import (
    cells,
    coverage,
    critic_memories,
    critic_tables,
    delays,
    equivalence,
    gpt2ppo,
    intervals,
    leaderboard,
    leaders,
    limits,
    memories,
    memory_length,
    peers,
    probe_errors,
    recurrent,
    return_tables,
    soak,
    study_tables,
    transformers,
    zoo,
)
from .common import measured

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^<!-- table ([^\n]+?) -->\n(.*?)^<!-- end table -->$", re.MULTILINE | re.DOTALL)
END = re.compile(r"^<!-- (?:table [^\n]+|end table) -->$", re.MULTILINE)

# Suffixes of the names of the tables, in the order of equivalence.STUDIES.
EQUIVALENCE = "", "_short", "_trxl", "_late_stack", "_blocks", "_blocks_more", "_mamba", "_lmu", "_lmu_more"

SPEEDS: dict[str, Callable[[Path], list[str]]] = {
    "peers": lambda out: cells.full_table(measured(peers.TASKS, "peers", out)),
    "peers short": lambda out: cells.short_table(measured(peers.TASKS, "peers", out), peers.PEER),
    "recurrent": lambda out: cells.full_table(measured(recurrent.TASKS, "recurrent", out)),
    "transformers": lambda out: cells.full_table(measured(transformers.TASKS, "transformers", out)),
    "zoo": zoo.lines,
    "memories": memories.table,
    "presets": return_tables.presets,
    "mujoco": return_tables.mujoco,
    "memory tasks": return_tables.memory_tasks,
    "cards": return_tables.cards,
    "toy control": return_tables.toy_control,
    "critic_memories": lambda out: critic_memories.lines(
        critic_memories.read(out.parents[1] / "docs/results")
    ),
    "critics": critic_tables.critics,
    "context": critic_tables.context,
    "gpt2ppo_peer": lambda out: gpt2ppo.table(gpt2ppo.load(out.parents[1] / gpt2ppo.OUT)),
    "limits": lambda out: limits.table(json.loads((out.parents[1] / limits.RESULTS).read_text())),
    "leaderboard": lambda out: leaderboard.memories_table(leaderboard.read(out.parents[1])),
    "leaderboard kinds": lambda out: leaderboard.kinds_table(leaderboard.read(out.parents[1])),
    "leaderboard tasks": lambda out: leaderboard.tasks_table(leaderboard.read(out.parents[1])),
    "leaders": lambda out: leaders.lines(
        study_tables.read(out.parents[1] / "docs/results", "memories_leaders")
    ),
    "delays": lambda out: delays.table(json.loads((out.parents[1] / delays.RESULTS).read_text())),
    **{
        f"memory_length {name}": lambda out, name=name: memory_length.lines(
            name, out.parents[1] / "docs/results/memory_length"
        )
        for name in memory_length.TABLES
    },
    "coverage seeds": lambda out: coverage.kinds_table(coverage.read(out.parents[1]), "seeds"),
    "coverage episodes": lambda out: coverage.kinds_table(coverage.read(out.parents[1]), "episodes"),
    "coverage tasks": lambda out: coverage.kinds_table(coverage.read(out.parents[1]), "tasks"),
    "coverage unequal": lambda out: coverage.unequal_table(coverage.read(out.parents[1])),
    **{
        f"intervals {name}": lambda out, name=name: intervals.lines(
            name, intervals.read(out.parents[1])[name]
        )
        for name in intervals.MEASUREMENTS
    },
    "probe_errors": lambda out: probe_errors.pages_table(probe_errors.read(out.parents[1])),
    "probe_errors rules": lambda out: probe_errors.rules_table(probe_errors.read(out.parents[1])),
    "soak": lambda out: soak.table(json.loads((out.parents[1] / soak.RESULTS).read_text())),
    **{
        f"equivalence{name}": lambda out, i=i: equivalence.lines(
            equivalence.read(out.parents[1] / "docs" / "results")[i]
        )
        for i, name in enumerate(EQUIVALENCE)
    },
}


def write(name: str, root: Path = ROOT) -> str:
    """The lines of a table."""
    kind, _, study = name.partition(" ")
    if name in SPEEDS:
        lines = SPEEDS[name](root / "benchmarks" / "results")
    elif kind in study_tables.TABLES:
        lines = study_tables.TABLES[kind](study_tables.read(root / "docs" / "results", study))
    else:
        raise SystemExit(f"unknown table {name!r}; python -m benchmarks.tables --help lists the names")
    return "\n".join(lines) + "\n"


def rewritten(page: str, root: Path = ROOT) -> str:
    """A page with all of its tables rewritten."""
    marks = END.findall(page)
    if len(marks) != 2 * len(BLOCK.findall(page)):
        raise SystemExit(f"a table without its end, or an end without its table, among {marks}")
    return BLOCK.sub(
        lambda block: f"<!-- table {block[1]} -->\n{write(block[1], root)}<!-- end table -->", page
    )


def stale(page: str, root: Path = ROOT) -> list[str]:
    """The names of the tables of a page that are out of date."""
    blocks = zip(BLOCK.finditer(page), BLOCK.finditer(rewritten(page, root)), strict=True)
    return [old[1] for old, new in blocks if old[2] != new[2]]


def pages(root: Path = ROOT) -> list[Path]:
    """The pages that may hold tables."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def main() -> None:
    """Write all tables, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wrong = [(page, stale(page.read_text())) for page in pages()]
    for page, names in wrong:
        if names and not check:
            page.write_text(rewritten(page.read_text()))
        for name in names:
            print(f"{page.relative_to(ROOT)}: table {name} {'is stale' if check else 'written'}")
    if check and any(names for _, names in wrong):
        sys.exit("run: python -m benchmarks.tables")


if __name__ == "__main__":
    main()
