"""Algorithms by name. All collect, value and chunk as PPO does; they differ in the update."""

from . import a2c, ppo, reinforce, trpo
from .ppo import Update
from .settings import Algorithm

UPDATES: dict[Algorithm, Update] = {
    "ppo": ppo.update,
    "a2c": a2c.update,
    "reinforce": reinforce.update,
    "trpo": trpo.update,
}
