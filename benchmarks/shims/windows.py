"""Our own re-implementation of the one-window method: PPO whose GPT-2 critic gets a window for every step.

It is not the code of GPT2PPO's authors. One environment; each step one window goes through the critic, and
each gradient step runs a window for every step of its minibatch. The network is the GPT-2 of the package
transformers, at the sizes that they state. All weights of the critic are trained here, the GPT-2 among
them, as in the critic of recollect that it is compared with. The authors' optimisers hold only the heads,
so that their GPT-2 is never trained, and their update computes less than this one.

What is measured is the time of a step. The returns of so few steps mean nothing, so none are reported.

Settings: env, steps, seed and threads (None: torch's choice).
"""

import json
import sys
import time
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

from ..common import Result, result

WIDTH, CONTEXT, LONGEST = 64, 64, 500
ROLLOUT, BATCH, PASSES = 2048, 128, 5
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


class Window(NamedTuple):
    """The last steps of an episode, with zeros before it: (..., CONTEXT, ...)."""

    states: Tensor
    actions: Tensor
    places: Tensor  # steps of the episode
    seen: Tensor  # which of them there are


class Critic(nn.Module):
    """A state and the action before it for every step, in turns, through a GPT-2."""

    def __init__(self, states: int, actions: int) -> None:
        super().__init__()
        self.state, self.action = nn.Linear(states, WIDTH), nn.Linear(actions, WIDTH)
        self.place, self.norm = nn.Embedding(LONGEST, WIDTH), nn.LayerNorm(WIDTH)
        sizes = {"vocab_size": 1, "n_embd": WIDTH, "n_layer": 2, "n_head": 8, "n_positions": 1024}
        self.trunk = GPT2Model(GPT2Config(**sizes, resid_pdrop=0.5, attn_pdrop=0.5))
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, window: Window) -> Tensor:
        """Windows (n, CONTEXT, ...) -> V (n,)."""
        place = self.place(window.places)
        tokens = torch.stack([self.action(window.actions) + place, self.state(window.states) + place], 2)
        seen = window.seen.repeat_interleave(2, 1).long()
        out = self.trunk(inputs_embeds=self.norm(tokens.flatten(1, 2)), attention_mask=seen)
        return self.head(out.last_hidden_state[:, -1])[:, 0]


class Rollout(NamedTuple):
    """What a rollout leaves."""

    windows: Window
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    target: Tensor


def window_of(states: list[Any], actions: list[Any]) -> Window:
    """The last steps of an episode so far."""
    now = len(states)
    start = max(0, now - CONTEXT)
    missing = CONTEXT - (now - start)

    def filled(x: Any) -> Tensor:
        rows = torch.as_tensor(np.asarray(x[start:now], dtype=np.float32))
        return F.pad(rows, (0, 0, missing, 0))

    places = F.pad(torch.arange(start, now), (missing, 0))
    return Window(filled(states), filled(actions), places, torch.arange(CONTEXT) >= missing)


@torch.no_grad()
def collect(env: gym.Env[Any, Any], actor: nn.Module, critic: Critic, steps: int, seed: int) -> Rollout:
    """Act, and value every step from its window."""
    choices = int(getattr(env.action_space, "n", 0))
    windows, chosen, log_probs, rewards, values, ends = [], [], [], [], [], []
    state, _ = env.reset(seed=seed)
    states, actions = [state], [np.zeros(choices)]
    for _ in range(steps):
        window = window_of(states, actions)
        value = critic(Window(*(x[None] for x in window)))
        log_prob = actor(window.states[-1]).log_softmax(-1)
        action = int(torch.multinomial(log_prob.exp(), 1))
        state, reward, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated or len(states) == LONGEST
        windows.append(window)
        chosen.append(action)
        log_probs.append(log_prob[action])
        rewards.append(float(reward))
        values.append(float(value))
        ends.append(ended)
        if ended:
            state, _ = env.reset()
            states, actions = [], []
        states.append(state)
        actions.append(np.eye(choices)[action] if len(states) > 1 else np.zeros(choices))
    advantage = advantages(np.array(rewards), np.array([*values, 0.0]), np.array(ends))
    together = Window(*(torch.stack(x) for x in zip(*windows, strict=True)))
    target = advantage + torch.tensor(values)
    return Rollout(together, torch.tensor(chosen), torch.stack(log_probs), advantage, target)


def advantages(reward: Any, value: Any, ended: Any) -> Tensor:
    """Generalised advantages of one environment."""
    out, running = np.zeros(len(reward), dtype=np.float32), 0.0
    for t in reversed(range(len(reward))):
        delta = reward[t] + GAMMA * value[t + 1] * (1 - ended[t]) - value[t]
        running = delta + GAMMA * LAMBDA * (1 - ended[t]) * running
        out[t] = running
    return torch.from_numpy(out)


def learn(actor: nn.Module, critic: Critic, optimizers: Any, rollout: Rollout) -> None:
    """Each minibatch several times, the actor and then the critic."""
    for start in range(0, len(rollout.action), BATCH):
        part = slice(start, start + BATCH)
        window = Window(*(x[part] for x in rollout.windows))
        advantage = rollout.advantage[part]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(PASSES):
            log_prob = actor(window.states[:, -1]).log_softmax(-1)
            chosen = log_prob.gather(1, rollout.action[part, None])[:, 0]
            ratio = (chosen - rollout.log_prob[part]).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            descend(optimizers[0], -torch.minimum(ratio * advantage, clipped * advantage).mean())
        for _ in range(PASSES):
            descend(optimizers[1], (rollout.target[part] - critic(window)).square().mean())


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One gradient step."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def run(settings: dict[str, Any]) -> Result:
    """Steps a second over rollouts of ROLLOUT steps, or of as many as there are."""
    if settings["threads"]:
        torch.set_num_threads(settings["threads"])
    torch.manual_seed(settings["seed"])
    env = gym.make(settings["env"])
    assert env.observation_space.shape is not None
    states, choices = env.observation_space.shape[0], int(getattr(env.action_space, "n", 0))
    actor = nn.Sequential(nn.Linear(states, WIDTH), nn.ReLU(), nn.Linear(WIDTH, choices))
    critic = Critic(states, choices)
    optimizers = [
        torch.optim.Adam(actor.parameters(), lr=3e-4),
        torch.optim.Adam(critic.parameters(), lr=1e-3),
    ]
    start, done = time.perf_counter(), 0
    while done < settings["steps"]:
        count = min(ROLLOUT, settings["steps"] - done)
        learn(actor, critic, optimizers, collect(env, actor, critic, count, settings["seed"] + done))
        done += count
    return result(time.perf_counter() - start, done, None, None)


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
