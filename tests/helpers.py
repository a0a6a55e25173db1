"""What several test files need: small runs that stop and are compared, and learners in float64."""

import html
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect import memory
from recollect.agent.agent import BranchConfig, build_agent
from recollect.config.config import RunConfig
from recollect.envs import EnvConfig, Envs, Step, VecEnv
from recollect.learn import ppo
from recollect.learn.chunks import Batch, Estimates, chunk, scores
from recollect.learn.learner import begin
from recollect.learn.rollout import Rollout
from recollect.learn.settings import Decay, Plan, PPOConfig
from recollect.run import checkpoint
from recollect.run.destination import Destination
from recollect.run.display import Display
from recollect.run.run import Trained, start_run
from recollect.run.run_folder import read_summary, write_summary

SMALL = BranchConfig(hidden=(16,))


def sampled(names: Iterable[Any], *kept: Any) -> list[Any]:
    """Cases of a test: `make test` runs those that are kept, `make thorough` the others."""
    names = list(names)
    missing = [name for name in kept if name not in names]
    assert not missing and len(kept) < len(names), f"{missing} are no cases"
    thorough = pytest.mark.thorough
    return [
        name
        if name in kept
        else pytest.param(*(name if isinstance(name, tuple) else (name,)), marks=thorough)
        for name in names
    ]


def shorten_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor plays a few hundred steps instead of thousands."""
    for name, value in (("SECONDS", 0.05), ("PLAY_STEPS", 200), ("SPAN_STEPS", 100)):
        monkeypatch.setattr(f"recollect.commands.environment_checks.{name}", value)


def registered(kind: type[gymnasium.Env[Any, Any]], monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of an environment that is registered during a test."""
    spec = gymnasium.envs.registration.EnvSpec(f"{kind.__name__}-v0", entry_point=kind)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    return spec.id


def small_config(env_id: str = "CartPole-v1", backend: str = "gymnasium", **changes: object) -> RunConfig:
    """A run of ten short rollouts with everything switched on that carries state."""
    config = RunConfig(
        env=EnvConfig(
            id=env_id, num_envs=4, backend=backend, normalize_obs=True, normalize_reward=True, threads=1
        ),
        actor=SMALL,
        critic=SMALL,
        ppo=PPOConfig(
            num_steps=16, update_epochs=2, learning_rate=1e-2, lr_decay=Decay(final=0.0), ent_coef=0.01
        ),
        steps=None,
        rollouts=10,
        val_check_interval=0,
        save_interval=1,
        threads=1,
        seed=3,
    )
    return replace(config, **changes)


class StopAt(Display):
    """A screen that sends this process a signal after a chosen iteration, and remembers every line."""

    def __init__(self, iteration: int | None = None, number: signal.Signals = signal.SIGTERM) -> None:
        self.iteration, self.number = iteration, number
        self.said: list[str] = []

    def show(self, metrics, progress) -> None:
        if metrics["iteration"] == self.iteration:
            os.kill(os.getpid(), self.number)

    def print_line(self, text: str) -> None:
        self.said.append(text)


def stopped_run(out: Path, iteration: int) -> Path:
    """The folder of a small run that was stopped after an iteration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recollect.run.session.make_display", lambda *_: StopAt(iteration))
        return run_quietly(small_config(), out).folder


def set_status(folder: Path, status: str = "running") -> None:
    """Give a run another status, as if it had ended otherwise."""
    summary = read_summary(folder)
    write_summary(folder, {**summary, "status": status})


def run_quietly(config: RunConfig, out: Path, run_id: str = "run", **kwargs: object) -> Trained:
    """Train without a word."""
    return start_run(config, Destination(out=out, run_id=run_id, quiet=True), **kwargs)


def metrics_of(folder: Path) -> list[dict[str, float | None]]:
    """All lines of metrics.jsonl but for the clock."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("time", "sps")} for row in rows]


