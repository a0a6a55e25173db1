"""Which part of a memory state has an effect, of agents in which a known part carries the cue.

The environment shows seven signs in the first of five steps (Signs). The policy follows one of them, the cue,
which one part of the state carries; other parts carry other signs, the noise.
"""

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from recollect.common.intervals import Interval
from recollect.envs import EnvConfig
from recollect.memory import Memory, MemoryConfig
from recollect.memory.gpt2 import Gpt2Config
from recollect.memory.rnn import GruConfig, LstmConfig
from recollect.memory.stack import LateStackConfig
from recollect.memory.trxl import TrxlConfig
from recollect.probing import probe
from recollect.probing.contents_page import build_contents, tabulate_parts
from recollect.probing.open_loop import Effect, Estimate
from recollect.probing.parts import Part, find_parts
from recollect.reporting.blocks import Table

from .test_contents import Signs
from .test_probe import Repeat, trained

CUE, NOISE = 0, (1, 2, 3, 4)  # signs
LARGE, NONE = 0.1, 1e-6  # nats
HEADS = [(layer, head) for layer in (1, 2) for head in (1, 2)]


def effects_of(agent, episodes=30):
    """The effect of each part in nats, and of the whole state."""
    contents = probe(agent, episodes=episodes).contents
    effects = {one.name: one.effect.divergence.value for one in contents.parts}
    return effects | {"whole": contents.mean.divergence.value}


def split(effects):
    """The parts with a large effect, after a check that all others have none."""
    large = {name for name, effect in effects.items() if effect > LARGE}
    assert all(effect < NONE for name, effect in effects.items() if name not in large), effects
    return large


def with_zeros(config, weight, factory=Signs):
    """An agent whose memory has weights of 0 only; normalisations stay."""
    agent = trained(weight, config, EnvConfig(), factory=factory)
    memory = agent.agent.actor.memory
    with torch.no_grad():
        for name, parameter in memory.named_parameters():
            if "norm" not in name and "before" not in name:
                parameter.zero_()
    return agent, memory


# Heads ----------------------------------------------------------------------------------------


def trxl_agent(signs, weight=4.0, read=True):
    """A Transformer-XL whose heads attend to all steps alike: each carries a sign of the first one.

    signs  by layer and head
    read   whether the policy gets the cue from the heads
    """
    agent, memory = with_zeros(
        TrxlConfig(width=8, heads=2, layers=2, context=6, norm=None, positions=None), weight
    )
    with torch.no_grad():
        # Feature 0 is what the policy gets, feature i + 1 the sign i.
        memory.input.weight[1:8, :7] = torch.eye(7)
        for (layer, head), sign in signs.items():
            block, place = memory.blocks[layer - 1], 4 * (head - 1)
            block.key_value.weight[8 + place, sign + 1] = 1.0
            block.out.weight[0 if sign == CUE and read else 7, place] = 1.0
    return agent


def gpt2_agent(signs, weight=1.0, read=True):
    """The same of a GPT-2. Features are pairs of x and -x, so that normalisations only scale them."""
    agent, memory = with_zeros(Gpt2Config(width=16, heads=2, layers=2, context=6), weight)
    with torch.no_grad():
        memory.tokens.seen.weight[2::2, :7] = torch.eye(7)
        memory.tokens.seen.weight[3::2, :7] = -torch.eye(7)
        for (layer, head), sign in signs.items():
            block, place = memory.trunk.blocks[layer - 1], 8 * (head - 1)
            block.qkv.weight[32 + place, 2 * (sign + 1)] = 1.0
            if sign == CUE and read:  # the noise would change the scale of the output
                block.out.weight[:2, place] = torch.tensor([1.0, -1.0])
    return agent


@pytest.fixture(params=[trxl_agent, gpt2_agent], ids=["trxl", "gpt2"])
def transformer(request):
    return request.param


@pytest.mark.parametrize(("layer", "head"), HEADS)
def test_the_one_head_that_carries_the_cue_is_named(transformer, layer, head):
    signs = dict(zip(HEADS, NOISE, strict=True)) | {(layer, head): CUE}
    effects = effects_of(transformer(signs))
    assert split(effects) == {f"layer {layer} of 2", f"layer {layer}, head {head} of 2", "whole"}
    assert len(effects) == 2 + 4 + 1 and len({effects[name] for name in split(effects)}) == 1


