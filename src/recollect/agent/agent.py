"""An agent: an actor and a critic, each encoder -> memory -> head, and the normalisation of observations."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..common.errors import UsageError
from ..common.options import Options
from ..common.tree import Tree, map_leaves
from ..encoder import EncoderConfig
from ..encoder.nature import NatureConfig
from ..envs.spaces import ACTION_MASK, ActionSpec, ObsSpec
from ..memory import Inspection, MemoryConfig
from ..memory.mlp import MlpConfig
from .critic import SharedCritic
from .nets import Activation, Init, Inputs, Rows, initialise, layers, linear, seeded_weights
from .normalize import Normalizer
from .player import Player, PlayerState, predict
from .policies import Policy, actor_head, make_policy, masked
from .predictors import PREDICTED, Predictors
from .values import HEADS, CriticOutput, ValueHead, ValueKind


@dataclass(frozen=True, kw_only=True)
class BranchConfig(Options):
    """One of the two networks: encoder, memory, head."""

    memory: MemoryConfig = field(default_factory=MlpConfig)
    """The memory."""
    encoder: EncoderConfig = field(default_factory=NatureConfig)
    """The encoder: observations to features."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the layers between encoder and memory; none: the features are the input of the memory."""
    head_hidden: tuple[int, ...] = ()
    """Widths of the layers between the memory and the output."""
    activation: Activation = "tanh"
    """Activation of all these layers."""
    linear_output: bool = False
    """Whether the last layer of the encoder has no activation."""
    init: Init = "orthogonal"
    """Initial weights of all these layers and the output: orthogonal without bias, or torch's default."""
    trained_encoder: bool = True
    """Whether the layers of `hidden` are trained; False: they keep their initial weights."""
    residual: bool = False
    """Add the memory output to its input through a zero-initialised projection, so the branch starts out
    memoryless."""
    shared: bool = False
    """Critic only: a head on the features of the actor instead of a separate network (--critic shared)."""
    sees: tuple[str, ...] = ()
    """Parts of the observation that are inputs: keys of a Dict, `obs` for all of it, and `hidden` for the
    variables of the environment that it does not show; none: obs."""
    reset: bool = True
    """Whether the memory is reset where an episode begins."""
    prev_action: bool = False
    """Whether the previous action is an input."""
    prev_reward: bool = False
    """Whether the previous reward, clipped to 10, is an input."""
    log_std: float = 0.0
    """Initial log standard deviation of a Box action, in units of [-1, 1] (actor only)."""
    value: ValueKind = "scalar"
    """How the output becomes a value (critic only). scalar: it is the value; symlog: the value in symlog
    space, for returns of any scale; hl-gauss: a histogram in symlog space, trained by cross-entropy; popart:
    the value normalised by the running mean and standard deviation of the value targets."""
    predict: tuple[str, ...] = ()
    """Auxiliary losses on the features of the memory, which predict obs: the next observation; reward: of the
    step; hidden: the variables of the environment that the branch does not get; none: off."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(width < 1 for width in (*self.hidden, *self.head_hidden)):
            raise UsageError(f"layer widths must be at least 1: {self.hidden}, {self.head_hidden}")
        if self.residual and self.memory.before_encoder:
            raise UsageError(
                f"memory {self.memory.name} comes before the layers: residual needs one that reads them"
            )
        for name in self.predict:
            if name not in PREDICTED:
                raise UsageError(f"predict names {name!r}; it can be {', '.join(PREDICTED)}")
            if self.predict.count(name) > 1:
                raise UsageError(f"predict names {name} twice")


class AgentState(NamedTuple):
    """The memory states of both branches; opaque to everything but the memories."""

    actor: Tree
    critic: Tree


class Branch(nn.Module):
    """encoder -> memory -> head: one network with a past of its own."""

    bf16 = False  # whether products are in bfloat16 (speed.py)
    masked = False  # whether the action mask of the rows applies to the output: of an actor

    def __init__(self, inputs: Inputs, cfg: BranchConfig, make_head: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.inputs, self.resets, self.residual = inputs, cfg.reset, cfg.residual
        width = inputs.out_dim
        encoding = cfg.hidden, cfg.activation, cfg.linear_output
        self.memory_first, self.action_apart = cfg.memory.before_encoder, cfg.memory.action_apart
        if self.memory_first:
            self.memory = cfg.memory.build(width)
            self.encoder, width = layers(self.memory.out_dim, *encoding)
        else:
            self.encoder, width = layers(width, *encoding)
            apart = (inputs.action_dim,) if self.action_apart else ()
            self.memory = cfg.memory.build(width + sum(apart), *apart)
            if cfg.residual:
                self.add = linear(self.memory.out_dim, width, 0.0)
            else:
                width = self.memory.out_dim
        self.features_dim = width
        self.body, width = layers(width, cfg.head_hidden, cfg.activation)
        self.head = make_head(width)
        # Not the memory, which has initial weights of its own.
        initialise(nn.ModuleList([self.encoder, self.body, self.head]), cfg.init)
        self.encoder.requires_grad_(cfg.trained_encoder)
        self.predictors = Predictors()  # empty until `Agent`, which draws their weights last

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def features(self, rows: Rows, state: Tree) -> tuple[Tensor, Tree]:
        """Rows (T, B, ...) -> features (T, B, F) for the head, state."""
        if not self.bf16:
            return self._features(rows, state)
        with torch.autocast(self.device.type, torch.bfloat16):
            y, state = self._features(rows, state)
        # States and heads keep the precision of the weights.
        dtype = next(self.parameters()).dtype
        return y.to(dtype), map_leaves(lambda x: x.to(dtype) if x.is_floating_point() else x, state)

    def _features(self, rows: Rows, state: Tree) -> tuple[Tensor, Tree]:
        encoded, x, first = self._memory_inputs(rows)
        y, state = self._remember(x, state, first)
        if self.memory_first:
            return self.encoder(y), state
        # Divided by the width: Adam moves each weight by its rate, and a sum by that times the width.
        return (encoded + self.add(y) / y.shape[-1] if self.residual else y), state

    def _remember(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        if not self.bf16 or self.memory.plain:
            return self.memory(x, state, first)
        with torch.autocast(self.device.type, enabled=False):
            return self.memory(x.to(next(self.parameters()).dtype), state, first)

    def inspect(self, rows: Rows, state: Tree) -> Inspection:
        """The call of the memory over rows (T, B, ...), with its inputs and intermediate quantities."""
        _, x, first = self._memory_inputs(rows)
        return self.memory.inspect(x, state, first)

    def _memory_inputs(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Encoded features, and the inputs of the memory: x (T, B, in) and first (T, B)."""
        encoded = self.inputs(rows)
        # A memory without resets gets no episode starts; its caller begins with the initial state.
        first = rows.first if self.resets else torch.zeros_like(rows.first)
        if self.memory_first:
            return encoded, encoded, first
        encoded = self.encoder(encoded)
        x = torch.cat([encoded, self.inputs.action(rows)], -1) if self.action_apart else encoded
        return encoded, x, first

    def output(self, features: Tensor, rows: Rows) -> Tensor:
        """(T, B, F) -> the output of the head (T, B, ...)."""
        y: Tensor = self.head(self.body(features))
        return masked(y, rows.obs[ACTION_MASK]) if self.masked else y

    def forward(self, rows: Rows, state: Tree) -> tuple[Tensor, Tree]:
        """Rows (T, B, ...) -> the output of the head (T, B, ...), state."""
        features, state = self.features(rows, state)
        return self.output(features, rows), state

    def initial_state(self, batch: int) -> Tree:
        """The memory state of `batch` environments at a reset."""
        return self.memory.initial_state(batch)

    def advance(self, rows: Rows, state: Tree) -> Tree:
        """The memory state after the rows."""
        return self.features(rows, state)[1]

    # As a critic: the algorithm calls these methods of Branch and SharedCritic alike, without a type check.

    @property
    def trunk(self) -> "Branch":
        """The branch whose memory values depend on."""
        return self

    def value(self, rows: Rows, state: AgentState) -> tuple[Tensor, AgentState]:
        """V (T, B), and the state after the rows as far as values depend on it."""
        values, critic = self(rows, state.critic)
        return values, state._replace(critic=critic)

    def values(self, rows: Rows, state: AgentState, actor_features: Tensor) -> tuple[CriticOutput, Tensor]:
        """Values and the features, in a pass that has computed the actor's features of the same rows."""
        features, _ = self.features(rows, state.critic)
        head = cast(ValueHead, self.head)
        return CriticOutput(head.raw(self.body(features)), head), features


