"""bfloat16 products and compiled networks: the numbers of the plain networks, up to rounding."""

import functools
import json
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import recollect
from recollect import memory
from recollect.agent.speed import faster
from recollect.common import tree
from recollect.common.errors import DisagreementError
from recollect.config.assembly import configure
from recollect.config.data import settings_in
from recollect.learn import ppo
from recollect.learn.maths import LARGEST_BF16_ERROR, LARGEST_ERROR, agreement
from recollect.learn.rollout import Rollout
from recollect.run.build import build, build_learner

from ..helpers import sampled

MEMORIES = memory.available()
PLAIN = [name for name, config in MEMORIES.items() if config().build(4).plain]
TORCH_WARNS = "ignore"  # torch warns of itself while it compiles
SMALL = {"env.num_envs": 4, "ppo.num_steps": 16, "ppo.num_minibatches": 2, "ppo.update_epochs": 2}


def parts(**options):
    """A learner with its rollout, after one rollout: (envs, learner, plan, length, rollout)."""
    fields = {"env.id": "CartPoleMasked", "model": "ppo_gru", "seed": 3, **SMALL, **options}
    envs, agent, config = build(configure(settings_in(fields, "test")))
    learner, plan = build_learner(config, envs, agent), config.plan
    return envs, learner, plan, plan.ppo.chunk_length(True), Rollout(agent, learner.row, plan.ppo.num_steps)


def iterate(parts, bf16=False, compiled=False):
    envs, learner, plan, length, rollout = parts
    with faster(learner.agent, bf16, compiled):
        ppo.collect(envs, learner, rollout, plan, length)
        ppo.value(learner, rollout, length)
        metrics = ppo.update(learner, rollout, plan, length)
    learner.update_statistics(rollout)
    return metrics


def memories(name, **sizes):
    options = {"actor": name, "critic": name, "actor.hidden": [16], "critic.hidden": [16]}
    return options | {f"{side}.{key}": size for side in ("actor", "critic") for key, size in sizes.items()}


def test_the_memories_that_allow_it_are_those_without_recurrence():
    assert set(PLAIN) == {"mlp", "stack", "late_stack", "gpt2", "trxl", "gtrxl"}


SHORT = "gru", "mlstm", "lru", "gpt2", "gtrxl"


@pytest.mark.parametrize("name", sampled(MEMORIES, *SHORT))
def test_bf16_rounds_products_and_nothing_else(name):
    plain, rounded = parts(**memories(name)), parts(**memories(name))
    metrics = [iterate(plain), iterate(rounded, bf16=True)]
    # The first rollout acts from nearly equal policies.
    for key in ("policy_loss", "value_loss", "entropy"):
        assert metrics[1][key] == pytest.approx(metrics[0][key], rel=0.1, abs=0.02)
    _, learner, _, _, rollout = rounded
    assert all(p.dtype == torch.float32 for p in learner.agent.parameters())
    states = tree.leaves(learner.state._asdict()).values()
    assert {leaf.dtype for leaf in states} <= {torch.float32, torch.long}
    rows, state = rollout.normalized(learner.agent), learner.agent.initial_state(4)
    exact = learner.agent(rows, state)
    with faster(learner.agent, True, False):
        outputs = learner.agent(rows, state)
    for x, y in zip(outputs, exact, strict=True):
        assert x.dtype == torch.float32
        assert not torch.equal(x, y)
        torch.testing.assert_close(x, y, rtol=0.1, atol=0.03)


MODELS = ["ppo", "ppo_lstm", "ppo_gpt", "ppo_gtrxl", "ppo_gpt_shared"]


@pytest.mark.parametrize("model", sampled(MODELS, "ppo", "ppo_gpt_shared"))
def test_acting_and_learning_agree_with_bf16(model, tmp_path):
    env = {"ppo_gtrxl": "poc"}.get(model, "CartPoleMasked")
    options = {**SMALL, "amp": "bf16", "rollouts": 3}
    trained = recollect.train(env, model, options=options, out=tmp_path, quiet=True)
    assert trained.config.amp == "bf16"
    for line in (trained.folder / "metrics.jsonl").read_text().splitlines():
        metrics = json.loads(line)
        assert metrics["ratio_error"] < LARGEST_BF16_ERROR and metrics["value_error"] < LARGEST_BF16_ERROR
    # Every later use of the agent has full precision.
    loaded = recollect.load(trained.folder)
    assert trained.evaluate(5).returns == loaded.evaluate(5).returns
    assert not trained.agent.bf16 and not trained.agent.actor.bf16


@given(st.floats(LARGEST_ERROR, 1.0), st.booleans())
def test_the_limit_of_the_agreement_follows_the_precision(error, bf16):
    ratio, values = torch.full((4, 2), 1 + error), torch.zeros(4, 2)
    valid = torch.ones(4, 2, dtype=torch.bool)
    if float((ratio - 1).max()) < (LARGEST_BF16_ERROR if bf16 else LARGEST_ERROR):
        agreement(ratio, values, values, valid, bf16)
    else:
        with pytest.raises(DisagreementError):
            agreement(ratio, values, values, valid, bf16)


@pytest.mark.thorough
@pytest.mark.filterwarnings(TORCH_WARNS)
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mlp", {}),
        pytest.param("gru", {}, marks=pytest.mark.thorough),
        pytest.param("gpt2", {"layers": 1, "width": 16, "heads": 2}, marks=pytest.mark.thorough),
    ],
)
def test_compiled_networks_compute_the_same(name, sizes, monkeypatch):
    # Traced and differentiated as by default, but executed by torch itself: code for the CPU takes a minute.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    try:
        metrics = []
        for compiled in (False, True):
            one = parts(**memories(name, **sizes))
            metrics.append([iterate(one, compiled=compiled) for _ in range(2)])
            weights = torch.cat(one[1].optimizer.flats)
            metrics[-1].append({"weights": weights.double().norm().item()})
        for plain, compiled in zip(*metrics, strict=True):
            assert plain == {key: pytest.approx(x, rel=1e-3, abs=1e-5) for key, x in compiled.items()}
    finally:
        torch._dynamo.reset()


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings(TORCH_WARNS)
def test_networks_are_compiled_with_a_compiler(tmp_path):
    options = {**SMALL, "rollouts": 2, "steps": None, "actor.hidden": [8], "critic.hidden": [8]}
    runs = [
        recollect.train("CartPole-v1", seed=1, options={**options, "compile": flag}, out=tmp_path, quiet=True)
        for flag in (False, True)
    ]
    for p, q in zip(*(run.agent.parameters() for run in runs), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-5)


def test_a_shared_branch_is_compiled_once(monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda call, **_: compiled.append(call) or call)
    agent = parts(critic="shared")[1].agent
    with faster(agent, True, True):
        assert len(compiled) == 2  # the inputs and the encoder of the branch with the GRU
        assert agent.actor.bf16 and agent.critic.trunk is agent.actor
    assert not agent.actor.bf16 and "forward" not in vars(agent.actor.encoder)
