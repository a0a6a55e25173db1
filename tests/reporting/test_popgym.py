"""The score of the POPGym paper: MMER of known returns, its place in a report, and what a report refuses."""

import json
import math
import random
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from benchmarks.archive import restore, write_archive
from benchmarks.report import evaluation, invent_run
from hypothesis import given
from hypothesis import strategies as st

from recollect import cli
from recollect.common.digests import digest_file, seal, unseal
from recollect.common.errors import UsageError
from recollect.envs.suites import popgym
from recollect.reporting import runs as run_files
from recollect.reporting.popgym_iterations import ITERATION, iteration_means, mmer, read_iterations
from recollect.reporting.popgym_published import _TABLE, CORRECTED, published_scores
from recollect.reporting.runs import read_runs
from recollect.reporting.summary import as_json, summarise

from ..audit import audit

TASK = "popgym:RepeatPreviousEasy"
EPISODES = st.lists(st.tuples(st.integers(1, 5 * ITERATION), st.floats(-1, 1)), max_size=40)
TOTALS = st.integers(ITERATION, 6 * ITERATION)


def means_of(episodes, total=2 * ITERATION):
    steps = np.array([step for step, _ in episodes], dtype=np.int64)
    return iteration_means(steps, np.array([value for _, value in episodes], dtype=np.float64), total)


def reference(episodes, total):
    """MMER by the words of its definition: one iteration after another, each with all of its episodes."""
    best = math.nan
    for first in range(0, total - ITERATION + 1, ITERATION):
        ended = [value for step, value in episodes if first < step <= first + ITERATION]
        if ended:
            mean = math.fsum(ended) / len(ended)
            best = mean if math.isnan(best) else max(best, mean)
    return best


# The number -----------------------------------------------------------------------------------


def test_mmer_of_known_returns():
    """Means of 0.25, 0.75 and 0.5; the last, incomplete iteration with a return of 1 does not count."""
    episodes = [
        (1, 0.0),
        (ITERATION, 0.5),  # the step that completes an iteration belongs to it
        (ITERATION + 1, 1.0),
        (2 * ITERATION - 9, 0.5),
        (2 * ITERATION + 5, 0.5),
        (3 * ITERATION + 1, 1.0),
    ]
    means = means_of(episodes, 4 * ITERATION - 1)
    assert means.dtype == np.float64 and means.tolist() == [0.25, 0.75, 0.5]
    assert mmer(means) == 0.75
    # The controls: these other readings of the definition have other results.
    returns = [value for _, value in episodes]
    assert 0.75 not in (max(returns), np.mean(returns), means[-1])
    assert mmer(means_of(episodes, 4 * ITERATION)) == 1.0  # one step more, and the last iteration counts


def test_iterations_without_an_episode_have_no_mean():
    means = means_of([(ITERATION + 1, -0.5)], 3 * ITERATION)
    assert np.isnan(means[[0, 2]]).all() and mmer(means) == -0.5
    assert math.isnan(mmer(means_of([], 3 * ITERATION))) and len(means_of([(5, 1.0)], ITERATION - 1)) == 0


@given(EPISODES, TOTALS)
def test_mmer_is_that_of_its_definition(episodes, total):
    assert mmer(means_of(episodes, total)) == pytest.approx(
        reference(episodes, total), abs=1e-12, nan_ok=True
    )


