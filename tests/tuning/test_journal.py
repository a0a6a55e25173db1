"""The journal of a tuning study under damage: it is refused in one line, or nothing has changed."""

import json
import random
import re

import pytest

from recollect import cli
from recollect.common.errors import UsageError
from recollect.tuning.journal_file import CHECKSUM, Journal
from recollect.tuning.optuna_storage import JOURNAL

from ..run.test_corruption import MUTANTS, mutants
from .test_tune import OPTIONS, tuned

pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """The journal of a study of two trials."""
    folder = tmp_path_factory.mktemp("study")
    return tuned(folder, lambda trial, seed: 50 + trial, 2).result.folder / JOURNAL


def as_before(data):
    """A journal as earlier versions wrote it."""
    return b"".join(CHECKSUM.sub(b"}", line) + b"\n" for line in data.splitlines())


def test_every_line_has_a_checksum_and_optuna_reads_the_file(journal):
    optuna = pytest.importorskip("optuna")
    assert all(CHECKSUM.search(line) for line in journal.read_bytes().splitlines())
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    study = optuna.load_study(study_name="recollect", storage=optuna.storages.JournalStorage(backend))
    assert len(study.trials) >= 2


def test_damage_is_refused_or_changes_nothing(journal, tmp_path):
    data, whole = journal.read_bytes(), list(Journal(journal).read_logs(0))
    refused = 0
    for mutant in mutants(data, random.Random(5)):
        copy = tmp_path / JOURNAL
        copy.write_bytes(mutant)
        try:
            logs = list(Journal(copy).read_logs(0))
        except UsageError as error:
            assert "is damaged; restore the file, or use another --out" in str(error)
            refused += 1
        else:
            # What a full disk or a kill leaves: the beginning, which the study continues.
            assert logs == whole[: len(logs)]
            assert mutant[: len(copy.read_bytes())] == copy.read_bytes()
    assert refused > MUTANTS / 2


@pytest.mark.parametrize("change", ["lost", "twice", "swapped"])
def test_whole_lines_in_another_order_are_found(journal, tmp_path, change):
    lines = journal.read_bytes().splitlines(keepends=True)
    others = {
        "lost": lines[:3] + lines[4:],
        "twice": [*lines[:3], lines[2], *lines[3:]],
        "swapped": [*lines[:3], lines[4], lines[3], *lines[5:]],
    }
    copy = tmp_path / JOURNAL
    copy.write_bytes(b"".join(others[change]))
    with pytest.raises(UsageError, match="line 4 is damaged"):
        Journal(copy)


def test_without_checksums_a_flipped_digit_would_not_be_found(journal, tmp_path):
    """The control."""
    copy = tmp_path / JOURNAL
    copy.write_bytes(re.sub(rb'("values": ?\[)\d', rb"\g<1>9", as_before(journal.read_bytes())))
    assert list(Journal(copy).read_logs(0)) != list(Journal(journal).read_logs(0))


def test_a_study_of_an_earlier_version_continues(tmp_path):
    before = tuned(tmp_path, lambda trial, seed: 50 + trial, 2)
    file = before.result.folder / JOURNAL
    logs = [json.loads(line) for line in as_before(file.read_bytes()).splitlines()]
    # It had no prediction heads, and its journal has no option of them.
    questions = [log["user_attr"]["question"] for log in logs if "question" in log.get("user_attr", {})]
    for name in ("actor.predict", "init.path"):
        del questions[0][name]
    file.write_text("".join(json.dumps(log) + "\n" for log in logs))
    after = tuned(tmp_path, lambda trial, seed: 50 + trial, 3)
    # A mean over seeds, whose rounding differs between processors.
    assert [trial.score for trial in after.trials[:2]] == pytest.approx([50, 51]) and len(after.trials) == 3


@pytest.mark.parametrize("question", ["x", 3, ["steps"]])
def test_a_study_with_settings_of_another_form_is_refused(tmp_path, question):
    file = tuned(tmp_path, lambda trial, seed: 5, 1).result.folder / JOURNAL
    logs = [json.loads(line) for line in as_before(file.read_bytes()).splitlines()]
    for log in logs:
        if "question" in log.get("user_attr", {}):
            log["user_attr"]["question"] = question
    file.write_text("".join(json.dumps(log) + "\n" for log in logs))
    with pytest.raises(UsageError, match="holds no study of recollect; use another --out"):
        tuned(tmp_path, lambda trial, seed: 5, 1)


