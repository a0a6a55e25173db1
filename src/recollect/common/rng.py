"""Every random number is a function of (run seed, purpose, iteration, index).

Nothing draws from a global generator, so there is no generator state to save, and what one purpose
draws never shifts what another draws.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a random number is for; the values are part of the meaning of a run's seed."""

    INIT = 0
    ENV = 1
    ACT = 2
    SHUFFLE = 3
    VALIDATE = 4
    EVALUATE = 5
    PLAY = 6
    DROPOUT = 7
    PROBE = 8


def _words(seed: int, purpose: Purpose, *index: int) -> np.random.SeedSequence:
    # Two words for the seed, always: a long seed must not spill into the place of the purpose.
    return np.random.SeedSequence((seed & 0xFFFFFFFF, seed >> 32, purpose, *index))


def generator(seed: int, purpose: Purpose, *index: int) -> np.random.Generator:
    """A fresh generator for one purpose at one place of a run."""
    return np.random.Generator(np.random.Philox(_words(seed, purpose, *index)))


def torch_seed(seed: int, purpose: Purpose, *index: int) -> int:
    """A seed for what torch draws by itself: first weights, dropout."""
    return int(generator(seed, purpose, *index).integers(2**63))


def env_seeds(seed: int, purpose: Purpose, iteration: int, count: int) -> list[int]:
    """One 63-bit seed for each of `count` environments.

    Environments seeded with seed + i, as Gymnasium and EnvPool do by default, share streams between
    runs of neighbouring seeds; these never do.
    """
    words = _words(seed, purpose, iteration).generate_state(count, np.uint64)
    return [int(word) >> 1 for word in words]
