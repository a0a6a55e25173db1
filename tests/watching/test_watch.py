"""What is shown of an agent is the agent's own: values, choices, attention, influence, and each picture."""

import base64
import itertools
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import recollect
from recollect import cli
from recollect.agent.agent import BranchConfig, build_agent
from recollect.agent.normalize import RewardScale
from recollect.agent.policies import compute_log_odds
from recollect.common.errors import UsageError
from recollect.config.config import RunConfig
from recollect.encoder.residual import ResidualConfig
from recollect.envs import EnvConfig, Envs, make
from recollect.learn import ppo
from recollect.learn.rollout import slice_rows
from recollect.learn.settings import PPOConfig
from recollect.memory.gpt2 import Gpt2Config
from recollect.memory.rnn import GruConfig, LstmConfig, MinGruConfig
from recollect.memory.trxl import TrxlConfig
from recollect.run import api, checkpoint
from recollect.run.recording import has_memory, name_states, record
from recollect.run.run import Trained
from recollect.run.weights import load_rewards
from recollect.watching.episodes import select, watch
from recollect.watching.film_notes import LINE, WIDTH, describe_steps, enlarge
from recollect.watching.film_strip import draw_frames
from recollect.watching.influence import (
    LEAST_CHOICE,
    LEAST_VALUE,
    REACH,
    Influence,
    measure_on_actions,
    measure_on_values,
)
from recollect.watching.internals import (
    MemoryTrace,
    compute_advantages,
    compute_components,
    compute_internals,
    trace_memories,
)
from recollect.watching.watch_page import Gallery, pack, pack_exactly

from ..audit import audit
from ..helpers import (
    CRITICS,
    MEMORIES,
    REMEMBERING,
    Halves,
    branch,
    lively,
    run_quietly,
    sampled,
    seen_by_a_browser,
    small_config,
)

LENGTH = 12
ATTENDING = Gpt2Config(context=5, width=8, heads=2, layers=2, tokens="interleaved")


