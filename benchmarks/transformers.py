"""recollect's transformers beside the way in which GPT2PPO reads its critic, in turns on one machine.

    python -m benchmarks.windows [--tasks GPT-2 ...] [--seeds 3] [--out benchmarks/results]

That way is one window of 64 steps for every step, acting and learning, each row of a minibatch with
a window of its own; `benchmarks.shims.windows` does it with the network of the package transformers.
Ours reads each sequence once. Both have two blocks of 64 with 8 heads, states and actions as tokens of
their own unless the row says merged, and five passes over rollouts of 2,048 steps.
"""

from importlib.metadata import version
from typing import Any

from .common import Run, Task, chosen, compare, options, ours

LANDER = "LunarLander-v3"
SHAPE = {"env.num_envs": 16, "ppo.num_steps": 128, "ppo.update_epochs": 5, "ppo.num_minibatches": 4}
WINDOWS = Run("one window a step", "windows", {"env": LANDER, "steps": 256})


def gpt(model: str, steps: int, **options: Any) -> Run:
    """A preset with a GPT-2, in the shape of the comparison."""
    return ours(LANDER, model, steps, {**SHAPE, **options})


TASKS = (
    Task(
        "GPT-2 critic, steps/s",
        ">= 150 times the steps/s, about 2,500; better 4,000",
        (gpt("ppo_gpt", 40_000),),
        (WINDOWS,),
    ),
    Task(
        "GPT-2 critic, merged tokens, steps/s",
        ">= 5,000 steps/s, better 8,000",
        (gpt("ppo_gpt", 60_000, **{"critic.memory.tokens": "merged"}),),
    ),
    Task(
        "GPT-2 actor and critic, steps/s",
        ">= 1,200 steps/s, better 2,000",
        (gpt("ppo_gpt_actor", 20_000),),
    ),
)


def main() -> None:
    """Measure and print the table."""
    args = options(__doc__ or "").parse_args()
    sources = [f"transformers {version('transformers')}"]
    compare(chosen(TASKS, args.tasks), args, "windows", {}, lambda task: sources if task.peers else [])


if __name__ == "__main__":
    main()
