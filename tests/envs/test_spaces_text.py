"""Spaces in words: what messages show of an observation or an action."""

import gymnasium.spaces as gym_spaces
import numpy as np
import pytest

from recollect.envs.spaces import read_spaces
from recollect.envs.spaces_text import describe

BOX = gym_spaces.Box(-1.0, 1.0, (4,), np.float32)


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        (BOX, "obs: 4 numbers"),
        (gym_spaces.Box(-1.0, 1.0, (2, 3), np.float32), "obs: 6 numbers (2 x 3)"),
        (gym_spaces.Box(-1.0, 1.0, (1,), np.float32), "obs: 1 number"),
        (gym_spaces.Box(0, 255, (36, 36, 3), np.uint8), "obs: a picture 36 x 36 x 3"),
        (gym_spaces.Discrete(3), "obs: 3 choices"),
        (gym_spaces.Discrete(3, start=-1), "obs: 3 choices from -1"),
        (gym_spaces.MultiDiscrete([[3, 2], [4, 2]]), "obs: 3 x 2 x 4 x 2 choices (2 x 2)"),
        (gym_spaces.MultiBinary(5), "obs: 5 bits"),
        (gym_spaces.Dict({"a": BOX, "b": gym_spaces.Discrete(2)}), "obs.a: 4 numbers, obs.b: 2 choices"),
    ],
    ids=str,
)
def test_observations(observation, text):
    assert describe(read_spaces(observation, gym_spaces.Discrete(2))[0]) == text


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (gym_spaces.Discrete(2), "2 choices"),
        (gym_spaces.MultiDiscrete([3, 2]), "3 x 2 choices"),
        (gym_spaces.Box(-2.0, 2.0, (1,), np.float32), "1 number (-2 to 2)"),
        (gym_spaces.Box(-2.0, 2.0, (2, 1), np.float64), "2 numbers of float64 (2 x 1) (-2 to 2)"),
        (gym_spaces.Box(np.float32([-1.0, 0.0]), np.float32([1.0, 1.0])), "2 numbers (-1 to 1; 0 to 1)"),
    ],
    ids=str,
)
def test_actions(action, text):
    assert describe(read_spaces(BOX, action)[1]) == text


def test_hidden_entries_are_named():
    assert describe(read_spaces(BOX, gym_spaces.Discrete(2), mask=(1, 3))[0]) == (
        "obs: 4 numbers, entries 1, 3 hidden"
    )


def test_anything_else_is_a_mistake_of_the_caller():
    with pytest.raises(TypeError, match="str is no spec"):
        describe("obs")
