"""LunarLander at the tutorial's hyperparameters, with and without the errors of the tutorial's code.

    python -m benchmarks.limits [--seeds 10] [--arms ARM...] [--out runs/limits] [-o FILE.json]

All arms are trained with configs/tutorial_lunarlander.yaml:

truncated   no change: truncated episodes bootstrap from the value of the final observation
terminated  the time limit counts as termination
critic      each value is compared with every target of its minibatch: there, values (16, 1) minus
            targets (16,) are a matrix (16, 16), so each value is fitted to the mean target of its minibatch
published   both, and advantages that continue into the next episode and are 0 in the last step of a rollout

The last weights of each run are evaluated on the unchanged environment, with deterministic and with sampled
actions. The ends of episodes are counted: a landing has the reward 100 in the last step, a crash or leaving
the view -100, and a truncated episode neither. Of the last 20 training episodes only returns and lengths
are known: landed is a return above 200 before the time limit, crashed any other end before it.

Finished runs are not trained again; an unfinished one is resumed.
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import gymnasium
import numpy as np
import torch
from torch import Tensor

import recollect
from recollect.agent.agent import Agent
from recollect.common import rng
from recollect.common.intervals import mean_weights
from recollect.config.assembly import assemble
from recollect.config.config import RunConfig
from recollect.envs import make_for_evaluation
from recollect.learn import ppo
from recollect.learn.chunks import Batch
from recollect.learn.episodes import Episode
from recollect.learn.maths import Loss, mean
from recollect.learn.rollout import Outcome, Rollout
from recollect.learn.settings import Coefficients, PPOConfig
from recollect.reporting.scores import UNBOUNDED, weighted_mean_interval
from recollect.run import run
from recollect.run.destination import Destination

CONFIG = Path(__file__).parents[1] / "configs" / "tutorial_lunarlander.yaml"
ENV = "LunarLander-v3"
ENDINGS = ("landed", "crashed", "time limit")
LIMIT, LAST = 1000, 20  # steps of an episode; training episodes that are counted
Arm = Literal["truncated", "terminated", "critic", "published"]
ARMS: tuple[Arm, ...] = ("truncated", "terminated", "critic", "published")
RESULTS = Path("docs/results/limits.json")


class LimitTerminates(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose time limit counts as termination."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, False, info


def make_terminated() -> gymnasium.Env[Any, Any]:
    """LunarLander whose time limit counts as termination."""
    return LimitTerminates(gymnasium.make(ENV))


def make_truncated() -> gymnasium.Env[Any, Any]:
    """LunarLander, unchanged."""
    return gymnasium.make(ENV)


FACTORIES = {
    "truncated": make_truncated,
    "terminated": make_terminated,
    "critic": make_truncated,
    "published": make_terminated,
}


def broadcast_mean(weight: Tensor, target: Tensor) -> Tensor:
    """The mean target for every step; its squared error has the gradient of the errors of all pairs."""
    return mean(weight, target).expand_as(target)


CORRECT_LOSS = ppo.loss


def loss(agent: Agent, batch: Batch, cfg: PPOConfig, now: Coefficients) -> Loss:
    """The loss of PPO, but each value is compared with every target of the minibatch."""
    targets = broadcast_mean(batch.weight, batch.target)
    return CORRECT_LOSS(agent, batch._replace(target=targets), cfg, now)


def advantages(rollout: Rollout | Outcome, reward: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Advantages (T, N) that continue into the next episode and are 0 in the last step."""
    values, valid = rollout.value, rollout.valid[:-1]
    delta = reward + gamma * values[1:] * ~rollout.terminated - values[:-1]
    delta = delta.masked_fill(~valid, 0.0)
    delta[-1] = 0.0
    # That code has no tail rows, so the sum passes them without decay.
    decay = (gamma * gae_lambda * valid.to(delta.dtype)).masked_fill(~valid, 1.0)
    running, out = torch.zeros_like(delta[0]), torch.zeros_like(delta)
    for t in reversed(range(len(delta))):
        running = delta[t] + decay[t] * running
        out[t] = running
    return out.masked_fill(~valid, 0.0)