class Counting(gymnasium.Env):
    """Shows a number that grows by what is chosen, and draws the same number."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 5}
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def look(self):
        return np.array([self.count, 1.0], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.steps = int(self.np_random.integers(20, 60)), 0
        return self.look(), {}

    def step(self, action):
        self.count += 1 + int(action)
        self.steps += 1
        return self.look(), float(action), self.steps >= LENGTH, False, {}

    def render(self):
        return np.full((20, 300, 3), self.count, dtype=np.uint8)


class Reaching(Counting):
    """The same with two real actions, and a cut in place of an end."""

    action_space = spaces.Box(np.float32([-2, 0]), np.float32([2, 4]), dtype=np.float32)

    def step(self, action):
        obs, _, over, _, info = super().step(round(abs(float(action[0]))))
        return obs, float(action[1]), False, over, info


def trained(actor="gru", critic="lstm", env=Counting, dtype=torch.float32):
    """An agent with lively weights; nobody trained it."""
    config = RunConfig(env=EnvConfig(id="counting", num_envs=1), actor=branch(actor), critic=branch(critic))
    envs = make(config.env, env)
    agent = build_agent((envs.obs_spec, envs.action_spec), config.actor, config.critic, False, 0)
    with torch.no_grad():  # what is seen is near 50: let the networks hear of it
        for part in (agent.actor, agent.critic):
            for name, p in part.named_parameters():
                if name == "encoder.0.weight":
                    p *= 0.02
    return Trained(lively(agent).to(dtype), config, Path("by-hand"), {}, env)


def played(it, seed=3):
    """One episode with everything written down."""
    envs = make(it.config.env, it.factory)
    return record(it.agent.player(1, True, seed), envs, 1, [seed])[1]


def computed(it, found):
    scale = RewardScale(1, it.config.ppo.gamma, False, 1.0)
    kinds = tuple("some" if has_memory(part) else None for part in (it.agent.actor, it.agent.critic))
    return compute_internals(it.agent, found, it.config.ppo, scale, kinds)


# The agent's own ------------------------------------------------------------------------------


def test_a_picture_shows_what_the_action_was_based_on() -> None:
    watched = watch(trained(), 4, 3, 0, False, np.copy)
    assert watched.reproduced and watched.note == ""
    assert [one.name for one in watched.episodes] == ["best", "typical", "worst"] and watched.fps == 5
    for one in watched.episodes:
        drawn = [int(picture[0, 0, 0]) for picture in one.pictures]
        assert drawn == one.record.rows.obs["obs"][:, 0, 0].int().tolist()
        assert len(drawn) == one.length + 1 == LENGTH + 1


@pytest.mark.parametrize("env", [Counting, Reaching])
@pytest.mark.parametrize("critic", CRITICS)
def test_values_choices_and_entropy_are_what_the_agent_has_step_by_step(critic, env) -> None:
    it = trained("gru", critic, env, torch.float64)
    found = played(it)
    shown = computed(it, found)
    agent, rows = it.agent, found.rows
    state, values, params = agent.initial_state(1), [], []
    read, acts = state, state.actor
    for t in range(LENGTH + 1):
        row = slice_rows(rows, slice(t, t + 1))
        value, read = agent.value(row, read)
        said, acts = agent.actor(row, acts)
        values.append(value.item()), params.append(said[0].detach())
    np.testing.assert_allclose(shown.value, values, rtol=1e-9, atol=1e-12)
    log_prob, entropy = agent.policy.evaluate(torch.cat(params)[:LENGTH], rows.prev_action[1:, 0])
    np.testing.assert_allclose(shown.entropy, entropy, rtol=1e-9, atol=1e-12)
    if env is Counting:
        taken = rows.prev_action[1:, 0, 0].numpy()
        likely = shown.policy[np.arange(LENGTH), 0, taken]
        np.testing.assert_allclose(likely, log_prob.exp(), rtol=1e-9)
        np.testing.assert_allclose(shown.policy.sum(-1), 1.0)
    else:
        mean, deviation = torch.cat(params)[:LENGTH].chunk(2, -1)
        width = np.array([2.0, 2.0])
        np.testing.assert_allclose(shown.policy[:, 1], deviation.exp().numpy() * width)
        wanted = np.array([0.0, 2.0]) + mean.clamp(-1, 1).numpy() * width
        np.testing.assert_allclose(shown.policy[:, 0], wanted, atol=1e-6)  # floats, as the environment takes


@pytest.mark.parametrize("env", [Counting, Reaching])
def test_advantages_are_those_of_training(env) -> None:
    it = trained(env=env, dtype=torch.float64)
    found = played(it)
    config = PPOConfig(gamma=0.9, gae_lambda=0.8)
    value = np.random.default_rng(0).standard_normal(LENGTH + 1)
    mine = compute_advantages(found, value, config, RewardScale(1, 0.9, False, 0.5))
    rollout = SimpleNamespace(
        value=torch.from_numpy(value)[:, None],
        valid=torch.tensor([True] * LENGTH + [False])[:, None],
        terminated=torch.from_numpy(found.terminated),
        truncated=torch.from_numpy(found.truncated),
    )
    theirs = ppo.advantages(rollout, 0.5 * torch.from_numpy(found.reward), 0.9, 0.8)
    np.testing.assert_allclose(mine, theirs[:, 0])


def test_values_are_in_rewards_of_the_task_where_their_scale_is_known() -> None:
    it = trained(dtype=torch.float64)
    found = played(it)
    scale = RewardScale(1, 0.99, True)
    scale.mean, scale.var, scale.count = (torch.tensor(x, dtype=torch.float64) for x in (0.0, 9.0, 50.0))
    plain, scaled = (
        computed(it, found),
        compute_internals(it.agent, found, it.config.ppo, scale, (None, None)),
    )
    np.testing.assert_allclose(scaled.value, 3 * plain.value, rtol=1e-6)
    unknown = compute_internals(it.agent, found, it.config.ppo, None, (None, None))
    assert unknown.advantage is None and scaled.advantage is not None


def test_a_saved_agent_keeps_the_scale_of_its_rewards(tmp_path) -> None:
    run = run_quietly(replace(small_config(), save_interval=2, rollouts=5), tmp_path)
    assert checkpoint.existing(run.folder / "checkpoints")[-1].stem.endswith("4"), (
        "older than the last weights"
    )
    run.save(tmp_path / "agent.safetensors")
    written = [run.folder / "checkpoints" / f"{name}.safetensors" for name in ("last", "best")]
    files = [run.folder, tmp_path / "agent.safetensors", *written]
    kept = [load_rewards(path, run.config) for path in files]
    assert len({scale.divisor for scale in kept}) == 1 and kept[0].divisor != 1
    # An agent that was loaded and saved again still does.
    again = tmp_path / "again.safetensors"
    api.load(tmp_path / "agent.safetensors").save(again)
    assert load_rewards(again, run.config).divisor == kept[0].divisor


# Influence ------------------------------------------------------------------------------------


def outputs(agent, rows):
    """What the influences are differences of: log-odds, or means in deviations, and values, step by step."""
    params, values, state = [], [], agent.initial_state(1)
    read, acts = state, state.actor
    with torch.no_grad():
        for t in range(len(rows.first) - 1):
            row = span(rows, t, t + 1)
            value, read = agent.value(row, read)
            param, acts = agent.actor(row, acts)
            params.append(param[0]), values.append(value[0])
    params, values = torch.cat(params), torch.cat(values)
    if agent.policy.discrete:
        p = agent.policy.evaluate(params, rows.prev_action[1:, 0])[0].exp()
        return torch.log(p / (1 - p))[:, None], values
    mean, log_deviation = params.chunk(2, -1)
    return mean / log_deviation.exp(), values


def span(rows, begin, end):
    return slice_rows(rows, slice(begin, end))


def wanted(agent, rows):
    """Changes (T, K) of actions and values, with a memory that begins at each step in turn."""
    length = len(rows.first) - 1
    by_action, by_value = np.zeros((length, length)), np.zeros((length, length))
    later = outputs(agent, span(rows, length - 1, length + 1))
    for begin in reversed(range(length - 1)):
        actions, values = outputs(agent, span(rows, begin, length + 1))
        change = actions[1:] - later[0]
        change = change[:, 0] if agent.policy.discrete else change.norm(dim=-1)
        for t in range(begin + 1, length):
            by_action[t, t - begin] = change[t - begin - 1]
            by_value[t, t - begin] = (values[1:] - later[1])[t - begin - 1]
        later = actions, values
    return by_action, by_value


def near_zero(rows):
    """Observations as if they were normalised."""
    return rows._replace(obs={"obs": (rows.obs["obs"] - 40) / 10})


def same_influence(agent, rows):
    rows = near_zero(rows)
    by_action, by_value = wanted(agent, rows)
    np.testing.assert_allclose(measure_on_actions(agent, rows).changes, by_action, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(measure_on_values(agent, rows).changes, by_value, rtol=1e-6, atol=1e-9)
    assert min(np.abs(x[-1]).max() for x in (by_action, by_value)) > 1e-4


@pytest.mark.parametrize(
    ("critic", "env"),
    sampled(
        itertools.product([*REMEMBERING, "shared"], [Counting, Reaching]),
        *itertools.product(["gru", "stack", "deltanet", "gpt2", "shared"], [Counting]),
        ("trxl", Reaching),
    ),
)
def test_influence_is_the_change_by_remembering_a_step(critic, env) -> None:
    it = trained("lstm" if critic == "shared" else critic, critic, env, torch.float64)
    same_influence(it.agent, played(it).rows)


UNUSUAL = {
    "gradients that learning cuts": BranchConfig(
        memory=TrxlConfig(context=8, width=8, heads=2, layers=2, gradient=0), hidden=(6,)
    ),
    "the action as a token": BranchConfig(
        memory=Gpt2Config(context=8, width=8, heads=2, layers=2, tokens="interleaved"), hidden=(6,)
    ),
    "dropout": BranchConfig(
        memory=Gpt2Config(context=8, width=8, heads=2, layers=2, dropout=0.5), hidden=(6,)
    ),
    "action and reward as inputs": replace(branch("gru"), prev_action=True, prev_reward=True),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_influence_is_that_of_acting_in_unusual_branches(kind) -> None:
    it = trained("mlp", "mlp", dtype=torch.float64)
    spec = it.agent.obs_spec, it.agent.action_spec
    agent = lively(build_agent(spec, branch("gru"), UNUSUAL[kind], False, 0)).double()
    same_influence(agent, played(replace(it, agent=agent)).rows)
    assert agent.training  # as it was


@pytest.mark.parametrize("cues", [[3], [2, 3]])
def test_a_memory_that_copies_a_cue_shows_the_step_that_it_copies(cues) -> None:
    size, last = 5.0, cues[-1]
    it = trained("gru", "mlp", dtype=torch.float64)
    config = BranchConfig(memory=GruConfig(width=1), hidden=())
    agent = build_agent(
        (it.agent.obs_spec, it.agent.action_spec), config, it.config.critic, False, 0
    ).double()
    gru = agent.actor.memory.layers[0]
    with torch.no_grad():  # an observation is (cue, flag); the gate is open where the flag is 1
        for p in agent.actor.parameters():
            p.zero_()
        gru.input[1, 1], gru.bias[1] = -200.0, 100.0
        gru.input[2, 0] = 1.0
        agent.actor.head.out.weight[1, 0] = size
        agent.actor.head.out.bias[2] = -1000.0  # two actions
    rows = played(replace(it, agent=agent)).rows
    obs = torch.zeros(LENGTH + 1, 1, 2, dtype=torch.float64)
    obs[cues] = 1.0
    rows = rows._replace(obs={"obs": obs}, prev_action=torch.ones_like(rows.prev_action))
    influence = measure_on_actions(agent, rows)
    changes = np.zeros((LENGTH, LENGTH))
    for t in range(last + 1, LENGTH):
        changes[t, t - last] = size * np.tanh(1.0)
    np.testing.assert_allclose(influence.changes, changes, atol=1e-9)
    np.testing.assert_allclose(influence.level[last:], size * np.tanh(1.0), atol=1e-9)
    np.testing.assert_allclose(influence.alone[last + 1 :], 0.0, atol=1e-9)
    assert influence.least == LEAST_CHOICE and influence.unit == "log-odds of the action"


@pytest.mark.parametrize("of", [measure_on_actions, measure_on_values])
def test_changes_sum_to_the_output_minus_the_output_without_memory(of) -> None:
    it = trained("gru", "lstm", dtype=torch.float64)
    long = REACH + 20
    it = replace(it, factory=lambda: gymnasium.wrappers.TimeLimit(Forever(), long))
    rows = near_zero(played(it).rows)
    influence = of(it.agent, rows)
    assert influence.changes.shape == (long, REACH) and (influence.changes[:, 0] == 0).all()
    np.testing.assert_allclose(influence.changes.sum(1), influence.level - influence.alone, atol=1e-12)
    actions, values = outputs(it.agent, rows)
    level = actions[:, 0] if of is measure_on_actions else values
    np.testing.assert_allclose(influence.level, level, rtol=1e-9)


def test_the_last_step_of_the_reach_stands_for_all_that_are_earlier(monkeypatch) -> None:
    it = trained("gru", "lstm", dtype=torch.float64)
    rows = near_zero(played(it).rows)
    whole = measure_on_values(it.agent, rows).changes
    monkeypatch.setattr("recollect.watching.influence.REACH", 4)
    monkeypatch.setattr("recollect.watching.influence.AT_ONCE", 5)
    near = measure_on_values(it.agent, rows).changes
    np.testing.assert_allclose(near[:, :3], whole[:, :3], atol=1e-12)
    np.testing.assert_allclose(near[:, 3], whole[:, 3:].sum(1), atol=1e-12)


class Forever(Counting):
    def step(self, action):
        obs, reward, _, _, info = super().step(0)
        self.count -= 1
        return obs, reward, False, False, info


def test_log_odds_of_all_components_together_hold_where_probabilities_round_to_one() -> None:
    logits = torch.tensor([[60.0, 0.0, 0.5], [-60.0, 0.0, 0.5], [0.3, 0.1, 2.0]], dtype=torch.float64)
    action = torch.zeros(3, 1, dtype=torch.int64)
    others = np.log(1 + np.exp(0.5))
    last = 0.3 - np.log(np.exp(0.1) + np.exp(2.0))
    np.testing.assert_allclose(
        compute_log_odds(logits, action, (3,)), [60 - others, -60 - others, last], rtol=1e-12
    )
    pairs = torch.tensor([[0.4, -0.1, 1.0, 0.0, 0.2, 7.0]], dtype=torch.float64)
    both = torch.tensor([[1, 2, 0]])
    p = pairs[:, :2].softmax(-1)[0, 1] * pairs[:, 2:5].softmax(-1)[0, 2]
    np.testing.assert_allclose(compute_log_odds(pairs, both, (2, 3, 1)), [torch.log(p / (1 - p))], rtol=1e-12)
    alone = compute_log_odds(pairs[:, :1], both[:, 2:], (1,))
    assert torch.isfinite(alone).all()  # a single choice: p = 1


def test_changes_below_the_least_are_not_shown() -> None:
    changes = np.array([[0.05, -0.02], [0.05, -0.2], [0.0, 0.0]])
    one = Influence(changes, "log-odds of the action", None, None, 0.1)
    np.testing.assert_array_equal(one.measurable(), [[0, 0], [0.05, -0.2], [0, 0]])
    np.testing.assert_allclose(one.scaled(3.0).measurable(), 3 * one.measurable())


def test_the_least_change_of_values_is_a_share_of_their_range() -> None:
    it = trained(dtype=torch.float64)
    record_of = played(it)
    influence = measure_on_values(it.agent, record_of.rows)
    values = computed(it, record_of).value
    assert influence.least == pytest.approx(LEAST_VALUE * np.ptp(values[:-1]))


# Choosing and packing -------------------------------------------------------------------------


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12), st.integers(1, 12))
def test_the_best_a_typical_and_the_worst_come_first(scores, shown) -> None:
    found = select(scores, shown)
    numbers = [number for number, _ in found]
    assert len(set(numbers)) == len(numbers) == min(shown, len(scores))
    assert found[0][1] == "best" and scores[numbers[0]] == max(scores)
    names = dict((name, number) for number, name in found)
    assert "worst" in names or shown < 3 or len(scores) < 2
    if "worst" in names:
        assert scores[names["worst"]] == min(scores)
    if "typical" in names:
        below = sum(x < scores[names["typical"]] for x in scores)
        assert below <= len(scores) / 2


def unpack(x):
    shape = x["shape"]
    if "floats" in x:
        return np.frombuffer(base64.b64decode(x["floats"]), "<f4").reshape(shape)
    return x["low"] + x["step"] * np.frombuffer(base64.b64decode(x["words"]), "<u2").reshape(shape)


@pytest.mark.parametrize(
    "x", [np.random.default_rng(1).normal(0, 50, (7, 3)), np.full((2, 2), 3.0), np.zeros((4, 0))]
)
def test_arrays_come_out_of_the_page_as_they_went_in(x) -> None:
    np.testing.assert_allclose(unpack(pack_exactly(x)), x, rtol=1e-6)
    spread = float(np.ptp(x)) if x.size else 0.0
    np.testing.assert_allclose(unpack(pack(x)), x, atol=spread / 60_000 + 1e-12)


def test_equal_pictures_are_kept_once() -> None:
    pytest.importorskip("PIL")
    one, other = np.zeros((30, 400, 3), np.uint8), np.full((30, 400, 3), 200, np.uint8)
    gallery = Gallery()
    assert [gallery(x) for x in (one, other, one, one)] == [0, 1, 0, 0]
    assert len(gallery.images) == 2 and all(x.startswith("data:image/webp") for x in gallery.images)


@pytest.mark.parametrize(
    ("names", "count", "titles"),
    [
        (LstmConfig().build(3).state_names, 2, ["LSTM hidden state h", "LSTM cell state c"]),
        (GruConfig().build(3).state_names, 1, ["GRU hidden state h"]),
        (
            MinGruConfig(layers=2).build(3).state_names,
            2,
            ["minGRU hidden state h, layer 1 of 2", "minGRU hidden state h, layer 2 of 2"],
        ),
        ((), 1, ["memory state"]),
        ((), 2, ["memory state, tensor 1 of 2", "memory state, tensor 2 of 2"]),
        (("one", "two"), 1, ["memory state"]),
    ],
)
def test_tensors_of_a_state_have_the_names_that_the_memory_gives_them(names, count, titles) -> None:
    assert list(name_states(names, count)) == titles


def test_components_hold_what_varies() -> None:
    random = np.random.default_rng(2)
    flat = random.standard_normal((30, 2)) @ random.standard_normal((2, 9))
    path, share = compute_components(flat)
    assert share == pytest.approx(1.0) and path.shape == (30, 2)
    distance = np.linalg.norm(flat[3] - flat[17])
    assert np.linalg.norm(path[3] - path[17]) == pytest.approx(distance)
    assert compute_components(np.ones((5, 1)))[0].shape == (5, 2)


# The page -------------------------------------------------------------------------------------

VISIT = """
const page = document.querySelector("iframe").contentWindow;
const all = (what) => [...page.document.querySelectorAll(what)];
const one = (what) => all(what)[0];
const told = (name) => one(`[data-name="${name}"]`).textContent;
const state = () => ({
  step: Number(one("#time").value), clock: one("#clock").textContent, facts: one("#facts").textContent,
  reward: told("reward"), sum: told("return so far"), value: told("value"), advantage: told("advantage"),
  entropy: told("entropy"), likely: all("#choice .number").map((x) => x.textContent),
  seen: all("#observed .number").map((x) => x.textContent),
  image: one("#screen img") ? one("#screen img").src.length : null,
  weight: all(".thumbs[data-weight]").map((x) => Number(x.dataset.weight)),
  influence: Object.fromEntries(all("[data-influence]").map((x) => [x.dataset.influence, x.textContent])),
});
function key(name, more = {}) {
  const how = { key: name, bubbles: true, cancelable: true, ...more };
  page.document.body.dispatchEvent(new page.KeyboardEvent("keydown", how));
}
function visit() {
  const seen = { errors, wide: page.document.documentElement.scrollWidth, begin: state() };
  const texts = (what) => all(what).map((x) => x.textContent);
  seen.actions = texts("#choice .name");
  seen.heads = texts(".heads span");
  seen.moments = all("#moments button").flatMap((x) => [x.firstChild.data, x.lastChild.textContent]);
  const reward = all(".lane")[0], value = all(".lane")[1];
  seen.range = [...value.querySelectorAll(".range span")].map((x) => x.textContent);
  seen.rewards = reward.querySelector("polyline").getAttribute("points");
  seen.heights = [];
  const height = () => seen.heights.push(page.document.documentElement.scrollHeight);
  height();
  seen.titles = all("h2, h3").map((x) => x.textContent);
  seen.words = all("canvas[role=img], svg[role=img]").map((x) => x.getAttribute("aria-label"));
  key("ArrowRight"); key("ArrowRight"); key("ArrowRight");
  seen.third = state();
  height();
  const range = one("#time");
  range.value = 7;
  range.dispatchEvent(new page.Event("input", { bubbles: true }));
  seen.seventh = state();
  key("End");
  seen.end = state();
  height();
  key("Home"); key("2");
  seen.other = state();
  seen.pressed = all("#picks button").map((x) => x.getAttribute("aria-pressed"));
  const select = one(".panel select");
  if (select) { select.value = 1; select.dispatchEvent(new page.Event("change", { bubbles: true })); }
  const thumb = (key("ArrowRight"), key("ArrowRight"), one(".thumbs button[data-back='1']"));
  if (thumb) { thumb.click(); seen.thumb = state().step; }
  key("Home"); key(" ");
  setTimeout(() => {
    seen.played = state();
    seen.playing = one("#play").textContent;
    document.querySelector("pre").textContent = JSON.stringify(seen);
  }, 1500);
}
const errors = [];
document.querySelector("iframe").addEventListener("load", () => {
  page.addEventListener("error", (event) => errors.push(String(event.message)));
  setTimeout(visit, 300);
});
"""


def number(x):
    """As the page writes it."""
    return f"{x:.4g}"


def same(text, x):
    """Of four significant digits, or of three where the page writes a power of ten."""
    return float(text) == pytest.approx(x, rel=6e-3 if "e" in text else 6e-4, abs=1e-9)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A page of an agent that attends, and what a browser saw of it."""
    folder = tmp_path_factory.mktemp("page")
    env = EnvConfig(
        id="CartPole-v1", num_envs=4, normalize_obs=True, normalize_reward=True, backend="gymnasium"
    )
    looking = BranchConfig(memory=ATTENDING, hidden=())
    config = small_config(actor=looking, critic=replace(looking, memory=MEMORIES["lstm"](width=5)))
    run = run_quietly(replace(config, env=env, rollouts=2), folder)
    page = folder / "page.html"
    assert cli.main(["watch", str(run.folder), "-o", str(page), "--episodes", "3"]) == 0
    return run, page, seen_by_a_browser(page, VISIT, folder)


