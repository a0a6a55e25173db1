"""`recollect train`: one run, from a preset, a config file and flags."""

from dataclasses import dataclass, fields
from typing import ClassVar

from ..config.config import RunConfig
from ..run.destination import Destination
from ..run.run import start_run

# 128 + the number of the signal, as shells report it; comparison/run_process.py counts these as no failure.
EXIT_CODES = {"finished": 0, "SIGINT": 130, "SIGTERM": 143}


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Destination):
    """Train an agent. Hyperparameters come from the preset of the model and the environment, then from
    --config FILE.yaml, then from flags.

      recollect train LunarLander-v3 --steps 5e5 --seed 2
      recollect train CartPoleNoVel-v1 --model ppo_gru --lr 1e-3
      recollect train CartPole-v1 --actor stack --actor.frames 3 --critic shared
      recollect train LunarLander-v3 --env.kwargs.continuous true
      recollect train --config my.yaml --entropy 0.01

    Models: recollect list presets. Memories: recollect list memories. Environments: recollect list envs.
    """

    POSITIONAL: ClassVar = ("env.id",)
    BASIC: ClassVar = (
        *("steps", "seed", "model", "actor.memory.name", "critic.memory.name"),
        *("ppo.learning_rate", "ppo.gamma", "env.num_envs", "out", "run_id"),
    )

    imports: tuple[str, ...] = ()
    """Third-party environments, memories and encoders named in the --config file, which may then be
    imported."""
    config: RunConfig


def run_train(options: TrainOptions) -> int:
    """Train; the exit code."""
    return EXIT_CODES[start_run(options.config, destination(options)).summary["status"]]


def destination(options: Destination) -> Destination:
    """Where the run is kept and logged, of options that hold more."""
    return Destination(**{field.name: getattr(options, field.name) for field in fields(Destination)})
