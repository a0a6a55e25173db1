"""A run of the PPO that GPT2PPO's authors compare with, from a checkout that is not changed.

Their plain PPO is rllib/examples/PPOExample.py, a copy of Lightning-Bolts' PPO. It needs
pytorch_lightning, pl_bolts and gym, none of which installs beside today's packages. What it uses of
them is small and stands here, written anew:

- a module that holds hyperparameters, a log and a device;
- the loop: an epoch is one pass over the data set in batches, in order; for each batch each
  optimiser takes its steps with a closure that computes the loss again;
- networks of one hidden layer of 128 with ReLU, and the two policies over them;
- Gymnasium's environments with gym's old interface, where a time limit of the environment is an end.

Settings: peer (the checkout), env, epochs, seed and pairs. With pairs False the value of a batch is
(B,) and not (B, 1). The peer subtracts values (B, 1) from returns (B,), which is (B, B): each value
is then fitted to all returns of its batch, that is to their mean. Nothing else differs.

A result has, for each epoch, what the peer logs (the mean return of its episodes, without one that
the end of the epoch cuts; losses are means over all gradient steps), and the mean return of 100
episodes of the last weights, with the likeliest action.
"""

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Normal
from torch.utils.data import IterableDataset

LONGEST = 500  # steps of an episode, as while training
EPISODES = 100  # of the evaluation


# What it uses of pytorch_lightning --------------------------------------------------------------


class LightningModule(nn.Module):
    """A network with a log of the present epoch."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        super().__init__()
        self.logged: dict[str, list[float]] = {}

    def save_hyperparameters(self) -> None:
        """Nothing is saved."""

    def log(self, name: str, value: Any, **_: Any) -> None:
        value = value.item() if isinstance(value, Tensor) else value
        self.logged.setdefault(name, []).append(float(value))

    def optimizer_step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any]) -> None:
        """One gradient step; the peer calls this several times."""
        optimizer.step(closure)


def fit(model: Any, epochs: int) -> Iterator[dict[str, float]]:
    """Train, yielding what each epoch logs.

    The episodes of an epoch are known when its last batch is drawn, so they are read after the epoch.
    """
    optimizers = list(model.configure_optimizers())
    loader = model.train_dataloader()
    for _ in range(epochs):
        model.logged = {}
        for number, batch in enumerate(loader):
            for index, optimizer in enumerate(optimizers):
                model.optimizer_step(optimizer, _closure(model, optimizer, (batch, number, index)))
        losses = {name: statistics.fmean(model.logged[name]) for name in ("loss_actor", "loss_critic")}
        yield {"return": float(model.avg_ep_reward), "length": float(model.avg_ep_len), **losses}


def _closure(model: Any, optimizer: torch.optim.Optimizer, arguments: Any) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        loss: Tensor = model.training_step(*arguments)
        optimizer.zero_grad()
        loss.backward()
        return loss

    return closure


# What it uses of pl_bolts -----------------------------------------------------------------------


class ExperienceSourceDataset(IterableDataset[Any]):
    """What a generator yields."""

    def __init__(self, generate: Callable[[], Iterator[Any]]) -> None:
        self.generate = generate

    def __iter__(self) -> Iterator[Any]:
        return self.generate()


class MLP(nn.Module):
    """One hidden layer."""

    pairs = True  # whether values keep their last axis

    def __init__(self, shape: tuple[int, ...], outputs: int, hidden: int = 128) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(shape[0], hidden), nn.ReLU(), nn.Linear(hidden, outputs))
        self.values = outputs == 1

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x.float())
        return y[:, 0] if self.values and not self.pairs and y.ndim == 2 else y


class ActorCategorical(nn.Module):
    """A choice."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.actor_net = net

    def forward(self, x: Tensor) -> tuple[Categorical, Tensor]:
        policy = Categorical(logits=self.actor_net(x))
        return policy, policy.sample()

    def get_log_prob(self, policy: Categorical, action: Tensor) -> Tensor:
        return policy.log_prob(action)

    def likeliest(self, x: Tensor) -> Tensor:
        return self.actor_net(x).argmax(-1)


