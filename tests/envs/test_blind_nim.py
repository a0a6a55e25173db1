"""The example of self-play: the rules of its game, who wins it, and that self-play learns to."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

import recollect

PATH = Path(__file__).parents[2] / "examples" / "blind_nim.py"
SPEC = importlib.util.spec_from_file_location("blind_nim", PATH)
blind_nim = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(blind_nim)


def read(observed):
    """The heap, 0 if it is not shown, and what the other took."""
    digits, taken = np.split(observed, [blind_nim.DIGITS])
    return int(digits @ 2 ** np.arange(blind_nim.DIGITS)), int(taken.argmax())


class Counts:
    """Remembers the heap and counts; takes one stone where it cannot win."""

    def reset(self):
        self.heap = None

    def act(self, observed):
        seen, taken = read(observed)
        self.heap = seen if self.heap is None else self.heap - taken
        action = self.heap % 4 or 1
        self.heap -= action
        return action


class Forgets(Counts):
    """Takes what the first observation of every game would call for, later two."""

    def act(self, observed):
        return (read(observed)[0] or 2) % 4 or 1


def wins(player, games=300):
    return blind_nim.play(SimpleNamespace(player=lambda: player), games)


@pytest.mark.filterwarnings("ignore")  # the package of the test imports games in a deprecated way
def test_the_interface_is_that_of_pettingzoo():
    checks = pytest.importorskip("pettingzoo.test", exc_type=ImportError)  # the games need pygame
    checks.api_test(blind_nim.BlindNim(), num_cycles=50)


def test_a_player_that_counts_wins_and_one_that_forgets_does_not():
    assert wins(Counts()) == 1.0
    assert wins(Forgets()) < 0.8


def test_self_play_learns_to_leave_a_multiple_of_four(tmp_path, monkeypatch):
    class OpenNim(blind_nim.BlindNim):
        """The heap is seen at every turn."""

        def observe(self, agent):
            self.turns, turns = 0, self.turns
            observed = super().observe(agent)
            self.turns = turns
            return observed

    monkeypatch.setattr(blind_nim, "LARGEST", 8)
    options = {**blind_nim.OPTIONS, "ppo.num_steps": 32, "val_check_interval": 0, "actor.hidden": [32]}
    run = recollect.train(OpenNim, "ppo", steps=15_000, seed=1, options=options, out=tmp_path, quiet=True)
    game = OpenNim()
    game.reset(seed=0)
    taken = {}
    for heap in (5, 6, 7):
        game.heap = heap
        taken[heap] = int(run.player().act(game.observe("first")))
    assert taken == {5: 1, 6: 2, 7: 3}


def test_the_example_runs(tmp_path, capsys):
    shares = blind_nim.main(steps=2_048, games=20, out=str(tmp_path))
    assert shares.keys() == {"ppo_gru", "ppo"} and all(0 <= x <= 1 for x in shares.values())
    assert "ppo_gru: wins" in capsys.readouterr().out
