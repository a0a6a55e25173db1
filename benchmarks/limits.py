"""LunarLander at the tutorial's hyperparameters, with and without the errors of the tutorial's code.

    python -m benchmarks.limits [--seeds 10] [--arms ARM...] [--out runs/limits] [-o FILE.json]

All arms are trained by configs/tutorial_lunarlander.yaml. They differ in this:

truncated   nothing is changed: the final observation of a truncated episode is bootstrapped
terminated  the time limit counts as termination
critic      each value is compared with every target of its minibatch: there, values (16, 1) minus
            targets (16,) are a matrix (16, 16), so each value is fitted to the mean target of its minibatch
published   both, and advantages that run on into the next episode and are 0 in the last step of a rollout

The last weights of each run then play on the environment as it is, with the most likely actions and with
sampled ones. Counted is how each episode ends: a landing pays 100 in the last step, a crash or leaving the
view -100, and a truncated episode neither. Of the last 20 training episodes only returns and lengths are
kept: there, landed is a return above 200 before the time limit, and crashed any other end before it.

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
from recollect.config.assembly import assemble
from recollect.config.config import RunConfig
from recollect.envs import make_for_evaluation
from recollect.learn import ppo
from recollect.learn.chunks import Batch
from recollect.learn.episodes import Episode
from recollect.learn.maths import Loss, mean
from recollect.learn.rollout import Outcome, Rollout
from recollect.learn.settings import Coefficients, PPOConfig
from recollect.run import run
from recollect.run.session import Destination

CONFIG = Path(__file__).parents[1] / "configs" / "tutorial_lunarlander.yaml"
ENV = "LunarLander-v3"
ENDINGS = ("landed", "crashed", "time limit")
LIMIT, LAST = 1000, 20  # steps of an episode; training episodes that are counted
Arm = Literal["truncated", "terminated", "critic", "published"]
ARMS: tuple[Arm, ...] = ("truncated", "terminated", "critic", "published")


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


FACTORIES = {"truncated": truncated, "terminated": terminated, "critic": truncated, "published": terminated}


def mean_target(weight: Tensor, target: Tensor) -> Tensor:
    """The mean target for every row; its squared error has the gradient of the errors of all pairs."""
    return mean(weight, target).expand_as(target)


CORRECT_LOSS = ppo.loss


def loss(agent: Agent, batch: Batch, cfg: PPOConfig, now: Coefficients) -> Loss:
    """The loss of PPO, but each value is compared with every target of the minibatch."""
    targets = mean_target(batch.weight, batch.target)
    return CORRECT_LOSS(agent, batch._replace(target=targets), cfg, now)


def advantages(rollout: Rollout | Outcome, reward: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Advantages (T, N) that run on into the next episode and are 0 in the last step."""
    values, valid = rollout.value, rollout.valid[:-1]
    delta = reward + gamma * values[1:] * ~rollout.terminated - values[:-1]
    delta = delta.masked_fill(~valid, 0.0)
    delta[-1] = 0.0
    # A tail row is no step of that code, so sums pass it undiminished.
    decay = (gamma * gae_lambda * valid.to(delta.dtype)).masked_fill(~valid, 1.0)
    running, out = torch.zeros_like(delta[0]), torch.zeros_like(delta)
    for t in reversed(range(len(delta))):
        running = delta[t] + decay[t] * running
        out[t] = running
    return out.masked_fill(~valid, 0.0)


@contextmanager
def errors(arm: Arm) -> Iterator[None]:
    """While it is open, PPO computes what this arm computes."""
    ours = ppo.loss, ppo.advantages
    by = loss if arm in ("critic", "published") else ours[0], advantages if arm == "published" else ours[1]
    with patch.object(ppo, "loss", by[0]), patch.object(ppo, "advantages", by[1]):
        yield


def config_of(arm: Arm, seed: int, steps: int) -> RunConfig:
    """One run of an arm."""
    flags = ["--env.id", f"callable-{arm}", "--seed", str(seed), "--steps", str(steps)]
    config: RunConfig = assemble(["--config", str(CONFIG), *flags])
    return config


def trained(arm: Arm, seed: int, steps: int, out: Path) -> Path:
    """The folder of a finished run."""
    config, factory = config_of(arm, seed, steps), FACTORIES[arm]
    folder = out / "ppo" / config.env.id / f"s{seed}"
    with errors(arm):
        if (folder / "summary.json").exists():
            return recollect.resume(folder, env=factory, quiet=True).folder
        return run.start_run(config, Destination(out=out, run_id=f"s{seed}", quiet=True), factory).folder


def endings(folder: Path, episodes: int, deterministic: bool) -> dict[str, float]:
    """How episodes of the last weights end, on the environment as it is."""
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
    """How training episodes ended, as far as returns and lengths tell."""
    over = [x.length >= LIMIT for x in episodes]
    landed = [x.length < LIMIT and x.return_ > 200 for x in episodes]
    crashed = [not (a or b) for a, b in zip(over, landed, strict=True)]
    shares = (float(statistics.mean(x)) for x in (landed, crashed, over))
    means = {key: float(statistics.mean(getattr(x, key) for x in episodes)) for key in ("return_", "length")}
    return dict(zip(ENDINGS, shares, strict=True)) | {"return": means["return_"], "length": means["length"]}


def measured(arm: Arm, seed: int, steps: int, out: Path) -> dict[str, Any]:
    """One run: how its last training episodes and those of its last weights end."""
    folder = trained(arm, seed, steps, out)
    return {
        "arm": arm,
        "seed": seed,
        "training": training_endings(recollect.load(folder, env=ENV).episodes()[-LAST:]),
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
    print("| arm | actions | landed | crashed | time limit | return | length |")
    print("|---|---|---|---|---|---|---|")
    for arm in options.arms:
        for mode in ("training", "deterministic", "sampled"):
            print(row(results, arm, mode))


if __name__ == "__main__":
    main()
