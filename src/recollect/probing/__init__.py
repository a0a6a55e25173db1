"""`recollect probe`: whether an agent uses its memory, and whether its task needs one.

interventions.py alters memories: reset, frozen, swapped, perturbed. ablate.py measures the loss of the
actor, memory_length.py the steps of memory, critic.py the loss of the critic. readout.py selects the targets
that the regression of linear.py reads out of the memory state. controls.py compares with runs without a
memory. measure.py collects all measurements, and verdict.py puts them into words. probe_page.py,
readout_page.py and screen.py write them; command.py is the command line.
"""

from .command import run_probe, write
from .measure import probe
from .options import ProbeOptions

__all__ = ["ProbeOptions", "probe", "run_probe", "write"]
