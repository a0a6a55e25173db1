"""Action masks of MiniGrid: which actions have an effect, as far as the window in front of the agent shows.

Shapes.  N environments, V cells per side of the window; the agent is at x = V // 2 in the last row and faces
the cell before it. MiniGrid shows what the agent carries in the cell of the agent.
"""

import numpy as np

from .spaces import Array

# Object numbers of MiniGrid.
EMPTY, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA = 1, 3, 4, 5, 6, 7, 8, 9
OPEN, LOCKED = 0, 2  # states of a door
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
