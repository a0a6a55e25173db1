"""What a run gains from a second process, what the messages cost, and what that says of more machines.

    python -m benchmarks.processes [--env LunarLander-v3] [--model ppo_lstm] [--num-envs 128]
                                   [--plot docs/images/scale.svg]

The same run by one process with one thread, by one with two, and by two with one, in turn, several
times; the median time of a rollout counts. Then the parts: a rollout of half the environments, and
a message of the gradient's size between two processes. Their sum is what two processes should take.

Beyond this machine there is a model and no measurement: every process keeps as many environments as one
has here, so the batch grows; messages go round a ring, over a network of LATENCY and BANDWIDTH.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from recollect.agent import build_agent
from recollect.bench import pace
from recollect.config import RunConfig
from recollect.envs import make
from recollect.optim import FlatAdam
from recollect.presets import preset
from recollect.ranks import bound, joined

LATENCY = 50e-6  # seconds from one machine to the next
BANDWIDTH = 1.1e9  # bytes a second: 10 gigabit Ethernet
NODES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
ROLLOUTS, FIRST = 60, 10  # of a run; the first are not counted
MESSAGES = 400
SINGLE = os.environ | {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Costs:
    """Seconds of one rollout, and of its messages."""

    one: float
    two_threads: float
    two_processes: float
    half: float
    """Of half the environments, in each of two processes that know nothing of each other."""
    message: float
    """From each of two processes to the other, as long as the gradient, waiting included."""
    messages: int
    size: int
    """Bytes of one."""

    @property
    def predicted(self) -> float:
        """Of two processes: what each does, and what they say."""
        return self.half + self.messages * self.message

    @property
    def share(self) -> float:
        """Of the time of two processes that messages take."""
        return self.messages * self.message / self.two_processes


def config_of(env: str, model: str, num_envs: int | None) -> RunConfig:
    """A short run of the preset, with so many environments; None: as many as it has."""
    config = preset(model, env)
    count = replace(config.env, num_envs=num_envs or config.env.num_envs)
    return replace(config, env=count, steps=None, rollouts=ROLLOUTS, val_check_interval=0, save_interval=0)


def seconds_a_rollout(config: RunConfig, processes: int, threads: int) -> float:
    """The median over a run's later rollouts."""
    command = ["-m", "recollect", "train", config.env.id, "-m", config.model, "--rollouts", str(ROLLOUTS)]
    command += ["--val-check-interval", "0", "--save-interval", "0", "--threads", str(threads), "--quiet"]
    command += ["--env.num-envs", str(config.env.num_envs)]
    with tempfile.TemporaryDirectory() as out:
        _run(processes, [*command, "--out", out, "--run-id", "a"])
        path = next(Path(out).rglob("metrics.jsonl"))
        times = [json.loads(line)["time"] for line in path.read_text().splitlines()]
    steps = [after - before for before, after in itertools.pairwise(times)]
    return statistics.median(steps[FIRST:])


def seconds_of_halves(config: RunConfig) -> float:
    """A rollout of half the environments, the mean of two programs that run at the same time."""
    half = ["--half", config.env.id, config.model, str(config.env.num_envs // 2)]
    command = [sys.executable, "-m", "benchmarks.processes", *half]
    pipe = subprocess.PIPE
    both = [subprocess.Popen([*command, str(i)], env=SINGLE, stdout=pipe, text=True) for i in range(2)]
    return statistics.mean(float(process.communicate()[0]) for process in both)


def half_of_it(env: str, model: str, num_envs: int, place: int) -> float:
    """One of the two programs of `seconds_of_halves`."""
    torch.set_num_threads(1)
    config = config_of(env, model, num_envs)
    with bound(place, 2):
        return pace(replace(config, env=replace(config.env, threads=1), rollouts=1), seconds=5.0)


def seconds_a_message(floats: int, between: float) -> float:
    """The mean over many, between two processes that compute for so many seconds in between."""
    with tempfile.NamedTemporaryFile() as file:
        _run(2, ["-m", "benchmarks.processes", "--talk", str(floats), str(between), file.name])
        return float(file.read())


def talk(floats: int, between: float, path: str) -> None:
    """One of the two processes of `seconds_a_message`."""
    torch.set_num_threads(1)
    with joined() as ranks:
        x, y, times = torch.zeros(floats), torch.randn(128, 128), []
        for _ in range(MESSAGES):
            start = time.perf_counter()
            while time.perf_counter() < start + between:
                y @ y
            start = time.perf_counter()
            ranks.add(x)
            times.append(time.perf_counter() - start)
        if ranks.leads:
            Path(path).write_text(str(statistics.mean(times[MESSAGES // 4 :])))


def _run(processes: int, command: list[str]) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = SINGLE if processes > 1 else os.environ
    whole = [sys.executable, *(launch if processes > 1 else []), *command]
    subprocess.run(whole, check=True, env=environment, stderr=subprocess.DEVNULL)


def measure(config: RunConfig, repeats: int) -> Costs:
    """Each way to run it in turn, `repeats` times; medians."""
    ways = ((1, 1), (1, 2), (2, 1))
    found = [[seconds_a_rollout(config, *way) for way in ways] for _ in range(repeats)]
    one, two_threads, two_processes = (statistics.median(times) for times in zip(*found, strict=True))
    envs = make(config.env)
    agent = build_agent(
        (envs.obs_spec, envs.action_spec), config.actor, config.critic, config.env.normalize_obs, 1
    )
    envs.adapter.close()
    gradient = FlatAdam([agent.actor, agent.critic], config.ppo).gradient
    half = statistics.median(seconds_of_halves(config) for _ in range(repeats))
    count = config.ppo.update_epochs * (config.ppo.num_minibatches or 1)
    messages = [seconds_a_message(len(gradient), half / count) for _ in range(repeats)]
    return Costs(
        one,
        two_threads,
        two_processes,
        half,
        statistics.median(messages),
        count,
        4 * len(gradient),
    )


def efficiency(costs: Costs, nodes: int) -> float:
    """An extrapolation: time of one process alone over that of one among many, each with as much to do."""
    if nodes == 1:
        return 1.0
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
        "two processes, predicted": costs.predicted,
        "half of it, by each of two": costs.half,
    }
    for name, seconds in milliseconds.items():
        print(f"{name:<30} {1e3 * seconds:8.1f} ms a rollout")
    print(
        f"{'a message':<30} {1e6 * costs.message:8.0f} us, {costs.messages} a rollout, {costs.size:,} bytes"
    )
    print(f"messages take {costs.share:.1%} of the time of two processes")
    print(f"the prediction is off by {costs.predicted / costs.two_processes - 1:+.1%}")
    for nodes in NODES:
        print(f"  {nodes:>4} machines, extrapolated: {efficiency(costs, nodes):.0%}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, show, and perhaps draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=__doc__)
    parser.add_argument("--env", default="LunarLander-v3")
    parser.add_argument("--model", default="ppo_lstm")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--num-envs", type=int, help="other than the preset's")
    parser.add_argument("--talk", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--half", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.talk:
        floats, between, path = options.talk
        talk(int(floats), float(between), path)
        return
    if options.half:
        env, model, num_envs, place = options.half
        print(half_of_it(env, model, int(num_envs), int(place)))
        return
    costs = measure(config_of(options.env, options.model, options.num_envs), options.repeats)
    show(costs)
    if options.plot:
        draw(costs, options.plot)


if __name__ == "__main__":
    main()
