"""The Optuna study of a folder, kept in a journal file that survives a kill at any moment."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.errors import UsageError, install_hint
from ..common.option_values import Setting
from ..config.assembly import check_imports
from ..config.data import LATER
from ..reporting.runs import flatten
from .journal_file import Journal
from .option_names import PART_NAMES, Settings, format_value, full_names, option_values
from .trials import TuningSpec

if TYPE_CHECKING:
    import optuna

JOURNAL = "journal.log"
# Of a study, and of the settings in it. Existing journals have these names.
NAME, QUESTION = "recollect", "question"


def import_optuna() -> Any:
    """Optuna, with its log messages off."""
    try:
        import optuna
    except ImportError as error:
        raise UsageError(f"recollect tune needs Optuna: {install_hint('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextmanager
def without_experimental_warnings() -> Iterator[None]:
    """Hide the warnings of Optuna 4 about features that are stable in Optuna 5."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", import_optuna().exceptions.ExperimentalWarning)
        yield


def load_study(folder: Path, spec: TuningSpec) -> "optuna.Study":
    """The study of a folder, created if there is none; refused if it was created with other settings."""
    optuna, path = import_optuna(), folder / JOURNAL
    with _named(path):
        storage = optuna.storages.JournalStorage(Journal(path))
        study: Any = optuna.create_study(
            storage=storage, study_name=NAME, direction="maximize", load_if_exists=True
        )
    if QUESTION not in study.user_attrs:
        study.set_user_attr(QUESTION, spec.as_settings())
    _check_settings(study, folder, spec)
    _check_imports(study, path, spec)
    # Only in an empty study: trial 0 must be the preset, and everything is compared with it.
    if not study.get_trials(deepcopy=False):
        study.enqueue_trial(preset_params(spec))
    return study


def read_study(folder: Path, spec: TuningSpec) -> "optuna.Study | None":
    """The study of a folder, of which nothing is written: a search may be going on; None if there is none."""
    optuna, path = import_optuna(), folder / JOURNAL
    if not path.exists():
        return None
    with _named(path):
        storage = optuna.storages.JournalStorage(Journal(path, read_only=True))
        if not storage.get_all_studies():
            return None
        study: Any = optuna.load_study(storage=storage, study_name=NAME)
    if QUESTION in study.user_attrs:
        _check_settings(study, folder, spec)
    _check_imports(study, path, spec)
    return study


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn what a journal raises that is none of a study into an error that names it."""
    try:
        yield
    except UsageError:  # names the line
        raise
    except OSError as error:
        raise UsageError(f"{path} cannot be read or written: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        # Its lines are whole, and Optuna, which trusts them, makes no study of them.
        raise UsageError(f"{path} holds no study of Optuna; use another --out") from error


def _check_settings(study: "optuna.Study", folder: Path, spec: TuningSpec) -> None:
    """Raise UsageError if a study was created with other settings."""
    path = folder / JOURNAL
    settings = json.loads(json.dumps(spec.as_settings()))  # as the journal returns them: tuples as lists
    stored = study.user_attrs[QUESTION]
    if not isinstance(stored, dict):
        raise UsageError(f"{path} holds no study of recollect; use another --out")
    # Options that did not exist when the study began had their defaults.
    later = {name: default for name, default in flatten(LATER).items() if name in settings}
    stored = later | stored
    if stored != settings:
        names = sorted(k for k in {*stored, *settings} if stored.get(k) != settings.get(k))
        changes = [
            f"{k} {format_value(stored.get(k))}, now {format_value(settings.get(k))}" for k in names[:3]
        ]
        more = f", and {len(names) - 3} more" if len(names) > 3 else ""
        raise UsageError(
            f"{folder} holds a study with other settings ({'; '.join(changes)}{more}): use the same "
            "settings, or another --out"
        )


def _check_imports(study: "optuna.Study", path: Path, spec: TuningSpec) -> None:
    """Raise UsageError if the settings of a trial name a module that this search does not.

    The config of the best trial is built from them, and a file alone may import nothing.
    """
    named = [value for name, value in option_values(spec.preset).items() if name.endswith(PART_NAMES)]
    for name, dimension in spec.space.items():
        named += dimension.ends if name.endswith(PART_NAMES) else ()
    for trial in study.get_trials(deepcopy=False):
        settings = trial.user_attrs.get("settings", {})
        if not isinstance(settings, dict):
            raise UsageError(f"{path} holds no study of recollect; use another --out")
        check_imports([Setting(name, str(value), "") for name, value in settings.items()], named, str(path))


def preset_params(spec: TuningSpec) -> Settings:
    """The preset as a point of the search space; options whose value lies outside of it are missing."""
    preset = option_values(spec.preset)
    params: Settings = {}
    for name, dimension in spec.space.items():
        values = [preset[option] for option in full_names(name, preset)]
        values = [format_value(value) if isinstance(value, list) else value for value in values]
        if values and all(value == values[0] for value in values) and dimension.holds(values[0]):
            params[name] = values[0]
    return params
