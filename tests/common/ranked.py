"""What the processes of test_distributed.py do: `python -m tests.common.ranked FOLDER SIZE WHAT...`.

They are forked from one, because each would need seconds to import torch. Each writes what it has after each
of them to <FOLDER>/<rank>.pt and prints to <FOLDER>/<rank>.txt; alone it is the run that others are held to.
"""

import json
import os
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch

from recollect.agent.agent import BranchConfig, build_agent
from recollect.common import distributed as ranks
from recollect.common.distributed import Ranks
from recollect.common.errors import DisagreementError
from recollect.envs import Envs
from recollect.learn import ppo
from recollect.learn.learner import begin
from recollect.learn.novelty import Distillation, Novelty
from recollect.learn.settings import Plan, PPOConfig
from recollect.memory.rnn import GruConfig

from ..helpers import Scripted, lively, wait_for

ENVS = 8
SILENCE = 100.0  # seconds at most; whoever waits has PATIENCE for 8
VARIANTS = {
    "plain": PPOConfig(num_steps=12, bptt=4, num_minibatches=3, ent_coef=0.01, learning_rate=1e-2),
    "rollout": PPOConfig(
        num_steps=12, bptt=4, num_minibatches=3, normalize_advantage="rollout", learning_rate=1e-2
    ),
    "refresh": PPOConfig(
        num_steps=12, bptt=4, num_minibatches=3, chunk_state="refresh", clip_value=0.2, learning_rate=1e-2
    ),
    "target": PPOConfig(
        num_steps=12, bptt=4, num_minibatches=3, update_epochs=20, target_kl=1e-3, learning_rate=1e-2
    ),
    "predict": PPOConfig(num_steps=12, bptt=4, num_minibatches=3, learning_rate=1e-2),
    "novelty": PPOConfig(num_steps=12, bptt=4, num_minibatches=3, learning_rate=1e-2, rnd_coef=0.5),
    "symlog": PPOConfig(num_steps=12, bptt=4, num_minibatches=3, clip_value=0.2, learning_rate=1e-2),
    "hl-gauss": PPOConfig(num_steps=12, bptt=4, num_minibatches=3, learning_rate=1e-2),
    "popart": PPOConfig(num_steps=12, bptt=4, num_minibatches=3, clip_value=0.2, learning_rate=1e-2),
    # Both coefficients are others in the second update.
    "adaptive": PPOConfig(
        num_steps=12,
        bptt=4,
        num_minibatches=3,
        desired_kl=1e-6,
        target_entropy=0.5,
        ent_coef=0.01,
        learning_rate=1e-2,
    ),
}


class Apart(Scripted):
    """A script of which every environment has its own numbers and its own ends, whoever steps it."""

    def reset(self, seeds):
        self.own = [np.random.default_rng(seed) for seed in seeds]
        first = super().reset(seeds)
        self.episode = np.array([random.integers(4) for random in self.own])
        self.acted = 0
        return first

    def look(self):
        # The reward of a row is drawn with what is seen after it.
        drawn = np.stack([random.standard_normal(5) for random in self.own])
        self.reward = drawn[:, 4]
        return drawn[:, :4].astype(np.float32)

    def step(self, action):
        self.acted += int((~self.ended).sum())
        return super().step(action)._replace(reward=self.reward)


# Options of both branches, or of the critic, by the name of a variant.
BRANCH = {"predict": {"predict": ("obs", "reward")}}
CRITIC = {name: {"value": name} for name in ("symlog", "hl-gauss", "popart")}