def check_words(words, influence, step):
    """The page states the level and the total of its changes, or that there is no measurable influence."""
    numbers = re.search(r": (\S+); without memory: (\S+)\. ", words)
    assert numbers and same(numbers[1], influence.level[step]) and same(numbers[2], influence.alone[step])
    sizes = np.abs(influence.changes[step])
    if sizes.max() >= influence.least:
        total = re.search(rf"changes the {influence.unit} by (\S+) in total", words)
        assert total and same(total[1], sizes.sum())
    else:
        assert "No measurable influence" in words and influence.unit in words


def data(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1])


def test_the_page_shows_the_numbers_of_each_step(shown) -> None:
    run, _, seen = shown
    assert seen["errors"] == []
    scale = load_rewards(run.folder, run.config)
    again = watch(run, 3, 3, 0, False, None).episodes
    for name, episode, step in (("third", 0, 3), ("seventh", 0, 7), ("other", 1, 0)):
        told, one = seen[name], again[episode]
        inner = compute_internals(run.agent, one.record, run.config.ppo, scale, ("gpt2", "lstm"))
        assert told["step"] == step and told["clock"] == f"step {step} of {one.length}"
        assert same(told["reward"], one.record.reward[step, 0])
        assert same(told["sum"], one.record.reward[: step + 1, 0].sum())
        assert same(told["value"], inner.value[step])
        assert same(told["advantage"], inner.advantage[step])
        assert same(told["entropy"], inner.entropy[step])
        likely = [float(x.removesuffix(" %")) for x in told["likely"]]
        np.testing.assert_allclose(likely, 100 * inner.policy[step, 0], atol=0.51)
        for text, x in zip(told["seen"], one.record.rows.obs["obs"][step, 0], strict=True):
            assert same(text, float(x))
        (weight,) = told["weight"]
        mean = inner.memories[0].attention[-1][step].mean(0)
        assert weight == pytest.approx(mean.max(), abs=1e-3)
        for memory in inner.memories:
            for name, influence in memory.influence.items():
                check_words(told["influence"][name], influence, step)
    assert seen["end"]["clock"].startswith("the end, terminated") and seen["end"]["reward"] == "-"
    assert same(seen["end"]["sum"], again[0].score)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1400])
