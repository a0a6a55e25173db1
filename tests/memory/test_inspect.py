"""The quantities that memories and players offer for inspection are those that they compute with."""

import numpy as np
import pytest
import torch

from recollect.agent.agent import build_agent
from recollect.common.errors import UsageError
from recollect.common.tree import leaves
from recollect.envs import EnvConfig, make
from recollect.memory.attention import Band, Distances
from recollect.memory.gpt2 import Gpt2Config
from recollect.memory.trxl import TrxlConfig

from ..helpers import MEMORIES, branch, lively

T, HEADS, CONTEXT = 12, 2, 5  # steps of an episode, and steps that are attended to
SIZES = {"width": 8, "heads": HEADS, "layers": 2}
ATTENDING = {
    "gpt2": Gpt2Config(context=CONTEXT, **SIZES),
    "interleaved": Gpt2Config(context=CONTEXT, tokens="interleaved", **SIZES),
    "window": Gpt2Config(context=CONTEXT, attention="window", **SIZES),
    "relative": TrxlConfig(context=CONTEXT - 1, **SIZES),
    "absolute": TrxlConfig(context=CONTEXT - 1, positions="absolute", **SIZES),
    "short gradients": TrxlConfig(context=CONTEXT - 1, gradient=1, **SIZES),
}
CONFIGS = {**{name: config() for name, config in MEMORIES.items()}, **ATTENDING}


def build(name, in_dim=6):
    torch.manual_seed(0)
    config = CONFIGS[name]
    return config.build(in_dim, 2) if config.action_apart else config.build(in_dim)


@pytest.mark.parametrize("name", CONFIGS)
def test_an_inspection_is_the_call_itself(name):
    memory, first = build(name), torch.rand(T, 3) < 0.2
    x, state = torch.randn(T, 3, 6), memory.initial_state(3)
    with torch.no_grad():
        y, after = memory(x, state, first)
        inspection = memory.inspect(x, state, first)
        again = memory(x, state, first)[0]
    assert torch.equal(again, y)  # it leaves nothing behind
    assert inspection.x is x
    torch.testing.assert_close(inspection.y, y)
    wanted = leaves(after)
    for path, leaf in leaves(inspection.state).items():
        torch.testing.assert_close(leaf, wanted[path])


@pytest.mark.parametrize("name", ["mlp", "stack", "gru", "lstm", "mingru"])
def test_memories_without_attention_have_no_weights_and_name_their_states(name):
    memory = build(name)
    x, first = torch.randn(3, 1, 6), torch.zeros(3, 1, dtype=torch.bool)
    assert memory.inspect(x, memory.initial_state(1), first).attention == ()
    assert len(memory.state_names) == len(leaves(memory.initial_state(1)))


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("name", ATTENDING)
def test_attention_weights_sum_to_one_within_an_episode(name, start):
    """Weights (T, B, H, K) of each layer: step t gives some to step t - k of its episode and none before."""
    memory = build(name)
    x, first = torch.randn(T, 2, 6), torch.zeros(T, 2, dtype=torch.bool)
    first[start] = True
    with torch.no_grad():
        weights = memory.inspect(x, memory.initial_state(2), first).attention
    assert len(weights) == 2 and not torch.equal(*weights)
    for layer in weights:
        assert layer.shape == (T, 2, HEADS, CONTEXT)
        torch.testing.assert_close(layer.sum(-1), torch.ones(T, 2, HEADS))
        for k in range(CONTEXT - 1):
            assert (layer[start + k, ..., k + 1 :] == 0).all() and (layer[start + k, ..., : k + 1] > 0).all()


@pytest.mark.parametrize("name", ATTENDING)
def test_attention_weights_of_single_steps_are_those_of_the_sequence(name):
    memory = build(name)
    x, first = torch.randn(T, 1, 6), torch.zeros(T, 1, dtype=torch.bool)
    state = memory.initial_state(1)
    with torch.no_grad():
        together = memory.inspect(x, state, first).attention
        for t in range(T):
            inspection = memory.inspect(x[t : t + 1], state, first[t : t + 1])
            state = inspection.state
            for one, layer in zip(inspection.attention, together, strict=True):
                torch.testing.assert_close(one[0], layer[t], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("steps", [3, 40, 75])
def test_values_are_mixed_by_the_attention_weights(steps, tokens):
    generator = torch.Generator().manual_seed(0)
    past, heads, width, batch = 6, 2, 4, 3
    back = torch.arange(steps)[:, None].repeat(1, batch).clamp(max=past)
    weights = []
    band = Band(back, past, heads, tokens, torch.float64, weights)

    def draw(count):
        return torch.randn(batch, count, width, generator=generator, dtype=torch.float64)

    q, k, v = draw(steps), draw((past + steps) * tokens), draw((past + steps) * tokens)
    # All tokens of a step have the same value, so the weights of steps are enough to mix them.
    v = v[:, ::tokens].repeat_interleave(tokens, 1)
    distances = (
        Distances(q, torch.randn(past + 1, width, generator=generator).double()) if tokens == 1 else None
    )
    y = band.attend(q, k, v, distances)
    (layer,) = weights
    values = v[:, ::tokens].unflatten(-1, (heads, -1))  # (B, P + T, H, D)
    for t in range(steps):
        seen = values[:, t : t + past + 1].flip(1)  # from the present step backwards
        mixed = torch.einsum("bhk,bkhd->bhd", layer[:, t], seen).flatten(1)
        torch.testing.assert_close(mixed, y[:, t])


@pytest.mark.parametrize("name", ["gru", "stack", "gpt2"])
def test_a_branch_offers_the_inputs_of_its_memory(name):
    envs = make(EnvConfig(id="probe:recall", num_envs=2))
    actor = branch(name, prev_action=True)
    agent = lively(build_agent((envs.obs_spec, envs.action_spec), actor, branch("mlp"), False, 0))
    player = agent.player(2)
    with pytest.raises(UsageError, match="call act before inspect"):
        player.inspect()
    state = agent.initial_state(2).actor
    obs = envs.adapter.reset([1, 2])
    for _ in range(3):
        player.act(obs)
        decision = player.inspect()
        with torch.no_grad():
            params, after = agent.actor(decision.rows, state)
            inspection = agent.actor.inspect(decision.rows, state)
        assert torch.equal(params[0], decision.params)
        width = agent.actor.inputs.out_dim if name == "stack" else 6
        assert inspection.x.shape == (1, 2, width)
        for path, leaf in leaves(after).items():
            assert torch.equal(leaf, leaves(decision.state)[path])
        state = after
        obs = envs.adapter.step(np.zeros((2, 1), dtype=np.int64)).obs
    player.reset()
    with pytest.raises(UsageError, match="call act before inspect"):
        player.inspect()