STRANGER = "stranger_in_journal:X"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (("actor.memory.name", STRANGER), f"{JOURNAL} names {STRANGER}, which imports a module"),
        (("critic.encoder.name", STRANGER), f"{JOURNAL} names {STRANGER}, which imports a module"),
        (("env.id", STRANGER), f"{JOURNAL} names {STRANGER}, which imports a module"),
        (("actor.hidden", f"64 --actor.memory.name {STRANGER}"), "no words that begin with a hyphen"),
    ],
)
def test_a_journal_imports_no_module_that_the_search_does_not_name(tmp_path, monkeypatch, setting, message):
    """The config of the best trial is made of the settings that the journal has."""
    (tmp_path / "stranger_in_journal.py").write_text(f"open({str(tmp_path / 'touched')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    file = tuned(tmp_path, lambda trial, seed: 50 + trial, 2).result.folder / JOURNAL
    logs = [json.loads(line) for line in as_before(file.read_bytes()).splitlines()]
    for log in logs:
        log.get("user_attr", {}).get("settings", {}).update([setting])
    file.write_text("".join(json.dumps(log) + "\n" for log in logs))
    assert cli.main(["tune", *OPTIONS, "--out", str(tmp_path), "--quiet", "--trials", "2"]) == 2
    with pytest.raises(UsageError, match=message):
        _ = tuned(tmp_path, lambda trial, seed: 50 + trial, 2).result.commands
    assert not (tmp_path / "touched").exists()


def test_a_line_of_another_program_is_kept(journal, tmp_path):
    copy = tmp_path / JOURNAL
    note = {"op_code": 3, "worker_id": "dashboard", "study_id": 0, "system_attr": {"note": "x"}}
    copy.write_bytes(journal.read_bytes() + json.dumps(note).encode() + b"\n")
    written = Journal(copy)
    written.append_logs([note])
    assert list(Journal(copy).read_logs(0))[-2:] == [note, note]


FOREIGN = {
    "text": b"hello\n",
    "binary": bytes(range(256)) + b"\n",
    "numbers": b"1\n2\n",
    "deep": b"[" * 100_000 + b"\n",
    "other logs": b'{"op_code":99,"worker_id":"x"}\n',
    "sqlite": b"SQLite format 3\x00" + bytes(100) + b"\n",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_one_line(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tuned(tmp_path / "runs", lambda trial, seed: 5, 1).result.folder
    (folder / JOURNAL).write_bytes(FOREIGN[name])
    assert cli.main(["tune", *OPTIONS, "--out", "runs", "--trials", "1", "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("recollect: ") and error.count("\n") == 1
    assert "use another --out" in error and str(JOURNAL) in error


def test_a_dry_run_beside_a_search_writes_nothing(journal, tmp_path, monkeypatch, capsys):
    """Also with half a line, which the search may be writing, and in a journal without a study."""
    monkeypatch.chdir(tmp_path)
    copy = tuned(tmp_path / "runs", lambda trial, seed: 5, 1).result.folder / JOURNAL
    for text in (journal.read_bytes(), journal.read_bytes()[:-5], b""):
        copy.write_bytes(text)
        assert cli.main(["tune", *OPTIONS, "--out", "runs", "--trials", "9", "--dry-run"]) == 0
        assert "9 trials" in capsys.readouterr().out and copy.read_bytes() == text


def test_a_damaged_line_is_named_where_a_study_is_loaded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tuned(tmp_path / "runs", lambda trial, seed: 5, 1).result.folder / JOURNAL
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], lines[4].replace(b"op_code", b"op_cude", 1), *lines[5:]]))
    assert cli.main(["tune", *OPTIONS, "--out", "runs", "--trials", "1", "--dry-run"]) == 2
    assert "line 5 is damaged" in capsys.readouterr().err