def test_the_player_passes_an_audit(shown, tmp_path, width, dark) -> None:
    assert audit(shown[1], tmp_path, width, dark) == []


def test_names_moments_heads_and_scales_are_shown(shown) -> None:
    run, page, seen = shown
    assert data(page)["actions"] == ["push left", "push right"] == seen["actions"]
    assert data(page)["observations"][0] == "cart position"
    assert seen["heads"][:2] == ["head 1", "head 2"]
    again = watch(run, 3, 3, 0, False, None).episodes[0]
    inner = compute_internals(
        run.agent, again.record, run.config.ppo, load_rewards(run.folder, run.config), ("gpt2", "lstm")
    )
    moments = dict(zip(seen["moments"][::2], seen["moments"][1::2], strict=True))
    for name, values in (("least certain action", inner.entropy), ("highest value", inner.value)):
        step = int(re.match(r"step (\d+), ", moments[name])[1])
        assert values[step] == pytest.approx(values[: again.length].max(), rel=1e-5)  # as rounded on the page
    high, low = seen["range"]
    assert same(high, inner.value[: again.length].max()) and same(low, inner.value[: again.length].min())
    corners = [point.split(",") for point in seen["rewards"].split()]
    assert len(corners) == 2 * again.length
    assert all(a[1] == b[1] for a, b in zip(corners[::2], corners[1::2], strict=True))


