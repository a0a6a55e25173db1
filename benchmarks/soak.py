"""Long runs: whether memory stays flat and the run folder grows by its log lines alone.

    python -m benchmarks.soak [--rollouts 60000] [--cases NAME ...] [-o FILE.json]

A run of eight hours with a GPT-2 for the critic has about 60,000 rollouts of 2,048 steps. The cases here have
as many rollouts, with their checkpoints, validations and log lines, but of 64 steps, so that each takes
minutes. The resident memory of the run and its child processes is measured twice a second. Memory is flat if
its slope over the second half, in MiB for the 60,000 rollouts of eight hours, is small beside its level.
Checkpoints are bounded if no more of them lie in the folder than `keep` says.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

EIGHT_HOURS = 60_000  # rollouts
EVERY, LAST = 0.5, 8  # seconds between two measurements; measurements of the end, which may lack processes
SMALL = [
    *("--ppo.num-steps", "16", "--env.num-envs", "4", "--ppo.update-epochs", "1"),
    *("--ppo.num-minibatches", "1", "--save-interval", "200", "--val-check-interval", "2000"),
    *("--val-episodes", "2", "--threads", "1", "--quiet", "True"),
]
CASES = {
    "vectorised": ["CartPole-v1", "-m", "ppo"],
    "native kernels": ["CartPoleNoVel-v1", "-m", "ppo_gru"],
    "EnvPool": ["Acrobot-v1", "-m", "ppo", "--env.backend", "envpool"],
    "workers": ["Acrobot-v1", "-m", "ppo_lstm", "--env.backend", "workers", "--kernels", "torch"],
    "transformer": ["poc", "-m", "ppo_trxl", "--ppo.bptt", "16"],
}
PAGE = 4096
RESULTS = Path("docs/results/soak.json")


def resident(pid: int) -> int:
    """Bytes of a process and its children; 0 after its end."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * PAGE + sum(resident(int(child)) for child in children)


def count_rollouts(folder: Path) -> int:
    """Lines of the metrics of the only run in a folder."""
    files = list(folder.rglob("metrics.jsonl"))
    return files[0].read_bytes().count(b"\n") if files else 0


def soak(name: str, rollouts: int) -> dict[str, Any]:
    """One case: resident memory by time, and what lies in its folder at the end."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "recollect", "train", *CASES[name], *SMALL]
        process = subprocess.Popen([*command, "--rollouts", str(rollouts), "--out", out])
        begin, seconds, sizes = time.monotonic(), list[float](), list[int]()
        while process.poll() is None:
            time.sleep(EVERY)
            if size := resident(process.pid):
                seconds.append(time.monotonic() - begin)
                sizes.append(size)
        if process.returncode:
            raise SystemExit(f"{name}: the run ended with {process.returncode}")
        finished = count_rollouts(Path(out))
        files = [(file, file.stat().st_size) for file in Path(out).rglob("*") if file.is_file()]
    checkpoints = [size for file, size in files if file.parent.name == "checkpoints"]
    return {
        "case": name,
        "rollouts": finished,
        "seconds": seconds[:-LAST],
        "mebibytes": [round(size / 2**20, 2) for size in sizes[:-LAST]],
        "checkpoints": len(checkpoints),
        "log_bytes": sum(size for _, size in files) - sum(checkpoints),
    }


def slope(result: dict[str, Any]) -> float:
    """MiB per eight hours' rollouts, by a line through the second half."""
    seconds, sizes = (np.array(result[key]) for key in ("seconds", "mebibytes"))
    late = seconds > seconds[-1] / 2
    by_second = float(np.polyfit(seconds[late], sizes[late], 1)[0])
    return by_second * seconds[-1] / result["rollouts"] * EIGHT_HOURS


def table(results: list[dict[str, Any]]) -> list[str]:
    """Lines of Markdown."""
    lines = [
        "| case | rollouts | memory at half time | at the end | slope in 8 h | checkpoints | log |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        sizes = result["mebibytes"]
        cells = (
            result["case"],
            f"{result['rollouts']:,}",
            f"{sizes[len(sizes) // 2]:.0f} MiB",
            f"{sizes[-1]:.0f} MiB",
            f"{slope(result):+.1f} MiB",
            str(result["checkpoints"]),
            f"{result['log_bytes'] / result['rollouts'] / 1024:.2f} KiB a rollout",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Run the cases one after another, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=EIGHT_HOURS)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("-o", dest="file", type=Path)
    options = parser.parse_args()
    results = []
    for name in options.cases:
        results.append(soak(name, options.rollouts))
        if options.file:  # after every case, so that an interruption loses nothing
            options.file.write_text(json.dumps(results) + "\n")
        print(table(results)[-1], flush=True)
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
