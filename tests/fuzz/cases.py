"""One random case: a folder with files, and a command about them."""

import random
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

from recollect.commands import COMMANDS
from recollect.run import checkpoint

from . import inputs

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))
# Not: push (it reaches for the network), demo and bench (they have no input that others lack).
BY_FLAGS = [
    "train",
    "eval",
    "resume",
    "export",
    "record",
    "clone",
    "watch",
    "probe",
    "compare",
    "tune",
    "list",
]
SPACE = """
ppo.learning_rate: {low: 0.0001, high: 0.01, log: true}
ppo.num_steps: [32, 64, 128]
actor.memory.width: [16, 32]
ppo.gamma: [0.9, 0.99]
"""
HOSTILE = """
open("ran", "w").close()
"""  # a module that files name, and no command line: it must never run
# Who reads a file of a run folder.
READERS = {
    "config.yaml": ["resume {run}", "eval {run}", "train --config {run}/config.yaml", "report runs -o page"],
    "summary.json": ["list agents", "resume {run}", "report runs -o page"],
    "metrics.jsonl": ["resume {run}", "watch {run}", "report runs -o page"],
    "episodes.jsonl": ["resume {run}"],
    "evaluation.json": ["report runs -o page"],
    "checkpoints/iteration-00000003.safetensors": ["resume {run}"],
    "checkpoints/last.safetensors": [
        "eval {run}",
        "export {run} copy.safetensors",
        "probe {run}",
        "watch {run}",
    ],
}
AGENT_READERS = [
    "eval {0}",
    "watch {0}",
    "probe {0}",
    "record {0}",
    "export {0} copy.safetensors",
    "train CartPole-v1 --init {0}",
]


def case(kind: str, dice: random.Random, folder: Path, run: Path) -> list[str]:
    """Write the files of a case into its folder; the command. `run` is a whole run folder to start from."""
    (folder / "hostile.py").write_text(HOSTILE)
    (folder / "named.py").touch()  # a module that command lines name, which thus may run
    return KINDS[kind](dice, folder, run)


def _flags(dice: random.Random, folder: Path, run: Path) -> list[str]:
    name = dice.choice(BY_FLAGS)
    command = COMMANDS[name]
    kind = getattr(import_module(f"recollect.{command.module}"), command.options)
    shutil.copytree(run, folder / "run")
    first = dice.choice([["run"], ["CartPole-v1"], [], [inputs.word(dice, str)]])
    known = inputs.options(kind, bool({"config", "settings"} & set(get_type_hints(kind))))
    return [name, *first, *inputs.flags(dice, known, 5)]


def _config(dice: random.Random, folder: Path, run: Path) -> list[str]:
    (folder / "config.yaml").write_bytes(inputs.yaml_text(dice, dice.choice(CONFIGS)))
    return ["train", "--config", "config.yaml"]


def _study(dice: random.Random, folder: Path, run: Path) -> list[str]:
    (folder / "study.yaml").write_bytes(inputs.yaml_text(dice, dice.choice(STUDIES)))
    return ["compare", "study.yaml"]


def _space(dice: random.Random, folder: Path, run: Path) -> list[str]:
    (folder / "right.yaml").write_text(SPACE)
    (folder / "space.yaml").write_bytes(inputs.yaml_text(dice, folder / "right.yaml"))
    return ["tune", "-e", "CartPole-v1", "-m", "ppo_gru", "--space", "space.yaml", "--steps", "1000"]


def _agent(dice: random.Random, folder: Path, run: Path) -> list[str]:
    """A file whose digest is right, so that what it says is believed."""
    tensors, meta = checkpoint.read(run / "checkpoints" / "last.safetensors")
    if dice.random() < 0.8:
        part = dice.choice([key for key in meta if isinstance(meta[key], dict)])
        meta[part] = inputs.changed(dice, meta[part])
    else:
        name = dice.choice(list(tensors))
        tensors[name] = dice.choice(
            [
                tensors[name].double(),
                tensors[name].flatten()[:0],
                tensors[name] * float("nan"),
                tensors[name][None],
            ]
        )
    checkpoint.write(folder / "agent.safetensors", tensors, meta)
    return dice.choice(AGENT_READERS).format("agent.safetensors").split()


def _run(dice: random.Random, folder: Path, run: Path) -> list[str]:
    """A run folder with one file of other data, other bytes, of another run, absent, or a folder."""
    copy = folder / "runs" / "ppo" / "CartPole-v1" / "run"
    shutil.copytree(run, copy)
    name = dice.choice(list(READERS))
    path = copy / name
    match dice.randrange(8):
        case 0:
            path.unlink()
        case 1:
            path.unlink()
            path.mkdir()
        case 2:
            path.write_bytes(inputs.bytes_like(dice, path.read_bytes()))
        case _ if path.suffix == ".safetensors":
            path.write_bytes(inputs.bytes_like(dice, path.read_bytes()))
        case _ if path.suffix == ".yaml":
            path.write_bytes(inputs.yaml_text(dice, path))
        case _:
            path.write_bytes(inputs.json_text(dice, path.read_text()))
    return dice.choice(READERS[name]).format(run=copy.relative_to(folder)).split()


KINDS: dict[str, Callable[[random.Random, Path, Path], list[str]]] = {
    "flags": _flags,
    "config": _config,
    "study": _study,
    "space": _space,
    "agent": _agent,
    "run": _run,
}
