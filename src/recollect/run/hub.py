"""Agents on the Hugging Face hub: weights as data, and a card. Nothing that is loaded becomes code."""

import re
import tempfile
from pathlib import Path
from types import ModuleType

import yaml

from ..common.errors import UsageError, install_hint
from ..config.assembly import imported_names
from ..config.config import RunConfig
from ..config.data import to_dict
from .run import Trained
from .weights import versions

PREFIX, FILE = "hf:", "agent.safetensors"
REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def download(name: str) -> Path:
    """A local copy of the agent in a repository of the hub, named as hf:owner/name."""
    repository = _checked(name.removeprefix(PREFIX))
    try:
        # This file alone: neither code nor pickled weights are downloaded.
        return Path(_hub(name).hf_hub_download(repository, FILE))
    except Exception as error:  # errors of the network, the hub and the disk have no common class
        reason = " ".join(str(error).split())
        raise UsageError(f"{name}: the download of {FILE} from the hub failed: {reason}") from error


def upload(trained: Trained, repository: str, episodes: int, private: bool) -> str:
    """Upload an agent with a card that has its score; the address of the repository."""
    # Name and package are checked before the evaluation, which takes long.
    _checked(repository)
    api = _hub(repository).HfApi()
    text = card(trained, repository, episodes)
    with tempfile.TemporaryDirectory() as folder:
        trained.save(Path(folder) / FILE)
        (Path(folder) / "README.md").write_text(text, encoding="utf-8")
        try:
            address = api.create_repo(repository, private=private, exist_ok=True)
            api.upload_folder(repo_id=repository, folder_path=folder)
        except Exception as error:  # as in download
            reason = " ".join(str(error).split())
            raise UsageError(f"{repository}: the upload to the hub failed: {reason}") from error
    return str(address)


def card(trained: Trained, repository: str, episodes: int) -> str:
    """The model card: what the agent is, its score, how to use it, and its whole config."""
    config, score = trained.config, trained.evaluate(episodes).summary()
    interval = ""
    if score["low"] is not None:
        interval = f", 95 % confidence interval {score['low']:.4g} to {score['high']:.4g}"
    head = {"library_name": "recollect", "tags": ["reinforcement-learning", "recollect", config.env.id]}
    memories = f"{config.actor.memory.name} (actor), " + (
        "shared (critic)" if config.critic.shared else f"{config.critic.memory.name} (critic)"
    )
    arguments, modules = _imported(config)
    packages = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"""---
{yaml.safe_dump(head, sort_keys=False)}---

# {config.model} on {config.env.id}

An agent of one training run of recollect, seed {config.seed}. Memories: {memories}.

Mean return of {score["episodes"]} deterministic episodes: {score["mean"]:.4g}{interval}.

```python
import recollect

run = recollect.load("{PREFIX}{repository}"{arguments})
print(run.evaluate().mean)
```
{modules}
Written with {packages}.

## Config

```yaml
{yaml.safe_dump(to_dict(config), sort_keys=False)}```
"""


def _imported(config: RunConfig) -> tuple[str, str]:
    """The arguments that allow `load` to import the modules of an agent, and a paragraph that names them."""
    env, parts = imported_names(config).values()
    arguments = "".join(f", env={name!r}" for name in env) + (f", imports={parts}" if parts else "")
    modules = [name.partition(":")[0] for name in (*env, *parts)]
    if not modules:
        return "", ""
    listed = ", ".join(dict.fromkeys(modules))
    return arguments.replace(
        "'", '"'
    ), f"\nModules that it imports, and that must be on the path: {listed}.\n"


def _checked(repository: str) -> str:
    if not REPOSITORY.fullmatch(repository):
        raise UsageError(f"{repository} is not the name of a repository of the hub: owner/name is needed")
    return repository


def _hub(name: str) -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise UsageError(f"{name}: agents on the hub need huggingface-hub: {install_hint('hf')}") from None
    module: ModuleType = huggingface_hub
    return module