class Outputs(NamedTuple):
    """The outputs of both branches over chunks, for a loss."""

    params: Tensor  # of the policy (L, B, P)
    critic: CriticOutput
    heads: tuple[tuple[Predictors, Tensor], ...]  # of each branch, with its features (L, B, F)


class Agent(nn.Module):
    """An actor and a critic, each with any memory, or with a shared one."""

    critic: Branch | SharedCritic
    compiled = False  # whether networks are compiled (speed.py)
    bf16 = False  # whether products of the branches are in bfloat16 (speed.py)

    def __init__(
        self,
        spaces: tuple[ObsSpec, ActionSpec],
        actor: BranchConfig,
        critic: BranchConfig,
        normalize_obs: bool = False,
    ) -> None:
        super().__init__()
        self.obs_spec, self.action_spec = obs, action = spaces
        self.policy: Policy = make_policy(action)
        self.normalizer = Normalizer(obs, normalize_obs)

        def branch(cfg: BranchConfig, make_head: Callable[[int], nn.Module]) -> Branch:
            # A memory that takes the action separately must not get it through the encoder as well.
            previous = cfg.prev_action and not cfg.memory.action_apart, cfg.prev_reward
            return Branch(Inputs(obs, action, *previous, cfg.encoder, cfg.sees), cfg, make_head)

        # The actor comes first: in another order a seed would give other initial weights.
        self.actor = branch(actor, lambda width: actor_head(width, action, actor.log_std))
        self.actor.masked = ACTION_MASK in obs.leaves
        self.critic = (
            SharedCritic(self.actor, critic) if critic.shared else branch(critic, HEADS[critic.value])
        )
        # After all other weights, which are those of an agent without predictions.
        for built, cfg in ((self.actor, actor), (self.critic.trunk, critic)):
            width = built.features_dim, built.inputs.action_dim
            built.predictors.build(cfg.predict, built.inputs.leaves, obs, width, cfg.activation)
        if self.actor.memory.dropout:
            raise UsageError(
                f"actor dropout is not supported, it is {self.actor.memory.dropout}: the updated policy "
                "would differ from the one that collected the data; give it to a critic with its own memory"
            )

    @property
    def device(self) -> torch.device:
        """The device of the networks."""
        return self.actor.device

    @property
    def value_head(self) -> ValueHead:
        """The head of the critic."""
        return cast(ValueHead, self.critic.head)

    @property
    def dropout(self) -> bool:
        """Whether gradient steps use dropout, and so compute another function than acting and valuing."""
        return self.critic.trunk.memory.dropout > 0

    @property
    def takes_shown(self) -> bool:
        """Whether pictures of rows may be given by their place in a gallery."""
        branches = self.actor, self.critic.trunk
        # A compiled network would be compiled again for each number of distinct pictures.
        return not self.compiled and all(branch.inputs.eyes.takes_shown for branch in branches)

    def initial_state(self, batch: int) -> AgentState:
        """The state of `batch` environments at a reset."""
        return AgentState(self.actor.initial_state(batch), self.critic.initial_state(batch))

    def value(self, rows: Rows, state: AgentState) -> tuple[Tensor, AgentState]:
        """V (T, B), and the state after the rows; the actor's memory moves only where values depend on it."""
        return self.critic.value(rows, state)

    def forward(self, rows: Rows, state: AgentState) -> tuple[Tensor, Tensor]:
        """Parameters of the policy (L, B, P) and V (L, B) over chunks, from the states they begin with."""
        params, critic, _ = self.outputs(rows, state)
        return params, critic.values

    def outputs(self, rows: Rows, state: AgentState) -> Outputs:
        """The outputs over chunks (L, B), and what their prediction heads get."""
        features, _ = self.actor.features(rows, state.actor)
        params = self.actor.output(features, rows)
        critic, critic_features = self.critic.values(rows, state, features)
        heads = (self.actor.predictors, features), (self.critic.predictors, critic_features)
        return Outputs(params, critic, heads)

    def predict(
        self,
        obs: Any,
        state: PlayerState | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[Any, PlayerState]:
        """Actions and the state for the next call, as `predict` of Stable-Baselines3 (player.predict)."""
        return predict(self, obs, state, episode_start, deterministic, action_masks)

    def player(self, num_envs: int = 1, deterministic: bool = True, seed: int = 0) -> "Player":
        """A player: acts with this agent outside training."""
        return Player(self, num_envs, deterministic, seed)


def build_agent(
    spaces: tuple[ObsSpec, ActionSpec],
    actor: BranchConfig,
    critic: BranchConfig,
    normalize_obs: bool,
    seed: int,
) -> Agent:
    """An agent whose initial weights are a function of the seed alone."""
    with seeded_weights(seed):
        return Agent(spaces, actor, critic, normalize_obs)
