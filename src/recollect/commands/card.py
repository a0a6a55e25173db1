"""What `recollect push` uploads: the agent, and a card with its scores, its use of memory, and a film."""

import contextlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ..common.errors import UsageError
from ..common.format import number
from ..common.intervals import stratified
from ..common.yaml_text import dump_yaml
from ..config.assembly import imported_names
from ..config.config import RunConfig
from ..config.data import to_dict
from ..probing.command import probe
from ..probing.measure import FEWEST, memory_names
from ..reporting.aggregate import mean_of_means
from ..reporting.groups import group_runs
from ..reporting.runs import BadRun, read_run, read_runs
from ..run import film
from ..run.evaluate import Evaluation
from ..run.hub import FILE, PREFIX
from ..run.run import Trained
from ..run.weights import versions
from ..watching.command import watch

FILM, PAGE = "episode.gif", "watch.html"


def write_files(
    trained: Trained, folder: Path, repository: str, episodes: int, load: Callable[[Path], Trained]
) -> None:
    """Write the agent, its card, and the pages and the film that the card names.

    load  loads the agents of other seeds
    """
    scores = {trained.config.seed: trained.evaluate(episodes)}
    for seed, run in find_other_seeds(trained).items():
        scores[seed] = load(run).evaluate(episodes)
    trained.save(folder / FILE)
    parts = [
        _head(trained, scores),
        _introduction(trained, repository),
        _film(trained, folder),
        _scores(trained.config.seed, scores),
        _memory(trained, folder, episodes),
        _config(trained),
    ]
    (folder / "README.md").write_text("\n".join(filter(None, parts)), encoding="utf-8")


def find_other_seeds(trained: Trained) -> dict[int, Path]:
    """Seed -> folder of the finished runs beside a run that differ from it only in the seed."""
    try:
        this = read_run(trained.folder.resolve())
    except BadRun:  # a saved agent or a checkpoint, which is in no folder of runs
        return {}
    collection = read_runs([this.folder.parent])
    for run in collection.left_out:
        if run.folder.resolve() != this.folder:  # as a run with the config and seed of another one
            print(f"the card leaves out {run.folder}: {run.reason}")
    # One run of each seed, and of the agent's own seed no other: its score is on the card.
    others = [run for run in collection.runs if run.seed != this.seed]
    group = next(group for group in group_runs([this, *others]) if any(run is this for run in group.runs))
    return {run.seed: run.folder for run in group.finished if run is not this}


def _head(trained: Trained, scores: Mapping[int, Evaluation]) -> str:
    """What the hub reads: the library, tags, and the score of this agent."""
    env, score = trained.config.env.id, scores[trained.config.seed].summary()
    metric = {"type": "mean_reward", "value": f"{score['mean']:.2f} +/- {score['std']:.2f}"}
    result = {
        "task": {"type": "reinforcement-learning"},
        "dataset": {"name": env, "type": env},
        "metrics": [{**metric, "name": "mean return", "verified": False}],
    }
    head = {
        "library_name": "recollect",
        "tags": ["reinforcement-learning", "recollect", env],
        "model-index": [{"name": trained.config.model, "results": [result]}],
    }
    return f"---\n{dump_yaml(head)}---\n"


def _introduction(trained: Trained, repository: str) -> str:
    config = trained.config
    critic = "shared" if config.critic.shared else config.critic.memory.name
    arguments, modules = _imported(config)
    return f"""# {config.model} on {config.env.id}

An agent of one training run of recollect, seed {config.seed}.
Memories: {config.actor.memory.name} (actor), {critic} (critic).

```python
import recollect

run = recollect.load("{PREFIX}{repository}"{arguments})
print(run.evaluate().mean)
```
{modules}"""


def _imported(config: RunConfig) -> tuple[str, str]:
    """The arguments that allow `load` to import the modules of an agent, and a paragraph that names them."""
    env, parts = imported_names(config).values()
    arguments = "".join(f", env={name!r}" for name in env) + (f", imports={parts}" if parts else "")
    modules = dict.fromkeys(name.partition(":")[0] for name in (*env, *parts))
    if not modules:
        return "", ""
    listed = f"\nModules that it imports, and that must be on the path: {', '.join(modules)}.\n"
    return arguments.replace("'", '"'), listed


def _film(trained: Trained, folder: Path) -> str:
    """Film an episode and write the page of episodes; their part of the card."""
    with contextlib.redirect_stdout(io.StringIO()):  # it would name a temporary file
        watch(trained, folder / PAGE, episodes=FEWEST)
    page = f"[{PAGE}]({PAGE}) shows episodes, and the memory at each step: download and open it.\n"
    try:
        film.render(trained.agent, trained.config.env, str(folder / FILM), 1, seed=0)
    except UsageError as error:
        print(f"the card has no film: {error}")
        return page
    return f"![The agent in an episode]({FILM})\n\n{page}"


def _scores(seed: int, scores: Mapping[int, Evaluation]) -> str:
    """A row for each seed, and the mean of all."""
    rows = []
    for one in sorted(scores):
        score = scores[one].summary()
        this = " (this agent)" if one == seed and len(scores) > 1 else ""
        rows.append(f"| {one}{this} | {number(score['mean'])} | {_interval(score['low'], score['high'])} |")
    if len(scores) > 1:
        means = np.array([score.mean for score in scores.values()])
        interval = stratified([means], mean_of_means) or (None, None)
        rows.append(f"| mean of {len(scores)} | {number(means.mean())} | {_interval(*interval)} |")
    episodes = len(scores[seed].returns)
    alone = "" if len(scores) > 1 else " Other seeds of this config may score differently."
    return "\n".join(
        [
            f"## Scores\n\nReturns of {episodes} deterministic episodes with the last weights, and 95 % "
            f"confidence intervals: of a seed over episodes, of the mean over seeds.{alone}\n",
            "| seed | mean return | 95 % |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None else f"{number(low)} to {number(high)}"


def _memory(trained: Trained, folder: Path, episodes: int) -> str:
    """Probe an agent that has a memory; what it says."""
    if not any(memory_names(trained)):
        return ""
    result = probe(trained, max(episodes, FEWEST), out=folder)
    page = "[probe.html](probe.html) has every measurement: download and open it."
    return f"## Memory\n\n{result.uses} {result.needs}\n\n{page}\n"


def _config(trained: Trained) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in versions().items())
    config = dump_yaml(to_dict(trained.config))
    return f"## Config\n\nWritten with {packages}.\n\n```yaml\n{config}```\n"