def wait_for(condition: Callable[[], bool], limit: float = 300.0) -> None:
    """Look again and again until it is so, or fail."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def assert_same_end(one: Path, other: Path) -> None:
    """Two runs ended in the same state: every tensor, every counter, every metric, bit for bit."""
    a, b = (checkpoint.existing(folder / "checkpoints")[-1] for folder in (one, other))
    assert a.name == b.name
    (tensors_a, meta_a), (tensors_b, meta_b) = checkpoint.read(a), checkpoint.read(b)
    assert tensors_a.keys() == tensors_b.keys()
    for name, x in tensors_a.items():
        assert x.dtype == tensors_b[name].dtype and x.shape == tensors_b[name].shape, name
        bits, other_bits = (y.reshape(-1).view(torch.uint8) for y in (x, tensors_b[name]))
        assert torch.equal(bits, other_bits), name
    assert meta_a["counters"] == meta_b["counters"]
    assert meta_a.get("envs") == meta_b.get("envs")
    assert metrics_of(one) == metrics_of(other)
    episodes, others = (folder / "episodes.jsonl" for folder in (one, other))
    assert episodes.read_bytes() == others.read_bytes()


def assert_same_results(one: Path, other: Path) -> None:
    """The same end, and the same weights and evaluation made of it, wherever the runs lie."""
    assert_same_end(one, other)
    files = (folder / "checkpoints" / "last.safetensors" for folder in (one, other))
    (weights, meta), (others, other_meta) = map(checkpoint.read, files)
    assert meta == other_meta and weights.keys() == others.keys()
    assert all(torch.equal(x, others[name]) for name, x in weights.items())
    said, also = (json.loads((folder / "evaluation.json").read_text()) for folder in (one, other))
    unequal = dict.fromkeys(("agent", "digest"))  # the folder is in both
    assert {**said, **unequal} == {**also, **unequal}


def seen_by_a_browser(
    page: Path, script: str, folder: Path, width: int = 360, dark: bool = False
) -> dict[str, Any]:
    """What a script saw of a page, by default as narrow as on a small phone; skips without Chromium."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((found for found in map(shutil.which, names) if found), None)
    if browser is None:
        pytest.skip("no Chromium here")
    inside = html.escape(page.read_text())
    outside = f'<pre></pre><iframe style="width:{width}px;height:800px;border:0" srcdoc="{inside}"></iframe>'
    (folder / "visit.html").write_text(f"<meta charset=utf-8>{outside}<script>{script}</script>")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}",
        f"--window-size={max(800, width + 50)},900",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
    ]
    command = [browser, *flags, "--virtual-time-budget=8000", "--dump-dom", f"file://{folder}/visit.html"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
    found = re.search(r"<pre>(.*?)</pre>", shown, re.DOTALL)
    assert found and found[1], "the visit did not come to its end"
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    return seen


# Learners in float64 ---------------------------------------------------------------------------

ROOT_MODELS = Path(__file__).parents[1] / "models"
N, T, L = 3, 12, 4
VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
MEMORIES = memory.available()
REMEMBERING = [n for n, kind in MEMORIES.items() if kind().build(4).initial_state(1)]
CRITICS = [*MEMORIES, "shared"]


class Scripted(VecEnv):
    """Random observations and rewards; episodes of 1, 3, 5 and 7 rows end and are cut in turn."""

    tier, backend, time_limit = "native", "own", None

    def __init__(self, observation=VECTOR, action=None, num_envs=N):
        self.num_envs = num_envs
        self.observation_space, self.action_space = observation, action or spaces.Discrete(3)

    def look(self):
        x = self.random.standard_normal((self.num_envs, 4)).astype(np.float32)
        if isinstance(self.observation_space, spaces.Box):
            return x
        return {"place": self.random.integers(0, 3, self.num_envs), "speed": x}

    def reset(self, seeds):
        self.random = np.random.default_rng(seeds)
        self.episode = np.arange(self.num_envs)
        self.age = np.zeros(self.num_envs, dtype=int)
        self.ended = np.zeros(self.num_envs, dtype=bool)
        return self.look()

    def step(self, action):
        self.age = np.where(self.ended, 0, self.age + 1)
        self.episode += self.ended
        over = ~self.ended & (self.age >= 1 + 2 * (self.episode % 4))
        reward = self.random.standard_normal(self.num_envs)  # on tail rows too: nobody may see it
        self.ended, good = over, self.episode % 3 == 0
        return Step(self.look(), reward, over & ~good, over & good)


def lively(agent, scale=0.3):
    """Weights far from their careful beginning, so that every path carries a signal.

    What many numbers enter gets less of it: rounding must not grow from layer to layer.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in agent.parameters():
            share = 1.0 if p.ndim < 2 else 2.0 / math.sqrt(p[0].numel())
            p += scale * share * torch.randn(p.shape, generator=generator)
    return agent


def prepare(actor=None, critic=None, env=None, plan=None, normalize=False, scale=0.3):
    """A float64 learner with lively weights, its environments, plan and rollout."""
    envs = Envs(env or Scripted())
    seen = envs.obs_spec, envs.action_spec
    agent = build_agent(seen, actor or BranchConfig(), critic or BranchConfig(), normalize, seed=3)
    agent = lively(agent, scale).double()
    plan = plan or Plan(ppo=PPOConfig(num_steps=T, num_minibatches=1), seed=5, rollouts=9)
    learner = begin(envs, agent, plan)
    rollout = Rollout(agent, learner.row, T, torch.float64)
    return SimpleNamespace(envs=envs, agent=agent, plan=plan, learner=learner, rollout=rollout)


def roll(s, length=L):
    ppo.collect(s.envs, s.learner, s.rollout, s.plan, length)
    ppo.value(s.learner, s.rollout, length)


def small_memory(name, layers=2):
    """A memory with few layers and a context of a few steps, where it has these."""
    kind = MEMORIES[name]
    sizes = {"layers": layers, "context": 8}
    return kind(**{field: size for field, size in sizes.items() if field in kind.__dataclass_fields__})


def branch(name, **options):
    """A small branch with a memory of this name; "shared": a critic on the actor's features."""
    if name == "shared":
        return BranchConfig(shared=True, **options)
    return BranchConfig(memory=MEMORIES[name](), hidden=(6,), **options)


def chunks_with(rollout, advantage, length=L) -> Batch:
    """A rollout as chunks, observations as they are, with these advantages (T, N)."""
    return chunk(rollout, length, scores(rollout, length, Estimates(advantage, advantage)))


def chunks_of(s, length=L):
    """A rollout as chunks, as an update sees them, with advantages of 0."""
    zeros = torch.zeros(T, s.rollout.num_envs, dtype=torch.float64)
    batch = chunks_with(s.rollout, zeros, length)
    return batch._replace(rows=batch.rows._replace(obs=s.agent.normalizer(batch.rows.obs)))


def relearn(s, length=L):
    """Log-probabilities and values of a rollout computed anew from its chunks, and as stored."""
    batch = chunks_of(s, length)
    with torch.no_grad():
        params, values = s.agent(batch.rows, batch.state)
    valid = batch.valid
    log_prob = s.agent.policy.evaluate(params, batch.action)[0]
    return (log_prob[valid], values[valid]), (batch.log_prob[valid], batch.value[valid])


def largest(pairs):
    """The largest difference between pairs of tensors."""
    return max(float((a - b).abs().max()) for a, b in zip(*pairs, strict=True))


# An environment of pictures -------------------------------------------------------------------


class Halves(gymnasium.Env):
    """One step: the left or the right half of a picture is bright; the action must say which."""

    observation_space = spaces.Box(0, 255, (16, 16, 1), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bright = int(self.np_random.integers(2))
        return self.look(), {}

    def look(self):
        picture = np.zeros((16, 16, 1), dtype=np.uint8)
        picture[:, 8 * self.bright : 8 * self.bright + 8] = self.np_random.choice([100, 150, 200, 250])
        return picture

    def step(self, action):
        return self.look(), 1.0 if action == self.bright else -1.0, True, False, {}


def show_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What a notebook is given to show in one place, one after the other; there is no IPython here."""
    shown = []
    ipython = ModuleType("IPython.display")
    handle = SimpleNamespace(update=lambda bundle, raw: shown.append(bundle))
    ipython.display = lambda bundle, raw, display_id: shown.append(bundle) or handle
    monkeypatch.setitem(sys.modules, "IPython.display", ipython)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    return shown
