"""GPT-2 and Transformer-XL as operations of the kernels."""

import math
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..memory import gpt2, trxl
from . import structures as c
from .nodes import Linear, Node, UnsupportedError, linear

if TYPE_CHECKING:
    from .program import Network


def add_transformer_xl(network: "Network", memory: trxl.TransformerXl, at: int) -> int:
    """All blocks; the position of the last value."""
    if memory.absolute:
        raise UnsupportedError("absolute positions")
    steps = network.add(Node(c.STEPS, 1, units=1, carried=1, state_after=math.inf))
    at = network.linear(memory.input, at)
    for block in memory.blocks:
        at = _add_block(network, block, at, steps, memory)
    return at


def _add_block(network: "Network", block: nn.Module, x: int, steps: int, memory: trxl.TransformerXl) -> int:
    assert isinstance(block, trxl.Block)
    if block.gradient:
        raise UnsupportedError("a bound on the steps that gradients travel through attention")
    stops = block.gradient is not None
    normed = network.norm(block.before_attention, x)
    q = network.linear(block.query, normed)
    # Gradient stops at the input of the block, and the normalisation before it still gets its own.
    source = network.norm(block.before_attention, x, stops) if stops else normed
    key_value = Node(c.LINEAR, memory.out_dim, (source,), [linear(block.key_value.weight, None, 2)], blocks=2)
    key_value.stops = stops and source == x
    kv = network.add(key_value)
    attention = Node(c.ATTENTION, memory.out_dim, (q, kv, steps), units=memory.out_dim, carried=1)
    attention.count, attention.heads, attention.saved = memory.past, memory.heads, 1
    if block.places is not None:
        attention.weights = [linear(block.places.key.weight, None, memory.heads)]
        attention.vectors = [block.places.of_row, block.places.of_distance]
        attention.table = block.places.away
    attended = network.linear(block.out, network.add(attention))
    x = network.norm(block.after_attention, _junction(network, block.attended, x, attended))
    fed = network.linear(block.feed, network.norm(block.before_feed, x))
    network.nodes[fed].activation = c.RELU
    return network.norm(block.after_feed, _junction(network, block.fed, x, fed))


def add_gpt2(network: "Network", memory: gpt2.Banded, at: int) -> int:
    """Tokens and all blocks; the position of the last value."""
    tokens, width = memory.tokens, memory.out_dim
    steps = network.add(Node(c.STEPS, 1, units=1, carried=1, state_after=math.inf))
    at = network.linear(tokens.seen, at)
    inputs, opening = (at, at, steps), list[Tensor]()
    if tokens.count == 2:
        # The previous action is the end of the first operation.
        action = network.linear(tokens.action, 0)
        network.nodes[action].offset = network.nodes[0].width - tokens.action_dim
        inputs, opening = (at, action, steps), [tokens.opening]
    embedding = Node(c.EMBED, width, inputs, units=width, vectors=opening, tokens=tokens.count)
    embedding.count, embedding.table = tokens.last + 1, tokens.step.weight
    at = network.norm(tokens.norm, network.add(embedding))
    for block in memory.trunk.blocks:
        at = _add_gpt2_block(network, block, at, steps, memory, block is memory.trunk.blocks[-1])
    return network.norm(memory.trunk.norm, at)


def _add_gpt2_block(
    network: "Network", block: nn.Module, x: int, steps: int, memory: gpt2.Banded, is_last: bool
) -> int:
    """A block; the last one computes only the last token of each step."""
    assert isinstance(block, gpt2.Block)
    width, weight, bias = memory.out_dim, block.qkv.weight, block.qkv.bias
    source = normed = network.norm(block.before_attention, x)
    if is_last:
        source, x = _last(network, normed), _last(network, x)
    q = network.affine(linear(weight, bias, 1, slice(0, width)), source)
    kv = network.affine(linear(weight, bias, 2, slice(width, None)), normed)
    attention = Node(c.ATTENTION, width, (q, kv, steps), units=width, carried=2, saved=1)
    attention.count, attention.heads = memory.past, memory.trunk.heads
    attention.tokens = network.nodes[q].tokens
    x = network.sum(x, network.linear(block.out, network.add(attention)))
    hidden = network.linear(block.up, network.norm(block.before_mlp, x))
    tokens = network.nodes[hidden].tokens
    hidden = network.add(Node(c.GELU, network.nodes[hidden].width, (hidden,), tokens=tokens))
    return network.sum(x, network.linear(block.down, hidden))


def _last(network: "Network", at: int) -> int:
    """The last token of each step."""
    node = network.nodes[at]
    return at if node.tokens == 1 else network.add(Node(c.LAST, node.width, (at,)))


def _junction(network: "Network", module: nn.Module, x: int, y: int) -> int:
    width = network.nodes[x].width
    if type(module) is trxl.Sum:
        return network.sum(x, y)
    if type(module) is not trxl.Gate:
        raise UnsupportedError(f"layer {type(module).__name__}")
    network.nodes[y].activation = c.RELU
    weights: list[Linear] = [
        linear(layer.weight, None, blocks)
        for layer, blocks in ((module.said, 3), (module.read, 2), (module.reset, 1))
    ]
    return network.add(Node(c.GATE, width, (y, x), weights, units=width, vectors=[module.bias], saved=3))
