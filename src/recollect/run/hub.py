"""Agents on the Hugging Face hub: weights as data. Nothing that is loaded becomes code."""

import re
from pathlib import Path
from types import ModuleType

from ..common.errors import UsageError, install_hint

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


def check(repository: str) -> None:
    """Raise UsageError if a name is no repository or the package is missing."""
    _checked(repository)
    _hub(repository)


def upload(folder: Path, repository: str, private: bool) -> str:
    """Upload the files of a folder; the address of the repository."""
    api = _hub(repository).HfApi()
    try:
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder)
    except Exception as error:  # as in download
        reason = " ".join(str(error).split())
        raise UsageError(f"{repository}: the upload to the hub failed: {reason}") from error
    return str(address)


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
