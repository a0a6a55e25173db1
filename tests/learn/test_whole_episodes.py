"""`ppo.bptt episode`: one chunk a rollout has the gradients of its episodes, processed one by one."""

import pytest
import torch

from recollect.agent.agent import AgentState, BranchConfig
from recollect.common import tree
from recollect.learn import ppo
from recollect.learn.chunks import Batch
from recollect.learn.minibatches import Minibatches
from recollect.learn.rollout import slice_rows
from recollect.learn.settings import Coefficients, Plan, PPOConfig
from recollect.memory.rnn import GruConfig, LstmConfig
from recollect.tuning.proposals import fit_sizes

from ..helpers import N, T, prepare, roll

LSTM = BranchConfig(memory=LstmConfig(width=6), hidden=(6,), prev_action=True, prev_reward=True)
GRU = BranchConfig(memory=GruConfig(width=6), hidden=(6,))
SHARED = BranchConfig(shared=True)
NOW = Coefficients(clip=0.2, entropy=0.01, rates=(0.0, 0.0))
CFG = PPOConfig(num_steps=T, bptt="episode", num_minibatches=1, clip_value=0.2, ent_coef=0.01)


def begun_inside_episodes(critic, length):
    """A learner whose second rollout, ready to be learned from, begins inside episodes."""
    s = prepare(LSTM, critic, plan=Plan(ppo=CFG, seed=5, rollouts=9), normalize=True)
    roll(s, length)
    s.learner.update_statistics(s.rollout)
    roll(s, length)
    estimates = ppo.estimates(s.learner, s.rollout, CFG)
    batch = Minibatches(s.learner, s.rollout, s.plan, length, CFG.draw, estimates).batch
    # Ratios away from 1 and values away from the stored ones, so that clips take part.
    with torch.no_grad():
        for p in s.agent.parameters():
            p.mul_(1.1)
    return s, batch


def total(agent, batch):
    """The loss of one gradient step."""
    return ppo.loss(agent, batch, CFG, NOW).total


def gradients(agent, losses):
    """By parameter, of a sum of losses that are computed one after another."""
    agent.zero_grad()
    for loss in losses:
        loss.backward()
    return {name: p.grad.clone() for name, p in agent.named_parameters()}


def sequences(s, batch):
    """What each environment's episodes have in a rollout, one sequence each, as batches of one chunk.

    One that began before the rollout starts from the stored state, every other one from zeros.
    """
    fresh = s.agent.initial_state(1)
    for n in range(N):
        opens = batch.rows.first[:, n].nonzero()[:, 0].tolist()
        starts = sorted({0, *opens})
        for begin, end in zip(starts, [*starts[1:], T], strict=True):
            stored = AgentState(*(tree.map_leaves(lambda x, n=n: x[n : n + 1], x) for x in batch.state))
            parts = [x[begin:end, n : n + 1] for x in batch[3:-1]]
            rows = slice_rows(batch.rows, slice(begin, end)).map(lambda x, n=n: x[:, n : n + 1])
            yield Batch(rows, fresh if begin in opens else stored, {}, *parts)


@pytest.mark.parametrize("critic", [GRU, SHARED], ids=["gru", "shared"])
def test_gradients_are_those_of_episodes_processed_one_by_one(critic):
    s, batch = begun_inside_episodes(critic, CFG.chunk_length(has_memory=True))
    pieces = list(sequences(s, batch))
    lengths = {len(piece.valid) for piece in pieces}
    assert len(pieces) > N and len(lengths) > 2 and not batch.rows.first[0].all()
    whole = gradients(s.agent, [total(s.agent, batch)])
    apart = gradients(s.agent, (total(s.agent, piece) for piece in pieces))
    for name, gradient in whole.items():
        torch.testing.assert_close(apart[name], gradient, rtol=1e-10, atol=1e-13)
        assert gradient.abs().max() > 1e-9, name


def test_shorter_chunks_have_other_gradients():
    """The control: what is compared above notices where gradients are cut."""
    by_length = []
    for length in (T, 2):
        s, batch = begun_inside_episodes(GRU, length)
        by_length.append(gradients(s.agent, [total(s.agent, batch)]))
    whole, cut = (grads["actor.memory.layers.0.recurrent"] for grads in by_length)
    assert (whole - cut).abs().max() > 1e-3 * whole.abs().max()


@pytest.mark.parametrize("bptt", [0, "episode"])
def test_whole_episodes_are_chunks_of_whole_rollouts(bptt):
    cfg = PPOConfig(num_steps=16, bptt=bptt)
    assert cfg.chunk_length(has_memory=True) == 16
    assert cfg.chunk_length(has_memory=False) == 16


@pytest.mark.parametrize("bptt", [0, "episode"])
def test_sizes_of_a_trial_fit_whole_episodes(bptt):
    sizes = {
        "ppo.num_steps": 16,
        "ppo.bptt": bptt,
        "ppo.num_minibatches": 8,
        "ppo.batch_size": None,
        "env.num_envs": 4,
    }
    assert fit_sizes(sizes, recurrent=True) == {"ppo.num_minibatches": 4}
