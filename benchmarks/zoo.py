"""The presets of recollect beside RL Zoo's settings of Stable-Baselines3, after equal numbers of steps.

    python -m benchmarks.zoo [--tasks CartPole-v1 ...] [--seeds 5] [--jobs 2] [--out benchmarks/results]

Steps are those of RL Zoo, but one million of its five in BipedalWalker. A score is the mean return of 100
deterministic episodes of the last weights, on seeds that training did not use. MountainCar-v0, which has no
preset of its own, has the defaults of any environment.

Presets that were worse were changed on seeds from 101 on, and measured again with the next five seeds. At
first Acrobot-v1 had larger minibatches, Pendulum-v1 shared the preset of PendulumNoVel-v1, and
LunarLanderContinuous-v3 had the defaults (seeds 1 to 5), and then larger minibatches (6 to 10). One run each
of BipedalWalker-v3 and PendulumNoVel-v1 was finished when their presets were changed.

Runs of both take turns, each in a process of its own, with one thread for torch and one for EnvPool. With
two jobs, two runs at a time slow each other alike. Finished runs are kept in files, and not repeated. Runs of
an earlier preset keep their place there, under another label.

RL Zoo: hyperparams/ppo.yml at 208b6fd and hyperparams/ppo_lstm.yml at c94924e. An earlier version of the
latter, 038ab16, was taken first, which has no normalisation and the default LSTM of 256.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from recollect.common.intervals import Floats, Interval, mean_weights, stratified
from recollect.reporting.scores import weighted_mean_interval
from recollect.run.weights import processor_name

from .cells import ratio, table
from .common import Result, Run, in_a_process, kept, ours

OURS, ZOO = "recollect", "RL Zoo"
EARLIER, EARLIER_ZOO = "recollect, earlier preset", "RL Zoo at 038ab16"
EPISODES = 100
LANDER = dict(n_steps=1024, batch_size=64, gae_lambda=0.98, gamma=0.999, n_epochs=4, ent_coef=0.01)
CARTPOLE = dict(
    n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, ent_coef=0.0,
    learning_rate="linear 1e-3", clip_range="linear 0.2",
)  # fmt: skip
PENDULUM = dict(
    n_steps=1024, gae_lambda=0.95, gamma=0.9, n_epochs=10, ent_coef=0.0, learning_rate=1e-3, clip_range=0.2,
    use_sde=True, sde_sample_freq=4,
)  # fmt: skip
CAR_WITHOUT_VELOCITY = dict(
    n_steps=1024, batch_size=256, gamma=0.9999, gae_lambda=0.9, n_epochs=10, ent_coef=0.00429,
    learning_rate=7.77e-05, clip_range=0.1, max_grad_norm=5, vf_coef=0.19, use_sde=True, sde_sample_freq=8,
    policy_kwargs=dict(
        log_std_init=0.0, ortho_init=False, lstm_hidden_size=32, enable_critic_lstm=True,
        net_arch=dict(pi=[64], vf=[64]),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A task with both runs."""

    name: str
    steps: int
    zoo: dict[str, Any]
    """Settings of benchmarks.shims.sb3."""
    model: str = "ppo"
    skipped: int = 0
    """Seeds of recollect before the first one, where the preset was changed after runs with these."""

    @property
    def runs(self) -> dict[str, Run]:
        """By label."""
        fixed = {"policy": "MlpPolicy", "env": self.name, "normalize": False, "budget": self.steps}
        fixed |= {"algorithm": "stable_baselines3:PPO", "steps": self.steps, "threads": 1}
        # A validation would show nothing that is used here.
        options = {"threads": 1, "env.threads": 1, "val_check_interval": 0}
        preset = ours(self.name, self.model, self.steps, options)
        return {OURS: replace(preset, label=OURS), ZOO: Run(ZOO, "sb3", fixed | self.zoo)}


def recurrent(
    env: str, mask: Sequence[int], hyperparameters: dict[str, Any], num_envs: int
) -> dict[str, Any]:
    """sb3-contrib's RecurrentPPO, velocities being zeros; by default actor and critic have an LSTM of 64."""
    how = {"algorithm": "sb3_contrib:RecurrentPPO", "policy": "MlpLstmPolicy", "env": env, "mask": mask}
    nets = dict(
        ortho_init=False, activation_fn="ReLU", lstm_hidden_size=64, enable_critic_lstm=True,
        net_arch=dict(pi=[64], vf=[64]),
    )  # fmt: skip
    chosen = {"policy_kwargs": nets, **hyperparameters}
    return {**how, "num_envs": num_envs, "normalize": True, "hyperparameters": chosen}