def test_heads_that_are_read_by_nothing_have_no_effect(transformer):
    assert split(effects_of(transformer(dict.fromkeys(HEADS, CUE), read=False))) == set()


def test_of_two_heads_with_the_same_cue_each_stands_in_for_the_other():
    """The normalised output depends on the sign of the sum alone, so the layer has an effect, and no head."""
    same = {(2, 1): CUE, (2, 2): CUE, (1, 1): 1, (1, 2): 2}
    assert split(effects_of(gpt2_agent(same))) == {"layer 2 of 2", "whole"}
    across = {(1, 1): CUE, (2, 2): CUE, (1, 2): 1, (2, 1): 2}
    assert split(effects_of(gpt2_agent(across))) == {"whole"}


# Units ----------------------------------------------------------------------------------------


def gru_agent(unit):
    """Units that keep signs 0 to 3 for good; the cue is in one of them."""
    agent, memory = with_zeros(GruConfig(width=4), 0.0)
    gru, order = memory.layers[0], [(i - unit) % 4 for i in range(4)]
    with torch.no_grad():
        gru.bias[:4], gru.bias[4:8] = 20.0, -20.0  # r = 1, z = 0: h = tanh(5 x + 5 h)
        gru.input[8:, :7], gru.recurrent[8:] = 5.0 * torch.eye(7)[order], 5.0 * torch.eye(4)
        agent.agent.actor.head.out.weight[-1, unit] = 2.0
    return agent


def lstm_agent(unit):
    """The same in the cell state of an LSTM, with all gates open."""
    agent, memory = with_zeros(LstmConfig(width=4), 0.0)
    lstm, order = memory.layers[0], [(i - unit) % 4 for i in range(4)]
    with torch.no_grad():
        lstm.bias[:8], lstm.bias[12:] = 20.0, 20.0
        lstm.input[8:12, :7] = 5.0 * torch.eye(7)[order]
        agent.agent.actor.head.out.weight[-1, unit] = 2.0
    return agent


@pytest.mark.parametrize("unit", [0, 2, 3])
def test_the_one_unit_that_carries_the_cue_is_named(unit):
    assert split(effects_of(gru_agent(unit))) == {f"GRU hidden state h, unit {unit + 1} of 4", "whole"}
    named = {"LSTM cell state c", f"LSTM cell state c, unit {unit + 1} of 4", "whole"}
    assert split(effects_of(lstm_agent(unit))) == named


# Rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lag", "row"), [(1, 3), (2, 2), (3, 1)])
def test_the_one_row_of_stacked_features_that_is_read_is_named(lag, row):
    """Rows are in the order of steps: the last is that of the step before."""
    agent = trained(0.0, LateStackConfig(frames=4), EnvConfig(), factory=partial(Repeat, lag))
    width = agent.agent.actor.memory.in_dim
    with torch.no_grad():
        agent.agent.actor.head.out.weight[-1, lag * width] = 2.0
    assert split(effects_of(agent)) == {f"stacked observations, row {row} of 3", "whole"}


class Matrix(Memory):
    """A matrix of 3 rows of 2 numbers with signs 0 to 5; its output is one row, for the policy one of its
    numbers."""

    def __init__(self, row):
        super().__init__()
        self.row, self.out_dim, self.reach = row, 2, None

    def initial_state(self, batch):
        return (torch.zeros(batch, 3, 2),)

    def forward(self, x, state, first):
        (kept,), rows = state, []
        for row, opens in zip(x, first, strict=True):
            kept = torch.where(opens[:, None, None], row[:, :6].unflatten(1, (3, 2)), kept)
            rows.append(kept[:, self.row - 1])
        return torch.stack(rows), (kept,)


@dataclass(frozen=True, kw_only=True)
class MatrixConfig(MemoryConfig):
    """A matrix of signs of the first step."""

    name: ClassVar[str] = "matrix"
    row: int = 1

    def build(self, in_dim, action_dim=0):
        return Matrix(self.row)


