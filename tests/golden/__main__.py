"""Golden numbers: what four updates on CartPole must give, in float64.

    PYTHONPATH=src python -m tests.golden

writes cartpole.json beside this file. Refresh it only for a change that is meant to move numbers,
and say in the change's description what moved and why.
"""

import json
from pathlib import Path

import torch

from recollect.agent.agent import BranchConfig, build_agent
from recollect.envs import EnvConfig, make
from recollect.learn import ppo
from recollect.learn.learner import begin
from recollect.learn.settings import Decay, Plan, PPOConfig

FILE = Path(__file__).parent / "cartpole.json"
UPDATES = 4


def measure():
    """Metrics of each update, and sums over the weights after the last."""
    torch.set_num_threads(1)
    envs = make(EnvConfig(num_envs=8, backend="gymnasium", time_limit=25))
    branch = BranchConfig(hidden=(16,), prev_action=True, prev_reward=True)
    spaces = envs.obs_spec, envs.action_spec
    agent = build_agent(spaces, branch, branch, normalize_obs=True, seed=11).double()
    cfg = PPOConfig(
        num_steps=32,
        learning_rate=3e-3,
        lr_decay=Decay(final=0.0),
        ent_coef=0.01,
        clip_value=0.2,
    )
    plan = Plan(ppo=cfg, seed=11, rollouts=UPDATES)
    learner = begin(envs, agent, plan, normalize_reward=True)
    metrics = list(ppo.train(envs, learner, plan))
    weights = {
        name: [float(p.detach().sum()), float(p.detach().square().sum())]
        for name, p in agent.named_parameters()
    }
    # What measures rounding itself is no golden number, nor is what is not known yet.
    rounding = "ratio_error", "value_error"
    kept = [{key: x for key, x in row.items() if key not in rounding and x is not None} for row in metrics]
    return {"metrics": kept, "weights": weights}


if __name__ == "__main__":
    FILE.write_text(json.dumps(measure(), indent=1) + "\n")
    print(f"wrote {FILE}")
