"""The scores of uniformly random actions, which a comparison shows beside those of its models."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..envs import EnvConfig
from ..run.evaluate import describe_task, evaluate
from .jobs import read_evaluation, write_evaluation


def random_baselines(tasks: Mapping[str, EnvConfig], out: Path, episodes: int) -> dict[str, dict[str, Any]]:
    """The evaluation of random actions on each task, kept as <out>/random/<env>/evaluation.json."""
    evaluations = {}
    for name, env in tasks.items():
        folder = baseline_folder(out, env)
        evaluation = read_evaluation(folder)
        # An evaluation by an older version may lack its task; it is repeated.
        task = describe_task(env)
        if evaluation is None or (evaluation["episodes"], evaluation.get("task")) != (episodes, task):
            # From one seed for all comparisons, so that a task has one baseline.
            played = evaluate(None, env, episodes, name="random")
            folder.mkdir(parents=True, exist_ok=True)
            write_evaluation(folder, played)
            evaluation = played.as_json()
        evaluations[name] = evaluation
    return evaluations


def baseline_folder(out: Path, env: EnvConfig) -> Path:
    """The folder of one task: other time limits, masks or arguments of the environment are other tasks."""
    name = env.id.replace("/", "-").replace(":", "-")
    # Two options of the same value are two tasks.
    changes = [name if value is True else value for name, value in describe_task(env).items()]
    suffix = f"-{hashlib.sha256(json.dumps(changes).encode()).hexdigest()[:8]}" if any(changes) else ""
    return out / "random" / f"{name}{suffix}"
