"""Packs run folders into a small archive from which `recollect report` can repeat a report.

    python -m benchmarks.archive RUNS... -o docs/results/NAME/runs.zip
    python -m benchmarks.archive docs/results/NAME/report.json --by-task -o docs/results/NAME
    python -m benchmarks.archive --restore docs/results/NAME/*.zip

RUNS are run folders, folders above them, or the report.json of a study, which stands for the runs that it
lists. Call it from the folder that paths of runs are relative to: the archive keeps them. Checkpoints, event
files and pages are left out. Metrics and scores of single episodes keep 6 significant digits. All lines of
metrics are kept, because reports count steps to a threshold by lines. Training episodes, which are many, are
kept for tasks of POPGym alone, as their mean in each iteration of its paper: reports read no more of them.
Digests are those of the archived files; a run with a damaged or edited file is not archived.

With `--by-task` there is one archive for each environment, `runs-ENVIRONMENT.zip`, with the random agent of
that environment, and without runs that have not ended: a study that goes on for days changes only those of
its present tasks.

`--restore` writes the folders of archives back, below the working folder; a study then counts their runs as
finished. A folder that exists stays as it is, and an archive that does not exist is passed over.
"""

import argparse
import json
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from recollect.common.digests import check_files, digest, seal, unseal
from recollect.common.errors import UsageError
from recollect.reporting.archive import FILES
from recollect.reporting.blocks import slugs
from recollect.reporting.popgym_iterations import is_popgym, shorten_episodes

DIGITS = 6
EPOCH = (1980, 1, 1, 0, 0, 0)  # date of every file, so that equal runs give equal archives
EPISODES = "episodes.jsonl"
SHORTENED = {"metrics.jsonl", "evaluation.json", EPISODES}


def write_archive(paths: Sequence[Path], out: Path) -> int:
    """Archive every run and random evaluation in or below some paths -> number of folders."""
    files = sorted({file for path in paths for file in _files(path)})
    outside = [file for file in files if file.is_absolute() or ".." in file.parts]
    if outside:
        raise UsageError(f"{outside[0]} is outside of the working folder; name runs by paths below it")
    if not files:
        raise UsageError(f"no run in {', '.join(map(str, paths))}")
    texts = {file: _archived(file) for file in files}  # all of them before half an archive is written
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w") as archive:
        for file, text in texts.items():
            entry = zipfile.ZipInfo(file.as_posix(), EPOCH)
            archive.writestr(entry, text, zipfile.ZIP_LZMA)
    return len({file.parent for file in files})


def write_by_task(report: Path, out: Path) -> int:
    """Archive the runs that a report lists, an archive for each environment -> number of folders."""
    folders: dict[str, list[Path]] = {}
    for group in json.loads(report.read_text())["groups"]:
        # Others cannot go on, because an archive has no checkpoints: restored, they would begin again.
        ended = [Path(run["folder"]) for run in group["runs"] if run["status"] in ("finished", "failed")]
        folders.setdefault(group["env"], []).extend(ended)
    names = slugs(list(folders))
    count = 0
    for env, runs in folders.items():
        # runs/NAME/MODEL/ENVIRONMENT/SEED, and runs/NAME/random/ENVIRONMENT
        by_chance = {run.parents[2] / "random" / run.parent.name for run in runs}
        count += write_archive([*runs, *by_chance], out / f"runs-{names[env]}.zip")
    return count


def restore(archive: Path) -> int:
    """Write the folders of an archive that do not exist here -> their number."""
    if not archive.exists():
        return 0
    with zipfile.ZipFile(archive) as packed:
        absent = {folder for name in packed.namelist() if not (folder := Path(name).parent).exists()}
        with tempfile.TemporaryDirectory(dir=".") as below:
            packed.extractall(below, [name for name in packed.namelist() if Path(name).parent in absent])
            for folder in absent:
                folder.parent.mkdir(parents=True, exist_ok=True)
                (Path(below) / folder).rename(
                    folder
                )  # at once: half a folder would count as one that is there
    return len(absent)


def _files(path: Path) -> Iterator[Path]:
    """The files to archive of a path: of the runs in or below it, or of those that a report lists."""
    if path.suffix == ".json":
        groups = json.loads(path.read_text())["groups"]
        folders: Iterable[Path] = (Path(run["folder"]) for group in groups for run in group["runs"])
    else:
        folders = sorted({file.parent for name in FILES for file in path.rglob(name)})
    for folder in folders:
        yield from (folder / name for name in _names(folder))


def _names(folder: Path) -> list[str]:
    """The names of the files that are archived of a folder."""
    names = [name for name in FILES if (folder / name).is_file()]
    return names if _is_of_popgym(folder) else [name for name in names if name != EPISODES]


def _is_of_popgym(folder: Path) -> bool:
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None
    env = config.get("env") if isinstance(config, dict) else None
    return isinstance(env, dict) and is_popgym(str(env.get("id")))


def _archived(file: Path) -> str:
    """The archived text of a file, with the digests of archived texts; UsageError if a file was changed."""
    if file.suffix != ".json":
        return _text(file)
    before = json.loads(file.read_text(encoding="utf-8"))
    data, files = unseal(str(file), before)
    if data == before:  # of an earlier version, without digests
        return _text(file)
    check_files(file.parent, files)
    names = [name for name in _names(file.parent) if name in SHORTENED and name in files]
    digests = {name: digest(_text(file.parent / name).encode()) for name in names}
    data = _shortened(data) if file.name in SHORTENED else data
    return json.dumps(seal(data, {**files, **digests}), indent=2) + "\n"


def _text(file: Path) -> str:
    """The archived text of a file, as far as it does not depend on others."""
    if file.name not in SHORTENED:
        return file.read_text(encoding="utf-8")
    return "".join(f"{json.dumps(_shortened(document))}\n" for document in _documents(file))


def _documents(file: Path) -> Iterator[Any]:
    """The JSON documents to archive of a file; of a running run, only complete lines."""
    if file.name == EPISODES:
        return shorten_episodes(file)
    text = file.read_text(encoding="utf-8")
    return map(json.loads, text.split("\n")[:-1] if file.suffix == ".jsonl" else [text])


def _shortened(value: Any) -> Any:
    """Round all numbers to 6 significant digits, except mean and success of an evaluation."""
    if isinstance(value, dict):
        return {key: item if key in ("mean", "success") else _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def main() -> None:
    """Write an archive, or restore one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--by-task", action="store_true")
    parser.add_argument("--restore", type=Path, nargs="+", metavar="ARCHIVE")
    options = parser.parse_args()
    if options.restore:
        print(f"{sum(map(restore, options.restore))} folders are restored")
        return
    if not options.runs or not options.out:
        parser.error("give the runs and --out, or --restore ARCHIVE")
    if options.by_task:
        print(f"{options.out}: {write_by_task(options.runs[0], options.out)} folders, by task")
        return
    count = write_archive(options.runs, options.out)
    print(f"{options.out}: {count} folders, {options.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
