"""Atari, against ALE's plain interface and the preprocessing written out."""

from itertools import pairwise

import numpy as np
import pytest

import recollect
from recollect import cli
from recollect import envs as suite
from recollect.common.errors import UsageError
from recollect.envs import EnvConfig, Envs
from recollect.envs.make import make_for_evaluation
from recollect.envs.suites import atari

from ..helpers import sampled
from .test_envs import play, random_actions, seeds

ale_py = pytest.importorskip("ale_py", reason="the extra atari is not installed")


def build(game: str = "Pong", num_envs: int = 2, time_limit: int | None = None, **kwargs) -> Envs:
    config = EnvConfig(id=f"atari:{game}", num_envs=num_envs, time_limit=time_limit, kwargs=kwargs, threads=1)
    return suite.make(config)


def area_weights(source: int, target: int) -> np.ndarray:
    """(target, source): the share of each source pixel in each target pixel."""
    edges = np.linspace(0, source, target + 1)
    weights = np.zeros((target, source))
    for i, (low, high) in enumerate(pairwise(edges)):
        for j in range(int(low), int(np.ceil(high))):
            weights[i, j] = (min(high, j + 1) - max(low, j)) / (high - low)
    return weights


class Game:
    """One episode by ALE's interface for single games, without sticky actions."""

    def __init__(self, seed: int) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setInt("random_seed", seed)
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(ale_py.roms.get_rom_path("pong"))
        self.actions = self.ale.getMinimalActionSet()
        self.images = [self.shrink(self.ale.getScreenGrayscale())]

    def shrink(self, image: np.ndarray) -> np.ndarray:
        down, across = (area_weights(size, 84) for size in image.shape)
        return down @ image @ across.T

    def step(self, action: int) -> float:
        reward, grey = 0.0, []
        for _ in range(4):
            reward += self.ale.act(self.actions[action])
            grey.append(self.ale.getScreenGrayscale())
        self.images.append(self.shrink(np.maximum(*grey[-2:])))
        return reward


def test_a_step_is_four_frames_their_sum_of_rewards_and_the_largest_of_the_last_two():
    envs = build(num_envs=1, repeat_action_probability=0.0)
    start = seeds(1)
    first = envs.reset(start)["obs"]
    game = Game(start[0] >> 32)
    assert first.shape == (1, 4, 84, 84) and first.dtype == np.uint8
    assert not first[0, :3].any()  # nothing was seen before the first image
    np.testing.assert_allclose(first[0, 3], game.images[0], atol=1)
    rewards = []
    for action in random_actions(envs, 300)[:, 0, 0]:
        step = envs.step(np.array([[action]]))
        rewards.append(float(step.reward[0]))
        assert rewards[-1] == game.step(int(action))
        expected = np.stack(game.images[-4:]) if len(game.images) >= 4 else None
        if expected is not None:
            # Bytes are rounded, and so are the sums within the resizing.
            np.testing.assert_allclose(step.obs["obs"][0], expected, atol=1.5)
    assert min(rewards) == -1.0  # random actions lose points
    envs.adapter.close()


def test_sticky_actions_are_those_of_the_seed_and_differ_between_environments():
    envs = build(num_envs=3)
    envs.reset([7 << 32, 7 << 32, 8 << 32])
    actions = np.repeat(random_actions(envs, 60)[:, :1], 3, axis=1)
    rows = play(envs, actions)["obs"]
    assert (rows[:, 0] == rows[:, 1]).all()
    assert (rows[-1, 0] != rows[-1, 2]).any()
    envs.adapter.close()


def test_the_time_limit_truncates_and_the_game_terminates():
    envs = build(num_envs=1, time_limit=5)
    envs.reset(seeds(1))
    rows = play(envs, random_actions(envs, 12))
    assert np.flatnonzero(rows["truncated"][:, 0]).tolist() == [4, 10]  # row 5 opens the next episode
    assert not rows["terminated"].any()
    envs.adapter.close()
    envs = build("Breakout", num_envs=1)
    assert envs.adapter.time_limit == 27_000
    envs.reset(seeds(1))
    rows = play(envs, random_actions(envs, 600))
    assert rows["terminated"].any() and not rows["truncated"].any()
    envs.adapter.close()


def test_a_film_shows_what_the_agent_sees():
    envs = make_for_evaluation(EnvConfig(id="atari:Pong", num_envs=1))
    obs = envs.reset(seeds(1))["obs"]
    image = envs.adapter.render()
    assert image.shape == (84, 84, 3) and (image == obs[0, -1][..., None]).all()
    assert envs.adapter.names() == {"actions": ["noop", "fire", "right", "left", "rightfire", "leftfire"]}
    envs.adapter.close()
    envs = build(stack_num=1, full_action_space=True)
    envs.reset(seeds(2))
    assert envs.adapter.render().shape == (84, 84, 3)
    assert len(envs.adapter.names()["actions"]) == envs.action_spec.sizes[0] == 18
    envs.adapter.close()
    envs = build(frameskip=100)
    assert envs.adapter.fps == 1  # a film of fewer images per second would have none
    envs.adapter.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"game": "Pongg"}, "environment atari:Pongg is unknown; did you mean Pong"),
        ({"game": ""}, "environment atari: is unknown"),
        ({"stack": 1}, "atari:Pong has no keyword argument stack; did you mean stack_num"),
        ({"stack_num": 0}, "stack_num is 0; it must be a whole number from 1 to 1000"),
        ({"stack_num": True}, "stack_num is True; it must be a whole number"),
        ({"img_height": 10**9}, "img_height is 1000000000; it must be a whole number from 1 to 1000"),
        ({"repeat_action_probability": 2.0}, "repeat_action_probability is 2.0; it must be a probability"),
        ({"maxpool": "no"}, "maxpool is 'no'; it must be true or false"),
    ],
)
def test_mistakes_are_named(options, words):
    with pytest.raises(UsageError) as error:
        build(**options)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"backend": "workers"}, "env.backend workers does not have atari:Pong; use auto"),
        ({"trial": 2}, "env.trial is 2; atari:Pong has no tasks to keep over episodes"),
    ],
)
def test_options_that_atari_does_not_have_are_named(config, words):
    with pytest.raises(UsageError, match=words):
        suite.make(EnvConfig(id="atari:Pong", **config))


@pytest.mark.parametrize("model", sampled(["ppo", "ppo_gru", "ppo_stack"], "ppo_gru"))
def test_the_preset_fits_every_kind_of_model(model, tmp_path):
    steps = ["--steps", "64", "--env.num-envs", "2", "--ppo.num-steps", "16", "--ppo.num-minibatches", "1"]
    folder = ["--out", str(tmp_path), "--run-id", "one", "--env.kwargs.stack_num", "1"]
    assert cli.main(["train", "atari:Pong", "-m", model, *steps, *folder]) == 0
    trained = recollect.load(tmp_path / model / "atari-Pong" / "one")
    # The usual network: three convolutions, and a layer of 512.
    sizes = {tuple(p.shape) for p in trained.agent.parameters()}
    assert {(32, 1, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136)} <= sizes
    assert model != "ppo_gru" or (768, 512) in sizes  # a GRU of 256 units over its features


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(atari.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"ALE is not installed; pip install 'recollect-rl\[atari\]'"):
        suite.make(EnvConfig(id="atari:Pong"))
    assert atari.listing() == {}
