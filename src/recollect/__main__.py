"""python -m recollect: the same as the command recollect."""

import sys

from .cli import main

sys.exit(main())
