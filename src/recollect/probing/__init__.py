"""`recollect probe`: whether an agent uses its memory, and whether its task needs one.

interventions.py and limited.py alter memories: reset, frozen, swapped, perturbed, limited. In new
episodes, ablate.py measures the loss of the actor, and critic.py that of the critic. At recorded steps,
open_loop.py compares the policies, occlusion.py those after one other input; samples.py draws steps for
that. memory_length.py finds the steps of memory in both. readout.py selects the targets that linear.py
reads out of the memory state by the regression of ridge.py, contents.py erases them along directions.py,
and parts.py each part of the state. controls.py compares with runs without a memory. measure.py collects all
measurements, and verdict.py puts them into words. The modules named page, and screen.py, write them;
command.py is the command line.
"""

from .command import run_probe, write
from .measure import probe
from .options import ProbeOptions

__all__ = ["ProbeOptions", "probe", "run_probe", "write"]
