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
    from .config.config import RunConfig as RunConfig
    from .run.api import iterate as iterate
    from .run.api import load as load
    from .run.api import resume as resume
    from .run.api import train as train
    from .run.run import Trained as Trained
    from .run.update import Update as Update

_HOMES = {
    "train": "run.api",
    "iterate": "run.api",
    "load": "run.api",
    "resume": "run.api",
    "RunConfig": "config.config",
    "Trained": "run.run",
    "Update": "run.update",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


__all__ = ["RunConfig", "Trained", "Update", "__version__", "iterate", "load", "resume", "train"]


def __dir__() -> list[str]:
    """The public names, for tab completion."""
    return __all__