def learned(world: Ranks, name: str, updates: int, dtype: torch.dtype = torch.float64) -> dict[str, object]:
    """What a few updates make of an agent and of everything beside it."""
    envs = Envs(Apart(num_envs=ENVS // world.size))
    branch = BranchConfig(memory=GruConfig(width=6), hidden=(6,), prev_action=True, **BRANCH.get(name, {}))
    critic = replace(branch, **CRITIC.get(name, {}))
    agent = lively(build_agent((envs.obs_spec, envs.action_spec), branch, critic, True, seed=3)).to(dtype)
    plan = Plan(ppo=VARIANTS[name], seed=11, rollouts=updates)
    learner = begin(envs, agent, plan, normalize_reward=True, ranks=world)
    if plan.ppo.rnd_coef:
        distillation = Distillation((envs.obs_spec, envs.action_spec), branch, seed=3).to(dtype)
        learner.novelty = Novelty(distillation, plan.ppo, ENVS)
    metrics = list(ppo.train(envs, learner, plan))
    return {
        "weights": agent.state_dict() | (learner.novelty.tensors() if learner.novelty else {}),
        "rewards": learner.rewards.tensors(),
        "episodes": torch.tensor(learner.episodes.recent, dtype=torch.float64),
        "step": learner.step,
        "metrics": metrics,
        "own rows": envs.adapter.acted,
    }


def one_update(world: Ranks) -> dict[str, object]:
    """One update by each variant, in float64, and by the first in float32."""
    found = {name: learned(world, name, 1) for name in VARIANTS}
    return {**found, "float32": learned(world, "plain", 1, torch.float32)}


def two_updates(world: Ranks) -> dict[str, object]:
    """Two updates: the second sees what all have counted."""
    return {name: learned(world, name, 2) for name in ("plain", "adaptive", "novelty", "popart")}


def wrong_gradient(world: Ranks) -> dict[str, object]:
    """A gradient of one process alone is not finite in one step."""
    steps, backward = [], torch.Tensor.backward

    def spoiled(loss, *rest):
        backward(loss, *rest)
        steps.append(0)
        if world.rank == 1 and len(steps) == 2:
            spoiled.learner.optimizer.gradient[3] = torch.nan

    envs = Envs(Scripted(num_envs=4))
    branch = BranchConfig(hidden=(6,))
    agent = build_agent((envs.obs_spec, envs.action_spec), branch, branch, False, seed=3)
    plan = Plan(ppo=PPOConfig(num_steps=8, num_minibatches=4), seed=5, rollouts=1)
    spoiled.learner = begin(envs, agent, plan, ranks=world)
    torch.Tensor.backward = spoiled
    list(ppo.train(envs, spoiled.learner, plan))
    torch.Tensor.backward = backward
    return {"skipped": spoiled.learner.optimizer.skipped, "weights": agent.state_dict()}


def unlike(world: Ranks) -> str:
    """One process has other weights, by a single bit."""
    weights = torch.zeros(100)
    world.check_equal([weights])
    weights[7] = world.rank * 1e-45
    try:
        world.check_equal([weights])
    except DisagreementError as error:
        return str(error)
    return "no error"


def gone(world: Ranks) -> dict[str, object]:
    """One process ends."""
    world.all_reduce_sum(torch.zeros(3))
    if world.rank == 1:
        sys.exit(7)
    world.all_reduce_sum(torch.zeros(3))
    return {}


def silent(world: Ranks) -> dict[str, object]:
    """One process says nothing any more until the other has given up."""
    world.all_reduce_sum(torch.zeros(3))
    if world.rank == 1:
        wait_for(lambda: "lost the others" in (folder / "0.txt").read_text(), SILENCE)
        sys.exit(7)
    world.all_reduce_sum(torch.zeros(3))
    return {}


def said(world: Ranks) -> dict[str, object]:
    """What each hears of the others, beside a module that keeps the group it finds when it is imported."""
    import torch.distributed.nn.functional

    own = torch.full((2, 3), float(world.rank))
    flag = torch.tensor([[world.rank == 1] * 3])
    return {
        "all_gather_envs": world.all_gather_envs([own, flag, own.int()]),
        "all_reduce_max": world.all_reduce_max(world.rank, -world.rank),
        "gather": world.gather({"rank": world.rank}),
        "block": [world.block(3).start, world.block(3).stop],
    }


def manners(world: Ranks) -> dict[str, object]:
    """How the system schedules each thread of gloo, and this one."""
    world.all_reduce_sum(torch.zeros(3))
    return {
        "gloo": [os.sched_getscheduler(int(thread)) for name, thread in threads() if "gloo" in name],
        "own": os.sched_getscheduler(0),
    }


def listening(world: Ranks) -> set[str]:
    """The addresses at which this process accepts connections, as /proc writes them."""
    world.all_reduce_sum(torch.zeros(3))  # whoever ends before the other has begun leaves it alone
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    addresses = {words[9]: words[1].partition(":")[0] for words in table[1:] if words[3] == "0A"}
    files = {os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.exists()}
    return {address for inode, address in addresses.items() if f"socket:[{inode}]" in files}


def threads() -> list[tuple[str, str]]:
    """The name and the number of each of this process's threads."""
    return [(path.read_text(), path.parent.name) for path in Path("/proc/self/task").glob("*/comm")]


def fork(folder: Path, size: int) -> None:
    """Return in each of `size` new processes; this one waits for them, and ends with their exit codes."""
    children = []
    for rank in range(size):
        if not (child := os.fork()):
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            with (folder / f"{rank}.txt").open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            return
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(codes), flush=True)
    os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, names = Path(sys.argv[1]), sys.argv[3:]
    fork(folder, int(sys.argv[2]))
    if "silent" in names:
        ranks.PATIENCE = timedelta(seconds=8)
    with ranks.process_group() as here:
        torch.save({name: globals()[name](here) for name in names}, folder / f"{here.rank}.pt")
    # A thread that lives on when Python ends may abort the process.
    assert not (left := [name for name, _ in threads() if "gloo" in name]), left