def test_the_heights_of_the_page_stay_while_it_plays(shown) -> None:
    assert len(set(shown[2]["heights"])) == 1


BESIDE = """
document.querySelector("iframe").addEventListener("load", () => setTimeout(() => {
  const page = document.querySelector("iframe").contentWindow;
  page.document.querySelector("#beside")?.click();
  setTimeout(() => {
    const players = [...page.document.querySelectorAll("iframe")].map((frame) => frame.contentWindow);
    const text = (what) => players.map((player) => player.document.querySelector(what).textContent);
    const seen = { facts: text("#facts"), wide: page.document.documentElement.scrollWidth };
    players[1].go(3);
    seen.linked = text("#clock");
    page.document.querySelector("input").click();
    players[0].go(5);
    seen.apart = text("#clock");
    seen.again = players.map((player) => player.document.querySelector("#beside").hidden);
    document.querySelector("pre").textContent = JSON.stringify(seen);
  }, 1500);
}, 400));
"""


def test_two_episodes_are_shown_side_by_side(shown, tmp_path) -> None:
    seen = seen_by_a_browser(shown[1], BESIDE, tmp_path)
    assert [facts.split()[0] for facts in seen["facts"]] == ["best", "typical"]
    assert [clock.split(" of")[0] for clock in seen["linked"]] == ["step 3", "step 3"]
    assert [clock.split(" of")[0] for clock in seen["apart"]] == ["step 5", "step 3"]
    assert seen["again"] == [True, True] and seen["wide"] <= 360


def test_two_agents_are_shown_side_by_side(shown, tmp_path, capsys) -> None:
    page = tmp_path / "pair.html"
    folder = str(shown[0].folder)
    assert cli.main(["watch", folder, "--beside", folder, "-o", str(page), "--episodes", "2"]) == 0
    seen = seen_by_a_browser(page, BESIDE, tmp_path)
    assert [facts.split()[0] for facts in seen["facts"]] == ["best", "best"]
    assert seen["linked"][0] == seen["linked"][1] and seen["apart"][0] != seen["apart"][1]
    assert cli.main(["watch", folder, "--beside", folder, "-o", str(tmp_path / "film.gif")]) == 2
    assert "use -o FILE.html" in capsys.readouterr().err
    assert cli.main(["watch", folder, "--beside", "nothing", "-o", str(page), "--episodes", "2"]) == 2
    printed = capsys.readouterr()
    assert "nothing does not exist" in printed.err and "episodes" not in printed.out  # before any is played


def test_the_page_plays_scrubs_and_changes_episodes(shown) -> None:
    _, _, seen = shown
    assert (seen["begin"]["step"], seen["third"]["step"], seen["seventh"]["step"]) == (0, 3, 7)
    assert seen["pressed"] == ["false", "true", "false"] and seen["other"]["facts"].startswith("typical of 3")
    assert seen["thumb"] == 1
    assert seen["played"]["step"] > 2


def test_the_page_says_in_words_what_it_draws(shown) -> None:
    _, _, seen = shown
    assert "The actor's memory: gpt2" in seen["titles"] and "The critic's memory: lstm" in seen["titles"]
    assert {"Attention weights", "LSTM hidden state h", "LSTM cell state c"} < set(seen["titles"])
    assert "Influence of remembered steps on the action" in seen["titles"]
    assert len(seen["words"]) >= 8 and all(seen["words"])
    assert seen["begin"]["image"] > 100


def test_the_player_fits_a_small_phone(shown) -> None:
    assert shown[2]["wide"] <= 360


def test_the_page_needs_no_network(shown) -> None:
    text = shown[1].read_text()
    assert not re.findall(r"""(?:src|href)=["']?https?:""", text) and "@import" not in text
    assert len(text) < 3_000_000 and data(shown[1])["images"]


# Where something is missing -------------------------------------------------------------------