PAIRS = (
    Pair("CartPole-v1", 100_000, {"num_envs": 8, "hyperparameters": CARTPOLE}),
    Pair(
        "Acrobot-v1",
        1_000_000,
        {
            "num_envs": 16,
            "normalize": True,
            "hyperparameters": dict(n_steps=256, gae_lambda=0.94, gamma=0.99, n_epochs=4, ent_coef=0.0),
        },
        skipped=5,
    ),
    Pair(
        "MountainCar-v0",
        1_000_000,
        {
            "num_envs": 16,
            "normalize": True,
            "hyperparameters": dict(n_steps=16, gae_lambda=0.98, gamma=0.99, n_epochs=4, ent_coef=0.0),
        },
    ),
    Pair("Pendulum-v1", 100_000, {"num_envs": 4, "hyperparameters": PENDULUM}, skipped=5),
    Pair(
        "MountainCarContinuous-v0",
        20_000,
        {
            "num_envs": 1,
            "normalize": True,
            "hyperparameters": dict(
                batch_size=256, n_steps=8, gamma=0.9999, learning_rate=7.77e-05, ent_coef=0.00429,
                clip_range=0.1, n_epochs=10, gae_lambda=0.9, max_grad_norm=5, vf_coef=0.19, use_sde=True,
                policy_kwargs=dict(log_std_init=-3.29, ortho_init=False),
            ),
        },
    ),
    Pair("LunarLander-v3", 1_000_000, {"num_envs": 16, "hyperparameters": LANDER}),
    Pair(
        "LunarLanderContinuous-v3", 1_000_000, {"num_envs": 16, "hyperparameters": LANDER}, skipped=10,
    ),
    Pair(
        "BipedalWalker-v3",
        1_000_000,
        {
            "num_envs": 32,
            "normalize": True,
            "hyperparameters": dict(
                n_steps=2048, batch_size=64, gae_lambda=0.95, gamma=0.999, n_epochs=10, ent_coef=0.0,
                learning_rate=3e-4, clip_range=0.18,
            ),
        },
        skipped=1,
    ),
    Pair("CartPoleNoVel-v1", 100_000, recurrent("CartPole-v1", [1, 0, 1, 0], CARTPOLE, 8), "ppo_lstm"),
    Pair("PendulumNoVel-v1", 100_000, recurrent("Pendulum-v1", [1, 1, 0], PENDULUM, 4), "ppo_lstm", 1),
    Pair(
        "MountainCarContinuousNoVel-v0",
        300_000,
        recurrent("MountainCarContinuous-v0", [1, 0], CAR_WITHOUT_VELOCITY, 8),
        "ppo_lstm",
    ),
)  # fmt: skip


# Runs -----------------------------------------------------------------------------------------


def measure(pair: Pair, label: str, seed: int) -> Result:
    """One run, in a process of its own."""
    run = pair.runs[label]
    goal = {"metric": "return", "target": None, "cap": float("inf"), "episodes": EPISODES, "seed": seed}
    outcome = in_a_process(f"benchmarks.shims.{run.shim}", json.dumps({**run.settings, **goal}))
    score, took = outcome["score"], outcome["seconds"]
    print(f"  {pair.name}  {label} seed {seed}: {score:.1f} after {took:.1f} s", flush=True)
    return {**outcome, "processor": processor_name()}


def measure_all(pairs: Sequence[Pair], seeds: int, jobs: int, out: Path) -> None:
    """All runs that are not yet in files."""
    out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        for pair in pairs:
            results = load(out, pair)
            # Both runs of a seed after one another, so that two jobs take one of each at a time.
            first = {OURS: 1 + pair.skipped, ZOO: 1}
            todo = [(first[label] + i, label) for i in range(seeds) for label in (OURS, ZOO)]
            todo = [(seed, label) for seed, label in todo if str(seed) not in results[label]]
            started = [(seed, label, pool.submit(measure, pair, label, seed)) for seed, label in todo]
            for seed, label, future in started:
                results[label][str(seed)] = future.result()
                versions = {name: version(name) for name in ("stable-baselines3", "sb3-contrib")}
                whole = {"processor": processor_name(), "peers": versions, "runs": results}
                kept(out, "zoo", pair.name).write_text(json.dumps(whole, indent=1) + "\n")


