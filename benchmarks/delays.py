"""Which memories learn to repeat the input of some steps ago, from labels instead of rewards?

    python -m benchmarks.delays [--arms ARM ...] [-o docs/results/delays.json]

Inputs are four symbols at random, as the suits of POPGym's RepeatPrevious; the label at each step is the
symbol of `delay` steps before. A layer encodes the symbol, the memory reads it, and a layer names the label.
Training minimises the cross-entropy over new sequences, and ends after UPDATES of them or with 99.9 % of the
labels named. What fails here fails without reinforcement learning. Widths are those of studies/memories.yaml.

Two pairs of arms differ in one thing alone:

lru, real          the LRU with the phases of its decays fixed at 0: sums that decay, without oscillations
mingru, last four  minGRU with a convolution over the last four steps before it, as DeltaNet and mamba have

Each arm has three learning rates and three seeds; the table shows the rate with the highest mean. Finished
trainings are kept in the file, and not repeated.
"""

import argparse
import itertools
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect import memory
from recollect.memory import Memory
from recollect.memory.matrix import short_convolution

from .cells import table as as_table

RESULTS = Path("docs/results/delays.json")
SYMBOLS, FEATURES, STEPS, SEQUENCES = 4, 64, 64, 32
UPDATES, EVERY, ENOUGH = 2000, 100, 0.999
DELAYS, RATES, SEEDS = (1, 3, 7, 15), (0.0005, 0.002, 0.008), (1, 2, 3)
Training = dict[str, Any]  # arm, delay, rate, seed, accuracy, updates


@dataclass(frozen=True)
class Arm:
    """A memory, and what is changed around it."""

    memory: str
    options: dict[str, int]
    taps: int = 1
    """Steps of a convolution before the memory."""
    real: bool = False
    """Whether the phases of an LRU are fixed at 0."""

    def build(self) -> Memory:
        net = memory.find(self.memory)(**self.options).build(FEATURES)
        if self.real:
            for name, weight in net.named_parameters():
                if name.endswith("theta"):  # the logarithm of the phase
                    weight.data.fill_(-30.0)
                    weight.requires_grad_(False)
        return net


ARMS = {
    "mlp": Arm("mlp", {}),
    "gru": Arm("gru", {"width": 64}),
    "lstm": Arm("lstm", {"width": 53}),
    "lmu": Arm("lmu", {"width": 112}),
    "lru": Arm("lru", {"width": 56}),
    "lru, real": Arm("lru", {"width": 56}, real=True),
    "ffm": Arm("ffm", {"width": 56}),
    "mamba": Arm("mamba", {"width": 56}),
    "deltanet": Arm("deltanet", {"width": 64}),
    "mlstm": Arm("mlstm", {"width": 64}),
    "shm": Arm("shm", {"width": 152}),
    "mingru": Arm("mingru", {"width": 84, "layers": 2}),
    "mingru, last four": Arm("mingru", {"width": 84, "layers": 2}, taps=4),
}


class Repeater(nn.Module):
    """Symbols (T, B) -> a score for each symbol (T, B, SYMBOLS)."""

    def __init__(self, arm: Arm) -> None:
        super().__init__()
        self.encoder = nn.Linear(SYMBOLS, FEATURES)
        self.taps = nn.Parameter(torch.randn(arm.taps, FEATURES) / arm.taps**0.5) if arm.taps > 1 else None
        self.memory = arm.build()
        self.head = nn.Linear(self.memory.out_dim, SYMBOLS)

    def forward(self, symbols: Tensor) -> Tensor:
        x = torch.tanh(self.encoder(F.one_hot(symbols, SYMBOLS).float()))
        first = torch.zeros(symbols.shape, dtype=torch.bool)
        first[0] = True
        if self.taps is not None:
            past = x.new_zeros(x.shape[1], len(self.taps) - 1, FEATURES)
            x, _ = short_convolution(x, self.taps, past, first)
        y, _ = self.memory(x, self.memory.initial_state(symbols.shape[1]), first)
        return cast(Tensor, self.head(y))


def train(arm: Arm, delay: int, rate: float, seed: int) -> tuple[float, int]:
    """The share of labels that are named at the end, and the number of updates."""
    torch.manual_seed(seed)
    net = Repeater(arm)
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=rate)
    accuracy, update = 0.0, 0
    while update < UPDATES and accuracy < ENOUGH:
        for _ in range(EVERY):
            symbols = torch.randint(SYMBOLS, (STEPS, SEQUENCES))
            scores = net(symbols)[delay:].flatten(0, 1)
            loss = F.cross_entropy(scores, symbols[:-delay].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        update += EVERY
        accuracy = measured_accuracy(net, delay)
    return accuracy, update


@torch.no_grad()
def measured_accuracy(net: Repeater, delay: int) -> float:
    """The share of labels that are named, over new sequences."""
    symbols = torch.randint(SYMBOLS, (STEPS, 8 * SEQUENCES))
    named = net(symbols)[delay:].argmax(-1)
    return (named == symbols[:-delay]).float().mean().item()


def measure(arms: Sequence[str], out: Path) -> None:
    """All trainings that are not yet in the file."""
    kept: list[Training] = json.loads(out.read_text()) if out.exists() else []
    done = {(one["arm"], one["delay"], one["rate"], one["seed"]) for one in kept}
    for delay, arm, rate, seed in itertools.product(DELAYS, arms, RATES, SEEDS):
        if (arm, delay, rate, seed) in done:
            continue
        accuracy, updates = train(ARMS[arm], delay, rate, seed)
        training = {"arm": arm, "delay": delay, "rate": rate, "seed": seed}
        kept.append(training | {"accuracy": round(accuracy, 4), "updates": updates})
        out.write_text("[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n")
        print(f"{arm}, delay {delay}, rate {rate}, seed {seed}: {accuracy:.3f}, {updates}", flush=True)


def best(trainings: Sequence[Training], arm: str, delay: int) -> list[float]:
    """The accuracies of all seeds with the rate whose mean is the highest; empty if a training lacks."""
    same = [one for one in trainings if (one["arm"], one["delay"]) == (arm, delay)]
    if len(same) < len(RATES) * len(SEEDS):
        return []
    return max(([one["accuracy"] for one in same if one["rate"] == r] for r in RATES), key=statistics.fmean)


def table(trainings: Sequence[Training]) -> list[str]:
    """A row for each arm, a column for each delay."""
    rows = []
    for arm in ARMS:
        cells = [", ".join(f"{x:.2f}" for x in best(trainings, arm, delay)) or "-" for delay in DELAYS]
        rows.append([f"`{arm}`" if arm == ARMS[arm].memory else arm, *cells])
    return as_table(["memory", *(f"delay {delay}" for delay in DELAYS)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=list(ARMS))
    parser.add_argument("-o", "--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    measure(args.arms, args.out)
    print("\n".join(table(json.loads(args.out.read_text()))))


if __name__ == "__main__":
    main()
