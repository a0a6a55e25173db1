"""Configs of the parts of an agent that are chosen by name: memories and encoders."""

import importlib
import pkgutil
from abc import ABC
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar, Self

from .errors import UsageError, nearest
from .options import Options


def import_named(module: str, label: str) -> ModuleType:
    """Import a module that the user named; UsageError if it does not import.

    label  what the module is imported for, for the error
    """
    try:
        # import_module raises ValueError for an empty name, and TypeError for a relative one.
        return importlib.import_module(module)
    except (ImportError, TypeError, ValueError) as error:
        # Not where the module is there, and one that it imports is missing.
        missing = isinstance(error, ModuleNotFoundError) and module.startswith(error.name or module)
        hint = "; install it, or put its folder on PYTHONPATH" if missing else ""
        raise UsageError(f"{label}: module {module} does not import: {error}{hint}") from error


@dataclass(frozen=True, kw_only=True)
class NamedConfig(Options, ABC):
    """Options of a part: of one in a file of its folder, or of a third-party one, package.module:Config."""

    name: ClassVar[str]
    """Name on the command line and in config.yaml."""
    folder: ClassVar[str]
    """The package whose files have these parts."""

    def check_sizes(self, *fields: str) -> None:
        """Raise an error that names the first of these fields that is below 1."""
        for field in fields:
            value = getattr(self, field)
            if value < 1:
                raise UsageError(f"{self.name}.{field} is {value}, at least 1 is needed")

    @classmethod
    def available(cls) -> dict[str, type[Self]]:
        """Every config of the folder, by name."""
        configs: dict[str, type[Self]] = {}
        for module in pkgutil.iter_modules(importlib.import_module(cls.folder).__path__):
            contents = vars(importlib.import_module(f"{cls.folder}.{module.name}"))
            for item in contents.values():
                # vars, not hasattr: a subclass without a name would replace the one whose name it inherits.
                if isinstance(item, type) and issubclass(item, cls) and "name" in vars(item):
                    configs[item.name] = item
        return configs

    @classmethod
    def find(cls, name: str) -> type[Self]:
        """A config by its name, or a third-party one as package.module:Config."""
        kind = cls.folder.rpartition(".")[2]
        module, colon, attribute = name.partition(":")
        if not colon:
            configs = cls.available()
            if name not in configs:
                raise UsageError(f"{kind} {name!r} is unknown; {nearest(name, sorted(configs))}")
            return configs[name]
        config = getattr(import_named(module, f"{kind} {name}"), attribute, None)
        if not (isinstance(config, type) and issubclass(config, cls)):
            raise UsageError(f"{kind} {name}: {attribute} in {module} is not a {cls.__name__}")
        return config

    @classmethod
    def found_as(cls) -> str:
        """The name by which `find` finds this config."""
        if vars(cls).get("name") and cls.__module__.rpartition(".")[0] == cls.folder:
            return cls.name
        return f"{cls.__module__}:{cls.__qualname__}"
