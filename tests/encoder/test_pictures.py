"""Pictures: what is one, bytes until a network reads them, equal ones read once, and learning."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from recollect.agent.agent import BranchConfig, build_agent
from recollect.agent.nets import Inputs, Rows
from recollect.common.errors import UsageError
from recollect.encoder.nature import NatureConfig, nature
from recollect.encoder.pictures import PictureEncoder, distinct
from recollect.encoder.residual import ResidualConfig, residual
from recollect.envs import EnvConfig, make
from recollect.envs.spaces import read_spaces
from recollect.envs.spaces_json import spaces_from_json, spaces_to_json
from recollect.learn import ppo
from recollect.learn.learner import begin
from recollect.learn.settings import Decay, Plan, PPOConfig
from recollect.memory.rnn import MinGruConfig
from recollect.testing import check_agent

from ..helpers import Halves, L, N, Scripted, T, branch, chunks_of, largest, prepare, relearn, roll

ACTION = spaces.Discrete(2)
LAYOUTS = {
    "plane": ((20, 18), (1, 20, 18)),
    "channels last": ((20, 18, 3), (3, 20, 18)),
    "channels first": ((3, 20, 18), (3, 20, 18)),
    "frames of channels last": ((4, 20, 18, 3), (12, 20, 18)),
    "frames of channels first": ((4, 3, 20, 18), (12, 20, 18)),
    "stacked planes": ((4, 84, 84), (4, 84, 84)),
    "planes stacked last": ((84, 84, 4), (4, 84, 84)),
    "one channel": ((20, 18, 1), (1, 20, 18)),
    "just large enough": ((16, 16, 3), (3, 16, 16)),
}
SMALL = [(15, 16, 3), (3, 16, 15), (4, 5, 3), (15, 40), (2, 15, 16, 3), (256,), (2, 2, 16, 16, 3), (7, 7)]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def seen_as(shape, dtype=np.uint8):
    """The leaf of a box of this shape."""
    high = 255 if dtype == np.uint8 else 1.0
    return read_spaces(spaces.Box(0, high, shape, dtype), ACTION)[0].leaves["obs"]


def pictures(*shape, kinds=None):
    """Random bytes; of `kinds` different pictures, many times over, where that is given."""
    if kinds is None:
        return torch.randint(256, shape, dtype=torch.uint8)
    return pictures(kinds, *shape[2:])[torch.randint(kinds, shape[:2])]


# What is a picture ----------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "wanted"), LAYOUTS.values(), ids=LAYOUTS)
def test_boxes_of_bytes_are_pictures_in_every_layout(shape, wanted):
    leaf = seen_as(shape)
    assert leaf.kind == "picture" and leaf.picture_shape == wanted
    obs, action = read_spaces(spaces.Box(0, 255, shape, np.uint8), ACTION)
    assert spaces_from_json(spaces_to_json(obs, action)) == (obs, action)


@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_small_boxes_are_numbers(shape):
    assert seen_as(shape).kind == "vector"


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint16])
def test_boxes_of_other_numbers_are_vectors(dtype):
    assert seen_as((20, 18, 3), dtype).kind == "vector"


def test_a_mask_hides_no_part_of_a_picture():
    with pytest.raises(UsageError, match=r"needs an observation space that is one vector"):
        read_spaces(spaces.Box(0, 255, (20, 20), np.uint8), ACTION, mask=(0,))


# Bytes ----------------------------------------------------------------------------------------


class Filmed(Scripted):
    """Episodes of a script that are seen as one of a few pictures beside numbers."""

    def __init__(self, shape=(18, 20, 3)):
        self.shape = shape
        self.pictures = np.random.default_rng(1).integers(0, 256, (5, *shape), dtype=np.uint8)
        seen = {"camera": spaces.Box(0, 255, shape, np.uint8), "speed": spaces.Box(-1.0, 1.0, (4,))}
        super().__init__(spaces.Dict(seen))

    def look(self):
        camera = self.pictures[self.random.integers(0, 5, self.num_envs)]
        return {"camera": camera, "speed": super().look()["speed"]}


def filmed(name="gru", critic=None):
    look = {"encoder": ResidualConfig(), "prev_action": True}
    both = branch(name, **look), branch(critic or name, **look)
    # A bright picture through noisy layers would saturate all that comes after.
    return prepare(*both, Filmed(), normalize=True, scale=0.02)


def test_a_picture_stays_bytes_from_the_environment_to_the_chunk():
    s = filmed()
    roll(s)
    assert s.learner.row.obs["obs.camera"].dtype == np.uint8
    batch = chunks_of(s)
    for obs, dtype in (
        (s.rollout.rows.obs, torch.uint8),
        # Places in the gallery of the rollout, which has bytes.
        (s.rollout.normalized(s.agent).obs, torch.long),
        (batch.rows.obs, torch.long),
    ):
        assert {name: x.dtype for name, x in obs.items()} == {
            "obs.camera": dtype,
            "obs.speed": torch.float64,
        }
    shown = s.rollout.rows.obs["obs.camera"]
    assert shown.shape == (T + 1, N, 18, 20, 3)
    known = {picture.tobytes() for picture in s.envs.adapter.pictures}
    assert {picture.numpy().tobytes() for picture in shown.flatten(0, 1)} == known


def test_a_picture_is_not_normalised():
    s = filmed()
    assert s.agent.normalizer.names == ("obs.speed",)
    roll(s)
    s.learner.update_statistics(s.rollout)
    seen = s.agent.normalizer(s.rollout.rows.obs)
    assert seen["obs.camera"] is s.rollout.rows.obs["obs.camera"]
    assert seen["obs.speed"] is not s.rollout.rows.obs["obs.speed"]


@pytest.mark.parametrize("critic", ["gru", "stack", "shared"])
@pytest.mark.parametrize("actor", ["mlp", "stack", "lstm"])
def test_acting_equals_learning_with_pictures(actor, critic):
    s = filmed(actor, critic)
    for _ in range(2):
        roll(s)
        assert largest(relearn(s)) < 1e-12
        metrics = ppo.update(s.learner, s.rollout, s.plan, L)
        assert metrics["ratio_error"] < 1e-12 and metrics["value_error"] < 1e-12
        s.learner.update_statistics(s.rollout)


def test_every_weight_of_an_eye_learns():
    s = filmed(critic="shared")
    roll(s)
    before = {name: p.detach().clone() for name, p in s.agent.named_parameters()}
    assert sum(".eyes." in name for name in before) > 20
    ppo.update(s.learner, s.rollout, s.plan, L)
    still = [name for name, p in s.agent.named_parameters() if torch.equal(p, before[name])]
    assert not still


def test_a_player_sees_the_pictures_that_training_sees():
    s = filmed()
    roll(s)
    obs = {"camera": s.envs.adapter.pictures[:N], "speed": np.ones((N, 4), dtype=np.float32)}
    agent = s.agent
    together = agent.player(N).act(obs)
    alone = [agent.player().act({key: x[i] for key, x in obs.items()}) for i in range(N)]
    assert together.tolist() == [int(a) for a in alone]


# Equal pictures are read once ------------------------------------------------------------------


def assert_distinct(x):
    shown, place = distinct(x)
    assert torch.equal(shown[place], x)
    return shown


@pytest.mark.parametrize("width", [1, 7, 8, 9, 23, 64])
def test_all_that_is_different_is_found_and_nothing_else(width):
    x = pictures(12, width)
    x[:, 0] = torch.arange(12)  # all different
    assert torch.equal(assert_distinct(x), x)
    assert len(assert_distinct(x[:1].repeat(9, 1))) == 1
    assert len(assert_distinct(x[torch.randint(12, (100,))])) <= 12
    assert len(assert_distinct(x.repeat(3, 1))) == 12
    assert len(assert_distinct(x[:1])) == 1


@given(st.integers(1, 30), st.integers(1, 20), st.integers(1, 4), st.integers(0, 2**32))
def test_distinct_against_a_set(rows, width, values, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(values, (rows, width), generator=generator, dtype=torch.uint8)
    wanted = {tuple(row) for row in x.tolist()}
    assert {tuple(row) for row in assert_distinct(x).tolist()} == wanted
    assert len(distinct(x)[0]) == len(wanted)


def test_rows_that_sum_alike_are_told_apart():
    """Two words whose weights cancel: by sums alone both rows would be one."""
    weights = [(i * -0x61C8864680B583EB | 1) % 2**64 for i in (1, 2)]
    words = np.array([[0, 0], [weights[1], -weights[0] % 2**64]], dtype=np.uint64)
    assert int((words * np.array(weights, dtype=np.uint64)).sum(1)[1]) == 0, "their sums differ"
    rows = torch.from_numpy(words.view(np.uint8))
    assert len(assert_distinct(rows)) == 2
    assert torch.equal(assert_distinct(rows.repeat(3, 1)), rows.repeat(3, 1))


def test_rows_that_differ_in_one_byte_are_told_apart():
    x = pictures(1, 40).repeat(41, 1)
    for i in range(40):
        x[i + 1, i] += 1
    assert len(assert_distinct(x.repeat(2, 1))) == 41


def test_views_are_read_like_copies():
    whole = pictures(10, 6, 16)
    for view in (whole[1:], whole[::2], whole.movedim(-1, 1), whole.transpose(0, 1), whole[:, :, 3:]):
        twice = torch.cat([view, view])
        assert torch.equal(assert_distinct(view), view.contiguous())
        assert len(assert_distinct(twice)) == len(view)


# Eyes -----------------------------------------------------------------------------------------

EYES = {
    "nature": ((40, 36, 3), nature, None, 1),
    "residual": ((17, 21, 3), residual, None, 1),
    "residual, stacked": ((2, 17, 21, 3), residual, None, 1),
    "nature, with a layer": ((40, 36, 3), nature, 7, 1),
    "nature, shrunk": ((81, 73, 3), nature, 7, 2),
    "residual, stacked and shrunk": ((2, 31, 25, 3), residual, None, 3),
}
every_eye = pytest.mark.parametrize(("shape", "kind", "features", "shrink"), EYES.values(), ids=EYES)


def eye_of(shape, kind, features=None, shrink=1):
    """An eye with biases that are not 0."""
    eye = PictureEncoder(seen_as(shape), kind, features, shrink).double()
    with torch.no_grad():
        for p in eye.parameters():
            p += 0.05 * torch.randn(p.shape)
    return eye


def one_by_one(eye, x, shrink=1):
    """Every picture (T, B, ...) through the network alone; whole squares of pixels as their mean."""
    rows = []
    for picture in x.flatten(0, 1):
        shown = picture.movedim(-1, -3).flatten(0, -3).double()
        height, width = (side - side % shrink for side in shown.shape[1:])
        pixels = [shown[:, i:height:shrink, j:width:shrink] for i in range(shrink) for j in range(shrink)]
        rows.append(eye.net(torch.stack(pixels).mean(0)[None] / 255)[0])
    return torch.stack(rows).unflatten(0, x.shape[:2])


@every_eye
@pytest.mark.parametrize("kinds", [None, 1, 4])
def test_an_eye_reads_as_if_it_read_every_picture(shape, kind, features, shrink, kinds):
    eye = eye_of(shape, kind, features, shrink)
    assert features is None or eye.out_dim == features
    x = pictures(5, 3, *shape, kinds=kinds)
    weight = torch.randn(5, 3, eye.out_dim, dtype=torch.float64)
    found = []
    for features in (eye(x, torch.float64), one_by_one(eye, x, shrink)):
        gradients = torch.autograd.grad((features * weight).sum(), list(eye.parameters()))
        found.append([features.detach(), *gradients])
    for one, other in zip(*found, strict=True):
        scale = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * scale)


def test_an_eye_reads_equal_pictures_once(monkeypatch):
    eye, lengths = eye_of((17, 21, 3), residual), []
    monkeypatch.setattr(eye.net, "forward", counted(eye.net.forward, lengths))
    eye(pictures(6, 5, 17, 21, 3, kinds=4), torch.float64)
    eye(pictures(6, 5, 17, 21, 3), torch.float64)
    assert lengths == [4, 30]


@every_eye
def test_without_gradients_pictures_are_encoded_in_parts(shape, kind, features, shrink, monkeypatch):
    monkeypatch.setattr("recollect.encoder.pictures.PART", 4)
    eye, x, lengths = eye_of(shape, kind, features, shrink), pictures(5, 2, *shape), []
    expected = one_by_one(eye, x, shrink).detach()
    monkeypatch.setattr(eye.net, "forward", counted(eye.net.forward, lengths))
    with torch.no_grad():
        found = eye(x, torch.float64)
    assert lengths == [4, 4, 2]
    scale = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * scale)


def test_the_layer_after_the_convolutions_is_as_wide_as_asked():
    spec = read_spaces(spaces.Box(0, 255, (40, 36, 3), np.uint8), ACTION)
    for width, found in ((None, 64), (256, 256), (5, 5)):
        cfg = BranchConfig(hidden=(), encoder=NatureConfig(features=width))
        assert build_agent(spec, cfg, cfg, False, 0).actor.features_dim == found
    with pytest.raises(UsageError, match=r"nature\.features is 0"):
        NatureConfig(features=0)


def test_pictures_are_shrunk_as_asked():
    """96 pixels, shrunk to 48: 4 of them, and not 64, after the convolutions."""
    spec = read_spaces(spaces.Box(0, 255, (96, 96, 3), np.uint8), ACTION)
    for encoder, found in ((NatureConfig, 64 * 4), (ResidualConfig, 32 * 36)):
        cfg = BranchConfig(hidden=(), encoder=encoder(features=None, shrink=2))
        assert build_agent(spec, cfg, cfg, False, 0).actor.features_dim == found
    with pytest.raises(UsageError, match=r"pictures of 96 x 96, shrunk 3 times, are too small for nature"):
        NatureConfig(shrink=3).build(spec[0])
    for shrink in (0, -1):
        with pytest.raises(UsageError, match=rf"nature\.shrink is {shrink}, at least 1 is needed"):
            NatureConfig(shrink=shrink)


def counted(forward, lengths):
    def counting(x):
        lengths.append(len(x))
        return forward(x)

    return counting


@pytest.mark.parametrize(
    ("first", "last", "turn"),
    [((3, 20, 18), (20, 18, 3), (0, 1, 3, 4, 2)), ((2, 3, 20, 18), (2, 20, 18, 3), (0, 1, 2, 4, 5, 3))],
    ids=["3 dimensions", "4 dimensions"],
)
def test_both_layouts_show_the_same_picture(first, last, turn):
    one, other = (PictureEncoder(seen_as(shape), residual).double() for shape in (first, last))
    other.load_state_dict(one.state_dict())
    x = pictures(4, 2, *first, kinds=5)
    turned = x.permute(turn)
    assert turned.shape[2:] == last
    wanted = one(x, torch.float64)
    for same in (turned, turned.contiguous()):
        torch.testing.assert_close(other(same, torch.float64), wanted, rtol=0, atol=1e-12)


def test_frames_and_channels_keep_their_order():
    """Channel k of frame f is input 3 f + k of the network."""
    eye = PictureEncoder(seen_as((2, 17, 21, 3)), residual).double()
    heard = []
    eye.net.register_forward_pre_hook(lambda _, arguments: heard.append(arguments[0]))
    x = pictures(1, 1, 2, 17, 21, 3)
    eye(x, torch.float64)
    for f in range(2):
        for k in range(3):
            assert torch.equal(heard[0][0, 3 * f + k], x[0, 0, f, :, :, k].double() / 255)


def test_pictures_stand_between_the_other_leaves():
    seen = {
        "a": spaces.Discrete(3),
        "b.c": spaces.Box(0, 255, (20, 18), np.uint8),
        "d": spaces.Box(-1, 1, (2,)),
    }
    obs, action = read_spaces(spaces.Dict(seen), ACTION)
    inputs = Inputs(obs, action, prev_action=True, prev_reward=True, encoder=ResidualConfig()).double()
    (eye,) = inputs.eyes.children()
    camera, speed = pictures(1, 2, 20, 18), torch.randn(1, 2, 2, dtype=torch.float64)
    leaves = {"obs.a": torch.tensor([[[1], [2]]]), "obs.b.c": camera, "obs.d": speed}
    first = torch.tensor([[True, False]])
    rows = Rows(leaves, first, torch.tensor([[[0], [1]]]), torch.tensor([[0.0, 2.0]]).double())
    features = inputs(rows)
    assert features.shape == (1, 2, inputs.out_dim) and inputs.out_dim == 3 + eye.out_dim + 2 + 2 + 1
    end = 3 + eye.out_dim
    assert features[0, :, :3].tolist() == [[0, 1, 0], [0, 0, 1]]
    assert torch.equal(features[..., 3:end], eye(camera, torch.float64))
    assert torch.equal(features[..., end : end + 2], speed)
    assert features[0, :, end + 2 :].tolist() == [[0, 0, 0], [0, 1, 2]]


@pytest.mark.parametrize(("shape", "small"), [((35, 84, 3), True), ((84, 35), True), ((36, 36, 3), False)])
def test_pictures_too_small_for_their_layers_are_refused_by_name(shape, small):
    space = read_spaces(spaces.Box(0, 255, shape, np.uint8), ACTION)
    fits = BranchConfig(hidden=(4,), encoder=ResidualConfig())
    build_agent(space, fits, fits, False, seed=0)
    if not small:
        build_agent(space, BranchConfig(), BranchConfig(), False, seed=0)
        return
    height, width = shape[:2]
    with pytest.raises(UsageError) as caught:
        build_agent(space, BranchConfig(), fits, False, seed=0)
    assert str(caught.value) == f"pictures of {height} x {width} are too small for nature layers"


@pytest.mark.parametrize(("net", "width"), [(nature, 64 * 7 * 7), (residual, 32 * 11 * 11)])
def test_layers_begin_orthogonal_without_bias(net, width):
    built = net(3)
    convs = [part for part in built.modules() if isinstance(part, torch.nn.Conv2d)]
    assert len(convs) == (3 if net is nature else 15)
    for conv in convs:
        weight = conv.weight.detach().flatten(1)
        short = weight if len(weight) <= weight.shape[1] else weight.T
        square = short @ short.T
        torch.testing.assert_close(square, square[0, 0] * torch.eye(len(short)), rtol=0, atol=1e-4)
        assert 0.2 < square[0, 0] < 2.1 and not conv.bias.any()
    assert built(torch.zeros(1, 3, 84, 84)).shape == (1, width)


@pytest.mark.parametrize("kind", [nature, residual])
@pytest.mark.parametrize("shape", [(40, 40, 1), (64, 48, 3), (4, 84, 84)], ids=str)
def test_features_begin_of_about_unit_size(kind, shape):
    """Larger ones would put every tanh and every gate after them where nothing moves it."""
    eye, noise = PictureEncoder(seen_as(shape), kind), pictures(4, 1, *shape)
    for x in (noise, torch.full_like(noise, 200)):
        size = eye(x, torch.float32).detach().square().mean().sqrt()
        assert 0.3 < size < 1.5


@pytest.mark.parametrize("shape", [(36, 40), (17, 21, 3), (3, 17, 21), (2, 17, 21, 3)], ids=str)
def test_check_agent_accepts_pictures(shape):
    encoder = NatureConfig() if min(shape[:2]) >= 36 else ResidualConfig()
    obs = spaces.Dict({"camera": spaces.Box(0, 255, shape, np.uint8), "speed": spaces.Box(-1.0, 1.0, (2,))})
    actor = branch("gru", encoder=encoder, prev_action=True)
    agent = build_agent(read_spaces(obs, spaces.Box(-1.0, 1.0, (2,))), actor, branch("shared"), True, seed=0)
    before = copy.deepcopy(agent.state_dict())
    check_agent(agent, length=3, num_envs=2)
    assert all(torch.equal(x, before[key]) for key, x in agent.state_dict().items())


# Learning -------------------------------------------------------------------------------------


def test_an_agent_learns_from_pictures():
    envs = make(EnvConfig(id="halves", num_envs=8), Halves)
    assert envs.obs_spec.leaves["obs"].kind == "picture"
    look = BranchConfig(memory=MinGruConfig(width=32), hidden=(), encoder=ResidualConfig())
    agent = build_agent((envs.obs_spec, envs.action_spec), look, BranchConfig(shared=True), False, seed=1)
    cfg = PPOConfig(num_steps=16, num_minibatches=2, learning_rate=2e-3, lr_decay=Decay(final=0.0), gamma=0.5)
    plan = Plan(ppo=cfg, seed=1, rollouts=12)
    last = list(ppo.train(envs, begin(envs, agent, plan), plan))[-1]
    assert last["return"] > 0.9
