"""LunarLander at the tutorial's hyperparameters, with its time limit as truncation and as termination.

    python -m benchmarks.limits [--seeds 10] [--arms truncated terminated] [--out runs/limits] [-o FILE.json]

The tutorial's code takes a time limit for termination. An arm of runs is trained on that environment, the
other on the environment as it is, where the final observation of a truncated episode is bootstrapped. All
else is configs/tutorial_lunarlander.yaml. The last weights of each run then play on the environment as it
is, with the most likely actions and with sampled ones. Counted is how each episode ends: a landing pays
100 in the last step, a crash or leaving the view -100, and a truncated episode neither.

Finished runs are not trained again; an unfinished one is resumed.
"""

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

import recollect
from recollect import rng, run
from recollect.config import RunConfig
from recollect.envs import make_to_play
from recollect.presets import assemble
from recollect.session import Destination

CONFIG = Path(__file__).parents[1] / "configs" / "tutorial_lunarlander.yaml"
ENV = "LunarLander-v3"
ENDINGS = ("landed", "crashed", "time limit")
Arm = Literal["truncated", "terminated"]
ARMS: tuple[Arm, ...] = ("truncated", "terminated")


class LimitTerminates(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose time limit counts as termination."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, False, info


def terminated() -> gymnasium.Env[Any, Any]:
    """LunarLander whose time limit counts as termination."""
    return LimitTerminates(gymnasium.make(ENV))


def truncated() -> gymnasium.Env[Any, Any]:
    """LunarLander as it is."""
    return gymnasium.make(ENV)


FACTORIES = {"truncated": truncated, "terminated": terminated}


def config_of(arm: Arm, seed: int, steps: int) -> RunConfig:
    """One run of an arm."""
    flags = ["--env.id", f"callable-{arm}", "--seed", str(seed), "--steps", str(steps)]
    config: RunConfig = assemble(["--config", str(CONFIG), *flags], "", "")
    return config


def trained(arm: Arm, seed: int, steps: int, out: Path) -> Path:
    """The folder of a finished run."""
    config, factory = config_of(arm, seed, steps), FACTORIES[arm]
    folder = out / "ppo" / config.env.id / f"s{seed}"
    if (folder / "summary.json").exists():
        return recollect.resume(folder, env=factory, quiet=True).folder
    return run.start(config, Destination(out=out, run_id=f"s{seed}", quiet=True), factory).folder


def endings(folder: Path, episodes: int, deterministic: bool) -> dict[str, float]:
    """How episodes of the last weights end, on the environment as it is."""
    agent = recollect.load(folder, env=ENV)
    envs = make_to_play(replace(agent.config.env, num_envs=episodes, backend="gymnasium"))
    player = agent.player(episodes, deterministic, seed=0)
    obs = envs.adapter.reset(rng.env_seeds(0, rng.Purpose.EVALUATE, 0, episodes))
    total, length = np.zeros(episodes), np.zeros(episodes, dtype=int)
    last, over = np.zeros(episodes), np.zeros(episodes, dtype=bool)
    while not over.all():
        step = envs.adapter.step(player.act(obs))
        total, length = total + np.where(over, 0.0, step.reward), length + ~over
        now = ~over & (step.terminated | step.truncated)
        last[now] = np.where(step.terminated, step.reward, 0.0)[now]
        obs, over = step.obs, over | now
    envs.adapter.close()
    shares = (last == 100).mean(), (last == -100).mean(), (last == 0).mean()
    means = {"return": float(total.mean()), "length": float(length.mean())}
    return dict(zip(ENDINGS, map(float, shares), strict=True)) | means


def measured(arm: Arm, seed: int, steps: int, out: Path) -> dict[str, Any]:
    """One run: how its last training episodes and those of its last weights end."""
    folder = trained(arm, seed, steps, out)
    recent = recollect.load(folder, env=ENV).episodes()[-100:]
    return {
        "arm": arm,
        "seed": seed,
        "training": {
            "return": statistics.mean(x.return_ for x in recent),
            "length": statistics.mean(x.length for x in recent),
            "time limit": statistics.mean(x.length == 1000 for x in recent),
        },
        "deterministic": endings(folder, 100, deterministic=True),
        "sampled": endings(folder, 100, deterministic=False),
    }


def row(results: list[dict[str, Any]], arm: Arm, mode: str) -> str:
    """Means over the seeds of an arm, as a line of a table."""
    runs = [result[mode] for result in results if result["arm"] == arm]
    shares = (f"{100 * statistics.mean(x[ending] for x in runs):.0f} %" for ending in ENDINGS)
    values = (f"{statistics.mean(x[key] for x in runs):.0f}" for key in ("return", "length"))
    return f"| {arm} | {mode} | {' | '.join((*shares, *values))} |"


def main() -> None:
    """Train what is missing, play, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--steps", type=int, default=256_000)
    parser.add_argument("--out", type=Path, default=Path("runs/limits"))
    parser.add_argument("-o", dest="file", type=Path)
    options = parser.parse_args()
    results = []
    for seed in range(1, options.seeds + 1):
        for arm in options.arms:
            results.append(measured(arm, seed, options.steps, options.out))
            print(json.dumps(results[-1]), flush=True)
            if options.file:  # after every run, so that a stop keeps what was measured
                options.file.write_text(json.dumps(results, indent=1) + "\n")
    print("| time limit as | actions | landed | crashed | time limit | return | length |")
    print("|---|---|---|---|---|---|---|")
    for arm in options.arms:
        for mode in ("deterministic", "sampled"):
            print(row(results, arm, mode))


if __name__ == "__main__":
    main()
