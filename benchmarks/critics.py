"""Critics trained on the same rollouts: which learns values, and how fast?

    python -m benchmarks.critics LunarLander-v3 "--critic mlp" "--critic gpt2 --critic.hidden"
        [--steps 300000] [--seed 1] [--every 20] [--out benchmarks/results]

One agent is trained with the preset `ppo`. Each critic, given as options of `recollect train`, is trained
on the rollouts of this agent, which does not use its values. So all critics have the same data. Prints the
explained variance of the discounted returns (lambda 1; bootstrapped at the end of a rollout with the
agent's own critic), before the critic is trained on them, and writes it to OUT/critics-ENV-SEED.json.
"""

import argparse
import copy
import json
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recollect.agent.agent import build_agent
from recollect.config.assembly import assemble
from recollect.config.config import RunConfig, resolve
from recollect.envs import Envs, make
from recollect.learn.learner import Learner, begin
from recollect.learn.maths import explained_variance
from recollect.learn.ppo import advantages, collect, update, value
from recollect.learn.rollout import Rollout


def learner_of(config: RunConfig, envs: Envs) -> Learner:
    """A learner as `recollect train` builds it."""
    spaces = envs.obs_spec, envs.action_spec
    agent = build_agent(spaces, config.actor, config.critic, config.env.normalize_obs, config.seed)
    return begin(envs, agent, config.plan, config.env.normalize_reward, config.env.reward_scale)


class PassiveCritic:
    """A critic that is trained on another agent's rollouts."""

    def __init__(self, flags: str, config: RunConfig, envs: Envs) -> None:
        self.flags, self.plan = flags, config.plan
        self.learner = learner_of(config, envs)
        self.length = config.ppo.chunk_length(any(self.learner.agent.initial_state(1)))

    def learn(self, rollout: Rollout, acting: Learner, returns: Tensor) -> tuple[float, float]:
        """Train on a rollout -> explained variance of the returns before, and the loss."""
        mine, other = self.learner, acting.agent
        mine.agent.actor.load_state_dict(other.actor.state_dict())
        mine.agent.normalizer.load_state_dict(other.normalizer.state_dict())
        mine.rewards, mine.iteration, mine.step = acting.rewards, acting.iteration, acting.step
        # A shallow copy: the steps are shared, the values and chunk states are those of this critic.
        copied = copy.copy(rollout)
        copied.value, copied.critic_starts = torch.zeros_like(rollout.value), []
        copied.starts = [()] * (rollout.num_steps // self.length)
        value(mine, copied, self.length)
        valid = rollout.valid[:-1]
        quality = explained_variance(copied.value[:-1], returns, valid / valid.sum())
        return quality, update(mine, copied, self.plan, self.length)["value_loss"]


def run(config: RunConfig, others: Sequence[str], every: int) -> list[dict[str, Any]]:
    """Train, and print and return a line every `every` rollouts."""
    envs = make(config.env)
    adapter = envs.adapter
    config = resolve(config, adapter.backend, adapter.tier == "native", adapter.time_limit)
    plan, cfg = config.plan, config.ppo
    acting = learner_of(config, envs)
    critics = [PassiveCritic(flags, critic_config(config, flags), envs) for flags in others]
    rollout = Rollout(acting.agent, acting.row, cfg.num_steps)
    history: list[list[tuple[float, float]]] = []
    lines: list[dict[str, Any]] = []
    print("critics:", *(f"  {i}: {critic.flags}" for i, critic in enumerate(critics)), sep="\n")
    print(f"{'steps':>9} {'return':>8}   " + "  ".join(f"EV {i}   loss {i}" for i in range(len(critics))))
    while plan.progress(acting.iteration, acting.step) < 1:
        torch.set_num_threads(1)
        collect(envs, acting, rollout, plan, 1)
        torch.set_num_threads(plan.threads)
        value(acting, rollout, 1)
        reward = acting.rewards.scaled(rollout.reward)
        returns = rollout.value[:-1] + advantages(rollout, reward, cfg.gamma, 1.0)
        history.append([critic.learn(rollout, acting, returns) for critic in critics])
        update(acting, rollout, plan, 1)
        acting.read(rollout)
        if plan.barrier_after(acting.iteration - 1):
            acting.restart(envs, plan.seed)
            for critic in critics:
                critic.learner.state = critic.learner.agent.initial_state(envs.num_envs)
        if acting.iteration % every == 0:
            lines.append(show(acting, history[-every:]))
    print("all      ", end="")
    show(acting, history)
    return lines


def critic_config(config: RunConfig, flags: str) -> RunConfig:
    """The config of the acting agent with the critic and the PPO options of these flags."""
    options = assemble(["--env.id", config.env.id, *shlex.split(flags)])
    return replace(config, critic=options.critic, ppo=options.ppo)


def show(acting: Learner, rows: Sequence[Sequence[tuple[float, float]]]) -> dict[str, Any]:
    """Print and return means over rollouts."""
    columns = [[statistics.mean(x) for x in zip(*critic, strict=True)] for critic in zip(*rows, strict=True)]
    result = acting.episodes.means()["return"]
    shown = "  ".join(f"{quality:5.2f} {loss:8.1f}" for quality, loss in columns)
    print(f"{acting.step:>9,} {'-' if result is None else f'{result:.1f}':>8}   {shown}", flush=True)
    return {"steps": acting.step, "return": result, "explained_variance": [quality for quality, _ in columns]}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("critics", nargs="+")
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    flags = ["--env.id", args.env, "--steps", str(args.steps), "--seed", str(args.seed)]
    args.out.mkdir(parents=True, exist_ok=True)
    lines = run(assemble(flags), args.critics, args.every)
    file = args.out / f"critics-{args.env}-{args.seed}.json"
    file.write_text(json.dumps({"critics": args.critics, "seed": args.seed, "lines": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main()
