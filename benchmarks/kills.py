"""Many kills in a study on a cluster of three hosts: do its runs end with the bits of undisturbed ones?

    python -m benchmarks.kills [--kills 50] [--seeds 10] [--rollouts 200]

The hosts a, b and c are network namespaces of this machine (root is needed), and execute one run at a time
each. Host a has the head of the cluster and the command. Each kill (signal 9) hits the process of a run, the
Ray worker that waits for it, all processes of b or c, which then rejoins, or the command, which is then
started again. Kinds and moments are drawn beforehand; a moment is a number of lines of metrics of all runs
together, so that a slow machine is hit at the same places. At the end every run is compared with a run of
the same study without kills: weights, metrics except times, and evaluation.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.hosts import TOKEN, Host, hosts, why_not
from tests.helpers import assert_same_results

SHARES = {"run": 4, "worker": 4, "node": 1, "command": 1}  # of ten kills
LIMIT = 1800.0  # seconds without a new line of metrics until the benchmark gives up


def command(args: argparse.Namespace) -> list[str]:
    """The study, without its folder and cluster."""
    small = ["--env.num-envs", "4", "--ppo.num-steps", "16", "--save-interval", "10", "--episodes", "3"]
    study = ["-e", "CartPole-v1", "-m", "ppo", "ppo_gru", "--seeds", str(args.seeds)]
    return [sys.executable, "-m", "recollect", "compare", *study, "--rollouts", str(args.rollouts), *small]


class Study:
    """The study on a cluster, and the kills in it."""

    def __init__(self, args: argparse.Namespace, machines: list[Host], folder: Path) -> None:
        self.machines, self.folder, self.output = machines, folder, folder / "output"
        self.command = [*command(args), "--out", str(folder / "runs"), "--on", f"ray:{machines[0].cluster}"]
        self.driver = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        with self.output.open("ab") as output:
            env, words = {**os.environ, **TOKEN}, self.machines[0].command(*self.command)
            return subprocess.Popen(words, stdout=output, stderr=output, env=env, start_new_session=True)

    def lines(self) -> int:
        """Lines of metrics of all runs together."""
        paths = (self.folder / "runs").rglob("metrics.jsonl")
        return sum(path.read_bytes().count(b"\n") for path in paths)

    def reach(self, lines: int) -> None:
        """Wait for so many lines; a resumed run drops lines, so the maximum so far counts."""
        best, last = 0, time.monotonic()
        while best < lines:
            if (now := self.lines()) > best:
                best, last = now, time.monotonic()
            if self.driver.poll() is not None or time.monotonic() - last > LIMIT:
                raise SystemExit(f"it stopped at {best} of {lines} lines:\n{self.output.read_text()[-3000:]}")
            time.sleep(0.1)

    def kill(self, kind: str, dice: random.Random) -> None:
        """Kill one process or host; wait for one if there is none at the moment."""
        if kind == "node":
            host = dice.choice(self.machines[1:])
            host.kill()
            while True:
                try:
                    host.join(self.machines[0])
                    break
                except AssertionError:  # Ray does not always start on a busy machine
                    host.kill()
        elif kind == "command":
            self.driver.kill()
            self.driver.wait()
            self.driver = self._begin()
        else:
            name = b"recollect.comparison.worker" if kind == "run" else b"ray::run_task"
            while not (
                matches := [x for host in self.machines for x in host.processes() if has_name(x, name)]
            ):
                time.sleep(0.1)
            with contextlib.suppress(ProcessLookupError):
                os.kill(dice.choice(matches), signal.SIGKILL)

    def end(self) -> None:
        """Wait until the command ends."""
        if self.driver.wait():
            raise SystemExit(self.output.read_text()[-3000:])


def has_name(process: int, name: bytes) -> bool:
    """Whether the command line of a process contains a name; False if the process has ended."""
    with contextlib.suppress(OSError):
        return name in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


def plan_kills(kills: int, lines: int, dice: random.Random) -> Iterator[tuple[int, str]]:
    """For each kill the number of lines, and the kind of process."""
    kinds = [kind for kind, share in SHARES.items() for _ in range(kills * share // sum(SHARES.values()))]
    kinds += ["run"] * (kills - len(kinds))
    dice.shuffle(kinds)
    yield from zip(sorted(dice.sample(range(1, lines), kills)), kinds, strict=True)


def count_equal(straight: Path, disturbed: Path) -> tuple[int, int]:
    """Number of runs that are equal to the undisturbed ones, and of all runs."""
    good, folders = 0, sorted(path.parent for path in straight.rglob("config.yaml"))
    for folder in folders:
        other = disturbed / folder.relative_to(straight)
        try:
            assert_same_results(folder, other)
            good += 1
        except (AssertionError, OSError, IndexError) as error:
            print(f"{other}: {error!r}")
    return good, len(folders)


def main() -> None:
    """Run both studies and compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=10, help="of each of two models")
    parser.add_argument("--rollouts", type=int, default=200)
    parser.add_argument("--dice", type=int, default=1, help="seed of the kinds and moments")
    args = parser.parse_args()
    reason = why_not()
    if reason is not None:
        raise SystemExit(reason)
    dice = random.Random(args.dice)
    with tempfile.TemporaryDirectory() as name:
        straight, folder = Path(name) / "straight", Path(name) / "disturbed"
        folder.mkdir()
        began = time.monotonic()
        out = ["--out", "runs", "--quiet"]
        straight.mkdir()
        subprocess.run([*command(args), *out], cwd=straight, check=True, stdout=subprocess.DEVNULL)
        undisturbed = time.monotonic() - began
        done = Counter[str]()
        with hosts(folder) as machines:
            machines[0].head()
            for host in machines[1:]:
                host.join(machines[0])
            began = time.monotonic()
            study = Study(args, machines, folder)
            for lines, kind in plan_kills(args.kills, 2 * args.seeds * args.rollouts, dice):
                study.reach(lines)
                study.kill(kind, dice)
                done[kind] += 1
                print(f"{time.monotonic() - began:6.0f} s  {lines:6} lines  killed: {kind}", flush=True)
            study.end()
            took = time.monotonic() - began
        good, all_runs = count_equal(straight / "runs", folder / "runs")
    kinds = " | ".join(str(done[kind]) for kind in SHARES)
    print(f"| {' | '.join(SHARES)} | equal runs | time | undisturbed, this machine |\n|{'---|' * 7}")
    print(f"| {kinds} | {good} of {all_runs} | {took:.0f} s | {undisturbed:.0f} s |")
    if good < all_runs:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
