"""`recollect probe`: does this agent use its memory, and does its task need one?

record.py plays episodes and writes down what everybody knew; alter.py has memories that forget, freeze,
mix or blur; ablate.py measures what the actor loses by that, critic.py what the critic loses; readout.py
asks what a memory holds, by the regression of linear.py; measure.py has all of it, verdict.py says what
it means, contents.py and screen.py show it.
"""

import json
from pathlib import Path

from ..common.errors import UsageError
from ..reporting.page import render_page
from ..reporting.summary import to_json_data
from ..run import api
from ..run.run import Trained
from .measure import Probed, probe
from .options import ProbeOptions
from .probe_page import colours, facts, sections, title
from .screen import screen


def run_probe(options: ProbeOptions) -> None:
    """Probe an agent, write what was found, and say it."""
    path = Path(options.run)
    out = options.out or (path / "probe" if path.is_dir() else Path("probe"))
    if out.exists() and not out.is_dir():
        raise UsageError(f"-o {out}: it is a file; a probe is a folder")
    control = _load(options.control) if options.control else None
    found = probe(_load(options.run), options.episodes, options.seed, control)
    text = write(found, out)
    print(text if options.json else f"{screen(found)}\n{out / 'probe.html'} and probe.json are written")


def write(found: Probed, out: Path) -> str:
    """probe.html and probe.json into a folder; the latter's text."""
    out.mkdir(parents=True, exist_ok=True)
    shown = render_page("recollect probe", title(found), facts(found), sections(found), colours(found))
    (out / "probe.html").write_text(shown, encoding="utf-8")
    text = json.dumps(to_json_data(found), allow_nan=False)
    (out / "probe.json").write_text(text + "\n", encoding="utf-8")
    return text


def _load(run: str) -> Trained:
    if run == "random":
        raise UsageError("random has no memory to probe: name a run, a checkpoint or a saved agent")
    return api.load(run)


__all__ = ["probe", "run_probe", "write"]