@pytest.fixture(scope="module")
def recaller(tmp_path_factory):
    """An agent in an environment that nobody draws."""
    folder = tmp_path_factory.mktemp("recaller")
    config = small_config("probe:recall", backend="own", actor=branch("gru"), critic=branch("gru"))
    return run_quietly(replace(config, rollouts=1), folder).folder


def test_the_second_agent_is_given_as_the_first_one_is(recaller, tmp_path) -> None:
    run, pages = recollect.load(recaller), [tmp_path / f"{i}.html" for i in range(3)]
    for page, beside in zip(pages, (str(recaller), recaller, run), strict=True):
        recollect.watch(run, page, episodes=2, beside=beside)
    assert pages[0].read_bytes() == pages[1].read_bytes() == pages[2].read_bytes()


def test_an_environment_that_nobody_draws_is_shown_as_numbers(recaller, tmp_path, capsys) -> None:
    page = tmp_path / "page.html"
    assert cli.main(["watch", str(recaller), "-o", str(page), "--episodes", "2"]) == 0
    assert "without pictures: the environment has no rgb_array render mode" in capsys.readouterr().out
    seen = seen_by_a_browser(page, VISIT, tmp_path)
    assert seen["errors"] == [] and seen["begin"]["image"] is None and seen["begin"]["seen"]
    assert any("as bars" in words for words in seen["words"])


