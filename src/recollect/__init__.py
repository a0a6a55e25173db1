"""recollect: PPO for agents that must remember.

    import recollect

    run = recollect.train("CartPole-v1", steps=100_000)
    print(run.evaluate().mean)
    player = run.player()

Names are imported when they are first used, so that `recollect --help` does not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .comparison.compare import compare as compare
    from .config.config import RunConfig as RunConfig
    from .probing.command import probe as probe
    from .reporting.command import report as report
    from .run.api import evaluate as evaluate
    from .run.api import iterate as iterate
    from .run.api import load as load
    from .run.api import resume as resume
    from .run.api import train as train
    from .run.evaluate import Evaluation as Evaluation
    from .run.run import Trained as Trained
    from .run.update import Update as Update
    from .tuning.tune import tune as tune
    from .watching.command import watch as watch

_HOMES = {
    "train": "run.api",
    "iterate": "run.api",
    "load": "run.api",
    "resume": "run.api",
    "evaluate": "run.api",
    "compare": "comparison.compare",
    "report": "reporting.command",
    "watch": "watching.command",
    "probe": "probing.command",
    "tune": "tuning.tune",
    "RunConfig": "config.config",
    "Trained": "run.run",
    "Evaluation": "run.evaluate",
    "Update": "run.update",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


__all__ = [
    "Evaluation",
    "RunConfig",
    "Trained",
    "Update",
    "__version__",
    "compare",
    "evaluate",
    "iterate",
    "load",
    "probe",
    "report",
    "resume",
    "train",
    "tune",
    "watch",
]


def __dir__() -> list[str]:
    """The public names, for tab completion."""
    return __all__