@contextmanager
def patched_errors(arm: Arm) -> Iterator[None]:
    """Within this context PPO has the errors of an arm."""
    arm_loss = loss if arm in ("critic", "published") else ppo.loss
    arm_advantages = advantages if arm == "published" else ppo.advantages
    with patch.object(ppo, "loss", arm_loss), patch.object(ppo, "advantages", arm_advantages):
        yield


def config_of(arm: Arm, seed: int, steps: int) -> RunConfig:
    """One run of an arm."""
    flags = ["--env.id", f"callable-{arm}", "--seed", str(seed), "--steps", str(steps)]
    config: RunConfig = assemble(["--config", str(CONFIG), *flags])
    return config


def train_arm(arm: Arm, seed: int, steps: int, out: Path) -> Path:
    """The folder of a finished run."""
    config, factory = config_of(arm, seed, steps), FACTORIES[arm]
    folder = out / "ppo" / config.env.id / f"s{seed}"
    with patched_errors(arm):
        if (folder / "summary.json").exists():
            return recollect.resume(folder, env=factory, quiet=True).folder
        return run.start_run(config, Destination(out=out, run_id=f"s{seed}", quiet=True), factory).folder


def count_endings(folder: Path, episodes: int, deterministic: bool) -> dict[str, float]:
    """How episodes of the last weights end, on the unchanged environment."""
    agent = recollect.load(folder, env=ENV)
    envs = make_for_evaluation(replace(agent.config.env, num_envs=episodes, backend="gymnasium"))
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


def training_endings(episodes: Sequence[Episode]) -> dict[str, float]:
    """How training episodes ended, inferred from returns and lengths."""
    over = [x.length >= LIMIT for x in episodes]
    landed = [x.length < LIMIT and x.return_ > 200 for x in episodes]
    crashed = [not (a or b) for a, b in zip(over, landed, strict=True)]
    shares = (float(statistics.mean(x)) for x in (landed, crashed, over))
    means = {key: float(statistics.mean(getattr(x, key) for x in episodes)) for key in ("return_", "length")}
    return dict(zip(ENDINGS, shares, strict=True)) | {"return": means["return_"], "length": means["length"]}


def measure(arm: Arm, seed: int, steps: int, out: Path) -> dict[str, Any]:
    """One run: how its last training episodes and those of its last weights end."""
    folder = train_arm(arm, seed, steps, out)
    status = json.loads((folder / "summary.json").read_text())["status"]
    if status != "finished":  # a signal stopped it; its weights are not those that are compared
        raise SystemExit(f"{folder} is {status}, not finished: the same command resumes it")
    return {
        "arm": arm,
        "seed": seed,
        "training": training_endings(recollect.load(folder, env=ENV).episodes()[-LAST:]),
        "deterministic": count_endings(folder, 100, deterministic=True),
        "sampled": count_endings(folder, 100, deterministic=False),
    }


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of Markdown: means over the seeds of each arm, with 95 % intervals of landings and returns."""
    lines = [
        "| arm | actions | landed (95 %) | crashed | time limit | return (95 %) | steps |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in dict.fromkeys(result["arm"] for result in results):
        for mode in ("training", "deterministic", "sampled"):
            runs = [result[mode] for result in results if result["arm"] == arm]
            landed, crashed, over = ([100 * run[ending] for run in runs] for ending in ENDINGS)
            returns = spread([run["return"] for run in runs], UNBOUNDED)
            shares = spread(landed, (0, 100)), *(f"{statistics.mean(x):.0f} %" for x in (crashed, over))
            steps = f"{statistics.mean(run['length'] for run in runs):.0f}"
            lines.append(f"| {arm} | {mode} | {' | '.join((*shares, returns, steps))} |")
    return lines


def spread(values: list[float], ends: tuple[float, float]) -> str:
    """The mean over runs with its interval within these ends, unless all runs are equal."""
    interval = None
    if min(values) < max(values):
        interval = weighted_mean_interval(np.array(values), mean_weights(len(values)), ends)
    around = f" ({interval.low:.0f} to {interval.high:.0f})" if interval else ""
    return f"{statistics.mean(values):.0f}{' %' if ends == (0, 100) else ''}{around}"


def main() -> None:
    """Train the missing runs, evaluate, print, write."""
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
            results.append(measure(arm, seed, options.steps, options.out))
            print(json.dumps(results[-1]), flush=True)
            if options.file:  # after every run, so that an interruption loses nothing
                options.file.write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