@given(EPISODES, TOTALS, st.randoms())
def test_the_order_of_episodes_within_an_iteration_changes_nothing(episodes, total, order):
    blocks: dict[int, list[tuple[int, float]]] = {}
    for step, value in episodes:
        blocks.setdefault((step - 1) // ITERATION, []).append((step, value))
    mixed = []
    for block in blocks.values():
        returns = order.sample([value for _, value in block], len(block))
        mixed += [(step, value) for (step, _), value in zip(block, returns, strict=True)]
    order.shuffle(mixed)
    np.testing.assert_allclose(means_of(mixed, total), means_of(episodes, total), rtol=0, atol=1e-12)


def test_the_order_of_episodes_across_iterations_counts():
    """The control of the property above."""
    episodes = [(1, 0.0), (2, 0.0), (ITERATION + 1, 1.0), (ITERATION + 2, 1.0)]
    swapped = [(1, 0.0), (2, 1.0), (ITERATION + 1, 0.0), (ITERATION + 2, 1.0)]
    assert mmer(means_of(episodes)) == 1.0 and mmer(means_of(swapped)) == 0.5


@given(EPISODES, TOTALS, st.integers(0, 3 * ITERATION))
def test_mmer_is_at_least_every_mean_and_grows_with_training(episodes, total, more):
    means = means_of(episodes, total)
    known = means[np.isfinite(means)]
    if len(known):
        assert mmer(means) >= known[-1] and mmer(means) == known.max()
        assert mmer(means_of(episodes, total + more)) >= mmer(means)
        np.testing.assert_array_equal(means_of(episodes, total + more)[: len(means)], means)


def test_published_scores_are_of_tasks_that_exist():
    names = popgym.listing()
    assert len(_TABLE) == 21 and set(_TABLE) <= set(names)
    for task, (gru, _, best, highest) in _TABLE.items():
        assert -1 <= gru <= highest <= 1 and (best == "GRU") == (gru == highest), task
        assert not task.startswith(CORRECTED)
        assert [score.mean for score in published_scores(task)] == sorted({gru, highest}, reverse=True)
    assert published_scores("CountRecallEasy") == published_scores("LabyrinthEscapeHard") == []


# Run folders ----------------------------------------------------------------------------------


def invent(out: Path, model="ppo", seed=1, task=TASK, shift=0.0, lines=70, **env: object) -> Path:
    """A run of 2,000 steps per line; 70 lines are two iterations, with means of -0.2 and 0.4 + shift."""
    folder = invent_run(out, "CartPole-v1", model, seed, lines=lines)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["env"] |= {"id": task, "time_limit": None, **env}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    scores = evaluation("CartPole-v1", str(folder), 22.0, np.random.default_rng(seed))
    mean = 0.3 + shift
    (folder / "evaluation.json").write_text(json.dumps({**scores, "env": task, "mean": mean}))
    total = 2000 * lines
    episodes = [(step, -0.2 if step <= ITERATION else 0.4 + shift) for step in range(500, total, 500)]
    write_episodes(folder, [(step, value) for step, value in episodes if step <= 2 * ITERATION])
    return folder


def write_episodes(folder: Path, episodes) -> None:
    lines = [
        {"step": step, "env": 0, "return": value, "length": 52, "success": None, "terminated": True}
        for step, value in episodes
    ]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def invented(tmp_path_factory) -> Path:
    """Two models with three seeds on a POPGym task, one of them with a seed that is too short."""
    out = tmp_path_factory.mktemp("popgym")
    for seed, shift in ((1, 0.0), (2, 0.1), (3, 0.2)):
        invent(out, "ppo_gru", seed, shift=shift)
        invent(out, "ppo", seed, shift=shift - 0.5, lines=20 if seed == 3 else 70)
    return out


@pytest.fixture(scope="module")
def report(invented, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    assert cli.main(["report", str(invented), "-o", str(folder)]) == 0
    return folder


def section(folder: Path) -> str:
    return (folder / "report.md").read_text().split("## POPGym\n")[1].split("\n## ")[0]


def test_the_report_has_mmer_beside_the_final_weights_and_the_paper(report, capsys):
    (task,) = json.loads((report / "report.json").read_text())["popgym"]
    assert [model["label"] for model in task["models"]] == ["ppo_gru", "ppo"]
    gru, ppo = task["models"]
    assert gru["mmer"] == pytest.approx([0.4, 0.5, 0.6], abs=1e-12) and gru["seeds"] == [1, 2, 3]
    assert (gru["mean"], gru["std"]) == pytest.approx((0.5, 0.1), abs=1e-12)
    low, high = gru["interval"]
    assert low < 0.4 and high > 0.6  # three seeds: Student's t is 4.3
    assert gru["final_mean"] == pytest.approx(0.4) and gru["steps"] == 140_000
    # Of the two seeds that are long enough: -0.1 and 0.0 in the second iteration.
    assert ppo["mmer"] == pytest.approx([-0.1, 0.0], abs=1e-12) and ppo["seeds"] == [1, 2]
    assert ppo["final_mean"] == pytest.approx(-0.15) and ppo["source"] == "return"  # of the same seeds
    text = section(report)
    assert "| GRU (published, best) | 3 trials | 1.000 | - | 0.000 | - | 15,000,000 | - | - |" in text
    assert "| ppo_gru | 1 2 3 | 0.5 |" in text and "| 0.4 0.5 0.6 | 140,000 | 0.4 |" in text
    for words in ("arxiv.org/abs/2303.01859", "transcription", "not been checked against the paper"):
        assert words in text
    short = f"**{TASK}, no MMER.** ppo (seed 3): shorter than one iteration of the paper (65,536 steps)."
    assert text.count(short) == 1
    assert "MMER" in (report / "report.html").read_text()


def test_the_terminal_has_mmer_in_one_line(invented, tmp_path, capsys):
    assert cli.main(["report", str(invented), "-o", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "MMER" in line]
    assert lines == [
        f"{TASK}: MMER ppo_gru 0.5, ppo -0.05, GRU (published, best) 1; no MMER for ppo (seed 3): shorter "
        "than one iteration of the paper (65,536 steps)"
    ]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_passes_an_audit(report, tmp_path, width, dark):
    assert audit(report / "report.html", tmp_path, width, dark) == []


def task_of(path: Path):
    (task,) = summarise(read_runs([path])).popgym
    return task


def test_a_changed_task_has_no_published_score(tmp_path):
    """The wrappers of the paper do not change a task; its other arguments do."""
    kinds = {
        "plain": ({}, 1),
        "wrappers": ({"kwargs": {"prev_action": True, "antialias": True}}, 1),
        "k": ({"kwargs": {"k": 2}}, 0),
        "limit": ({"time_limit": 20}, 0),
        "trials": ({"trial": 3}, 0),
    }
    for name, (env, published) in kinds.items():
        invent(tmp_path / name, **env)
        assert len(task_of(tmp_path / name).published) == published, name
    invent(tmp_path / "id", task="popgym:popgym-RepeatPreviousMedium-v0")
    labels = [score.label for score in task_of(tmp_path / "id").published]
    assert labels == ["LMU (published, best)", "GRU (published)"]


def test_tasks_that_popgym_corrected_say_so(tmp_path):
    invent(tmp_path / "runs", task="popgym:CountRecallEasy")
    assert cli.main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 0
    text = section(tmp_path / "out")
    assert "popgym 1.0.7 corrected this task" in text and "published, best" not in text
    assert "arxiv.org" not in text


def test_one_seed_has_no_spread(tmp_path):
    invent(tmp_path)
    (model,) = task_of(tmp_path).models
    assert model.mean == pytest.approx(0.4) and model.std is None and model.interval is None


PROBLEMS = {
    "missing": (lambda path: path.unlink(), "without the training returns of episodes.jsonl"),
    "no JSON": (lambda path: path.write_text("{}\n{\n"), "cannot be read: line 1 has no step and return"),
    "text": (lambda path: path.write_text('{"step": 3, "return": "x"}\n'), "line 1 has no step and return"),
    "list": (lambda path: path.write_text("[3]\n"), "line 1 has no step and return"),
    "null": (lambda path: path.write_text('{"step": 3, "return": null}\n'), "line 1 has no step and return"),
    "NaN": (lambda path: path.write_text('{"step": 3, "return": NaN}\n'), "line 1 has no valid step"),
    "step 0": (lambda path: path.write_text('{"step": 0, "return": 1.0}\n'), "line 1 has no valid step"),
    "bytes": (lambda path: path.write_bytes(b"\xff\xfe\n"), "episodes.jsonl that cannot be read"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "episodes.jsonl that cannot be read"),
    "empty": (lambda path: path.write_text(""), "without a training episode that ended in a complete"),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_training_returns_that_cannot_be_read_are_one_line(kind, tmp_path, capsys):
    """The run keeps its score and its curves."""
    spoil, words = PROBLEMS[kind]
    spoil(invent(tmp_path / "runs") / "episodes.jsonl")
    assert cli.main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 0
    (line,) = task_of(tmp_path / "runs").without
    assert line.startswith("ppo (seed 1): ") and words in line and "\n" not in line
    data = json.loads((tmp_path / "out" / "report.json").read_text())
    assert data["finals"][0]["scores"] == [0.3] and data["left_out"] == []
    assert line in section(tmp_path / "out").replace("\\", "")


def test_an_incomplete_last_line_is_skipped(tmp_path):
    folder = invent(tmp_path)
    expected = read_iterations(folder, 140_000, {})
    with (folder / "episodes.jsonl").open("a") as file:
        file.write('{"step": 131072, "env"')
    got = read_iterations(folder, 140_000, {})
    assert got.problem == "" and got.means.tolist() == expected.means.tolist()


def test_reports_on_other_tasks_have_no_trace_of_it(tmp_path, monkeypatch):
    """They do not even read the training episodes."""
    folder = invent_run(tmp_path / "runs", lines=70)
    (folder / "episodes.jsonl").write_text("no JSON\n")
    monkeypatch.setattr(run_files, "read_iterations", lambda *_: pytest.fail("read"))
    assert cli.main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 0
    for name in ("report.html", "report.md", "report.json"):
        text = (tmp_path / "out" / name).read_text().lower()
        assert "popgym" not in text and "mmer" not in text
    assert "popgym" not in as_json(summarise(read_runs([tmp_path / "runs"])))


def test_unfinished_runs_have_no_mmer(tmp_path):
    folder = invent(tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "status": "running"}))
    assert summarise(read_runs([tmp_path])).popgym == []


# The command ----------------------------------------------------------------------------------

BAD = {
    "unknown": (["-e", TASK, "--protocol", "atari"], "--protocol takes popgym or none, not 'atari'"),
    "no task": (
        ["-e", "CartPole-v1", "poc", "--protocol", "popgym"],
        "--protocol popgym: no task of this comparison is one of POPGym (popgym:NAME); the tasks are "
        "CartPole-v1, poc",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_mistakes_are_one_line_before_any_run(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments, message = BAD[kind]
    assert cli.main(["compare", "-m", "ppo", "--seeds", "1", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_study_without_a_popgym_task_is_named_by_its_tasks(tmp_path, capsys):
    study = tmp_path / "study.yaml"
    study.write_text("environments: [{env.id: CartPole-v1, env.time_limit: 3}, Acrobot-v1]\nmodels: [ppo]\n")
    assert cli.main(["compare", str(study), "--protocol", "popgym", "--dry-run"]) == 2
    assert "the tasks are CartPole-v1, Acrobot-v1" in capsys.readouterr().err


def test_the_help_teaches(capsys):
    assert cli.main(["compare", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--protocol" in text and "MMER" in text


def test_an_archive_has_the_mmer_of_all_episodes(invented, tmp_path, monkeypatch):
    shutil.copytree(invented, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    assert write_archive([Path("runs")], Path("runs.zip")) == 6
    kept, packed = task_of(Path("runs")), task_of(Path("runs.zip"))
    for there, here in zip(packed.models, kept.models, strict=True):
        assert there.seeds == here.seeds and list(there.mmer) == pytest.approx(list(here.mmer), rel=1e-5)
    assert packed.without == kept.without
    with zipfile.ZipFile("runs.zip") as archive:
        lines = [
            archive.read(name).splitlines() for name in archive.namelist() if name.endswith("episodes.jsonl")
        ]
    assert {len(line) for line in lines} == {1, 2}  # one for each iteration
    # An archive of what was restored from it is the same.
    shutil.rmtree("runs")
    restore(Path("runs.zip"))
    write_archive([Path("runs")], Path("again.zip"))
    assert Path("again.zip").read_bytes() == Path("runs.zip").read_bytes()


def test_only_what_is_archived_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = invent(Path("runs"), "ppo", 1)
    (folder / "episodes.jsonl").write_text('{"step": 5, "return": null}\n')
    with pytest.raises(UsageError, match=r"episodes.jsonl: line 1 has no step and return"):
        write_archive([Path("runs")], Path("runs.zip"))
    # Of another task the file is not archived. A config that is not of a run is a file like others.
    other = invent_run(Path("others"), "CartPole-v1", "ppo", 1, lines=30)
    shutil.copy(folder / "episodes.jsonl", other)
    seal_files(other)
    for name, text in (("a", ""), ("b", "batch: 1"), ("c", "env: 3")):
        (Path("others") / name).mkdir()
        (Path("others") / name / "config.yaml").write_text(text)
    assert write_archive([Path("others")], Path("others.zip")) == 4
    with zipfile.ZipFile("others.zip") as archive:
        assert not any(name.endswith("episodes.jsonl") for name in archive.namelist())


def seal_files(folder: Path) -> None:
    """Digests of all results in the summary, as of a run that is finished."""
    path = folder / "summary.json"
    plain, _ = unseal(path.name, json.loads(path.read_text()))
    names = ("config.yaml", "metrics.jsonl", "episodes.jsonl")
    path.write_text(json.dumps(seal(plain, {name: digest_file(folder / name) for name in names})))


@pytest.mark.thorough
def test_a_real_study_has_the_mmer_of_its_training_episodes(tmp_path, monkeypatch, capsys):
    """Compared with a count by hand over the episodes that `run.episodes()` reads."""
    from recollect.run.episode_log import read_episodes

    monkeypatch.chdir(tmp_path)
    short = "{env.id: CartPole-v1, rollouts: 1}"
    study = f"models: [ppo]\nenvironments: [{{env.id: {TASK}, steps: 66_000}}, {short}]\n"
    Path("study.yaml").write_text(study)
    small = ["--actor.hidden", "8", "--critic.hidden", "8", "--ppo.update-epochs", "1", "--quiet"]
    words = ["study.yaml", "--seeds", "2", "--episodes", "5", *small, "--protocol", "popgym"]
    assert cli.main(["compare", *words]) == 0
    data = json.loads(Path("report/report.json").read_text())
    (task,) = data["popgym"]  # of two tasks, one is of POPGym
    (model,) = task["models"]
    folders = [folder.parent for folder in sorted(Path("runs/ppo").glob("popgym*/*/episodes.jsonl"))]
    expected = [
        reference([(e.step, e.return_) for e in read_episodes(folder / "episodes.jsonl")], 66_000)
        for folder in folders
    ]
    assert len(expected) == 2 and sorted(model["mmer"]) == pytest.approx(sorted(expected), abs=1e-12)
    assert min(expected) >= -1 and max(expected) < 0 and task["without"] == []
    assert f"{TASK}: MMER ppo " in capsys.readouterr().out
    # The same runs in another report, and a copy without its episodes.
    for folder in folders:
        copy = Path("copy") / folder.name
        shutil.copytree(folder, copy)
        (copy / "episodes.jsonl").unlink()
    assert cli.main(["report", "runs", "-o", "again"]) == 0
    assert json.loads(Path("again/report.json").read_text())["popgym"] == data["popgym"]
    assert task_of(Path("copy")).models == []


def test_short_studies_say_so_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["-e", TASK, "-m", "ppo", "--seeds", "2", "--rollouts", "1", "--episodes", "5", "--quiet"]
    assert cli.main(["compare", *words, "--protocol", "popgym", "--report", "page"]) == 0
    assert not Path("report").exists()
    line = f"{TASK}: no MMER for ppo (seeds 1 2): shorter than one iteration of the paper (65,536 steps)"
    assert capsys.readouterr().out.count(line) == 1
    text = section(Path("page"))
    assert text.count("shorter than one iteration") == 1 and "published" not in text


def test_random_orders_of_lines_in_a_file_have_the_same_mmer(tmp_path):
    folder = invent(tmp_path)
    expected = read_iterations(folder, 140_000, {}).mmer
    lines = (folder / "episodes.jsonl").read_text().splitlines()
    random.Random(0).shuffle(lines)
    (folder / "episodes.jsonl").write_text("".join(line + "\n" for line in lines))
    assert read_iterations(folder, 140_000, {}).mmer == pytest.approx(expected, abs=1e-12)
