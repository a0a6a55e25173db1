"""Environments. The contract is in base.py; ids are resolved in make.py.

Every other file is one suite of environments. It has `listing`, and `make` where it steps environments, or
`settings` where its ids stand for settings of environments of other suites.
"""

from .base import Backend, EnvConfig, Envs, EnvState, Step, VecEnv
from .make import listing, make, make_for_evaluation, suite_of, suites
from .spaces import ActionSpec, Array, Obs, ObsSpec

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
    "VecEnv",
    "listing",
    "make",
    "make_for_evaluation",
    "suite_of",
    "suites",
]
