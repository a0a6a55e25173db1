"""A run of recollect, through its API.

Settings: env, model, options, steps (None: the preset's), seed, metric (return or success), target
and cap, and episodes if the last weights are to be evaluated. A target of the return ends the run; for any
other the run goes on to its end, and its metrics say when the target was reached.
"""

import json
import sys
import tempfile
from typing import Any

from ..common import Result, result

BACKENDS = {"envpool": "EnvPool", "gymnasium": "Gymnasium", "own": "recollect"}


def run(settings: dict[str, Any]) -> Result:
    """Train; the seconds are those until the target, or all of them where there is none."""
    import recollect

    metric, target, cap, seed = (settings[key] for key in ("metric", "target", "cap", "seed"))
    options = dict(settings["options"])
    if metric == "return" and target is not None:
        options["ppo.target_return"] = target
    arguments = {key: settings[key] for key in ("env", "model", "steps", "seed")}
    with tempfile.TemporaryDirectory() as out:
        trained = recollect.train(**arguments, options=options, out=out, quiet=True)
        lines = (trained.folder / "metrics.jsonl").read_text().splitlines()
        backend = BACKENDS[trained.config.env.backend]
    rows = [json.loads(line) for line in lines]
    last = rows[-1]
    if target is None:
        outcome = result(last["time"], last["step"], last[metric], None, metric, backend=backend)
        if "episodes" in settings:
            outcome["score"] = trained.evaluate(settings["episodes"], seed).mean
        return outcome
    good = (row for row in rows if row[metric] is not None and row[metric] >= target)
    first = next((row for row in good if row["time"] <= cap), None)
    if first is None:
        return result(cap, last["step"], last[metric], False, metric, last["time"], backend)
    return result(first["time"], first["step"], first[metric], True, metric, backend=backend)


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
