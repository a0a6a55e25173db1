"""An agent as programs of the kernels: one for each branch, or one for an actor with a shared critic.

Shapes.  L steps, B sequences, rows = L B.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..agent.agent import Agent, AgentState, Branch
from ..agent.nets import Rows, Tanh
from ..agent.policies import Categorical, ChoiceHead, Gaussian, GaussianHead, Policy
from ..agent.values import PopArtHead, ScalarHead, SymlogHead, ValueHead
from ..common import tree
from ..encoder.leaves import Concatenation
from ..memory.deltanet import DeltaNet
from ..memory.gpt2 import Banded
from ..memory.layers import Blocks, Chain
from ..memory.lmu import Lmu
from ..memory.lru import Lru
from ..memory.mamba import EPS, Mamba
from ..memory.mlp import Mlp
from ..memory.rnn import Gru, Lstm, MinGru
from ..memory.stack import Stack
from ..memory.trxl import TransformerXl
from . import structures as c
from .nodes import Linear, Node, UnsupportedError, linear
from .transformer import add_gpt2, add_transformer_xl

_ACTIVATIONS = {Tanh: c.TANH, nn.ReLU: c.RELU, nn.ELU: c.ELU}
_SQUARED = ScalarHead, SymlogHead, PopArtHead  # value heads whose loss is the squared error of one output


class Network:
    """The operations of one or two branches, in the order in which they are computed."""

    def __init__(self, branch: Branch, part: Literal["actor", "critic"]) -> None:
        """part: whose memory state in an AgentState it is."""
        encoder = branch.inputs.eyes
        if type(encoder) is not Concatenation:
            raise UnsupportedError(f"encoder {type(encoder).__name__}")
        if list(encoder.children()):
            raise UnsupportedError("observations with pictures")
        self.nodes: list[Node] = []
        self.branch, self.part = branch, part
        width = branch.inputs.out_dim + (branch.inputs.action_dim if branch.action_apart else 0)
        at = self.add(Node(c.INPUT, width, units=width))
        if branch.memory_first:
            self.features = self._layers(branch.encoder, self._memory(branch.memory, at))
            return
        encoded = self._layers(branch.encoder, at)
        at = self._memory(branch.memory, encoded)
        if branch.residual:
            if branch.action_apart and encoded == 0:
                raise UnsupportedError(
                    "a residual branch around a memory that gets the previous action separately"
                )
            at = self.linear(branch.add, at)
            scale = 1 / branch.memory.out_dim
            at = self.add(Node(c.RESIDUAL, self.nodes[at].width, (at, encoded), scale=scale))
        self.features = at

    def inputs(self, rows: Rows) -> Tensor:
        """The features (L, B, F) that the first operation takes; a separate previous action comes last."""
        features: Tensor = self.branch.inputs(rows)
        if self.branch.action_apart:
            features = torch.cat([features, self.branch.inputs.action(rows)], -1)
        return features.contiguous()

    def states(self, state: AgentState) -> list[Tensor]:
        """The memory states (B, ...) in the order of the operations that take them."""
        return [x.contiguous() for x in tree.leaves(getattr(state, self.part)).values()]

    def add_actor(self, body: nn.Module, head: nn.Module, policy: Policy) -> None:
        """A policy on the features."""
        at = self._layers(body, self.features)
        if type(head) is ChoiceHead and type(policy) is Categorical:
            at = self.linear(head.out, at)
            sizes = policy.sizes
            self.add(Node(c.CATEGORICAL, 0, (at,), units=sum(sizes), count=len(sizes), sizes=sizes))
        elif type(head) is GaussianHead and type(policy) is Gaussian:
            at = self.linear(head.out, at)
            self.add(Node(c.GAUSSIAN, 0, (at,), units=policy.width, log_std=head.log_std))
        else:
            raise UnsupportedError(f"a head of {type(head).__name__} for {type(policy).__name__}")

    def add_critic(self, body: nn.Module, head: ValueHead) -> None:
        """The output of a value head of the features; the engine encodes and decodes values."""
        at = self._layers(body, self.features)
        if type(head) not in _SQUARED:
            raise UnsupportedError(f"a value head {type(head).__name__}")
        self.add(Node(c.VALUE, 0, (self.linear(head.out, at),)))

    def add(self, node: Node) -> int:
        """Append an operation; its position."""
        node.stage = max((self.nodes[i].stage for i in node.inputs), default=0) + node.is_sequence
        self.nodes.append(node)
        return len(self.nodes) - 1

    def affine(self, weights: Linear, at: int) -> int:
        """W x + b."""
        tokens = self.nodes[at].tokens
        return self.add(Node(c.LINEAR, weights.width, (at,), [weights], blocks=weights.blocks, tokens=tokens))

    def linear(self, module: nn.Linear, at: int) -> int:
        """A layer without an activation."""
        return self.affine(linear(module.weight, module.bias), at)

    def sum(self, x: int, y: int) -> int:
        """x + y; of all operations that take x, it must be the last."""
        node = self.nodes[x]
        return self.add(Node(c.RESIDUAL, node.width, (y, x), scale=1.0, tokens=node.tokens))

    def norm(self, module: nn.Module, at: int, stops: bool = False) -> int:
        """A layer norm, or none."""
        if type(module) is nn.Identity:
            return at
        if type(module) is not nn.LayerNorm:
            raise UnsupportedError(f"layer {type(module).__name__}")
        node, width = self.nodes[at], self.nodes[at].width
        vectors: list[Tensor] = [module.weight, module.bias]
        normed = Node(c.NORM, width, (at,), units=width, scale=module.eps, vectors=vectors, saved=2)
        normed.stops, normed.tokens = stops, node.tokens
        return self.add(normed)

    def _layers(self, modules: nn.Module, at: int) -> int:
        if not isinstance(modules, nn.Sequential):
            raise UnsupportedError(f"layers {type(modules).__name__}")
        for module in modules:
            if type(module) is nn.Linear:
                at = self.linear(module, at)
            elif type(module) in _ACTIVATIONS:
                self.nodes[at].activation = _ACTIVATIONS[type(module)]
            else:
                raise UnsupportedError(f"layer {type(module).__name__}")
        return at

    def _memory(self, memory: nn.Module, at: int) -> int:
        build = _MEMORIES.get(type(memory))
        if build is None:
            raise UnsupportedError(f"memory {type(memory).__name__}")
        return build(self, memory, at)

    def _none(self, memory: Mlp, at: int) -> int:
        return at

    def _chain(self, memory: Chain, at: int) -> int:
        for layer in memory.layers:
            at = self._memory(layer, at)
        return at

    def _blocks(self, memory: Blocks, at: int) -> int:
        at = self.linear(memory.input, at)
        *norms, last = memory.norms
        for block, norm in zip(memory.blocks, norms, strict=True):
            at = self.sum(at, self._memory(block, self.norm(norm, at)))
        return self.norm(last, at)

    def _stack(self, memory: Stack, at: int) -> int:
        node = Node(c.FRAMES, memory.out_dim, (at,), units=memory.in_dim, count=memory.frames, carried=1)
        return self.add(node)

    def _mingru(self, memory: MinGru, at: int) -> int:
        at = self.affine(linear(memory.input, memory.bias, 2), at)
        width = memory.out_dim
        return self.add(Node(c.MINGRU, width, (at,), units=width, saved=1, carried=1))

    def _gru(self, memory: Gru, at: int) -> int:
        at = self.affine(linear(memory.input, memory.bias, 3), at)
        width = memory.out_dim
        gates = linear(memory.recurrent, None, 2, slice(0, 2 * width))
        candidate = linear(memory.recurrent, memory.recalled, 1, slice(2 * width, None))
        return self.add(Node(c.GRU, width, (at,), [gates, candidate], units=width, saved=2, carried=1))

    def _lstm(self, memory: Lstm, at: int) -> int:
        at = self.affine(linear(memory.input, memory.bias, 4), at)
        width, recurrent = memory.out_dim, linear(memory.recurrent, None, 4)
        return self.add(Node(c.LSTM, width, (at,), [recurrent], units=width, saved=3, carried=2))

    def _lmu(self, memory: Lmu, at: int) -> int:
        _check_trained(memory)
        inputs = self.affine(linear(memory.input, memory.bias), at)
        signal = self.affine(linear(memory.encode_input, None), at)
        state = Node(c.LMU, memory.out_dim, (inputs, signal), units=memory.out_dim, saved=3, carried=2)
        state.count, encode = memory.order, (memory.encode_hidden, memory.encode_memory)
        maps = memory.recurrent, memory.memory, *encode, memory.a, memory.b
        state.weights = [linear(weight, None) for weight in maps]
        return self.add(state)

    def _lru(self, memory: Lru, at: int) -> int:
        _check_trained(memory)
        numbers, width = 2 * memory.units, memory.out_dim
        inputs = self.affine(linear(memory.b, None), at)
        state = Node(c.OSCILLATE, numbers, (inputs,), units=memory.units, saved=1, carried=1)
        state.vectors = [memory.nu, memory.theta, memory.gamma]
        seen = self.affine(linear(memory.c, None), self.add(state))
        seen = self.add(Node(c.SKIP, width, (seen, at), units=width, vectors=[memory.d]))
        gates = self.add(Node(c.GELU, width, (seen,), count=1))
        gates = self.affine(linear(memory.gate.weight, memory.gate.bias, 2), gates)
        return self.add(Node(c.GLU, width, (gates,)))

    def _deltanet(self, memory: DeltaNet, at: int) -> int:
        _check_trained(memory)
        width, heads = memory.out_dim, memory.heads
        size = width // heads
        inputs = self.linear(memory.input, at)
        mixed = Node(c.CONVOLVE, 3 * width, (inputs,), units=3 * width, saved=1, carried=1)
        mixed.count, mixed.table = memory.taps.shape[0], memory.taps
        state = Node(c.DELTA, width, (self.add(mixed), inputs), units=heads, count=size, saved=3, carried=1)
        state.keys, state.offset, state.vectors = size, 4 * width, [memory.rate, memory.step]
        read = self.add(state)
        mixed.state_after = read
        normed = Node(c.HEAD_NORM, width, (read, inputs), units=size, heads=heads, offset=3 * width, saved=1)
        normed.scale, normed.vectors = memory.norm.eps or 0.0, [memory.norm.weight]
        return self.linear(memory.output, self.add(normed))

    def _mamba(self, memory: Mamba, at: int) -> int:
        _check_trained(memory)
        channels, keys, heads = memory.channels, memory.state, memory.heads
        width = channels + 2 * keys
        inputs = self.linear(memory.input, at)
        mixed = Node(c.CONVOLVE, width, (inputs,), units=width, offset=channels, saved=1, carried=1)
        mixed.count, mixed.table = memory.taps.shape[0], memory.taps
        state = Node(c.SELECTIVE, channels, (self.add(mixed), inputs), units=heads, saved=3, carried=1)
        state.count, state.keys, state.offset = channels // heads, keys, channels + width
        state.vectors = [memory.rate, memory.step, memory.skip]
        read = self.add(state)
        mixed.state_after = read
        normed = Node(c.GATED_NORM, channels, (read, inputs), units=channels, scale=EPS, saved=1)
        normed.vectors = [memory.norm.weight]
        return self.linear(memory.output, self.add(normed))


# By exact type: a subclass may compute something else.
_MEMORIES: dict[type[nn.Module], Callable[[Network, Any, int], int]] = {
    Mlp: Network._none,
    Chain: Network._chain,
    Stack: Network._stack,
    MinGru: Network._mingru,
    Gru: Network._gru,
    Lstm: Network._lstm,
    Lmu: Network._lmu,
    Blocks: Network._blocks,
    Lru: Network._lru,
    DeltaNet: Network._deltanet,
    Mamba: Network._mamba,
    TransformerXl: add_transformer_xl,
    Banded: add_gpt2,
}


def _check_trained(memory: nn.Module) -> None:
    """An UnsupportedError for frozen weights, of whose operations the kernels would write all gradients."""
    if not all(parameter.requires_grad for parameter in memory.parameters()):
        raise UnsupportedError(f"weights of {type(memory).__name__} that are not trained")


def actor_network(agent: Agent) -> Network:
    """The program of the actor; an UnsupportedError for one that the kernels cannot compute."""
    _check_predictors(agent.actor)
    network = Network(agent.actor, "actor")
    network.add_actor(agent.actor.body, agent.actor.head, agent.policy)
    return network


def critic_network(agent: Agent) -> Network:
    """The program of the values, and of a shared trunk."""
    if agent.dropout:
        raise UnsupportedError("dropout")
    _check_predictors(agent.critic.trunk)
    network = Network(agent.critic.trunk, "critic" if isinstance(agent.critic, Branch) else "actor")
    network.add_critic(agent.critic.body, agent.value_head)
    return network


def _check_predictors(branch: Branch) -> None:
    if len(branch.predictors):
        raise UnsupportedError(f"predictions ({', '.join(branch.predictors)})")


class Coverage(NamedTuple):
    """The programs of an agent that is trained, and what they leave to torch.

    networks  of the branches, or one with both heads for a shared critic
    actor     whether they compute it
    critic    whether they compute it
    reason    why not both; empty if they do
    """

    networks: list[Network]
    actor: bool
    critic: bool
    reason: str = ""

    @property
    def complete(self) -> bool:
        """Whether torch computes nothing."""
        return self.actor and self.critic


def coverage(agent: Agent) -> Coverage:
    """The branches that the kernels can compute; an UnsupportedError if there is none."""
    if not isinstance(agent.critic, Branch):
        network = actor_network(agent)
        network.add_critic(agent.critic.body, agent.value_head)
        return Coverage([network], True, True)
    networks, reasons = {}, {}
    for part, build in (("actor", actor_network), ("critic", critic_network)):
        try:
            networks[part] = build(agent)
        except UnsupportedError as error:
            reasons[part] = str(error)
    if not networks:
        raise UnsupportedError("; ".join(dict.fromkeys(reasons.values())))
    reason = "".join(f"torch for the {part}: {why}" for part, why in reasons.items())
    return Coverage(list(networks.values()), "actor" in networks, "critic" in networks, reason)