class ActorContinous(nn.Module):
    """Independent normal components with a deviation that is learned."""

    def __init__(self, net: nn.Module, width: int) -> None:
        super().__init__()
        self.actor_net, self.log_std = net, nn.Parameter(torch.full((width,), -0.5))

    def forward(self, x: Tensor) -> tuple[Normal, Tensor]:
        policy = Normal(self.actor_net(x), self.log_std.exp())
        return policy, policy.sample()

    def get_log_prob(self, policy: Normal, action: Tensor) -> Tensor:
        return policy.log_prob(action).sum(-1)

    def likeliest(self, x: Tensor) -> Tensor:
        return self.actor_net(x)


# What it uses of gym ----------------------------------------------------------------------------


class OldEnv:
    """An environment of Gymnasium with gym's interface of 2022."""

    seed = 0  # of the first reset

    def __init__(self, name: str) -> None:
        self.env = gymnasium.make(name)
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.first: int | None = self.seed

    def reset(self) -> Any:
        observation, _ = self.env.reset(seed=self.first)
        self.first = None
        return observation

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward), terminated or truncated, info


def supply() -> None:
    """What it imports and is not here, under its names."""
    spaces = SimpleNamespace(
        box=SimpleNamespace(Box=gymnasium.spaces.Box),
        discrete=SimpleNamespace(Discrete=gymnasium.spaces.Discrete),
    )
    module("gym", make=OldEnv, spaces=spaces)
    unused = {"Trainer": None, "seed_everything": None}
    module("pytorch_lightning", LightningModule=LightningModule, **unused)
    networks = {"ActorCategorical": ActorCategorical, "ActorContinous": ActorContinous, "MLP": MLP}
    for name in ("pl_bolts", "pl_bolts.models", "pl_bolts.models.rl", "pl_bolts.models.rl.common"):
        module(name)
    module("pl_bolts.models.rl.common.networks", **networks)
    module("pl_bolts.datamodules", ExperienceSourceDataset=ExperienceSourceDataset)
    module("pl_bolts.utils", _GYM_AVAILABLE=True)
    module("pl_bolts.utils.warnings", warn_missing_pkg=print)


def module(name: str, **attributes: Any) -> None:
    """A module with these attributes, for all imports to come."""
    made_up = ModuleType(name)
    vars(made_up).update(attributes)
    sys.modules[name] = made_up


# A run ------------------------------------------------------------------------------------------


@torch.no_grad()
def evaluate(actor: Callable[[Tensor], Tensor], env_id: str) -> list[float]:
    """Returns of episodes in which the likeliest action is taken."""
    env, returns = gymnasium.make(env_id, max_episode_steps=LONGEST), []
    for episode in range(EPISODES):
        (observation, _), total, ended = env.reset(seed=10_000 + episode), 0.0, False
        while not ended:
            action = actor(torch.as_tensor(observation)).numpy()
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def run(settings: dict[str, Any]) -> dict[str, Any]:
    """Train the peer's PPO and say how every epoch went."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path(settings["peer"]).resolve()))
    supply()
    torch.set_num_threads(1)
    Distribution.set_default_validate_args(False)  # which costs more than the networks
    torch.manual_seed(settings["seed"])
    OldEnv.seed, MLP.pairs = settings["seed"], settings["pairs"]
    model = importlib.import_module("rllib.examples.PPOExample").PPO(settings["env"])
    start = time.perf_counter()
    epochs = list(fit(model, settings["epochs"]))
    seconds = time.perf_counter() - start
    columns = {name: [round(epoch[name], 3) for epoch in epochs] for name in epochs[0]}
    evaluated = round(float(np.mean(evaluate(model.actor.likeliest, settings["env"]))), 2)
    return {"seed": settings["seed"], "seconds": round(seconds, 1), "evaluated": evaluated, **columns}


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
