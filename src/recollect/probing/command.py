"""The command `recollect probe`: probe an agent and write the result."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..common.errors import UsageError
from ..common.names import listed
from ..common.output_paths import check_out_folder, write_whole_text
from ..envs.given import Environment
from ..reporting.page import render_page
from ..reporting.summary import to_json_data
from ..run import api
from ..run.run import Trained
from .measure import ProbeResult
from .measure import probe as measure
from .options import ProbeOptions
from .probe_page import assign_colours, build_sections, write_facts, write_title
from .screen import write_text

RENAMED = {"direction": "told", "by_alteration": "found"}  # fields of which probe.json has older names


def probe(
    run: str | Path | Trained,
    episodes: int = 100,
    *,
    controls: Sequence[str | Path | Trained] = (),
    seed: int = 0,
    out: str | Path | None = None,
    device: str = "cpu",
    env: Environment | None = None,
    imports: Sequence[str] = (),
) -> ProbeResult:
    """Test whether an agent uses its memory, and what its state encodes.

    run       a run folder, a checkpoint, a saved agent, or what train and load return
    episodes  to play per intervention on the memory; at least 10
    controls  runs without a memory in the same environment
    out       folder of probe.html and probe.json; None: no files
    device    where agents that are given as paths are computed
    env       the environment of all runs, if they are given as paths; None: that of training. A callable,
              or an id that imports a module, is needed again
    imports   names of third-party memories and encoders that the files may import
    """
    if out is not None:
        check_out_folder(Path(out), f"out {out}")
    api.check_env("probe", env, run, *listed(controls))
    trained, *others = (
        one if isinstance(one, Trained) else _load(str(one), env, imports, device)
        for one in (run, *listed(controls))
    )
    result = measure(trained, episodes, seed, others)
    if out is not None:
        write(result, Path(out))
    return result


def run_probe(options: ProbeOptions) -> None:
    """Probe an agent, write the files, and print the result."""
    path = Path(options.run)
    out = options.out or (path / "probe" if path.is_dir() else Path("probe"))
    check_out_folder(out, f"-o {out}")
    trained, *controls = (
        _load(run, options.env, options.imports, options.device) for run in (options.run, *options.control)
    )
    result = measure(trained, options.episodes, options.seed, controls)
    text = write(result, out)
    print(text if options.json else f"{write_text(result)}\n{out / 'probe.html'} and probe.json are written")


def write(result: ProbeResult, out: Path) -> str:
    """Write probe.html and probe.json into a folder, and return the text of probe.json."""
    out.mkdir(parents=True, exist_ok=True)
    parts = write_title(result), write_facts(result), build_sections(result), assign_colours(result)
    write_whole_text(out / "probe.html", render_page("recollect probe", *parts))
    # to_json_data has made NaN null; with allow_nan=False one that it missed fails here, not in a reader.
    text = json.dumps(_rename_keys(to_json_data(result)), allow_nan=False)
    write_whole_text(out / "probe.json", text + "\n")
    return text


def _rename_keys(data: Any) -> Any:
    """The same JSON data with the keys that files of earlier versions have."""
    if isinstance(data, dict):
        return {RENAMED.get(key, key): _rename_keys(value) for key, value in data.items()}
    return [_rename_keys(item) for item in data] if isinstance(data, list) else data


def _load(run: str, env: Environment | None, imports: Sequence[str], device: str) -> Trained:
    if run == "random":
        raise UsageError("`probe` needs a trained agent: 'random' has no memory to probe")
    return api.load(run, env=env, imports=imports, device=device)
