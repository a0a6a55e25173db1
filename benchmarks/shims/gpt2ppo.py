"""What shapes the losses of GPT2PPO's own code have, from a checkout that is not changed.

    python -m benchmarks.shims.gpt2ppo CHECKOUT

For each task: how many weights the optimisers hold, and, for the first minibatch and before any
gradient step, the shapes of the probability ratio and of return minus value, the range of the ratio,
and the actor's loss. Every ratio should be 1, and the loss of normalised advantages 0.

Their copy of transformers' GPT-2 without positions does not import beside transformers of today, so
today's GPT-2 with positions of 0 takes its place. Everything else is as in `bolts`.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Model

from . import bolts

TASKS = ("LunarLander-v3", "Acrobot-v1", "BipedalWalker-v3")
STEPS = 256  # of an epoch; enough for a minibatch


class Gpt2WithoutPositions(GPT2Model):
    """What their rllib.GPT2 computes."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        torch.nn.init.zeros_(self.wpe.weight)


def shapes(model: Any) -> dict[str, Any]:
    """The first minibatch of a model that has not learned."""
    inputs, mask, action, old, returns, advantage = next(iter(model.train_dataloader()))
    with torch.no_grad():
        policy, _, _ = model.forward_actor(inputs, batched=True, attention_mask=mask)
        ratio: Tensor = (model.actor.get_log_prob(policy, action) - old).exp()
        value, _ = model.forward_critic(inputs, batched=True, attention_mask=mask)
        advantage = (advantage - advantage.mean()) / advantage.std()
        loss = model.actor_loss(inputs, mask, action, old, advantage)
    groups = [group for part in model.configure_optimizers() for group in part.param_groups]
    return {
        "trained": sum(p.numel() for group in groups for p in group["params"]),
        "weights": sum(p.numel() for p in model.parameters()),
        "ratio": tuple(ratio.shape),
        "ratio from": round(float(ratio.min()), 4),
        "to": round(float(ratio.max()), 2),
        "return - value": tuple((returns - value).shape),
        "actor loss": round(float(loss), 4),
    }


def main() -> None:
    """Print a line for each task."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path(sys.argv[1]).resolve()))
    bolts.supply()
    bolts.module("rllib.GPT2", GPT2Model=Gpt2WithoutPositions)
    torch.set_num_threads(1)
    kind = importlib.import_module("rllib.GPT2PPO").GPT2PPO
    for env in TASKS:
        torch.manual_seed(1)
        facts = shapes(kind(env, steps_per_epoch=STEPS))
        print(f"{env}: " + ", ".join(f"{name} {value}" for name, value in facts.items()))


if __name__ == "__main__":
    main()
