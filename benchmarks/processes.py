"""What a run gains from a second process, what the messages cost, and what that says of more machines.

    python -m benchmarks.processes [--env LunarLander-v3] [--model ppo_lstm] [--num-envs 128]
                                   [--turns 60] [--plot docs/images/scale.svg]

The same run by one process with one thread, by one with two, and by two with one; and half of it, by two
programs that know nothing of each other. They take turns of a second, in which the others stand still:
what slows the machine down for longer slows all of them. Then a run of two processes whose messages are
timed: from when both are ready, and how long one waits for the other until then. A half, the waits and
the messages are what two processes should take.

Beyond this machine there is a model and no measurement: every process keeps as many environments as one
has here, so the batch grows; messages go round a ring, over a network of LATENCY and BANDWIDTH.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from recollect import cli
from recollect.agent.agent import build_agent
from recollect.common.distributed import Ranks
from recollect.common.statistics import bootstrap
from recollect.config.config import RunConfig
from recollect.config.presets import preset
from recollect.envs import make
from recollect.learn.optim import FlatAdam

Array = NDArray[np.float64]

LATENCY = 50e-6  # seconds from one machine to the next
BANDWIDTH = 1.1e9  # bytes a second: 10 gigabit Ethernet
NODES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
FIRST = 10  # rollouts of a run that are not counted
TURN, ENDLESS = 1.0, 1_000_000  # seconds, and rollouts
ROLLOUTS, TALKS = 60, 3  # of runs whose messages are timed
SINGLE = os.environ | {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Costs:
    """Seconds of one rollout, and of its messages."""

    one: float
    two_threads: float
    two_processes: float
    half: float
    """Of half the environments, in each of two processes that know nothing of each other."""
    gain: tuple[float, float]
    """Speed of two processes over that of two threads: an interval of 95 %."""
    messages: float
    """Of a rollout, most of them a gradient."""
    message: float
    """From each of two processes to the other."""
    wait: float
    """For the slower of two, before each message."""
    size: int
    """Bytes of a gradient."""

    @property
    def predicted(self) -> float:
        """Of two processes: what each does, what they say, and how long they wait to say it."""
        return self.half + self.messages * (self.message + self.wait)

    @property
    def share(self) -> float:
        """Of the time of two processes that messages take."""
        return self.messages * self.message / self.two_processes

    @property
    def waiting(self) -> float:
        """Of that time, what one waits for the other."""
        return self.messages * self.wait / self.two_processes


def config_of(env: str, model: str, num_envs: int | None) -> RunConfig:
    """The preset, with so many environments; None: as many as it has."""
    config = preset(model, env)
    return replace(config, env=replace(config.env, num_envs=num_envs or config.env.num_envs))


@dataclass(frozen=True)
class Racer:
    """Runs without an end that go at the same time, and only when it is their turn."""

    folder: Path
    runs: list[subprocess.Popen[bytes]]

    def turn(self) -> float:
        """Rollouts a second of each run."""
        assert all(run.poll() is None for run in self.runs), f"a run ended: {self.runs}"
        before, start = self.done(), time.perf_counter()
        self.tell(signal.SIGCONT)
        time.sleep(TURN)
        self.tell(signal.SIGSTOP)
        return (self.done() - before) / len(self.runs) / (time.perf_counter() - start)

    def done(self) -> int:
        """Rollouts of all its runs."""
        return sum(path.read_bytes().count(b"\n") for path in self.folder.rglob("metrics.jsonl"))

    def tell(self, number: signal.Signals) -> None:
        for run in self.runs:
            for pid in _family(run.pid):
                os.kill(pid, number)


def racer(config: RunConfig, folder: Path, processes: int, threads: int) -> Racer:
    """One run."""
    return Racer(folder, [_begun(_training(config, threads, ENDLESS, folder), processes)])


def halves(config: RunConfig, folder: Path) -> Racer:
    """Two runs of half the environments, each on a core of its own."""
    half = replace(config, env=replace(config.env, num_envs=config.env.num_envs // 2))
    racer = Racer(folder, [_begun(_training(half, 1, ENDLESS, folder / place), 1) for place in "ab"])
    for core, run in zip(sorted(os.sched_getaffinity(0)), racer.runs, strict=False):
        os.sched_setaffinity(run.pid, [core])
    return racer


def _training(config: RunConfig, threads: int, rollouts: int, out: Path) -> list[str]:
    command = ["-m", "recollect", "train", config.env.id, "-m", config.model, "--rollouts", str(rollouts)]
    command += ["--val-check-interval", "0", "--save-interval", "0", "--threads", str(threads), "--quiet"]
    return [*command, "--env.num-envs", str(config.env.num_envs), "--out", str(out), "--run-id", "a"]


def _begun(command: list[str], processes: int) -> subprocess.Popen[bytes]:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = SINGLE if processes > 1 else os.environ
    whole = [sys.executable, *(launch if processes > 1 else []), *command]
    return subprocess.Popen(whole, env=environment, stderr=subprocess.DEVNULL)


def _family(pid: int) -> list[int]:
    """A process and all that it began, and these."""
    children = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [pid, *(one for child in " ".join(children).split() for one in _family(int(child)))]


def raced(config: RunConfig, turns: int) -> Array:
    """Rollouts a second: (turns, 4), by one thread, two, two processes, and of each of two halves."""
    with tempfile.TemporaryDirectory() as out:
        ways = {"one": (1, 1), "threads": (1, 2), "processes": (2, 1)}
        racers = [racer(config, Path(out, name), *way) for name, way in ways.items()]
        racers.append(halves(config, Path(out, "halves")))
        try:
            for each in racers:
                each.tell(signal.SIGSTOP)
            for each in racers:
                while each.done() < FIRST * len(each.runs):
                    each.turn()
            return np.array([[each.turn() for each in racers] for _ in range(turns)])
        finally:
            for each in racers:
                each.tell(signal.SIGKILL)


def talked(config: RunConfig) -> tuple[float, float, float]:
    """Of a run of two processes: messages a rollout, seconds of one, and of waiting for the slower before."""
    with tempfile.TemporaryDirectory() as out:
        command = _training(config, 1, ROLLOUTS, Path(out))
        assert _begun(["-m", "benchmarks.processes", "--talk", out, *command[2:]], 2).wait() == 0
        times = np.stack([np.load(path) for path in Path(out).glob("*.npy")])
    came, went = np.moveaxis(times[:, times.shape[1] * FIRST // ROLLOUTS :], 2, 0)
    ready = came.max(0)  # the clock is the machine's
    return times.shape[1] / ROLLOUTS, float((went - ready).mean()), float((ready - came).mean())


def talk(folder: str, command: list[str]) -> None:
    """One of the two processes of `talked`: a run that notes when each message began and ended."""
    times, send = [], Ranks._send

    def timed(ranks: Ranks, message: Callable[[Any], object]) -> None:
        came = time.perf_counter()
        send(ranks, message)
        times.append((came, time.perf_counter()))

    with mock.patch.object(Ranks, "_send", timed):
        assert cli.main(command) == 0
    np.save(Path(folder, os.environ["RANK"]), np.array(times))


def measure(config: RunConfig, turns: int) -> Costs:
    """All that is measured here."""
    speeds = raced(config, turns)
    one, two_threads, two_processes, half = (float(x) for x in 1 / speeds.mean(0))
    low, high = bootstrap(speeds[:, 2] - speeds[:, 1])
    gain = 1 + low * two_threads, 1 + high * two_threads
    talks = np.median([talked(config) for _ in range(TALKS)], axis=0)
    return Costs(one, two_threads, two_processes, half, gain, *talks.tolist(), 4 * len(gradient_of(config)))


def gradient_of(config: RunConfig) -> torch.Tensor:
    """What a process tells the others before each step."""
    envs = make(config.env)
    specs, normalized = (envs.obs_spec, envs.action_spec), config.env.normalize_obs
    agent = build_agent(specs, config.actor, config.critic, normalized, 1)
    envs.adapter.close()
    return FlatAdam([agent.actor, agent.critic], config.ppo).gradient


def efficiency(costs: Costs, nodes: int) -> float:
    """An extrapolation: time of one process alone over that of one among many, each with as much to do."""
    if nodes == 1:
        return 1.0
    # The few messages that are no gradient count as one: what takes time is the way, not the bytes.
    hops = 2 * (nodes - 1)  # of a ring: once round to add up, once to tell
    message = hops * LATENCY + hops / nodes * costs.size / BANDWIDTH
    return costs.one / (costs.one + costs.messages * message)


def draw(costs: Costs, path: Path) -> None:
    """The extrapolation as a line."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    axes.semilogx(NODES, [100 * efficiency(costs, n) for n in NODES], "o-", base=2)
    axes.set(xlabel="processes, each on a machine of its own", ylabel="% of as many alone", ylim=(0, 105))
    axes.set_xticks(NODES, [str(n) for n in NODES])
    axes.set_title("An extrapolation, not a measurement", fontsize=10)
    axes.grid(alpha=0.3)
    figure.savefig(path)


