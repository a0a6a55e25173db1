"""recollect's transformers beside others, in turns on the same machine.

    python -m benchmarks.transformers --peer CHECKOUT [--tasks TrXL ...] [--seeds 3] [--out DIR]

GPT-2: beside the one-window method of GPT2PPO, by our own re-implementation of it and not by the authors'
code (`benchmarks.shims.windows`). It runs one window of 64 steps through the critic for every step, in
collecting and in training. Ours processes each sequence once. Both have two blocks of width 64 with 8 heads,
states and actions as separate tokens unless the row says merged, and five epochs over rollouts of 2,048
steps, and both train all weights of the critic. The peer has one environment, ours 16.

TrXL: beside github.com/MarcoMeter/episodic-transformer-memory-ppo at its own config for poc, from a
checkout that --peer names, needed for this row alone. Ours has the same settings, and a network of the
same sizes (configs/trxl_poc.yaml says what differs). There each row of a minibatch comes with a window of
its own, 32 rows that every block projects anew; ours learns from chunks of 32 rows that share theirs.

Ours run with the native kernels, which are the default, and with those of torch. What counts is the ratio of
medians, of the time of a step.
"""

from dataclasses import replace
from typing import Any

from .common import Run, Task, ours
from .comparison import main

MARCOMETER = "MarcoMeter/episodic-transformer-memory-ppo"
THREADS = {"threads": 2}  # as torch takes in the peers
LANDER = "LunarLander-v3"
SHAPE = {
    "env.num_envs": 16,
    "ppo.num_steps": 128,
    "ppo.update_epochs": 5,
    "ppo.num_minibatches": 4,
    **THREADS,
}
WINDOWS = Run("one window a step", "windows", {"env": LANDER, "steps": 256})


def gpt(model: str, steps: int, **options: Any) -> Run:
    """A preset with a GPT-2, in the shape of the comparison: layers of 64, as there."""
    widths = {"actor.head_hidden": [64], "critic.head_hidden": [64]}
    return ours(LANDER, model, steps, {**SHAPE, **widths, **options})


def critic(steps: int, **options: Any) -> Run:
    """Only the critic has one, with nothing beside it; the actor has four layers."""
    alone = {"critic.residual": False, "critic.hidden": [], "actor.hidden": [64] * 4, "actor.head_hidden": []}
    return gpt("ppo_gpt", steps, **alone, **options)


def both_kernels(run: Run) -> tuple[Run, Run]:
    """A run with the native kernels, and with those of torch."""
    native, torch = (
        {**run.settings, "options": {**run.settings["options"], "kernels": name}}
        for name in ("native", "torch")
    )
    return replace(run, settings=native), replace(run, label=f"{run.label}, torch", settings=torch)


TASKS = (
    Task(
        "GPT-2 critic, steps/s",
        both_kernels(critic(40_000)),
        (WINDOWS,),
    ),
    Task(
        "GPT-2 critic, merged tokens, steps/s",
        both_kernels(critic(60_000, **{"critic.memory.tokens": "merged"})),
    ),
    Task(
        "GPT-2 actor and critic, steps/s",
        both_kernels(gpt("ppo_gpt_actor", 20_000)),
    ),
    Task(
        "TrXL on poc, the reference configuration, steps/s",
        both_kernels(ours("poc", "ppo_gtrxl", options={"config": "configs/trxl_poc.yaml", **THREADS})),
        (Run("MarcoMeter", "marcometer", {"config": "configs/poc_memory_env.yaml", "steps": 20_480}),),
    ),
)


if __name__ == "__main__":
    main(__doc__ or "", "transformers", TASKS, MARCOMETER, {"windows": "transformers"})
