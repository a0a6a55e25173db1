"""The example of self-play: the rules of its game, who can win it, and that self-play learns to."""

import importlib.util
import itertools
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

import recollect

PATH = Path(__file__).parents[2] / "examples" / "nim.py"
SPEC = importlib.util.spec_from_file_location("nim", PATH)
nim = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(nim)


def best_take(heap, limit):
    """What leaves a multiple of the limit plus 1; 0 if nothing does."""
    return heap % (limit + 1)


class Remembers:
    """Keeps the limit of the first turn."""

    def reset(self):
        self.limit = None

    def act(self, observed):
        digits, limits = np.split(observed, [nim.DIGITS])
        heap = int(digits @ 2 ** np.arange(nim.DIGITS))
        self.limit = self.limit or nim.LIMITS[int(limits.argmax())]
        return self.take(heap, bool(limits.any()))

    def take(self, heap, first):
        return best_take(heap, self.limit) or 1


class Forgets(Remembers):
    """After its first turn, takes what only the heap decides."""

    def __init__(self, takes):
        self.takes = takes

    def take(self, heap, first):
        return best_take(heap, self.limit) or 1 if first else self.takes[heap]


def wins(player, games=400):
    return nim.play(SimpleNamespace(player=lambda: player), games)


def share_won(takes):
    """The exact share of won positions that an agent wins which takes the best at its first turn, and
    takes[heap] at later ones.
    """

    @cache
    def after(heap, limit):
        """The probability of winning after a turn that leaves this heap to the perfect player."""
        if not heap:
            return 1.0
        best = best_take(heap, limit)
        left = [heap - take for take in ([best] if best else range(1, limit + 1))]
        return float(np.mean([after(x - min(takes[x], limit, x), limit) if x else 0.0 for x in left]))

    shares = []
    for heap, limit in itertools.product(nim.HEAPS, nim.LIMITS):
        first = [heap] if best_take(heap, limit) else [heap - take for take in range(1, limit + 1)]
        shares.append(np.mean([after(x - best_take(x, limit), limit) for x in first]))
    return float(np.mean(shares))


def policies_without_memory():
    """All that may be best: at each heap what is best for one of the limits."""
    heaps = range(1, max(nim.HEAPS) + 1)
    choices = [sorted({best_take(heap, limit) for limit in nim.LIMITS} - {0}) or [1] for heap in heaps]
    return [dict(zip(heaps, takes, strict=True)) for takes in itertools.product(*choices)]


@pytest.mark.filterwarnings("ignore")  # the package of the test imports games in a deprecated way
def test_the_interface_is_that_of_pettingzoo():
    checks = pytest.importorskip("pettingzoo.test", exc_type=ImportError)  # the games need pygame
    checks.api_test(nim.Nim(), num_cycles=50)


def test_a_memory_of_the_limit_wins_all_and_without_one_five_of_six_are_the_most():
    assert wins(Remembers()) == 1.0
    policies = policies_without_memory()
    best = max(policies, key=share_won)
    assert len(policies) > 8 and share_won(best) == pytest.approx(5 / 6)
    assert wins(Forgets(best), 1000) == pytest.approx(5 / 6, abs=0.04)


@pytest.mark.thorough
def test_self_play_learns_to_leave_a_multiple_of_four(tmp_path, monkeypatch):
    monkeypatch.setattr(nim, "HEAPS", range(5, 9))
    monkeypatch.setattr(nim, "LIMITS", (3, 3))
    options = {**nim.OPTIONS, "ppo.num_steps": 32, "val_check_interval": 0, "actor.hidden": [32]}
    run = recollect.train(nim.Nim, "ppo", steps=15_000, seed=1, options=options, out=tmp_path, quiet=True)
    game = nim.Nim()
    game.reset(seed=0)
    taken = {}
    for heap in (5, 6, 7):
        game.heap = heap
        taken[heap] = int(run.player().act(game.observe("first")))
    assert taken == {5: 1, 6: 2, 7: 3}


def test_the_example_runs(tmp_path, capsys):
    shares = nim.main(steps=2_048, games=20, out=str(tmp_path))
    assert shares.keys() == {"ppo_gru", "ppo"} and all(0 <= x <= 1 for x in shares.values())
    assert "ppo_gru: wins" in capsys.readouterr().out