@pytest.mark.parametrize("row", [1, 2, 3])
def test_the_one_row_of_a_matrix_that_is_read_is_named(row):
    effects = effects_of(trained(2.0, MatrixConfig(row=row), EnvConfig(), factory=Signs))
    assert split(effects) == {f"memory state, row {row} of 3", "whole"}


class Alone(Matrix):
    """A state of one number without an axis of its own: the cue."""

    def initial_state(self, batch):
        return (torch.zeros(batch),)

    def forward(self, x, state, first):
        (kept,), outputs = state, []
        for row, opens in zip(x, first, strict=True):
            kept = torch.where(opens, row[:, 0], kept)
            outputs.append(kept[:, None].expand(-1, 2))
        return torch.stack(outputs), (kept,)


@dataclass(frozen=True, kw_only=True)
class AloneConfig(MatrixConfig):
    """The cue."""

    name: ClassVar[str] = "alone"

    def build(self, in_dim, action_dim=0):
        return Alone(1)


def test_a_number_without_an_axis_is_a_unit():
    effects = effects_of(trained(2.0, AloneConfig(), EnvConfig(), factory=Signs))
    assert split(effects) == {"memory state, unit 1 of 1", "whole"}


# Caches of third-party memories ---------------------------------------------------------------


ONE, BOTH, COUNT = torch.zeros(1, 5, 4), torch.zeros(1, 2, 5, 4), torch.zeros(1, dtype=torch.long)


def cache_of(*tensors):
    """A memory with two heads and this initial state of one sequence."""
    return SimpleNamespace(heads=2, initial_state=lambda batch: tensors, state_names=())


@pytest.mark.parametrize(
    ("state", "layers"),
    [
        ((ONE, ONE, COUNT), [{"0", "1"}]),
        (((ONE, ONE), (ONE, ONE)), [{"0.0", "0.1"}, {"1.0", "1.1"}]),
        (((BOTH, BOTH), COUNT), [{"0.0"}, {"0.1"}]),
    ],
    ids=["keys and values", "a pair for each layer", "a tensor for each layer"],
)
def test_keys_and_values_of_a_layer_belong_together(state, layers):
    parts = {part.name: set(part.where) for part in find_parts(cache_of(*state))}
    expected = {}
    for i, paths in enumerate(layers, 1):
        names = f"layer {i} of {len(layers)}", f"layer {i}, head 1 of 2", f"layer {i}, head 2 of 2"
        expected |= dict.fromkeys(names, paths)
    assert parts == expected


# The page -------------------------------------------------------------------------------------


def part(name, nats, unit=True):
    effect = None if nats is None else Effect(Estimate(nats, Interval(nats / 2, 2 * nats)), None)
    return Part(name, unit, effect)


def contents_of(*parts):
    return SimpleNamespace(
        steps=100, episodes=20, mean=None, exchanged=None, progressed=None, held=[], parts=list(parts)
    )


def page_of(contents):
    """The rows of the table of parts, and the text before it."""
    blocks = list(build_contents(SimpleNamespace(contents=contents)))
    assert isinstance(blocks[-1], Table)
    return [row[0] for row in tabulate_parts(contents)[3:]], blocks[-2].text


def test_the_page_lists_the_units_with_the_largest_effects_and_says_how_many_there_are():
    sizes = [0.1, 0.3, None, 0.3, 0.2, 0.0, 0.0, 0.0, 0.0, 0.7]
    units = [part(f"unit {i}", size) for i, size in enumerate(sizes)]
    rows, text = page_of(contents_of(part("tensor", 0.01, unit=False), *units))
    # Parts that are no units come first, equal units in the order of their numbers, a policy that is not
    # finite last.
    assert rows == ["tensor", *(f"unit {i}" for i in (9, 1, 3, 4, 0, 5, 6, 7))]
    assert "Of the 10 units the 8 with the largest effects are listed." in text
    assert "small effects of all parts do not show that the state is not used" in text


def test_the_page_says_why_there_are_no_units():
    rows, text = page_of(contents_of())
    assert rows == [] and "at most 256 numbers" in text and "at most 64 rows" in text
    few = [part(f"unit {i}", 0.1) for i in range(8)]
    assert "largest effects" not in page_of(contents_of(*few))[1]
