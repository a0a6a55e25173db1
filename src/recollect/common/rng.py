"""Every random number is a function of (run seed, purpose, iteration, index).

No global generator is used. So checkpoints contain no generator state, and the draws of one purpose never
shift those of another.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """The use of a random number. Changing a value would change the results of every seed."""

    INIT = 0
    ENV = 1
    ACT = 2
    SHUFFLE = 3
    VALIDATE = 4
    EVALUATE = 5
    PLAY = 6
    DROPOUT = 7
    PROBE = 8
    RECORD = 9


def _words(seed: int, purpose: Purpose, *index: int) -> np.random.SeedSequence:
    # Always two words for the seed: SeedSequence gives a seed above 2**32 two words by itself, and then
    # its second word would take the place of the purpose.
    return np.random.SeedSequence((seed & 0xFFFFFFFF, seed >> 32, purpose, *index))


def generator(seed: int, purpose: Purpose, *index: int) -> np.random.Generator:
    """A new generator for one purpose at one place of a run, e.g. (iteration, index)."""
    return np.random.Generator(np.random.Philox(_words(seed, purpose, *index)))


def torch_seed(seed: int, purpose: Purpose, *index: int) -> int:
    """A seed for torch's generator, which draws initial weights and dropout."""
    return int(generator(seed, purpose, *index).integers(2**63))


def env_seeds(seed: int, purpose: Purpose, iteration: int, count: int) -> list[int]:
    """One 63-bit seed for each of `count` environments.

    Gymnasium and EnvPool seed environment i with seed + i by default. Then runs with neighbouring seeds
    share most of their environments, and intervals over seeds are too narrow.
    """
    words = _words(seed, purpose, iteration).generate_state(count, np.uint64)
    return [int(word) >> 1 for word in words]