def test_without_pillow_there_is_a_page_all_the_same(shown, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    page = tmp_path / "page.html"
    assert cli.main(["watch", str(shown[0].folder), "-o", str(page), "--episodes", "1"]) == 0
    assert (
        "without pictures: pictures need Pillow: pip install 'recollect-rl[video]'" in capsys.readouterr().out
    )
    assert data(page)["images"] == [] and data(page)["episodes"][0]["image"] == []


def test_pictures_alone_without_pillow_are_a_page_that_works(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(
        gymnasium.registry, "Halves-v0", gymnasium.envs.registration.EnvSpec("Halves-v0", Halves)
    )
    looks = replace(branch("mlp"), encoder=ResidualConfig())
    config = small_config("Halves-v0", backend="gymnasium", actor=looks, critic=looks)
    run = run_quietly(replace(config, rollouts=1), tmp_path)
    page = tmp_path / "page.html"
    assert cli.main(["watch", str(run.folder), "-o", str(page), "--episodes", "1"]) == 0
    script = """
const page = document.querySelector("iframe").contentWindow, errors = [];
document.querySelector("iframe").addEventListener("load", () => {
  page.addEventListener("error", (event) => errors.push(event.message));
  setTimeout(() => {
    page.document.getElementById("play").click();
    const label = page.document.querySelector("#screen canvas").getAttribute("aria-label");
    document.querySelector("pre").textContent = JSON.stringify({ errors, label });
  }, 100);
});
"""
    assert seen_by_a_browser(page, script, tmp_path) == {"errors": [], "label": "no picture"}


def test_where_nothing_can_draw_one_line_says_what_to_install(shown, tmp_path, monkeypatch, capsys) -> None:
    def fails(self):
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed, run `pip install pygame`")

    monkeypatch.setattr("gymnasium.envs.classic_control.cartpole.CartPoleVectorEnv.render", fails)
    page = tmp_path / "page.html"
    assert cli.main(["watch", str(shown[0].folder), "-o", str(page), "--episodes", "1"]) == 0
    assert "cannot be rendered: pygame is not installed" in capsys.readouterr().out
    assert cli.main(["watch", str(shown[0].folder), "-o", str(tmp_path / "x.gif")]) == 2
    assert "FILE.html shows its numbers" in capsys.readouterr().err


ERRORS = {
    "nobody": (["watch"], "recollect watch needs RUN"),
    "random": (["watch", "random"], "`watch` needs a trained agent: 'random' has no memory to show"),
    "missing": (["watch", "nowhere"], "nowhere does not exist"),
    "suffix": (
        ["watch", "nowhere", "-o", "x.avi"],
        "or a file that ends in .html, .mp4, .gif, .webp",
    ),
    "none": (["watch", "RUN", "-o", "x.html", "--episodes", "0"], "--episodes 0: at least 1 is needed"),
    "no pictures": (["watch", "RUN", "-o", "x.gif"], "probe:recall has no pictures for a film"),
    "folder": (["watch", "RUN", "-o", "/dev/null/x.html"], "/dev/null/x.html: /dev/null is a file"),
    "film": (["watch", "RUN", "-o", "/dev/null/x.mp4"], "/dev/null/x.mp4: /dev/null is a file"),
    "a folder": (["watch", "RUN", "-o", "there.mp4"], "there.mp4 cannot be written: Is a directory"),
    "seed": (["watch", "RUN", "-o", "x.html", "--seed", "-1"], "--seed is -1, at least 0 is needed"),
    "shown": (["watch", "RUN", "-o", "x.html", "--shown", "0"], "--shown 0: at least 1 is needed"),
    "elsewhere": (["watch", "RUN", "-e", "CartPole-v1", "-o", "x.html"], "CartPole-v1 gives observations"),
    "no screen": (["watch", "RUN", "-o", "human"], "no window can be opened: there is no screen"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_say_what_to_do_before_an_episode_is_played(
    recaller, case, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("recollect.watching.episodes._play", lambda *_: pytest.fail("an episode was played"))
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    (tmp_path / "there.mp4").mkdir()
    arguments, message = ERRORS[case]
    assert cli.main([str(recaller) if word == "RUN" else word for word in arguments]) == 2
    assert message in capsys.readouterr().err


# Films ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["gif", "WEBP"])
def test_a_film_has_a_picture_for_each_step_and_the_memory_below(shown, tmp_path, suffix) -> None:
    image = pytest.importorskip("PIL.Image")
    film = tmp_path / "new folder" / f"film.{suffix}"
    assert cli.main(["watch", str(shown[0].folder), "-o", str(film), "--episodes", "1"]) == 0
    with image.open(film) as frames:
        assert frames.n_frames > 3 and frames.width == 480 and frames.height > 320  # 400 x 600, and strips


def test_a_window_shows_every_picture_until_it_is_closed(monkeypatch) -> None:
    pygame = pytest.importorskip("pygame")
    from recollect.run import film

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    flips, made = [], []
    monkeypatch.setattr(pygame.display, "flip", lambda: flips.append(1))
    with pytest.raises(UsageError, match="there is no screen"):
        film.check_screen()
    monkeypatch.setattr(pygame.display, "get_driver", lambda: "x11")
    film.check_screen()

    def playing():
        for t in range(5):
            made.append(t)
            yield np.full((10, 250, 3), t, np.uint8)

    film.show_window(playing(), 1000, "five")
    assert len(flips) == 5
    closing = [[], [], [SimpleNamespace(type=pygame.QUIT)]]
    monkeypatch.setattr(pygame.event, "get", lambda: closing.pop(0))
    made.clear()
    film.show_window(playing(), 1000, "three")
    assert made == [0, 1, 2]

    def fail(size):
        raise pygame.error("no video mode")

    monkeypatch.setattr(pygame.display, "set_mode", fail)
    with pytest.raises(UsageError, match="no window can be opened: no video mode; write a file"):
        film.show_window(playing(), 1000, "none")


def test_with_a_screen_the_window_is_what_opens(shown, monkeypatch, capsys) -> None:
    opened = []
    monkeypatch.setattr(
        "recollect.run.film.show_window", lambda shown, fps, title: opened.append((len(shown), fps))
    )
    monkeypatch.setattr("recollect.run.film.check_screen", lambda: None)
    monkeypatch.setenv("DISPLAY", ":0")
    assert cli.main(["watch", str(shown[0].folder), "--episodes", "1"]) == 0
    assert opened and opened[0][1] == 50
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert cli.main(["watch", str(shown[0].folder), "--episodes", "1"]) == 0
    assert (shown[0].folder / "watch.html").is_file()


# Pictures of environments ---------------------------------------------------------------------


@pytest.mark.parametrize("env", ["poc", "CartPoleMasked", "Acrobot-v1", "minigrid:MiniGrid-MemoryS7-v0"])
def test_environments_draw_what_happens(env) -> None:
    if env.startswith("minigrid"):
        pytest.importorskip("minigrid")
    envs = make(EnvConfig(id=env, num_envs=2, backend="auto" if env == "poc" else "gymnasium"))
    envs.reset([1, 2])
    drawn = []
    for _ in range(4):
        drawn.append(envs.adapter.render().copy())
        envs.step(np.ones((2, 1), dtype=np.int64))
    assert {x.shape for x in drawn} == {drawn[0].shape} and drawn[0].dtype == np.uint8
    assert drawn[0].ndim == 3 and drawn[0].shape[2] == 3
    assert any(not np.array_equal(drawn[0], x) for x in drawn[1:])
    envs.adapter.close()


def test_an_agent_that_sees_pictures_is_shown_what_it_saw() -> None:
    class Seeing(gymnasium.Env):
        observation_space = spaces.Box(0, 255, (1, 36, 36), np.uint8)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return np.full((1, 36, 36), 10, np.uint8), {}

        def step(self, action):
            self.t += 1
            return np.full((1, 36, 36), 10 + self.t, np.uint8), 0.0, self.t == 3, False, {}

    config = RunConfig(env=EnvConfig(id="seeing", num_envs=1))
    envs: Envs = make(config.env, Seeing)
    agent = build_agent((envs.obs_spec, envs.action_spec), config.actor, config.critic, False, 0)
    watched = watch(Trained(agent, config, Path("x"), {}, Seeing), 1, 1, 0, False, np.copy)
    (episode,) = watched.episodes
    assert [int(x[0, 0, 0]) for x in episode.pictures] == [10, 11, 12, 13]
    assert episode.pictures[0].shape == (36, 36, 3) and watched.note == ""


class Odd(Counting):
    """Draws what nobody expects."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": None}
    drawn = None

    def render(self):
        if self.drawn is None:
            raise ImportError("no drawing library")
        return self.drawn


ODD = {
    "grey": (np.full((8, 6), 7, np.uint8), (8, 6, 3)),
    "with alpha": (np.full((8, 6, 4), 7, np.uint8), (8, 6, 3)),
    "floats": (np.ones((8, 6, 3)), None),
    "a list": ([1, 2], None),
}


@pytest.mark.parametrize("kind", ODD)
def test_whatever_an_environment_draws_is_a_picture_or_none(kind) -> None:
    class Drawing(Odd):
        drawn, shape = ODD[kind]

    adapter = make(EnvConfig(id="odd", num_envs=1), Drawing).adapter
    adapter.reset([0])
    found = adapter.render()
    assert (found is None) == (ODD[kind][1] is None) and (found is None or found.shape == ODD[kind][1])
    assert adapter.fps == 30


def test_an_environment_that_cannot_draw_says_why() -> None:
    watched = watch(trained(env=Odd), 1, 1, 0, False, np.copy)
    assert watched.note == "the environment cannot be rendered: no drawing library"


def test_where_seeds_do_not_fix_an_environment_it_is_said() -> None:
    class Chance(Counting):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.luck = np.random.default_rng().random()
            return self.look(), {}

        def step(self, action):
            obs, reward, *rest = super().step(action)
            return obs, reward + self.luck, *rest

    assert not watch(trained(env=Chance), 2, 2, 0, False, None).reproduced


def test_the_strip_below_a_film_shows_what_the_memory_holds_or_looks_at() -> None:
    pictures = [np.zeros((10, 60, 3), np.uint8)] * 4
    held = np.array([[1.0, -1.0], [1.0, -1.0], [0.0, 0.0]])
    memory = MemoryTrace("actor", "gru", [], {"0": held}, None, 1.0, {})
    made = draw_frames(pictures, memory)
    assert len(made) == 4 and {frame.shape for frame in made} == {(10 + 48, 60, 3)}
    more, less = (made[2][row, 10].astype(int) for row in (12, 56))
    assert more[0] > more[2] and less[2] > less[0]  # orange above 0, blue below
    assert (made[0][12:, 30:] == made[0][12, 59]).all()  # what is still to come is dark
    looked = MemoryTrace("actor", "gpt2", [np.array([[[1.0, 0.0, 0.0]]] * 3)], {}, None, 1.0, {})
    strip = draw_frames(pictures, looked)[1][12]
    assert (strip[45] != strip[5]).any() and (strip[5] == strip[25]).all()  # the present is at the right
    assert draw_frames(pictures, None) == pictures


def colours(strip):
    """What each column of an influence strip shows: + orange, - blue, 0 dark."""
    kinds = []
    for red, _, blue in strip[-1].astype(int):
        kinds.append("0" if max(red, blue) < 40 else "+" if red > blue else "-")
    return "".join(kinds)


def test_the_strip_of_influence_is_at_the_steps_and_dark_where_nothing_is_measurable() -> None:
    changes = np.array([[4.0, 0, 0, 0], [2.0, -2.0, 0, 0], [0.05, 0.01, 0.09, 0], [0.5, 0, 0, 1.0]])
    influence = {"action": Influence(changes, "log-odds of the action", None, None, 0.1)}
    pictures = [np.zeros((10, 4, 3), np.uint8)] * 5
    states = MemoryTrace("actor", "gru", [], {"0": np.ones((4, 2))}, None, 1.0, influence)
    drawn = draw_frames(pictures, states)
    assert {frame.shape for frame in drawn} == {(10 + 48 + 4 + 16, 4, 3)}
    assert [colours(frame) for frame in drawn] == ["+000", "-+00", "0000", "+00+", "+00+"]
    attention = [np.full((4, 1, 3), 1 / 3)]  # three steps, the present at the right
    looks = MemoryTrace("actor", "gpt2", attention, {}, None, 1.0, influence)
    assert [colours(frame)[1:] for frame in draw_frames([np.zeros((10, 3, 3), np.uint8)] * 4, looks)] == [
        "0+",
        "-+",
        "00",
        "0+",
    ]


@torch.no_grad()
def test_a_film_says_what_each_picture_shows() -> None:
    pytest.importorskip("PIL")
    it = trained(actor="lstm", critic="mlp")
    (episode,) = watch(it, 1, 1, 0, False, np.copy).episodes
    rows, spec = episode.record.rows, it.agent.action_spec
    memory = trace_memories(it.agent, rows, ("lstm", None), 1.0)[0]
    notes = describe_steps(episode, memory, spec, ["none", "one", "two"])
    assert len(notes) == len(episode.pictures) == LENGTH + 1
    assert notes[-1] == f"The end (terminated): return {episode.score:.4g}"
    (influence,) = memory.influence.values()
    for t, note in enumerate(notes[:-1]):
        action = ("none", "one", "two")[int(rows.prev_action[t + 1, 0, 0])]
        sizes = np.abs(influence.changes[t])
        most = f"depends most on step {t - sizes.argmax()} ("
        assert note.startswith(f"Step {t}: {action}; ")
        assert (most in note) == (sizes.max() >= LEAST_CHOICE) != ("needs no earlier step" in note)
    frames = draw_frames([enlarge(picture) for picture in episode.pictures], memory, notes)
    high = enlarge(episode.pictures[0]).shape[0]
    ((tall, *wide),) = {frame.shape for frame in frames}
    assert wide == [WIDTH, 3] and 48 <= tall - high - 4 - 16 - 3 * LINE <= 128
    assert (frames[0][:LINE] != frames[1][:LINE]).any()


# The example of the documentation ---------------------------------------------------------------

DOCS = Path(__file__).parents[2] / "docs"
KEY, BALL = 5, 6  # objects of MiniGrid


@pytest.fixture(scope="module")
def example():
    """The episodes of the page in docs/examples."""
    return data(DOCS / "examples/memory.html")["episodes"]


def in_sight(episode, thing):
    """The steps at which an object is in the window of the agent."""
    objects = unpack(episode["seen"])[:, 0::3]
    return np.flatnonzero((objects == thing).any(1)).tolist()


def percent(share):
    return f"{100 * share:.0f} %"


def influence_at(episode, step):
    """Total, shares by the step that is remembered, and log-odds by the step at which the memory begins."""
    influence = episode["memories"][0]["influence"]["action"]
    changes = unpack(influence["changes"])[step, : step + 1]
    total = influence["total"][step]
    begins = (influence["alone"][step] + np.cumsum(changes))[::-1]
    assert begins[0] == pytest.approx(influence["level"][step], abs=0.02)
    return total, np.abs(changes[::-1]) / total, begins


def test_the_example_shows_what_the_docs_say_of_it(example) -> None:
    text = (DOCS / "watch.md").read_text()
    first, second, third = example
    assert [episode["success"] for episode in example] == [1, 1, 1]

    assert in_sight(third, BALL)[0] == 4 and in_sight(third, BALL)[1] > 11 and 11 in in_sight(third, KEY)
    total, shares, begins = influence_at(third, 11)
    assert f"{percent(shares[4])} of a total of {total:.1f} falls on step 4" in text
    assert f"begins at step 4 the log-odds of turning away are {begins[4]:.1f}" in text
    assert f"begins at step 5 they are {begins[5]:.1f}" in text
    assert f"the three latest have {percent(shares[8:11].sum())} together" in text

    assert in_sight(second, KEY)[:2] == [3, 10] and not in_sight(second, BALL)
    total, shares, begins = influence_at(second, 10)
    change, level = begins[3] - begins[4], begins[0]
    share = f"{percent(shares[3])} of a total of {total:.1f}"
    assert f"at step 10 by {change:.1f} of {level:.1f} ({share})" in text

    assert in_sight(first, BALL)[:2] == [2, 9]
    total, shares, begins = influence_at(first, 9)
    assert f"are {begins[2]:.1f} with a memory that begins at step 2" in text
    assert f"and {begins[3]:.1f} with one that begins at step 3" in text
    assert f"({percent(shares[2])} of a total of {total:.1f})" in text
    for episode, step, cue in ((first, 9, 2), (third, 11, 4)):
        assert np.argmax(influence_at(episode, step)[1]) == cue


def test_of_three_equal_observations_the_last_has_the_largest_share() -> None:
    it = api.load(DOCS.parent / "models/poc-ppo_gru.safetensors")
    largest = []
    for episode in watch(it, 5, 5, 0, False, None).episodes:
        rows = episode.record.rows
        goals = next(iter(rows.obs.values()))[:, 0, 0] != 0
        assert goals[:3].all() and not goals[3:].any()
        changes = np.abs(measure_on_actions(it.agent, rows).changes)
        largest += [t - changes[t].argmax() for t in range(3, len(changes))]
    assert np.mean(np.array(largest) == 2) > 0.5


def test_totals_and_shares_of_the_example_are_of_its_changes(example) -> None:
    for episode in example:
        for influence in episode["memories"][0]["influence"].values():
            sizes = np.abs(unpack(influence["changes"])).sum(1)
            rounding = len(sizes) * influence["changes"]["step"]
            np.testing.assert_allclose(sizes, influence["total"], atol=rounding)


def test_the_example_is_of_the_present_player() -> None:
    page = (DOCS / "examples/memory.html").read_text()
    for name in ("player.js", "player.css"):
        assert (DOCS.parent / "src/recollect/watching" / name).read_text().strip() in page


def test_the_docs_state_the_size_of_the_example() -> None:
    size = (DOCS / "examples/memory.html").stat().st_size
    assert f"one file of {size / 1000:.0f} kB" in (DOCS / "watch.md").read_text()
