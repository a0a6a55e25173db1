"""The distinct pictures of a rollout: found once, encoded once, with the features of encoding all."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect.encoder.gallery import Gallery
from recollect.encoder.mixed import MixedConfig
from recollect.encoder.mlp import MlpEncoderConfig
from recollect.encoder.nature import NatureConfig
from recollect.encoder.residual import ResidualConfig
from recollect.learn import ppo
from recollect.learn.rollout import Rollout

from ..helpers import L, branch, prepare, roll, sampled
from .test_pictures import Filmed


def shown(gallery, rows):
    """The places of all steps (T, N)."""
    return torch.tensor([gallery.add(row) for row in rows])


def numbered(counts):
    """An encoder whose features are the bytes; it appends the number of pictures of each call."""

    def encode(x):
        counts.append(len(x))
        return x.flatten(1).double()

    return encode


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(0, 2**32))
def test_features_are_those_of_every_picture(steps, envs, width, kinds, seed):
    rows = np.random.default_rng(seed).integers(0, kinds, (steps, envs, width, 2), dtype=np.uint8)
    wanted = torch.from_numpy(rows).flatten(2).double()
    distinct = len({row.tobytes() for row in rows.reshape(-1, width, 2)})
    gallery, counts = Gallery((width, 2)), []
    place = shown(gallery, rows)
    assert torch.equal(gallery.encode(place, numbered(counts)), wanted)
    assert counts == [distinct]
    part = place[::2, :1]
    assert torch.equal(gallery.encode(part, numbered(counts)), wanted[::2, :1])
    assert counts[1] == len(part.unique())
    gallery.clear()
    acted = []
    for row, expected in zip(rows, wanted, strict=True):
        place = torch.tensor([gallery.add(row)])
        assert torch.equal(gallery.encode_in_order(place, numbered(acted))[0], expected)
    assert sum(acted) == distinct


def test_a_new_rollout_encodes_with_its_own_weights():
    gallery, row = Gallery((3,)), np.ones((2, 3), np.uint8)
    for factor in (1.0, 2.0):
        gallery.clear()
        place = shown(gallery, [row])
        for lookup in (gallery.encode_in_order, gallery.encode):
            features = lookup(place, lambda x, factor=factor: factor * x.double())
            assert torch.equal(features, torch.full((1, 2, 3), factor, dtype=torch.float64))


def trained(encoder, takes_shown, critic="gru", rollouts=3):
    """The weights after a few updates, and the metrics of the last one."""
    look = {"encoder": encoder, "prev_action": True}
    s = prepare(
        branch("gru", **look), branch(critic, **look), Filmed((40, 40, 3)), normalize=True, scale=0.02
    )
    if not takes_shown:
        s.agent.compiled = True  # a rollout for compiled networks has no galleries
        s.rollout = Rollout(s.agent, s.learner.row, s.rollout.num_steps, torch.float64)
    for _ in range(rollouts):
        roll(s)
        metrics = ppo.update(s.learner, s.rollout, s.plan, L)
        s.learner.update_statistics(s.rollout)
    assert bool(s.rollout.normalized(s.agent).galleries) == takes_shown
    return torch.cat([flat.clone() for flat in s.learner.optimizer.flats]), metrics


@pytest.mark.parametrize("critic", sampled(["gru", "shared"], "shared"))
@pytest.mark.parametrize(
    "encoder",
    [NatureConfig(features=8), ResidualConfig(features=8), MixedConfig(width=8), MlpEncoderConfig()],
)
def test_training_is_that_of_all_pictures(encoder, critic):
    weights, metrics = trained(encoder, True, critic)
    expected, _ = trained(encoder, False, critic)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-10)
    assert metrics["ratio_error"] < 1e-12 and metrics["value_error"] < 1e-12


def test_features_of_an_earlier_rollout_are_noticed(monkeypatch):
    """The control: acting with features of old weights is not what learning computes."""
    clear = Gallery.clear
    monkeypatch.setattr(
        Gallery, "clear", lambda gallery: None if "_index" in vars(gallery) else clear(gallery)
    )
    assert trained(NatureConfig(features=8), True)[1]["ratio_error"] > 1e-6