def load(out: Path, pair: Pair) -> dict[str, dict[str, Result]]:
    """The kept runs of a task: label -> seed -> result. Skipped seeds are of an earlier preset."""
    file = kept(out, "zoo", pair.name)
    runs: dict[str, dict[str, Result]] = json.loads(file.read_text())["runs"] if file.exists() else {}
    runs = {OURS: {}, ZOO: {}, **runs}
    skipped = [seed for seed in runs[OURS] if int(seed) <= pair.skipped]
    if skipped:
        runs[EARLIER] = {**runs.get(EARLIER, {}), **{seed: runs[OURS].pop(seed) for seed in skipped}}
    return runs


# Table ----------------------------------------------------------------------------------------


def difference(mine: Floats, theirs: Floats) -> tuple[float, Interval]:
    """The difference of the means, with its interval."""
    interval = stratified([mine, theirs], lambda drawn: drawn[0].mean(1) - drawn[1].mean(1))
    assert interval, "two seeds or more"
    return float(mine.mean() - theirs.mean()), interval


def fewest(runs: dict[str, dict[str, Result]]) -> int:
    """The number of seeds that both have."""
    return min(len(runs[OURS]), len(runs[ZOO]))


def scores_of(runs: dict[str, Result]) -> Floats:
    """The scores, sorted."""
    return np.sort([run["score"] for run in runs.values()])


def lines(out: Path) -> list[str]:
    """The table, and how many tasks each side is better in; replaced settings have rows of their own."""
    measured = [(pair, load(out, pair)) for pair in PAIRS]
    measured = [(pair, runs) for pair, runs in measured if fewest(runs) > 1]
    header = ["task", "steps", "seeds", OURS, ZOO, "difference", "time", f"time, {ZOO}", "speed"]
    present = [_line(pair, OURS, ZOO, runs) for pair, runs in measured]
    replaced = [
        _line(pair, *((OURS, label) if label == EARLIER_ZOO else (label, ZOO)), runs)
        for pair, runs in measured
        for label in runs
        if label not in (OURS, ZOO) and len(runs[label]) > 1
    ]
    differences = [difference(scores_of(runs[OURS]), scores_of(runs[ZOO])) for _, runs in measured]
    higher = sum(value >= 0 for value, _ in differences)
    better = sum(interval.low > 0 for _, interval in differences)
    worse = sum(interval.high < 0 for _, interval in differences)
    return [
        *table(header, present + replaced),
        "",
        f"Mean at least as high in {higher} of {len(measured)} tasks; "
        f"interval of the difference above 0 in {better} and below in {worse}.",
    ]


def _line(pair: Pair, label: str, peer: str, runs: dict[str, dict[str, Result]]) -> list[str]:
    """The runs of recollect and of RL Zoo with these labels."""
    both = runs[label], runs[peer]
    scores = [scores_of(some) for some in both]
    value, interval = difference(*scores)
    digits = 1 if max(abs(some).max() for some in scores) < 1000 else 0
    times = [statistics.median(run["seconds"] for run in some.values()) for some in both]
    # Of both sides; None: the earliest runs, which do not tell it.
    processors = {run.get("processor") for some in both for run in some.values()}
    other = "" if peer == ZOO else f", {peer}"
    return [
        f"{pair.name} ({pair.model}{label.removeprefix(OURS)}{other})",
        f"{pair.steps:,}",
        str(min(map(len, both))),
        *(mean_cell(some, digits) for some in scores),
        f"{value:.{digits}f} ({interval.low:.{digits}f} to {interval.high:.{digits}f})",
        *(f"{took:.{1 if took < 100 else 0}f} s" for took in times),
        ratio(*times) + (", on different processors" if len(processors) > 1 else ""),
    ]


def mean_cell(scores: Floats, digits: int) -> str:
    """The mean over seeds with its interval."""
    interval = weighted_mean_interval(scores, mean_weights(len(scores)))
    assert interval, "two seeds or more"
    return f"{scores.mean():.{digits}f} ({interval.low:.{digits}f} to {interval.high:.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="*", choices=[pair.name for pair in PAIRS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--table", action="store_true", help="print what was kept, run nothing")
    args = parser.parse_args()
    if not args.table:
        pairs = [pair for pair in PAIRS if pair.name in (args.tasks or [pair.name])]
        measure_all(pairs, args.seeds, args.jobs, args.out)
    print("\n".join(lines(args.out)))


if __name__ == "__main__":
    main()
