"""Memories that are trained to repeat an input, as benchmarks/delays.py does it."""

import pytest
import torch
import torch.nn.functional as F

from benchmarks import delays


@pytest.mark.thorough
def test_a_memory_learns_to_repeat_and_an_agent_without_one_cannot(monkeypatch):
    monkeypatch.setattr(delays, "UPDATES", 200)
    accuracy, updates = delays.train(delays.ARMS["lru"], delay=2, rate=0.002, seed=7)
    assert accuracy >= delays.ENOUGH and updates <= 200
    accuracy, updates = delays.train(delays.ARMS["mlp"], delay=2, rate=0.002, seed=7)
    assert 0.2 < accuracy < 0.3 and updates == 200


@pytest.mark.parametrize(("lag", "least", "most"), [(3, 1.0, 1.0), (4, 0.23, 0.27)])
def test_the_label_is_the_symbol_of_so_many_steps_before(lag, least, most, monkeypatch):
    net = delays.Repeater(delays.ARMS["mlp"])
    monkeypatch.setattr(net, "forward", lambda symbols: F.one_hot(symbols.roll(lag, 0), delays.SYMBOLS))
    assert least <= delays.measured_accuracy(net, delay=3) <= most


def test_an_lru_without_phases_stays_real_while_it_learns(monkeypatch):
    monkeypatch.setattr(delays, "UPDATES", 100)
    built, repeater = [], delays.Repeater
    monkeypatch.setattr(delays, "Repeater", lambda arm: built.append(repeater(arm)) or built[-1])
    delays.train(delays.ARMS["lru, real"], delay=1, rate=0.01, seed=1)
    (fixed,), (free,) = phases(built[0]), phases(repeater(delays.ARMS["lru"]))
    assert (fixed.exp() < 1e-12).all() and (free.exp() > 1e-3).any()
    assert not torch.equal(built[0].head.bias, repeater(delays.ARMS["lru, real"]).head.bias)


def phases(net):
    return [weight for name, weight in net.named_parameters() if name.endswith("theta")]


def test_a_convolution_shows_the_last_four_inputs_and_nothing_of_the_next():
    net = delays.Repeater(delays.ARMS["mingru, last four"])
    seen = []
    net.memory.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    symbols = torch.randint(delays.SYMBOLS, (9, 1))
    changed = symbols.clone()
    changed[3] = (changed[3] + 1) % delays.SYMBOLS
    net(symbols), net(changed)
    differs = (seen[0] != seen[1]).any(-1)[:, 0].tolist()
    assert differs == [False] * 3 + [True] * 4 + [False] * 2


def test_the_table_shows_the_seeds_of_the_best_rate():
    rows = [
        {"arm": "gru", "delay": 3, "rate": rate, "seed": seed, "accuracy": x, "updates": 100}
        for rate, scores in ((0.0005, (0.9, 0.2, 0.2)), (0.002, (0.6, 0.7, 0.5)), (0.008, (0.1, 0.1, 0.1)))
        for seed, x in enumerate(scores, 1)
    ]
    assert delays.best(rows, "gru", 3) == [0.6, 0.7, 0.5]
    (line,) = [line for line in delays.table(rows) if line.startswith("| `gru`")]
    assert line == "| `gru` | - | 0.60, 0.70, 0.50 | - | - |"
    assert delays.best(rows[:-1], "gru", 3) == []  # one training lacks
