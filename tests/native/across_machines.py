"""Whether the kernels give the same bits on two machines, as of x86-64 and arm64.

    python -m tests.native.across_machines write cases.pt      # on one
    python -m tests.native.across_machines compare cases.pt    # on the other

Weights and minibatches are in the file, because the random generators of torch round differently. Prints a
line for each agent, and exits with 1 unless all bits are equal.
"""

import sys

import torch

from recollect.agent.agent import BranchConfig
from recollect.memory import trxl
from recollect.memory.deltanet import DeltaNetConfig
from recollect.memory.gpt2 import Gpt2Config
from recollect.memory.lmu import LmuConfig
from recollect.memory.lru import LruConfig
from recollect.memory.mamba import MambaConfig
from recollect.memory.mlp import MlpConfig
from recollect.memory.rnn import GruConfig, LstmConfig, MinGruConfig
from recollect.memory.stack import StackConfig
from recollect.memory.trxl import GtrxlConfig, TrxlConfig
from recollect.native import library

from .cases import ACTIONS, config, distance, make_agent, make_batch, native, reference

MEMORIES = {
    "mlp": MlpConfig(),
    "gru": GruConfig(width=13),
    "lstm": LstmConfig(width=16),
    "mingru": MinGruConfig(width=9),
    "stack": StackConfig(frames=3),
    "lmu": LmuConfig(width=16, order=9),
    "lru": LruConfig(width=16, units=9),
    "deltanet": DeltaNetConfig(width=16, heads=2),
    "mamba": MambaConfig(width=10, d_state=5, headdim=4),
    "gpt2": Gpt2Config(width=16, layers=1, heads=2, context=8),
    "trxl": TrxlConfig(width=16, layers=1, heads=2, context=8),
    "gtrxl": GtrxlConfig(width=16, layers=1, heads=2, context=8),
}


def exact_sinusoids(position, width, of=trxl.sinusoids):
    """The table of Transformer-XL without the last bits in which sines of two machines differ."""
    return of(position.double(), width).to(position.dtype)


def agents():
    """Name -> an agent with this memory in both branches, of every kind of actions in turn."""
    for number, (name, memory) in enumerate(MEMORIES.items()):
        branch = BranchConfig(memory=memory, hidden=(19,))
        yield name, make_agent(branch, branch, ACTIONS[number % len(ACTIONS)])


def bits(agent, batch):
    """The ratios, values and gradient of a minibatch."""
    terms, gradient = native(agent, batch, config())
    return [x.detach().clone() for x in (terms.ratio, terms.values, gradient)]


def write(path):
    """Write weights, minibatches, and what the kernels of this machine and float64 give."""
    cases = {}
    for name, agent in agents():
        batch = make_batch(agent, steps=12, sequences=7)
        wanted = reference(agent, batch, config())[1].float()
        cases[name] = agent.state_dict(), batch, bits(agent, batch), wanted
    torch.save(cases, path)
    print(f"{len(cases)} agents, by the kernels for {library.target()}")


def compare(path):
    """Print for each agent whether the bits are those of the file; the exit code."""
    cases, equal = torch.load(path, weights_only=False), True
    print(f"the kernels for {library.target()}")
    for name, agent in agents():
        weights, batch, theirs, wanted = cases[name]
        agent.load_state_dict(weights)
        ours = bits(agent, batch)
        same = all(map(torch.equal, ours, theirs))
        equal &= same
        words = "equal bits" if same else f"gradients differ by {distance(ours[2], theirs[2].double()):.1e}"
        print(f"{name:9}{words}; relative distance from float64 {distance(ours[2], wanted.double()):.1e}")
    return not equal


if __name__ == "__main__":
    command, file = sys.argv[1:]
    trxl.sinusoids = exact_sinusoids
    sys.exit(write(file) if command == "write" else compare(file))
