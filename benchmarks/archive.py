"""Run folders as one small archive, from which `recollect report` makes the same report again.

    python -m benchmarks.archive RUNS... -o docs/results/NAME/runs.zip

RUNS are run folders, folders above them, or the report.json of a study, which stands for the runs that it
names. Call it where the paths of runs begin: an archive keeps them. Checkpoints, event files and pages are
left out. Numbers of metrics and of single episodes keep 6 significant digits; no line is dropped, because
steps to a threshold are counted by lines.
"""

import argparse
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from recollect.common.errors import UsageError
from recollect.reporting.archive import FILES

DIGITS = 6
EPOCH = (1980, 1, 1, 0, 0, 0)  # the date of every file: the same runs are the same archive
SHORTENED = {"metrics.jsonl", "evaluation.json"}
KEPT = [name for name in FILES if name != "episodes.jsonl"]  # no report reads episodes, and they are large


def write_archive(paths: Sequence[Path], out: Path) -> int:
    """Every run and random evaluation in or below some paths into one archive -> how many folders."""
    files = sorted({file for path in paths for file in _files(path)})
    outside = [file for file in files if file.is_absolute() or ".." in file.parts]
    if outside:
        raise UsageError(f"{outside[0]}: name runs by paths below the working folder")
    if not files:
        raise UsageError(f"no run in {', '.join(map(str, paths))}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w") as archive:
        for file in files:
            entry = zipfile.ZipInfo(file.as_posix(), EPOCH)
            archive.writestr(entry, _text(file), zipfile.ZIP_LZMA)
    return len({file.parent for file in files})


def _files(path: Path) -> Iterator[Path]:
    """What is kept of a path: the files of the runs in or below it, or of those that a report names."""
    if path.suffix == ".json":
        groups = json.loads(path.read_text())["groups"]
        folders: Iterable[Path] = (Path(run["folder"]) for group in groups for run in group["runs"])
    else:
        folders = sorted({file.parent for name in KEPT for file in path.rglob(name)})
    for folder in folders:
        yield from (folder / name for name in KEPT if (folder / name).is_file())


def _text(file: Path) -> str:
    """A file as it is kept."""
    text = file.read_text(encoding="utf-8")
    if file.name not in SHORTENED:
        return text
    return "".join(f"{json.dumps(_shortened(json.loads(line)))}\n" for line in _documents(file, text))


def _documents(file: Path, text: str) -> list[str]:
    """The JSON documents of a file; of a run that goes on, the lines that are complete."""
    return text.split("\n")[:-1] if file.suffix == ".jsonl" else [text]


def _shortened(value: Any) -> Any:
    """Numbers with 6 significant digits, wherever they are; scores over episodes stay as they are."""
    if isinstance(value, dict):
        return {key: item if key in ("mean", "success") else _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def main() -> None:
    """Write an archive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    count = write_archive(options.runs, options.out)
    print(f"{options.out}: {count} folders, {options.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
