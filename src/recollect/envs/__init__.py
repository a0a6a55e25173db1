"""Environments. base.py defines the interface; make.py resolves ids.

Every other file is one suite. It defines `listing`, and either `make`, which builds a `VecEnv`, or
`resolve_alias`, which returns the config of an environment of another suite.
"""

from .base import Backend, EnvConfig, Envs, EnvState, Step, VecEnv
from .make import is_third_party, listing, make, make_for_evaluation, suite_of
from .spaces import ActionSpec, Array, Obs, ObsSpec
from .trial import Trial

__all__ = [
    "ActionSpec",
    "Array",
    "Backend",
    "EnvConfig",
    "EnvState",
    "Envs",
    "Obs",
    "ObsSpec",
    "Step",
    "Trial",
    "VecEnv",
    "is_third_party",
    "listing",
    "make",
    "make_for_evaluation",
    "suite_of",
]