def show(costs: Costs) -> None:
    milliseconds = {
        "one process, one thread": costs.one,
        "one process, two threads": costs.two_threads,
        "two processes": costs.two_processes,
        "half of it, by each of two": costs.half,
        "two processes, predicted": costs.predicted,
    }
    for name, seconds in milliseconds.items():
        print(f"{name:<32} {1e3 * seconds:6.1f} ms a rollout")
    microseconds = {"a message": costs.message, "waiting for the slower before it": costs.wait}
    for name, seconds in microseconds.items():
        print(f"{name:<32} {1e6 * seconds:6.0f} us")
    print(f"{costs.messages:.0f} messages a rollout; a gradient is {costs.size:,} bytes")
    low, high = costs.gain
    faster = costs.two_threads / costs.two_processes
    print(f"two processes are {faster:.2f} times as fast as two threads ({low:.2f} to {high:.2f})")
    print(f"messages take {costs.share:.1%} of the time of two processes, and waiting {costs.waiting:.1%}")
    print(f"the prediction is off by {costs.predicted / costs.two_processes - 1:+.1%}")
    for nodes in NODES:
        print(f"  {nodes:>4} machines, extrapolated: {efficiency(costs, nodes):.0%}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, show, and perhaps draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=__doc__)
    parser.add_argument("--env", default="LunarLander-v3")
    parser.add_argument("--model", default="ppo_lstm")
    parser.add_argument("--turns", type=int, default=60, help="of each, a second long")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--num-envs", type=int, help="other than the preset's")
    parser.add_argument("--talk", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.talk:
        talk(options.talk[0], options.talk[1:])
        return
    costs = measure(config_of(options.env, options.model, options.num_envs), options.turns)
    show(costs)
    if options.plot:
        draw(costs, options.plot)


if __name__ == "__main__":
    main()
