"""Action masks of MiniGrid, computed from the window in front of the agent, and its hidden variables.

Shapes.  N environments, V cells per side of the window; the agent is at x = V // 2 in the last row and faces
the cell before it. MiniGrid shows what the agent carries in the cell of the agent.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from .spaces import Array

# Object numbers of MiniGrid.
EMPTY, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA = 1, 3, 4, 5, 6, 7, 8, 9
OPEN, LOCKED = 0, 2  # states of a door
DIRECTIONS = "right", "down", "left", "up"
# In these tasks an action without effect on the world still ends the episode.
EXCLUDED = ("MiniGrid-GoTo", "MiniGrid-Dynamic-Obstacles")


def effective_actions(window: Array, actions: int) -> Array:
    """Windows (N, V, V, 3) -> (N, actions) bool; left, right, forward, pick up, drop, toggle, done."""
    middle = window.shape[1] // 2
    kind, colour, state = (window[:, middle, -2, i] for i in range(3))
    carried, carried_colour = window[:, middle, -1, 0], window[:, middle, -1, 1]
    carries = np.isin(carried, (KEY, BALL, BOX))
    passable = np.isin(kind, (EMPTY, FLOOR, GOAL, LAVA)) | ((kind == DOOR) & (state == OPEN))
    unlocks = (carried == KEY) & (carried_colour == colour)
    toggles = (kind == BOX) | ((kind == DOOR) & ((state != LOCKED) | unlocks))
    always = np.ones(len(window), dtype=bool)
    effects = (
        always,
        always,
        passable,
        np.isin(kind, (KEY, BALL, BOX)) & ~carries,
        (kind == EMPTY) & carries,
        toggles,
        ~always,
    )
    return np.stack(effects[:actions], 1)


def hidden_variables(envs: Sequence[gym.Env[Any, Any]]) -> dict[str, Array]:
    """Place and direction of the agent, in Memory tasks also the object to remember and the right end."""
    worlds: list[Any] = [env.unwrapped for env in envs]
    variables = {
        "x": [world.agent_pos[0] / world.width for world in worlds],
        "y": [world.agent_pos[1] / world.height for world in worlds],
        **{f"faces {name}": [world.agent_dir == i for world in worlds] for i, name in enumerate(DIRECTIONS)},
    }
    if all(hasattr(world, "success_pos") for world in worlds):
        # The object stands at the left wall, in the middle of the height.
        cues = [world.grid.get(1, world.height // 2 - 1) for world in worlds]
        variables["the object is a ball"] = [cue.type == "ball" for cue in cues]
        variables["the right end is below"] = [
            world.success_pos[1] > world.failure_pos[1] for world in worlds
        ]
    return {name: np.array(values, dtype=np.float64) for name, values in variables.items()}
