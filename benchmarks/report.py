"""Time and memory of a report on many runs.

    python -m benchmarks.report [--runs 200] [--out FOLDER]

Creates run folders with simulated results, of realistic size: 4 environments, 10 models,
5 seeds, 300 lines of metrics and 100 evaluated episodes each. The report runs in a
process of its own; the script prints its time, its peak memory, and the size of the page.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.common.metrics import METRICS
from recollect.config.assembly import assemble
from recollect.config.config import resolve
from recollect.config.data import config_hash, to_dict, write_yaml
from recollect.memory import available

SEEDS = 5
# Environment -> return before and after training.
ENVS = {
    "CartPole-v1": (20.0, 500.0),
    "CartPoleNoVel-v1": (20.0, 480.0),
    "LunarLander-v3": (-180.0, 260.0),
    "Pendulum-v1": (-1300.0, -150.0),
}
# Model -> final performance, from 0 (learns nothing) to 1.
MODELS = {
    "ppo": 0.75,
    "ppo_stack": 0.8,
    "ppo_gru": 0.93,
    "ppo_lstm": 0.95,
    "ppo_mingru": 0.9,
    "ppo_gpt": 0.85,
    "ppo_gpt_frozen": 0.7,
    "ppo_gpt_actor": 0.88,
    "ppo_gpt_shared": 0.82,
    "ppo_trxl": 0.92,
}


def invent_run(
    out: Path,
    env: str = "CartPole-v1",
    model: str = "ppo",
    seed: int = 1,
    lines: int = 300,
    skill: float | None = None,
    flags: Sequence[str] = (),
    evaluated: bool = True,
) -> Path:
    """The folder of a finished run with simulated results, a function of the arguments.

    skill  final performance, from 0 to 1
    flags  further options, as for recollect train
    """
    arguments = ["--env.id", env, "-m", model, "--seed", str(seed), *flags]
    config = resolve(assemble(arguments), "own", native=True, time_limit=500)
    random = np.random.default_rng([seed, *map(ord, model + env + "".join(flags))])
    top = (MODELS[model] if skill is None else skill) + 0.05 * random.standard_normal()
    folder = out / model / env / f"s{seed}{'-'.join(['', *flags]).replace('--', '')}"
    folder.mkdir(parents=True)
    write_yaml(config, folder / "config.yaml")
    rows = _metrics(env, top, lines, random)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    last = rows[-1]
    versions = {"recollect": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.4.6", "cpu": "AVX512"}
    summary = {"status": "finished", "config_hash": config_hash(config), "versions": versions}
    summary |= {"logging": {}, "step": last["step"], "time": last["time"], "return": last["return"]}
    _write(folder / "summary.json", summary)
    if evaluated:
        _write(folder / "evaluation.json", evaluation(env, str(folder), last["return"], random))
    assert set(last) == set(METRICS) and to_dict(config)["actor"]["memory"]["name"] in available()
    return folder


def evaluation(env: str, agent: str, mean: float, random: np.random.Generator) -> dict[str, Any]:
    """Data like Evaluation.as_json, for 100 episodes around a mean."""
    low, high = ENVS[env]
    returns = mean + 0.05 * (high - low) * random.standard_normal(100)
    return {
        "env": env,
        "agent": agent,
        "seed": 0,
        "deterministic": True,
        "returns": returns.tolist(),
        "lengths": [200] * 100,
        "successes": [None] * 100,
        "episodes": 100,
        "mean": float(returns.mean()),
        "std": float(returns.std()),
        "success": None,
    }


def _metrics(env: str, top: float, lines: int, random: np.random.Generator) -> list[dict[str, Any]]:
    """Metrics of a run whose return follows a logistic curve."""
    low, high = ENVS[env]
    middle, pace = 0.3 + 0.1 * random.standard_normal(), 3000 * random.uniform(0.8, 1.2)
    wander = np.cumsum(random.standard_normal(lines)) * 0.004
    rows = []
    for i in range(lines):
        learned = top / (1 + math.exp(-12 * ((i + 1) / lines - middle))) + wander[i]
        step = 2000 * (i + 1)
        row = dict.fromkeys(METRICS, 0.0) | {"step": step, "iteration": i + 1, "time": step / pace}
        row |= {"return": low + (high - low) * min(learned, 1.0) if i > 2 else None, "success": None}
        row |= {"length": 100 + 100 * learned, "entropy": 0.7 - 0.5 * learned, "sps": pace}
        row |= {"value_loss": 5 * random.lognormal(), "policy_loss": -0.01 * random.random()}
        row |= {"explained_variance": learned, "episodes": 10 * i, "val_return": None}
        rows.append(row)
    return rows


def _write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n")


def main() -> None:
    """Simulate runs, report on them, print time, memory and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--out", type=Path, help="keep runs and report here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        wanted = ((seed, model, env) for seed in range(1, 10**6) for model in MODELS for env in ENVS)
        for (seed, model, env), _ in zip(wanted, range(options.runs), strict=False):
            invent_run(out / "runs", env, model, seed)
        command = [
            sys.executable,
            "-m",
            "recollect.cli",
            "report",
            str(out / "runs"),
            "-o",
            str(out / "report"),
        ]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        page = (out / "report" / "report.html").stat().st_size / 1e6
        print(f"{options.runs} runs: {seconds:.1f} s, {memory:.0f} MB of memory, a page of {page:.1f} MB")


if __name__ == "__main__":
    main()
