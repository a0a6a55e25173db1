"""Random agents and minibatches, and the two ways to compute their gradients."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from recollect.agent.agent import AgentState, build_agent
from recollect.agent.nets import Rows, one_hot
from recollect.common import tree
from recollect.envs.spaces import ACTION_MASK, Extended, read_spaces
from recollect.learn.chunks import Batch
from recollect.learn.engine import TorchEngine
from recollect.learn.optim import FlatAdam
from recollect.learn.ppo import loss
from recollect.learn.settings import Coefficients, PPOConfig
from recollect.native import library
from recollect.native.engine import NativeEngine

NOW = Coefficients(0.2, 0.01, (1e-3, 1e-3))
DISCRETE = spaces.Discrete(3)
ACTIONS = (DISCRETE, spaces.MultiDiscrete([2, 5, 3]), spaces.MultiBinary(3), spaces.Box(-1, 1, (3,)))


def kernels():
    """The library of this machine; without one, the tests of the kernels are skipped."""
    try:
        return library.load()
    except library.UnavailableError as error:
        pytest.skip(str(error))


def config(**options):
    return PPOConfig(num_minibatches=1, **options)


def make_agent(actor, critic, action=DISCRETE, obs=4, seed=1, masks=False):
    """An agent whose weights are all away from 0."""
    seen = spaces.Box(-np.inf, np.inf, (obs,))
    spec = read_spaces(Extended({"obs": seen, ACTION_MASK: spaces.MultiBinary(1)}) if masks else seen, action)
    agent = build_agent(spec, actor, critic, False, seed)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=random)
    return agent


def make_batch(agent, steps, sequences, resets=0.1, seed=1):
    """Chunks with carried states, resets, tail rows, and ratios on both sides of the clip range."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=random)

    def action():
        if not agent.policy.discrete:
            return normal(steps, sequences, agent.policy.width)
        sizes = agent.policy.sizes
        return torch.stack([torch.randint(n, (steps, sequences), generator=random) for n in sizes], -1)

    width = agent.obs_spec.leaves["obs"].shape[0]
    first = torch.rand(steps, sequences, generator=random) < resets
    rows = Rows({"obs": normal(steps, sequences, width)}, first, action(), normal(steps, sequences))

    def random_state(x):
        # Counts are those of a key/value cache: the steps that an episode has had.
        if x.is_floating_point():
            return normal(*x.shape)
        return torch.randint(0, 9, x.shape, generator=random)

    state = AgentState(*(tree.map_leaves(random_state, part) for part in agent.initial_state(sequences)))
    valid = torch.rand(steps, sequences, generator=random) < 0.9
    valid[0, 0] = True
    chosen = action()
    if agent.actor.masked:
        allowed = torch.rand(steps, sequences, agent.policy.num_params, generator=random) < 0.4
        allowed |= one_hot(chosen, agent.policy.sizes, torch.float32).bool()
        rows.obs[ACTION_MASK] = allowed & valid[..., None]  # a tail row may have no action
    with torch.no_grad():
        params, values = agent(rows, state)
        log_prob = agent.policy.evaluate(params, chosen)[0] + 0.2 * normal(steps, sequences)
    return Batch(
        rows,
        state,
        {},
        chosen,
        log_prob * valid,
        valid,
        values + 0.3 * normal(steps, sequences),
        normal(steps, sequences),
        values + normal(steps, sequences),
        valid / valid.sum(),
    )


def in_float64(batch):
    """The same minibatch in float64."""

    def double(x):
        return x.double() if x.is_floating_point() else x

    return batch.map(double, double)


def native(agent, batch, cfg, lib=None):
    """The loss and the gradient by the kernels, and by torch for a branch that they cannot compute."""
    optimizer = FlatAdam([agent.actor, agent.critic], cfg)
    engine = NativeEngine(lib or kernels(), agent, print)
    engine._is_checked = True  # no comparison, which begins with the gradient of torch
    optimizer.gradient.fill_(torch.nan)  # every entry must be written
    return engine.gradients(optimizer, loss, batch, cfg, NOW), optimizer.gradient


def by_autograd(agent, batch, cfg):
    """The same by autograd."""
    optimizer = FlatAdam([agent.actor, agent.critic], cfg)
    return TorchEngine(agent).gradients(optimizer, loss, batch, cfg, NOW), optimizer.gradient


def reference(agent, batch, cfg):
    """The same by autograd, in float64."""
    return by_autograd(copy.deepcopy(agent).double(), in_float64(batch), cfg)


def distance(x, expected):
    """|x - expected| / |expected|."""
    return float((x.double() - expected).norm() / expected.norm())


def check(agent, batch, cfg, limit=1e-5):
    """Assert that the kernels compute what autograd computes in float64, within a relative distance."""
    terms, gradient = native(agent, batch, cfg)
    expected_terms, expected = reference(agent, batch, cfg)
    assert distance(gradient, expected) < limit
    for name in ("ratio", "values"):
        assert distance(getattr(terms, name), getattr(expected_terms, name)) < limit
    # Networks that amplify rounding change the terms of a single row more: by 2e-5 where the limit is 5e-3.
    absolute = max(2e-5, limit / 50)
    for x, y in zip((terms.total, *terms.means), (expected_terms.total, *expected_terms.means), strict=True):
        assert float(x.detach()) == pytest.approx(float(y.detach()), abs=absolute, rel=1e-5)
