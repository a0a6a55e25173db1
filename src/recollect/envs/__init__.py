"""Environments. base.py defines the interface; make.py resolves ids; suites/ has a file for each suite.

The other files are what suites are made of: Gymnasium's environments in this process and in workers, what
follows a failure, spaces, teams of agents, trials.
"""

from .base import Backend, EnvConfig, Envs, EnvState, Step, VecEnv
from .make import is_third_party, listing, make, make_for_evaluation, reports_mask, suite_of
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
    "reports_mask",
    "suite_of",
]
